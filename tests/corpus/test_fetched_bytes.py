"""A file at a URL that several processes read in slices is fetched about once, and gives what one process reads."""

import json
import random

import pytest

from dana.core.storage import BEHIND, RemoteFile, list_url
from dana.corpus import slices
from dana.corpus.inputs import Inputs
from dana.corpus.readers import read_metadata
from dana.corpus.slices import SLICE_BYTES, iterate_slices, parse_slice
from dana.stages import texts as corpus_module
from dana.stages.texts import corpus_stage
from tests.corpus.files import parquet

DRAW = random.Random(0)
TEXTS = [f"{number} {DRAW.randbytes(300).hex()}" for number in range(8000)]
LINES = "".join(json.dumps({"text": text}) + ("\n\n" if len(text) % 7 else "\n") for text in TEXTS).encode()
COLUMNS = {"text": TEXTS, "id": [str(number) for number in range(len(TEXTS))]}
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


@pytest.mark.parametrize(("ending", "content"), [("jsonl", LINES), ("parquet", PARQUET)], ids=["jsonl", "parquet"])
def test_slices_fetch_a_file_once(ending, content, memory, requests):
    memory.pipe_file(f"/a.{ending}", content)
    parts = list(iterate_slices(f"memory://a.{ending}"))
    assert sum(requests) <= BEHIND
    assert len(parts) >= 4
    assert [item.document.text for part in parts for item in parse_slice(part, Inputs())[0]] == TEXTS
    behind = len(parts) if ending == "jsonl" else 1  # a line may end behind its slice, a row group ends where it ends
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
    without_mark = RemoteFile("memory://a.parquet", len(PARQUET), "")  # may be another file the next time
    assert read_metadata(without_mark).num_rows == read_metadata(without_mark).num_rows == len(TEXTS)
    assert len(requests) == 4


def test_no_more_files_are_looked_into_than_decide_how_many_processes_read(memory, requests, monkeypatch):
    monkeypatch.setattr(slices, "cores", lambda: 8)
    monkeypatch.setattr(slices, "PARALLEL_BYTES", len(LINES) * 2)
    monkeypatch.setattr(RemoteFile, "is_of_this_process", False)
    for name in "abcd":
        memory.pipe_file(f"/{name}.jsonl", LINES)
    files = list_url("memory://").files
    assert slices.reading_processes(files) == 8
    assert len(requests) == 2
    assert sum(requests) <= 1 << 13
    assert slices.reading_processes(files[:1]) == 1


@pytest.mark.parametrize("size", [5 * BEHIND, 5 * BEHIND + 7, SLICE_BYTES])
def test_a_line_longer_than_slices_is_fetched_by_who_begins_it(size, memory, requests):
    texts = ["a", "é" * 20 * BEHIND, "b", "c" * 3 * BEHIND, "d"]
    content = "\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts).encode()
    memory.pipe_file("/a.jsonl", content)
    records, lines = [], 0
    parts = list(iterate_slices("memory://a.jsonl", size))
    requests.clear()
    for part in parts:
        items, line_count = parse_slice(part, Inputs())
        records += [(item.record.line + lines, item.document.text) for item in items]
        lines += line_count
    assert records == list(enumerate(texts, 1))
    assert sum(requests) <= 2 * len(content) + (2 * len(parts) + 2) * BEHIND  # by the others as much as they have
    assert len(requests) <= 2 * len(parts) + 8


def test_several_processes_fetch_a_file_about_once_and_write_the_bytes_of_one(s3, store, tmp_path, monkeypatch):
    for name, value in store.options.items():  # for the other processes, too
        monkeypatch.setenv(f"FSSPEC_S3_{name.upper()}", value)
    s3.pipe_file("pool/a.parquet", PARQUET)
    manifests = {}
    for processes, cuts in ((1, 0), (2, 0), (2, 3)):
        monkeypatch.setattr(corpus_module, "reading_processes", lambda _, count=processes: count)
        store.cut(cuts, 20_000)
        store.answered.clear()
        corpus = corpus_stage(["s3://pool/a.parquet"], tmp_path / f"{processes}-{cuts}" / "corpus")
        assert store.cuts == cuts
        if not cuts:
            assert len(PARQUET) <= sum(store.answered) <= 1.2 * len(PARQUET)
        manifests[processes, cuts] = (corpus.manifest["files"], corpus.manifest["counts"])
    assert manifests[1, 0] == manifests[2, 0] == manifests[2, 3]
