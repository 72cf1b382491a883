"""Fields by other names: what they make of records, and how they fail."""

import json

import pytest

from dana.cli.main import main
from dana.core.errors import ConfigError, DataError
from dana.core.schemas import iterate_documents
from dana.corpus.documents import Tally, read_documents
from dana.corpus.inputs import MISSING, Inputs, field_at
from dana.stages.texts import corpus_stage


def _write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def _read(sources, inputs, tally=None, on_bad_record="fail"):
    return list(read_documents(sources, on_bad_record, tally or Tally(), inputs=inputs))


def test_text_and_id_may_have_other_names(tmp_path):
    source = _write(tmp_path / "x.jsonl", [{"body": "one", "key": 7, "text": "not this"}, {"body": "two", "key": 8}])
    documents = _read([source], Inputs(text_field=["body"], id_field="key"))
    assert [(document.doc_id, document.text) for document in documents] == [("7", "one"), ("8", "two")]


def test_the_first_field_that_a_record_has_is_its_text(tmp_path):
    rows = [{"abstract": "one", "text": "no"}, {"text": "two"}]
    documents = _read([_write(tmp_path / "x.jsonl", rows)], Inputs(text_field=["abstract", "text"]))
    assert [document.text for document in documents] == ["one", "two"]


def test_a_dot_reaches_into_a_nested_field(tmp_path):
    source = _write(tmp_path / "x.jsonl", [{"meta": {"body": {"en": "one"}, "uid": "a"}}])
    (document,) = _read([source], Inputs(text_field=["meta.body.en"], id_field="meta.uid"))
    assert (document.doc_id, document.text) == ("a", "one")


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
        ({"id": "a", "body": "t"}, "the field 'key' is missing; available: id, body", "no id"),
    ],
)
def test_a_record_without_the_named_field_is_bad(tmp_path, row, problem, reason):
    source = _write(tmp_path / "x.jsonl", [{"key": "good", "body": "good"}, row])
    inputs, tally = Inputs(text_field=["body"], id_field="key"), Tally()
    with pytest.raises(DataError, match=rf"x\.jsonl:2: {problem}.* \(--on-bad-record"):
        _read([source], inputs)
    assert len(_read([source], inputs, tally, "skip")) == 1
    assert dict(tally.rejection_counts) == {reason: 1}


def test_fields_belong_to_the_fingerprint(tmp_path):
    source = _write(tmp_path / "x.jsonl", [{"text": "one", "body": "two"}])
    usual = corpus_stage([source], tmp_path / "usual")
    named = corpus_stage([source], tmp_path / "field", inputs=Inputs(text_field=["body"]))
    assert usual.fingerprint != named.fingerprint


def test_names_of_fields_are_not_empty():
    for given, says in (
        ({"text_field": []}, "text_field"),
        ({"text_field": [" "]}, "text_field"),
        ({"id_field": ""}, "id_field"),
    ):
        with pytest.raises(ConfigError, match=says):
            Inputs(**given)


def test_plain_text_has_no_fields_to_name(tmp_path):
    (tmp_path / "x.txt").write_text("one\ntwo\n")
    inputs = Inputs(text_field=["body"], id_field="key")
    assert [document.text for document in _read([str(tmp_path / "x.txt")], inputs)] == ["one", "two"]


def test_flags_name_fields(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "pool.jsonl", [{"text": f"pool {n}", "uid": n} for n in range(30)])
    _write(tmp_path / "task.jsonl", [{"abstract": f"task {n}", "uid": f"t{n}"} for n in range(40)])
    line = ["score", "--task", "task.jsonl", "--general", "pool.jsonl", "--selector", "random"]
    assert main([*line, "--text-field", "abstract", "text", "--id-field", "uid", "--out", "run"]) == 0
    assert [document.doc_id for document in iterate_documents(tmp_path / "run" / "corpus")][:2] == ["0", "1"]
    assert {document.text[:4] for document in iterate_documents(tmp_path / "run" / "task" / "fit")} == {"task"}
