"""Sources read in slices, by one process or several, damaged or at URLs, give the same documents, and are read once."""

import errno
import gzip
import io
import json
import logging
import random

import pyarrow.parquet as pq
import pytest

from dana.core.errors import DataError
from dana.core.storage import BEHIND, RemoteFile, list_url
from dana.corpus import slices as slices_module
from dana.corpus.columnar import read_metadata
from dana.corpus.documents import Tally, read_documents
from dana.corpus.inputs import Inputs
from dana.corpus.slices import SLICE_BYTES, Slice, iterate_slices, parse_slice
from dana.stages import texts as corpus_module
from dana.stages.texts import pool_stage
from tests.corpus.files import json_lines, parquet, write_rows
from tests.scoring.on_disk import contents_made


class Failing(io.BytesIO):
    """A file of which a disk gives the first 300 bytes."""

    def readline(self, *size):
        if self.tell() >= 300:
            raise OSError(errno.EIO, "Input/output error")
        return super().readline(*size)


@pytest.fixture
def jsonl(tmp_path):
    lines = [
        json.dumps({"text": f"text {number} " + "é" * (number % 40)}, ensure_ascii=False)
        for number in range(300)
    ]
    lines[100] = ""
    lines[200] = "{broken"
    (tmp_path / "big.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    return tmp_path / "big.jsonl"


def test_a_byte_range_that_cannot_be_read_is_named_by_file_and_place(jsonl, monkeypatch):
    monkeypatch.setattr(
        slices_module, "open_until", lambda path, until: Failing(path.read_bytes()[:until])
    )
    with pytest.raises(
        DataError, match=r"big\.jsonl: cannot be read from byte 3\d\d on: .*Input/output error$"
    ):
        parse_slice(Slice(jsonl, 50, 1000), Inputs())
    with pytest.raises(DataError, match=r"big\.jsonl: cannot be read from byte 999 on"):
        parse_slice(Slice(jsonl, 1000, 1100), Inputs())


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 4096])
def test_byte_ranges_hold_every_line_once_with_its_number(jsonl, size):
    records, lines = [], 0
    for part in iterate_slices(str(jsonl), size):
        items, line_count, _ = parse_slice(part, Inputs())
        records += [(item.document, item.problem[:8], item.record.line + lines) for item in items]
        lines += line_count
    items, *_ = parse_slice(Slice(jsonl), Inputs())
    assert records == [(item.document, item.problem[:8], item.record.line) for item in items]
    assert len(records) == 299


def test_row_groups_are_joined_up_to_the_size_and_rows_keep_their_numbers(tmp_path, monkeypatch):
    texts = [f"{number:03d}" * 300 for number in range(40)]
    path = tmp_path / "t.parquet"
    path.write_bytes(parquet({"text": texts}, row_group_size=4, use_dictionary=False))
    group = max(pq.read_metadata(path).row_group(number).total_byte_size for number in range(10))
    monkeypatch.setattr(slices_module, "PACKED_BYTES", 100)
    monkeypatch.setattr(
        slices_module, "file_size", lambda path: 1 << 20
    )  # of a file that is packed less well
    for size, ends in ((group, [*range(1, 11)]), (3 * group, [3, 6, 9, 10])):
        parts = list(iterate_slices(str(path), size))
        assert [(part.first, part.after) for part in parts] == list(
            zip([0, *ends], ends, strict=False)
        )
        assert all(part.is_small for part in parts)
        items = [item for part in parts for item in parse_slice(part, Inputs())[0]]
        assert [(item.record.line, item.document.text) for item in items] == list(
            enumerate(texts, 1)
        )
    monkeypatch.setattr(slices_module, "WHOLE_BYTES", group - 1)
    assert list(iterate_slices(str(path), group)) == [Slice(path)]  # a large row group is streamed
    assert not Slice(path).is_small


def test_compressed_files_and_other_formats_are_one_slice(tmp_path):
    paths = [tmp_path / name for name in ("a.jsonl.gz", "b.csv", "c.txt")]
    for path in paths:
        path.write_bytes(b"x" * 500)
    paths[0].write_bytes(gzip.compress(random.randbytes(500)))
    assert list(iterate_slices(str(tmp_path), 100)) == [Slice(path) for path in paths]


def _read(sources, processes, on_bad_record="skip"):
    tally = Tally()
    return list(read_documents(sources, on_bad_record, tally, processes)), tally


