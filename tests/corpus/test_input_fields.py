"""Fields by other names, and a record parser of the user's: what they make of records, and how they fail."""

import csv
import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.cli.main import main
from dana.core.errors import ConfigError, DataError
from dana.core.schemas import iterate_documents
from dana.corpus import slices as slices_module
from dana.corpus.documents import Tally, read_documents
from dana.corpus.inputs import MISSING, Inputs, field_at, load_parser
from dana.corpus.slices import slices_of
from dana.stages.corpus import corpus_stage

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "inputs.md"


def _write(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def _read(sources, inputs, tally=None, on_bad_record="fail"):
    return list(read_documents(sources, on_bad_record, tally or Tally(), inputs=inputs))


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.parquet"])
def test_text_and_id_may_have_other_names(tmp_path, name):
    source = _write(tmp_path / name, [{"body": "one", "key": 7, "text": "not this"}, {"body": "two", "key": 8}])
    if name == "x.csv":
        source = _write(
            tmp_path / name, [{"body": "one", "key": 7, "text": "no"}, {"body": "two", "key": 8, "text": ""}]
        )
    documents = _read([source], Inputs(text_field=["body"], id_field="key"))
    assert [(document.doc_id, document.text) for document in documents] == [("7", "one"), ("8", "two")]


def test_the_first_field_that_a_record_has_is_its_text(tmp_path):
    rows = [{"abstract": "one", "text": "no"}, {"text": "two"}]
    documents = _read([_write(tmp_path / "x.jsonl", rows)], Inputs(text_field=["abstract", "text"]))
    assert [document.text for document in documents] == ["one", "two"]


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_a_dot_reaches_into_a_nested_field(tmp_path, name):
    source = _write(tmp_path / name, [{"meta": {"body": {"en": "one"}, "uid": "a"}}])
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
        ({"key": "a", "text": "t"}, "the field 'body' is missing; found key, text", "no text"),
        ({"key": "a", "body": 3}, "the field 'body' is int", "no text"),
        ({"key": "a", "body": ["t"]}, "the field 'body' is list", "no text"),
        ({"key": "a", "body": None}, "the field 'body' is NoneType", "no text"),
        ({"id": "a", "body": "t"}, "the field 'key' is missing; found id, body", "no id"),
    ],
)
def test_a_record_without_the_named_field_is_bad(tmp_path, row, problem, reason):
    source = _write(tmp_path / "x.jsonl", [{"key": "good", "body": "good"}, row])
    inputs, tally = Inputs(text_field=["body"], id_field="key"), Tally()
    with pytest.raises(DataError, match=rf"x\.jsonl:2: {problem}.* \(--on-bad-record"):
        _read([source], inputs)
    assert len(_read([source], inputs, tally, "skip")) == 1
    assert dict(tally.rejected) == {reason: 1}


@pytest.fixture
def parser(tmp_path):
    """Writes a module with a function ``parse``."""

    def write(body, name="mine.py"):
        (tmp_path / name).write_text("def parse(record):\n" + "".join(f"    {line}\n" for line in body.splitlines()))
        load_parser.cache_clear()
        return f"{tmp_path / name}:parse"

    return write


