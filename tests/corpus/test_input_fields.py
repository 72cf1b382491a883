"""Fields by other names: what they make of records, and how they fail."""

import pytest

from dana.cli.main import main
from dana.core.errors import ConfigError, DataError
from dana.core.schemas import iterate_documents
from dana.corpus.documents import Tally, read_documents
from dana.corpus.inputs import MISSING, Inputs, field_at
from dana.stages.texts import pool_stage
from tests.corpus.files import write_rows


def _read(path, inputs, tally=None, on_bad_record="fail"):
    return list(read_documents([str(path)], on_bad_record, tally or Tally(), inputs=inputs))


OTHER = [{"body": "one", "key": 7, "text": "not this"}, {"body": "two", "key": 8}]
FIRST = [
    {"abstract": "one", "text": "no", "id": "a"},
    {"text": "two", "id": "b"},
]  # the first that a record has
NAN = [{"text": "one", "id": "a", "source": float("nan")}]  # a missing number of pandas
NESTED = [{"meta": {"body": {"en": "one"}, "uid": "a"}}]  # a dot reaches into a field


@pytest.mark.parametrize(
    ("rows", "text_field", "id_field", "documents"),
    [
        (OTHER, ["body"], "key", [("7", "one"), ("8", "two")]),
        (FIRST, ["abstract", "text"], None, [("a", "one"), ("b", "two")]),
        (NAN, ["text"], None, [("a", "one")]),
        (NESTED, ["meta.body.en"], "meta.uid", [("a", "one")]),
    ],
)
def test_text_and_id_may_have_other_names(tmp_path, rows, text_field, id_field, documents):
    write_rows(tmp_path / "x.jsonl", rows)
    inputs = Inputs(text_field=text_field, id_field=id_field)
    assert [(d.doc_id, d.text) for d in _read(tmp_path / "x.jsonl", inputs)] == documents
    assert {d.source for d in _read(tmp_path / "x.jsonl", inputs)} == {"x"}
    (tmp_path / "x.txt").write_text("one\ntwo\n")  # plain text has no fields to name
    assert [d.text for d in _read(tmp_path / "x.txt", inputs)] == ["one", "two"]


def test_a_field_called_with_a_dot_comes_first():
    assert field_at({"a.b": 1, "a": {"b": 2}}, "a.b") == 1
    assert field_at({"a": {"b": None}}, "a.b") is None
    for name in ("b", "a.c", "a.b.c", ""):
        assert field_at({"a": {"b": 1}}, name) is MISSING


@pytest.mark.parametrize(
    ("row", "problem", "reason"),
    [
        ({"key": "a", "text": "t"}, "the field 'body' is missing; available: key, text", "no text"),
        ({"key": "a", "body": 3}, "the field 'body' must be text, got int", "no text"),
        ({"key": "a", "body": ["t"]}, "the field 'body' must be text, got list", "no text"),
        ({"key": "a", "body": None}, "the field 'body' must be text, got NoneType", "no text"),
        (
            {"id": "a", "body": "t"},
            "the field 'key' is missing or empty; available: id, body",
            "no id",
        ),
        *(
            ({"key": key, "body": "t"}, "the field 'key' is missing or empty", "no id")
            for key in ("", None)
        ),
        *(
            ({"key": "a", "body": "t", "source": x}, "the source must be", "no source")
            for x in (["x"], {"x": 1})
        ),
    ],
)
def test_a_record_without_the_named_field_is_bad(tmp_path, row, problem, reason):
    path = write_rows(tmp_path / "x.jsonl", [{"key": "good", "body": "good"}, row])
    inputs, tally = Inputs(text_field=["body"], id_field="key"), Tally()
    with pytest.raises(DataError, match=rf"x\.jsonl:2: {problem}.* \(--on-bad-record"):
        _read(path, inputs)
    assert len(_read(path, inputs, tally, "skip")) == 1
    assert dict(tally.rejection_counts) == {reason: 1}


def test_fields_belong_to_the_fingerprint(tmp_path):
    path = write_rows(tmp_path / "x.jsonl", [{"text": "one", "body": "two"}])
    usual = pool_stage([path], tmp_path / "usual")
    other = pool_stage([path], tmp_path / "field", inputs=Inputs(text_field=["body"]))
    assert usual.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("name", "value"), [("text_field", []), ("text_field", [" "]), ("id_field", "")]
)
def test_names_of_fields_are_not_empty(name, value):
    with pytest.raises(ConfigError, match=name):
        Inputs(**{name: value})


def test_flags_name_fields(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "pool.jsonl", [{"text": f"pool {n}", "uid": n} for n in range(30)])
    write_rows(
        tmp_path / "task.jsonl", [{"abstract": f"task {n}", "uid": f"t{n}"} for n in range(40)]
    )
    line = "score --task task.jsonl --pool pool.jsonl --selector random --text-field abstract text --id-field uid"
    assert main([*line.split(), "--out", "run"]) == 0
    assert [document.doc_id for document in iterate_documents(tmp_path / "run" / "pool")][:2] == [
        "0",
        "1",
    ]
    assert {
        document.text[:4] for document in iterate_documents(tmp_path / "run" / "target" / "fit")
    } == {"task"}