def test_several_processes_give_the_documents_and_counts_of_one(
    jsonl, tmp_path, monkeypatch, caplog
):
    (tmp_path / "more.txt").write_text("text 5 \n\nanother\n\nthird")
    monkeypatch.setattr(slices_module, "iterate_slices", lambda source: iterate_slices(source, 500))
    latin = json_lines({"text": f"plain {n}" + n % 2 * " café"} for n in range(300))
    (tmp_path / "latin.jsonl").write_bytes(latin.replace(b"\\u00e9", b"\xe9"))
    sources = [str(jsonl), str(tmp_path / "more.txt"), str(tmp_path / "latin.jsonl")]
    caplog.set_level(logging.INFO)
    one, two = (_read(sources, processes) for processes in (1, 2))
    assert one == two
    said = [record.getMessage() for record in caplog.records if "cp1252" in record.getMessage()]
    assert len(said) == 2
    assert said[0] == said[1]
    assert "latin.jsonl: 150 lines are not UTF-8" in said[0]
    assert one[1].record_count == 602
    for processes in (1, 2):
        with pytest.raises(DataError, match=r"big\.jsonl:201: not JSON"):
            _read(sources, processes, "fail")


def test_slices_and_one_process_read_letters_that_were_encoded_twice_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(slices_module, "iterate_slices", lambda source: iterate_slices(source, 500))
    # Every third text of a file in cp1252 has a letter that was in UTF-8 before, as two letters.
    texts = [f"{n} café" + (n % 3 == 2) * " Ã¼" for n in range(300)]
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    (tmp_path / "latin.jsonl").write_text("\n".join(lines), encoding="cp1252")
    one, two = (_read([str(tmp_path / "latin.jsonl")], processes) for processes in (1, 2))
    assert one == two
    assert [document.text for document in one[0]] == texts


ROWS = 400  # of a row group
TEXTS = [f"text {n} {n**9}" for n in range(4 * ROWS)]


def _zeroed_group(path):
    """Four row groups, of which the second is NUL."""
    content = bytearray(parquet({"text": TEXTS}, row_group_size=ROWS))
    column = pq.read_metadata(io.BytesIO(content)).row_group(1).column(0)
    begin, size = (
        column.dictionary_page_offset or column.data_page_offset,
        column.total_compressed_size,
    )
    content[begin : begin + size] = bytes(size)
    path.write_bytes(content)


def _zeroed_head(path):
    path.write_bytes(bytes(2000) + json_lines({"text": text} for text in TEXTS)[2000:])


@pytest.mark.parametrize(
    ("name", "damage", "before"), [("x.parquet", _zeroed_group, ROWS), ("x.jsonl", _zeroed_head, 0)]
)
def test_what_is_lost_of_a_damaged_file_does_not_depend_on_the_processes(
    tmp_path, monkeypatch, caplog, name, damage, before
):
    damage(tmp_path / name)
    other = write_rows(tmp_path / "y.jsonl", [{"text": f"other {n}"} for n in range(100)])
    sources = [str(tmp_path / name), other, str(tmp_path / name)]
    monkeypatch.setattr(
        slices_module, "iterate_slices", lambda source: iterate_slices(source, 1000)
    )
    caplog.set_level(logging.INFO)
    one = _read(sources, 1)
    messages = [record.getMessage() for record in caplog.records]
    caplog.clear()
    assert _read(sources, 2) == one
    assert [record.getMessage() for record in caplog.records] == messages
    documents, tally = one
    assert (tally.document_count, tally.record_count) == (before + 100, 2 * before + 102)
    assert tally.rejection_counts == {"damaged file": 2}
    assert [document.text[:5] for document in documents] == ["text "] * before + ["other"] * 100
    assert len(messages) == 2
    assert all(f"{name}:{before + 1}: " in message for message in messages)


