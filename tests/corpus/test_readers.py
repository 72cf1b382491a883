"""Plain text and its layouts, Parquet, the Hub; what the machine cannot read is no bad record."""

import errno
import gzip
import json
import lzma
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dana.core.errors import Damage, DataError
from dana.core.files import text_digest
from dana.core.schemas import read_batches
from dana.corpus import readers
from dana.corpus.inputs import Inputs, Record
from dana.corpus.readers import read_records
from tests.corpus.files import PACK, parquet


def _records(path, layout="auto"):
    return list(read_records([str(path)], Inputs(text_documents=layout)))


def _fields(path, layout="auto"):
    return [record.fields for record in _records(path, layout)]


@pytest.mark.parametrize("compression", PACK)
def test_plain_text_is_cut_into_lines_or_paragraphs_whatever_packs_it(tmp_path, compression):
    pack = PACK[compression]
    path = tmp_path / f"X.TXT{compression.upper()}"
    path.write_bytes(
        pack(b"\none\ntwo\n") + pack(b"three\n\n")
    )  # two frames; blank lines at the ends part nothing
    assert _fields(path) == [{"text": "one\n"}, {"text": "two\n"}, {"text": "three\n"}]
    path.write_bytes(pack(b"one\ntwo\n\n \nthree"))
    assert _records(path) == [
        Record(str(path), 1, {"text": "one\ntwo\n"}, kind="paragraph"),
        Record(str(path), 5, {"text": "three"}, kind="paragraph"),
    ]


def test_columns_without_a_name_have_their_number(tmp_path):
    (tmp_path / "x.csv").write_text(",text,\n0,a,\n")
    assert _fields(tmp_path / "x.csv") == [{"1": "0", "text": "a", "3": ""}]


def test_a_parquet_file_is_not_read_ahead(tmp_path):
    """Nor are the parts of a table."""
    path = tmp_path / "part-00000.parquet"
    texts = [text_digest(str(at)).hex() * 10 for at in range(20_000)]
    path.write_bytes(
        parquet({"text": texts}, row_group_size=200, compression=None, use_dictionary=False)
    )
    for rows in read_records([str(path)]), read_batches(path, ["text"], 10):
        before = pa.total_allocated_bytes()
        next(rows)
        assert pa.total_allocated_bytes() - before < path.stat().st_size / 4


def test_parquet_rows_are_records_with_their_number(tmp_path):
    path = tmp_path / "x.parquet"
    texts = [f"text {number}" for number in range(3000)]
    path.write_bytes(parquet({"text": texts}))
    records = _records(path)
    assert [(record.line, record.fields) for record in records] == [
        (n, {"text": t}) for n, t in enumerate(texts, 1)
    ]
    assert records[2999].location == f"{path}:3000"


@pytest.mark.parametrize(
    ("between", "texts"), [("\n", ["one", "two", "thr"]), ("\n\n", ["one", "two"])]
)
def test_what_was_read_before_an_early_end_counts_even_within_the_first_look(
    tmp_path, monkeypatch, between, texts
):
    """A paragraph that the end cuts is lost with it: half of one is no document."""

    def lines(path, *_, **__):
        yield from enumerate(f"one{between}two{between}thr".splitlines(keepends=True), 1)
        raise Damage(6, "ends early")

    monkeypatch.setattr(readers, "read_lines", lines)
    (tmp_path / "x.txt.gz").write_bytes(b"there")
    *good, bad = _records(tmp_path / "x.txt.gz")
    assert [record.fields["text"].strip() for record in good] == texts
    assert (bad.line, bad.problem, bad.rest_lost) == (6, "ends early", True)


@pytest.mark.parametrize(
    ("name", "module", "function"),
    [("x.jsonl.gz", pa, "input_stream"), ("x.parquet", pq, "ParquetFile")],
)
def test_what_the_machine_cannot_read_is_an_error_and_no_bad_record(
    tmp_path, monkeypatch, name, module, function
):
    """A disk that fails must not become a short pool."""

    def broken(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / name).write_bytes(gzip.compress(b"there"))
    monkeypatch.setattr(module, function, broken)
    with pytest.raises(DataError, match=rf"{name}:1: cannot be read: .*Input/output error"):
        _records(tmp_path / name)


@pytest.mark.parametrize("name", ["x.txt", "x.jsonl", "x.csv"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_text_without_a_mark_is_refused_not_read_as_junk(tmp_path, name, encoding):
    path = tmp_path / name
    for text in ("Zwölf Boxkämpfer.\n日本\n", "日本語の本文です。\n次の行。\n" * 9):
        path.write_bytes(text.encode(encoding))
        (record,) = _records(path)
        assert record.problem.startswith("not UTF-8 but UTF-16 without its mark, UTF-32 or no text")
        assert (record.line, record.rest_lost) == (1, True)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "utf-16-be", "utf-32-be"])
def test_a_mark_tells_the_encoding(tmp_path, encoding):
    mark = "\ufeff" if encoding.endswith("be") else ""
    (tmp_path / "x.txt").write_bytes(f"{mark}Zwölf Boxkämpfer.\n日本\n".encode(encoding))
    texts = [fields["text"] for fields in _fields(tmp_path / "x.txt", "line")]
    assert texts == ["Zwölf Boxkämpfer.\n", "日本\n"]


