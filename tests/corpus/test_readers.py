"""Every format, packed or not; what is damaged is named with file and line; hostile text passes through."""

import csv
import errno
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from dana.core.errors import Damage, DataError
from dana.core.files import text_digest
from dana.core.schemas import read_batches
from dana.corpus import readers
from dana.corpus.inputs import Record
from dana.corpus.readers import read_records
from dana.corpus.sources import expand, stem

ROWS = [{"id": "a", "text": "Erste Zeile 😀"}, {"id": "b", "text": 'With "quotes", commas\nand a line end'}]


def _csv(delimiter):
    stream = io.StringIO()
    writer = csv.DictWriter(stream, ["id", "text"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return stream.getvalue().encode()


PLAIN = {
    ".jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    ".json": "".join(json.dumps(row, ensure_ascii=False) + "\n\n" for row in ROWS).encode(),
    ".csv": _csv(","),
    ".tsv": _csv("\t"),
}
PACK = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


def _fields(path):
    return [record.fields for record in read_records([str(path)])]


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("suffix", PLAIN)
def test_every_text_format_gives_the_same_records(tmp_path, suffix, packed):
    path = tmp_path / f"x{suffix}{packed}"
    path.write_bytes(PACK[packed](PLAIN[suffix]))
    assert _fields(path) == ROWS


def test_a_parquet_file_is_not_read_ahead(tmp_path):
    """Nor are the parts of a table."""
    path = tmp_path / "part-00000.parquet"
    texts = [text_digest(str(at)).hex() * 10 for at in range(20_000)]
    pq.write_table(pa.table({"text": texts}), path, row_group_size=200, compression=None, use_dictionary=False)
    for rows in read_records([str(path)]), read_batches(path, ["text"], 10):
        before = pa.total_allocated_bytes()
        next(rows)
        assert pa.total_allocated_bytes() - before < path.stat().st_size / 4


def test_parquet_rows_are_records_with_their_number(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS * 1500), path)
    records = list(read_records([str(path)]))
    assert [record.line for record in records] == list(range(1, 3001))
    assert records[2999].fields == ROWS[1]
    assert records[2999].location == f"{path}:3000"


@pytest.mark.parametrize("packed", PACK)
def test_text_is_a_document_a_line_or_a_paragraph(tmp_path, packed):
    path = tmp_path / f"x.txt{packed}"
    path.write_bytes(PACK[packed](b"\none\ntwo\nthree\n\n"))  # blank lines at the ends part nothing
    assert _fields(path) == [{"text": "one\n"}, {"text": "two\n"}, {"text": "three\n"}]
    path.write_bytes(PACK[packed](b"one\ntwo\n\n \nthree"))
    assert list(read_records([str(path)])) == [
        Record(str(path), 1, {"text": "one\ntwo\n"}, kind="paragraph"),
        Record(str(path), 5, {"text": "three"}, kind="paragraph"),
    ]


def test_a_folder_and_a_glob_are_read_in_the_order_of_names(tmp_path):
    (tmp_path / "in").mkdir()
    for name, word in (("b.txt", "bee"), ("a.jsonl", '{"text": "ay"}'), ("in/c.txt", "sea"), ("note.pdf", "no")):
        (tmp_path / name).write_text(word, encoding="utf-8")
    assert [field["text"] for field in _fields(tmp_path)] == ["ay", "bee", "sea"]
    assert [path.name for path in expand(str(tmp_path / "*.txt"))] == ["b.txt"]
    assert [path.name for path in expand(str(tmp_path / "**" / "*.txt"))] == ["b.txt", "c.txt"]
    both = read_records([str(tmp_path / "b.txt"), str(tmp_path / "a.jsonl")])
    assert [record.fields["text"] for record in both] == ["bee", "ay"]


def test_stem_is_the_name_without_format_and_compression(tmp_path):
    for name in ("pool.jsonl.gz", "pool.csv", "pool.txt.zst", "pool.parquet", "pool"):
        assert stem(tmp_path / name) == "pool"
    assert stem(tmp_path / "v1.2.jsonl") == "v1.2"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none.jsonl", r"none\.jsonl: no such file or folder"),
        ("note.pdf", r"note\.pdf: unknown format '\.pdf'; available: \.jsonl"),
        ("bare", r"bare: unknown format 'without a suffix'"),
        ("folder", r"folder: no file of a known format"),
        ("*.csv", r"\*\.csv: no file of a known format"),
    ],
)
def test_a_source_that_cannot_be_read_says_why(tmp_path, source, message):
    (tmp_path / "folder").mkdir()
    for name in ("note.pdf", "bare"):
        (tmp_path / name).write_text("not what it says", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        list(read_records([str(tmp_path / source)]))


@pytest.mark.parametrize("packed", [".gz", ".zst"])
def test_a_packed_file_that_ends_early_is_a_bad_record_not_a_short_corpus(tmp_path, packed):
    lines = "".join(json.dumps({"text": f"document {n} {n**7}"}) + "\n" for n in range(5000))
    path = tmp_path / f"x.jsonl{packed}"
    whole = PACK[packed](lines.encode())
    path.write_bytes(whole[: len(whole) // 2])
    *good, bad = read_records([str(path)])
    assert bad.problem.startswith("the compressed file is damaged or ends early")
    assert bad.rest_lost
    assert bad.line == len(good) + 1 < 5000
    assert [record.fields["text"] for record in good] == [f"document {n} {n**7}" for n in range(len(good))]


@pytest.mark.parametrize("between", ["\n", "\n\n"])
def test_what_was_read_before_an_early_end_is_kept_even_if_that_is_within_the_first_look(
    tmp_path, monkeypatch, between
):
    """A paragraph that the end cuts is lost with it: half of one is no document."""

    def lines(path, errors):
        yield from enumerate(f"one{between}two{between}thr".splitlines(keepends=True), 1)
        raise Damage(6, "ends early")

    monkeypatch.setattr(readers, "read_lines", lines)
    (tmp_path / "x.txt.gz").write_bytes(b"there")
    *good, bad = read_records([str(tmp_path / "x.txt.gz")])
    texts = [record.fields["text"].strip() for record in good]
    assert texts == (["one", "two", "thr"] if between == "\n" else ["one", "two"])
    assert (bad.line, bad.problem, bad.rest_lost) == (6, "ends early", True)


def test_what_the_machine_cannot_read_is_an_error_and_no_bad_record(tmp_path, monkeypatch):
    """A disk that fails must not become a short corpus."""

    def broken(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    for name, module, function in (("x.jsonl.gz", pa, "input_stream"), ("x.parquet", pq, "ParquetFile")):
        (tmp_path / name).write_bytes(b"there")
        monkeypatch.setattr(module, function, broken)
        with pytest.raises(DataError, match=rf"{name}:1: cannot be read: .*Input/output error"):
            list(read_records([str(tmp_path / name)]))


def test_a_first_look_at_long_lines_is_short(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "LAYOUT_SAMPLE", 10)
    path = tmp_path / "x.txt"
    path.write_text("a long line\nb\n\nc\n", encoding="utf-8")
    assert _fields(path) == [{"text": "a long line\n"}, {"text": "b\n"}, {"text": "c\n"}]


def test_an_open_quote_is_reported_where_it_opens(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('id,text\na,one\nb,"two\nc,three\n', encoding="utf-8")
    first, second = read_records([str(path)])
    assert first.fields == {"id": "a", "text": "one"}
    assert (second.line, second.rest_lost) == (3, True)
    assert "in line 4" in second.problem


def test_a_column_named_twice_is_refused_because_one_would_be_lost(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("text,text\na,b\n")
    (record,) = read_records([str(path)])
    assert (record.line, record.rest_lost) == (1, True)
    assert "'text'" in record.problem
    path.write_text(",text,\n0,a,\n")  # columns without a name are not asked for
    assert _fields(path)[0]["text"] == "a"


@pytest.mark.parametrize("name", ["x.txt", "x.jsonl", "x.csv"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_wide_text_is_refused_not_read_as_junk(tmp_path, name, encoding):
    (tmp_path / name).write_bytes("Zwölf Boxkämpfer.\n日本\n".encode(encoding))
    (record,) = read_records([str(tmp_path / name)])
    assert record.problem.startswith("not UTF-8 but UTF-16, UTF-32 or no text; convert it first: iconv -f UTF-16")
    assert (record.line, record.rest_lost) == (1, True)


@pytest.mark.parametrize("blank", [0, 1, 3])
def test_a_few_blank_lines_among_many_do_not_make_paragraphs(tmp_path, blank):
    lines = [f"line {number}" for number in range(2_050)]
    for place in range(blank):
        lines[70 * (place + 1)] = ""
    (tmp_path / "x.txt").write_text("\n".join(lines))
    records = list(read_records([str(tmp_path / "x.txt")]))
    assert len(records) == 2_050 - blank
    assert {record.kind for record in records} == {"line"}


def test_hard_wrapped_prose_is_read_by_paragraph(tmp_path):
    paragraphs = ["\n".join(f"line {n} of {number}" for n in range(1 + number % 9)) for number in range(300)]
    (tmp_path / "x.txt").write_text("\n\n".join(paragraphs))
    assert [fields["text"].strip() for fields in _fields(tmp_path / "x.txt")] == paragraphs


@pytest.mark.parametrize(("layout", "count"), [("line", 4), ("paragraph", 2), ("file", 1), ("auto", 2)])
def test_what_a_document_of_plain_text_is_can_be_said(tmp_path, layout, count):
    (tmp_path / "x.txt").write_text("\na\nb\n\nc\nd\n")
    records = list(read_records([str(tmp_path / "x.txt")], layout))
    assert [record.fields["text"].split() for record in records] == {
        4: [["a"], ["b"], ["c"], ["d"]],
        2: [["a", "b"], ["c", "d"]],
        1: [["a", "b", "c", "d"]],
    }[count]


def test_a_suffix_may_be_in_capitals(tmp_path):
    path = tmp_path / "X.TXT.GZ"
    path.write_bytes(gzip.compress(b"one\n"))
    assert _fields(path) == [{"text": "one\n"}]


def test_a_data_set_of_the_hub_is_streamed(tmp_path, monkeypatch):
    """The Hub's reader takes a local folder as well, so this one needs no network."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    for split in ("train", "test"):
        (tmp_path / "set" / f"{split}.jsonl").write_text(f'{{"text": "of {split}"}}\n', encoding="utf-8")
    source = f"hf:{tmp_path / 'set'}"
    assert list(read_records([source])) == [Record(source, 1, {"text": "of train"})]
    assert [record.fields for record in read_records([f"{source}::test"])] == [{"text": "of test"}]
    with pytest.raises(DataError, match=r"^hf:.*:no: cannot be read: "):
        list(read_records([f"{source}::no"]))


def test_a_second_gzip_or_zstandard_frame_is_read_too(tmp_path):
    for packed in (".gz", ".zst"):
        path = tmp_path / f"x.txt{packed}"
        path.write_bytes(PACK[packed](b"one\n") + PACK[packed](b"two\n"))
        assert _fields(path) == [{"text": "one\n"}, {"text": "two\n"}]