class _NoPool:
    """A pool that must not be asked."""

    def submit(self, *_):
        raise AssertionError("records of a large file would come back in one piece")


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.txt", "x.parquet"])
def test_a_large_file_that_cannot_be_cut_is_streamed_by_the_process_that_asks(
    tmp_path, monkeypatch, name
):
    texts = TEXTS[:200]
    content = {"x.jsonl.gz": gzip.compress(json_lines({"text": text} for text in texts))}
    content |= {"x.txt": "\n".join(texts).encode(), "x.parquet": parquet({"text": texts})}
    (tmp_path / name).write_bytes(content[name])
    (part,) = iterate_slices(str(tmp_path / name))
    assert part.is_small
    monkeypatch.setattr(slices_module, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(slices_module, "PACKED_BYTES", 100)
    assert not part.is_small
    items = slices_module._parse_slices(_NoPool(), [part], 4, Inputs())
    assert [item.document.text for item in items] == texts


DRAW = random.Random(0)
LONG_TEXTS = [f"{number} {DRAW.randbytes(300).hex()}" for number in range(8000)]
LINES = "".join(
    json.dumps({"text": text}) + ("\n\n" if len(text) % 7 else "\n") for text in LONG_TEXTS
).encode()
COLUMNS = {"text": LONG_TEXTS, "id": [str(number) for number in range(len(LONG_TEXTS))]}
PARQUET = parquet(COLUMNS, row_group_size=700, use_dictionary=["id"], compression=None)


@pytest.fixture
def requests(memory, monkeypatch):
    """The sizes of the requests to memory://."""
    sizes: list[int] = []
    fetch = memory.cat_file

    def cat_file(path, start=None, end=None):
        content = fetch(path, start=start, end=end)
        sizes.append(len(content))
        return content

    monkeypatch.setattr(memory, "cat_file", cat_file)
    return sizes


@pytest.mark.parametrize(
    ("ending", "content"), [("jsonl", LINES), ("parquet", PARQUET)], ids=["jsonl", "parquet"]
)
def test_slices_fetch_a_file_once(ending, content, memory, requests):
    memory.pipe_file(f"/a.{ending}", content)
    parts = list(iterate_slices(f"memory://a.{ending}"))
    assert sum(requests) <= BEHIND
    assert len(parts) >= 4
    assert [
        item.document.text for part in parts for item in parse_slice(part, Inputs())[0]
    ] == LONG_TEXTS
    behind = (
        len(parts) if ending == "jsonl" else 1
    )  # a line may end behind its slice, a row group ends where it ends
    assert sum(requests) <= len(content) + BEHIND * behind <= 1.1 * len(content)
    assert len(requests) <= len(parts) + 1
    assert max(requests) <= SLICE_BYTES + BEHIND + 1


def test_requests_end_where_the_reader_said_and_grow_behind_it(memory, requests):
    memory.pipe_file("/a", bytes(9 * BEHIND))
    with RemoteFile("memory://a", 9 * BEHIND, "").open(until=10) as stream:
        assert [len(stream.read(size)) for size in (4, 6, 1, 2 * BEHIND)] == [4, 6, 1, 2 * BEHIND]
        assert requests == [10, BEHIND, BEHIND, 2 * BEHIND]
        assert len(stream.read()) == 7 * BEHIND - 11


def test_row_groups_are_found_with_one_request_a_file(memory, requests):
    for name in "ab":
        memory.pipe_file(f"/{name}.parquet", PARQUET)
        for _ in range(2):
            list(iterate_slices(f"memory://{name}.parquet"))
    assert len(requests) == 2
    without_mark = RemoteFile(
        "memory://a.parquet", len(PARQUET), ""
    )  # may be another file the next time
    assert (
        read_metadata(without_mark).num_rows
        == read_metadata(without_mark).num_rows
        == len(LONG_TEXTS)
    )
    assert len(requests) == 4


def test_no_more_files_are_looked_into_than_decide_how_many_processes_read(
    memory, requests, monkeypatch
):
    monkeypatch.setattr(slices_module, "cores", lambda: 8)
    monkeypatch.setattr(slices_module, "PARALLEL_BYTES", len(LINES) * 2)
    monkeypatch.setattr(RemoteFile, "is_of_this_process", False)
    for name in "abcd":
        memory.pipe_file(f"/{name}.jsonl", LINES)
    files = list_url("memory://").files
    assert slices_module.reading_processes(files) == 8
    assert len(requests) == 2
    assert sum(requests) <= 1 << 13
    assert slices_module.reading_processes(files[:1]) == 1


@pytest.mark.parametrize("size", [5 * BEHIND, 5 * BEHIND + 7, SLICE_BYTES])
def test_a_line_longer_than_slices_is_fetched_by_who_begins_it(size, memory, requests):
    texts = ["a", "é" * 20 * BEHIND, "b", "c" * 3 * BEHIND, "d"]
    content = "\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts).encode()
    memory.pipe_file("/a.jsonl", content)
    records, lines = [], 0
    parts = list(iterate_slices("memory://a.jsonl", size))
    requests.clear()
    for part in parts:
        items, line_count, _ = parse_slice(part, Inputs())
        records += [(item.record.line + lines, item.document.text) for item in items]
        lines += line_count
    assert records == list(enumerate(texts, 1))
    assert (
        sum(requests) <= 2 * len(content) + (2 * len(parts) + 2) * BEHIND
    )  # by the others as much as they have
    assert len(requests) <= 2 * len(parts) + 8


def test_several_processes_fetch_a_file_about_once_and_write_the_bytes_of_one(
    s3, store, tmp_path, monkeypatch
):
    for name, value in store.options.items():  # for the other processes, too
        monkeypatch.setenv(f"FSSPEC_S3_{name.upper()}", value)
    s3.pipe_file("pool/a.parquet", PARQUET)
    manifests = {}
    for processes, cuts in ((1, 0), (2, 0), (2, 3)):
        monkeypatch.setattr(corpus_module, "reading_processes", lambda _, count=processes: count)
        store.cut(cuts, 20_000)
        store.answered.clear()
        pool = pool_stage(["s3://pool/a.parquet"], tmp_path / f"{processes}-{cuts}" / "pool")
        assert store.cuts == cuts
        if not cuts:
            assert len(PARQUET) <= sum(store.answered) <= 1.2 * len(PARQUET)
        manifests[processes, cuts] = (contents_made(pool.path), pool.manifest["counts"])
    assert manifests[1, 0] == manifests[2, 0] == manifests[2, 3]