def test_a_record_parser_makes_documents_and_leaves_out(tmp_path, parser):
    spec = parser(
        "if record['n'] == 2:\n    return None\n"
        "return {'id': f\"n{record['n']}\", 'source': 's', 'text': record['a'] + ' ' + record['b']}"
    )
    source = _write(tmp_path / "x.jsonl", [{"n": n, "a": f"a{n}", "b": "b"} for n in range(4)])
    tally = Tally()
    documents = _read([source], Inputs(record_parser=spec), tally)
    assert [(d.doc_id, d.source, d.text) for d in documents] == [(f"n{n}", "s", f"a{n} b") for n in (0, 1, 3)]
    assert (tally.read, tally.kept, dict(tally.dropped)) == (4, 3, {"left out by the record parser": 1})


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return {'text': record['title']}", r"parse \(.*mine\.py:2\) failed: KeyError: 'title'"),
        ("return 3", r"parse \(.*mine\.py\) returned int, neither a mapping nor None"),
        ("return {'body': 't'}", "the field 'text' is missing; found body"),
        ("return {'text': 3}", "the field 'text' is int"),
        ("import json\nreturn json.loads('{')", r"parse \(.*mine\.py:3\) failed: JSONDecodeError: "),
    ],
)
def test_what_a_record_parser_does_wrong_is_named_with_file_and_line(tmp_path, parser, body, says):
    source = _write(tmp_path / "x.jsonl", [{"text": "one"}])
    with pytest.raises(DataError, match=rf"x\.jsonl:1: {says}"):
        _read([source], Inputs(record_parser=parser(body)))


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("parse", "must be FILE.py:FUNCTION or MODULE:FUNCTION"),
        ("{}/none.py:parse", "none.py: no such file"),
        ("{}/mine.py:other", "has no function 'other'"),
        ("{}/broken.py:parse", "SyntaxError"),
        ("{}/raises.py:parse", "raises.py:1: ZeroDivisionError: division by zero"),
        ("no_such_module_anywhere:parse", "ModuleNotFoundError"),
        ("sys:exit", "has no file"),
    ],
)
def test_a_parser_that_does_not_load_fails_before_anything_is_read(tmp_path, parser, spec, says):
    parser("return record")
    (tmp_path / "broken.py").write_text("def parse(:\n")
    (tmp_path / "raises.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError, match=re.escape(says)):
        corpus_stage(["none.jsonl"], tmp_path / "out", inputs=Inputs(record_parser=spec.format(tmp_path)))
    assert not (tmp_path / "out").exists()


def test_a_module_that_can_be_imported_is_taken_too(tmp_path):
    source = _write(tmp_path / "x.jsonl", [{"text": "one", "id": "a"}])
    assert len(_read([source], Inputs(record_parser="copy:copy"))) == 1


def test_fields_and_parser_belong_to_the_fingerprint_wherever_the_file_lies(tmp_path, parser):
    source = _write(tmp_path / "x.jsonl", [{"text": "one", "body": "two"}])
    made = {}
    for name, inputs in (
        ("usual", {}),
        ("field", {"text_field": ["body"]}),
        ("parser", "return record"),
        ("changed", "return {'text': record['body']}"),
    ):
        given = inputs if isinstance(inputs, dict) else {"record_parser": parser(inputs)}
        made[name] = corpus_stage([source], tmp_path / name, inputs=Inputs(**given)).fingerprint
    assert len(set(made.values())) == 4
    (tmp_path / "else").mkdir()
    moved = Inputs(record_parser=parser("return record", "else/mine.py"))
    assert corpus_stage([source], tmp_path / "moved", inputs=moved).fingerprint == made["parser"]


def test_a_parser_goes_without_names_of_fields():
    for given in ({"text_field": ["body"]}, {"id_field": "key"}):
        with pytest.raises(ConfigError, match=r"record_parser='a\.py:b': must be null beside text_field or id_field"):
            Inputs(record_parser="a.py:b", **given)
    for given, says in (
        ({"text_field": []}, "text_field"),
        ({"text_field": [" "]}, "text_field"),
        ({"id_field": ""}, "id_field"),
    ):
        with pytest.raises(ConfigError, match=says):
            Inputs(**given)


def test_a_parser_works_in_every_process(tmp_path, parser, monkeypatch):
    spec = parser("return {'text': record['body'].upper(), 'id': record['n']}")
    source = _write(tmp_path / "x.jsonl", [{"n": n, "body": f"text {n}"} for n in range(200)])
    monkeypatch.setattr(slices_module, "slices_of", lambda source: slices_of(source, 500))
    inputs = Inputs(record_parser=spec)
    one, two = (list(read_documents([source], "fail", Tally(), n, inputs)) for n in (1, 2))
    assert one == two
    assert one[7].text == "TEXT 7"


def test_the_parser_of_the_documentation_does_what_it_says(tmp_path, monkeypatch, capsys):
    text = DOCUMENTATION.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(# papers\.py.*?)```", text, re.DOTALL)
    (command,) = re.findall(r"```bash\ndana (score .*?--record-parser.*?)\n```", text, re.DOTALL)
    rows = [{"lang": "en", "doi": f"10/{n}", "journal": "J", "title": f"T{n}", "abstract": f"A{n}."} for n in range(30)]
    rows.insert(2, {"lang": "de", "doi": "10/x", "journal": "J", "title": "T", "abstract": "A."})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "papers.py").write_text(code)
    (tmp_path / "notes.txt").write_text("\n".join(f"note {n}" for n in range(40)))
    line = command.replace("--task notes.txt", "--task notes.txt --selector random").split()
    rows[2].pop("lang")
    (tmp_path / "papers.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    assert main(line) == 2
    assert re.search(r"papers\.jsonl\.gz:3: paper \(.*papers\.py:3\) failed: KeyError: 'lang'", capsys.readouterr().err)
    rows[2]["lang"] = "de"
    (tmp_path / "papers.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    assert main(line) == 0
    documents = list(iterate_documents(tmp_path / "runs" / "papers" / "corpus"))
    assert len(documents) == 30
    assert (documents[2].doc_id, documents[2].source, documents[2].text) == ("10/2", "J", "T2\n\nA2.")


def test_plain_text_has_no_fields_to_name_or_parse(tmp_path, parser):
    (tmp_path / "x.txt").write_text("one\ntwo\n")
    for inputs in (Inputs(text_field=["body"], id_field="key"), Inputs(record_parser=parser("return None"))):
        assert [document.text for document in _read([str(tmp_path / "x.txt")], inputs)] == ["one", "two"]


def test_flags_name_fields(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "pool.jsonl", [{"text": f"pool {n}", "uid": n} for n in range(30)])
    _write(tmp_path / "task.csv", [{"abstract": f"task {n}", "uid": f"t{n}"} for n in range(40)])
    line = ["score", "--task", "task.csv", "--general", "pool.jsonl", "--selector", "random"]
    assert main([*line, "--text-field", "abstract", "text", "--id-field", "uid", "--out", "run"]) == 0
    assert [document.doc_id for document in iterate_documents(tmp_path / "run" / "corpus")][:2] == ["0", "1"]
    assert {document.text[:4] for document in iterate_documents(tmp_path / "run" / "task" / "fit")} == {"task"}
