"""A file at a URL that several processes read in slices is fetched about once, and gives what one process reads."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.core.storage import BEHIND, RemoteFile, list_url
from dana.corpus import slices
from dana.corpus.inputs import Inputs
from dana.corpus.readers import read_metadata
from dana.corpus.slices import SLICE_BYTES, iterate_slices, parse_slice
from dana.stages import texts as corpus_module
from dana.stages.texts import corpus_stage

DRAW = random.Random(0)
TEXTS = [f"{number} {DRAW.randbytes(300).hex()}" for number in range(8000)]
LINES = "".join(json.dumps({"text": text}) + ("\n\n" if len(text) % 7 else "\n") for text in TEXTS).encode()


def _parquet() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"text": TEXTS, "id": [str(place) for place in range(len(TEXTS))]})
    pq.write_table(table, sink, row_group_size=700, use_dictionary=["id"], compression=None)
    return sink.getvalue().to_pybytes()


FILES = {"jsonl": LINES, "parquet": _parquet()}


@pytest.fixture
def fetched(memory, monkeypatch):
    """The sizes of the requests to memory://."""
    sizes: list[int] = []
    whole = memory.cat_file

    def cat_file(path, start=None, end=None):
        content = whole(path, start=start, end=end)
        sizes.append(len(content))
        return content

    monkeypatch.setattr(memory, "cat_file", cat_file)
    return sizes


@pytest.fixture
def s3_of_all(s3, store, monkeypatch):
    """That of `s3`, for other processes, too."""
    for name, value in store.options.items():
        monkeypatch.setenv(f"FSSPEC_S3_{name.upper()}", value)
    return s3


@pytest.mark.parametrize("ending", FILES)
def test_slices_fetch_a_file_once(ending, memory, fetched):
    memory.pipe_file(f"/a.{ending}", FILES[ending])
    parts = list(iterate_slices(f"memory://a.{ending}"))
    head = sum(fetched)
    assert head <= BEHIND
    assert len(parts) >= 4
    read = [parsed.document.text for part in parts for parsed in parse_slice(part, Inputs())[0]]
    assert read == TEXTS
    behind = len(parts) if ending == "jsonl" else 1  # a line may end behind its slice, a row group ends where it ends
    assert sum(fetched) <= len(FILES[ending]) + BEHIND * behind <= 1.1 * len(FILES[ending])
    assert len(fetched) <= len(parts) + 1
    assert max(fetched) <= SLICE_BYTES + BEHIND + 1


def test_requests_end_where_the_reader_said_and_grow_behind_it(memory, fetched):
    memory.pipe_file("/a", bytes(9 * BEHIND))
    with RemoteFile("memory://a", 9 * BEHIND, "").open(until=10) as stream:
        assert [len(stream.read(size)) for size in (4, 6, 1, 2 * BEHIND)] == [4, 6, 1, 2 * BEHIND]
        assert fetched == [10, BEHIND, BEHIND, 2 * BEHIND]
        assert len(stream.read()) == 7 * BEHIND - 11


def test_row_groups_are_found_with_one_request_a_file(memory, fetched):
    for name in "ab":
        memory.pipe_file(f"/{name}.parquet", FILES["parquet"])
        for _ in range(2):
            list(iterate_slices(f"memory://{name}.parquet"))
    assert len(fetched) == 2
    unmarked = RemoteFile("memory://a.parquet", len(FILES["parquet"]), "")  # may be another file the next time
    assert read_metadata(unmarked).num_rows == read_metadata(unmarked).num_rows == len(TEXTS)
    assert len(fetched) == 4


def test_no_more_files_are_looked_into_than_decide_how_many_processes_read(memory, fetched, monkeypatch):
    monkeypatch.setattr(slices, "cores", lambda: 8)
    monkeypatch.setattr(slices, "PARALLEL_BYTES", len(LINES) * 2)
    monkeypatch.setattr(RemoteFile, "is_of_this_process", False)
    for name in "abcd":
        memory.pipe_file(f"/{name}.jsonl", LINES)
    files = list_url("memory://").files
    assert slices.reading_processes(files) == 8
    assert len(fetched) == 2
    assert sum(fetched) <= 1 << 13
    assert slices.reading_processes(files[:1]) == 1


@pytest.mark.parametrize("size", [5 * BEHIND, 5 * BEHIND + 7, SLICE_BYTES])
def test_a_line_longer_than_slices_is_fetched_by_who_begins_it(size, memory, fetched):
    texts = ["a", "é" * 20 * BEHIND, "b", "c" * 3 * BEHIND, "d"]
    content = "\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts).encode()
    memory.pipe_file("/a.jsonl", content)
    found, lines = [], 0
    parts = list(iterate_slices("memory://a.jsonl", size))
    fetched.clear()
    for part in parts:
        records, passed = parse_slice(part, Inputs())
        found += [(parsed.record.line + lines, parsed.document.text) for parsed in records]
        lines += passed
    assert found == list(enumerate(texts, 1))
    assert sum(fetched) <= 2 * len(content) + (2 * len(parts) + 2) * BEHIND  # by the others as much as they have
    assert len(fetched) <= 2 * len(parts) + 8


@pytest.mark.parametrize("ending", FILES)
def test_several_processes_fetch_a_file_about_once_and_write_the_bytes_of_one(
    ending, s3_of_all, store, tmp_path, monkeypatch
):
    s3_of_all.pipe_file(f"pool/a.{ending}", FILES[ending])
    files = {}
    for processes, cuts in ((1, 0), (2, 0), (2, 3)):
        monkeypatch.setattr(corpus_module, "reading_processes", lambda _, count=processes: count)
        store.cut(cuts, 20_000)
        store.answered.clear()
        made = corpus_stage([f"s3://pool/a.{ending}"], tmp_path / f"{processes}-{cuts}" / "corpus")
        assert store.cuts == cuts
        if not cuts:
            assert len(FILES[ending]) <= sum(store.answered) <= 1.2 * len(FILES[ending])
        files[processes, cuts] = (made.manifest["files"], made.manifest["counts"])
    assert all(told == files[1, 0] for told in files.values())
