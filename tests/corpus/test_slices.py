"""Sources read in slices, by one process or several, give the same documents, places and counts."""

import errno
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.core.errors import DataError
from dana.corpus import slices as slices_module
from dana.corpus.documents import Tally, read_documents
from dana.corpus.inputs import Inputs
from dana.corpus.slices import Slice, iterate_slices, parse_slice


class Failing(io.BytesIO):
    """A file of which a disk gives the first 300 bytes."""

    def readline(self, *size):
        if self.tell() >= 300:
            raise OSError(errno.EIO, "Input/output error")
        return super().readline(*size)


def test_a_byte_range_that_cannot_be_read_is_named_by_file_and_place(jsonl, monkeypatch):
    monkeypatch.setattr(slices_module, "open_until", lambda path, until: Failing(path.read_bytes()[:until]))
    with pytest.raises(DataError, match=r"big\.jsonl: cannot be read from byte 3\d\d on: .*Input/output error$"):
        parse_slice(Slice(jsonl, 50, 1000), Inputs())
    with pytest.raises(DataError, match=r"big\.jsonl: cannot be read from byte 999 on"):
        parse_slice(Slice(jsonl, 1000, 1100), Inputs())


@pytest.fixture
def jsonl(tmp_path):
    lines = [json.dumps({"text": f"text {number} " + "é" * (number % 40)}, ensure_ascii=False) for number in range(300)]
    lines[100] = ""
    lines[200] = "{broken"
    (tmp_path / "big.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    return tmp_path / "big.jsonl"


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 4096])
def test_byte_ranges_hold_every_line_once_with_its_number(jsonl, size):
    def about(part, before):
        records, lines = parse_slice(part, Inputs())
        return [(one.document, one.problem[:8], one.record.line + before) for one in records], lines

    (whole,) = iterate_slices(str(jsonl))
    found, lines = [], 0
    for part in iterate_slices(str(jsonl), size):
        records, passed = about(part, lines)
        found += records
        lines += passed
    assert found == about(whole, 0)[0]
    assert len(found) == 299


def test_parquet_is_cut_by_row_groups_and_rows_keep_their_numbers(tmp_path):
    table = pa.table({"text": [f"text {number}" for number in range(100)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=10)
    parts = list(iterate_slices(str(tmp_path / "t.parquet"), 200))
    assert len(parts) > 3
    parsed = [one for part in parts for one in parse_slice(part, Inputs())[0]]
    assert [one.record.line for one in parsed] == list(range(1, 101))
    assert [one.document.text for one in parsed] == table["text"].to_pylist()


def test_row_groups_are_joined_up_to_the_size_and_a_large_one_is_streamed(tmp_path, monkeypatch):
    pq.write_table(
        pa.table({"text": ["ab" * 500] * 40}), tmp_path / "t.parquet", row_group_size=4, use_dictionary=False
    )
    (group, *_) = {pq.read_metadata(tmp_path / "t.parquet").row_group(place).total_byte_size for place in range(10)}
    monkeypatch.setattr(slices_module, "PACKED_BYTES", 100)
    parts = list(iterate_slices(str(tmp_path / "t.parquet"), group))
    assert len(parts) == 10
    joined = list(slices_module._row_groups(tmp_path / "t.parquet", 3 * group))
    assert [(part.first, part.after) for part in joined] == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert all(part.is_small for part in joined)
    monkeypatch.setattr(slices_module, "WHOLE_BYTES", group - 1)
    (whole,) = slices_module._row_groups(tmp_path / "t.parquet", group)
    assert whole == Slice(tmp_path / "t.parquet")
    assert not whole.is_small


def test_compressed_files_and_other_formats_are_one_slice(tmp_path):
    for name in ("a.jsonl.gz", "b.csv", "c.txt"):
        (tmp_path / name).write_bytes(b"x" * 500)
    assert list(iterate_slices(str(tmp_path), 100)) == [
        Slice(tmp_path / name) for name in ("a.jsonl.gz", "b.csv", "c.txt")
    ]


def test_several_processes_give_the_documents_and_counts_of_one(jsonl, tmp_path, monkeypatch):
    (tmp_path / "more.txt").write_text("text 5 \n\nanother\n\nthird")
    original = iterate_slices
    monkeypatch.setattr(slices_module, "iterate_slices", lambda source: original(source, 500))
    sources, tallies = [str(jsonl), str(tmp_path / "more.txt")], [Tally(), Tally()]
    one, two = (list(read_documents(sources, "skip", tally, n)) for tally, n in zip(tallies, (1, 2), strict=True))
    assert one == two
    assert tallies[0] == tallies[1]
    assert tallies[0].record_count == 302
    for processes in (1, 2):
        with pytest.raises(DataError, match=r"big\.jsonl:201: not JSON"):
            list(read_documents(sources, "fail", Tally(), processes))


class _NoPool:
    """A pool that must not be asked."""

    def submit(self, *_):
        raise AssertionError("records of a large file would come back in one piece")


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.txt", "x.parquet"])
def test_a_large_file_that_cannot_be_cut_is_streamed_by_the_process_that_asks(tmp_path, monkeypatch, name):
    texts = [f"text {number} {number**9}" for number in range(200)]
    if name == "x.parquet":
        pq.write_table(pa.table({"text": texts}), tmp_path / name)
    else:
        lines = "".join((json.dumps({"text": text}) if "json" in name else text) + "\n" for text in texts)
        (tmp_path / name).write_bytes(gzip.compress(lines.encode()) if name.endswith(".gz") else lines.encode())
    (part,) = iterate_slices(str(tmp_path / name))
    assert part.is_small
    monkeypatch.setattr(slices_module, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(slices_module, "PACKED_BYTES", 100)
    assert not part.is_small
    found = slices_module._parse_slices(_NoPool(), [part], 4, Inputs())
    assert [parsed.document.text for parsed in found] == texts