@pytest.mark.parametrize(
    ("layout", "texts"),
    [
        ("line", ["a", "b", "c", "d"]),
        ("paragraph", ["a b", "c d"]),
        ("file", ["a b c d"]),
        ("auto", ["a b", "c d"]),
    ],
)
def test_what_a_document_of_plain_text_is_can_be_said(tmp_path, layout, texts):
    (tmp_path / "x.txt").write_text("\na\nb\n\nc\nd\n")
    assert [
        " ".join(fields["text"].split()) for fields in _fields(tmp_path / "x.txt", layout)
    ] == texts


def test_blank_lines_make_paragraphs_where_they_come_every_twenty_lines(tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    for lines, kind in ((20, "paragraph"), (21, "line")):
        path.write_text("\n\n".join(["\n".join(["a line"] * lines)] * 3))
        assert {record.kind for record in _records(path)} == {kind}
    paragraphs = [
        "\n".join(f"line {n} of {number}" for n in range(1 + number % 9)) for number in range(300)
    ]
    path.write_text("\n\n".join(paragraphs))
    assert [fields["text"].strip() for fields in _fields(path)] == paragraphs
    monkeypatch.setattr(readers, "LAYOUT_SAMPLE", 10)  # a look at the first line
    path.write_text("a long line\nb\n\nc\n", encoding="utf-8")
    assert _fields(path) == [{"text": "a long line\n"}, {"text": "b\n"}, {"text": "c\n"}]


def test_a_data_set_of_the_hub_is_streamed(tmp_path, monkeypatch):
    """The Hub's reader takes a local folder as well, so this one needs no network."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    for split in ("train", "test"):
        (tmp_path / "set" / f"{split}.jsonl").write_text(
            f'{{"text": "of {split}"}}\n', encoding="utf-8"
        )
    source = f"hf:{tmp_path / 'set'}"
    assert list(read_records([source])) == [Record(source, 1, {"text": "of train"})]
    assert _fields(f"{source}::test") == [{"text": "of test"}]
    with pytest.raises(DataError, match=r"^hf:.*:no: cannot be read: "):
        _records(f"{source}::no")


ROWS = [{"text": f"text {number}, and more", "label": "ab"[number % 2]} for number in range(12)]
QUOTED = "".join(f'"{row["text"]}",{row["label"]}\n' for row in ROWS)
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
RUSSIAN = "".join(f"Пример {number} текста,{number % 2}\n" for number in range(12))
# Files that once gave other rows than theirs, or no way out.
HOSTILE = {
    "lines.csv": (LINES.encode(), []),
    "one-list.json": (json.dumps({"data": ROWS}).encode(), []),
    "one-list-printed.json": (json.dumps({"data": ROWS}, indent=1).encode(), []),
    "comma-at-the-end.json": ((json.dumps(ROWS)[:-1] + ",]").encode(), []),
    "table.xls": (f"text,label\n{QUOTED}".encode(), []),
    "two-streams.csv.xz": (lzma.compress(b"text,label\n") + lzma.compress(QUOTED.encode()), []),
    "brace-first.jsonl": (f"{{\n{LINES}".encode(), ["not JSON"]),
    "bracket-first.jsonl": (f"[\n{LINES}".encode(), ["not JSON"]),
    "a-cell-more.csv": (f'text,label\n{QUOTED}"text here",a,\n'.encode(), ["got 3; quote texts"]),
    "ends-in-a-line.csv": (f"text,label\n{QUOTED}(12 rows)\n".encode(), ["got 1"]),
    "russian.csv": (f"text,label\n{RUSSIAN}".encode("cp1251"), ["name its encoding by inputs.enc"]),
    "page.xls": (b"<html><table><tr><td>text</td></tr></table></html>", ["holds HTML"]),
    "broken.xlsx": (b"PK\x03\x04" + bytes(range(9, 200)), ["is no .xlsx file, or damaged"]),
    "broken.arrow": (bytes(range(9, 200)), ["not an Arrow file, or damaged"]),
    "cut.csv.xz": (
        lzma.compress(random.Random(0).randbytes(9000))[:-99],
        ["no text", "ends early"],
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_give_their_rows_or_say_what_is_wrong(tmp_path, name):
    content, problems = HOSTILE[name]
    (tmp_path / name).write_bytes(content)
    try:
        records = _records(tmp_path / name)
    except DataError as error:
        records = [Record(name, 1, {}, str(error))]
    found = [record.problem for record in records if record.problem]
    assert len(found) == min(1, len(problems))
    assert any(words in "".join(found) for words in problems) or not problems
    rows = [record.fields for record in records if not record.problem]
    is_whole = not problems or name.endswith((".jsonl", "more.csv", "line.csv"))
    assert rows == (ROWS if is_whole else [])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(
        st.fixed_dictionaries({"text": st.text(max_size=20), "more": VALUES}), min_size=2
    ),
    indent=st.sampled_from([None, 0, 2]),
    block=st.sampled_from([1, 7, 1 << 16]),
    is_ascii=st.booleans(),
    form=st.sampled_from(["array", "lines", "objects"]),
)
def test_json_of_any_form_is_read_back_equal(
    tmp_path, monkeypatch, rows, indent, block, is_ascii, form
):
    monkeypatch.setattr("dana.corpus.json_values.BLOCK", block)
    options = {"ensure_ascii": is_ascii, "indent": indent}
    if form == "array":
        content = json.dumps(rows, **options)
    else:
        options["indent"] = None if form == "lines" else indent or 0
        content = "\n".join(json.dumps(row, **options) for row in rows)
    path = tmp_path / "x.json"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    assert _fields(path) == rows
