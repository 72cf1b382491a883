"""The corpus by several processes: files are read side by side, and every byte is that of one process."""

import gzip
import json
from contextlib import contextmanager
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.core.errors import DataError
from dana.core.schemas import part_files
from dana.corpus import slices as slices_module
from dana.corpus.documents import Tally, read_documents
from dana.corpus.inputs import Inputs
from dana.corpus.slices import iterate_slices, parse_sources
from dana.corpus.sources import find_files
from dana.stages import texts as stage
from dana.stages.texts import corpus_stage


class _Pool:
    """Know the files of the calls that were handed over and not asked for yet; one is made when it is asked for."""

    def __init__(self):
        self.waiting, self.most = [], 0

    def submit(self, function, part, inputs):
        self.waiting.append(part.path)
        self.most = max(self.most, len(set(self.waiting)))
        return SimpleNamespace(result=lambda: self.waiting.remove(part.path) or function(part, inputs))


@pytest.mark.parametrize("source", ["", "*.jsonl", "each"])
def test_small_files_are_read_side_by_side_however_they_are_named(tmp_path, monkeypatch, source):
    pool, folder = _Pool(), tmp_path / "in"
    folder.mkdir()
    for number in range(10):
        (folder / f"{number}.jsonl").write_text(json.dumps({"text": f"text {number}"}))

    @contextmanager
    def workers(count):
        yield pool

    monkeypatch.setattr(slices_module, "worker_pool", workers)
    monkeypatch.setattr(stage, "reading_processes", lambda files: 3)
    sources = sorted(map(str, folder.iterdir())) if source == "each" else [str(folder / source)]
    corpora = corpus_stage(sources, tmp_path / "out")
    assert pool.most == 3 + 2
    assert not pool.waiting
    assert pq.read_table(part_files(corpora.path)[0])["text"].to_pylist() == [f"text {number}" for number in range(10)]


@pytest.fixture
def sources(tmp_path):
    """Write every kind of file, an empty and a damaged one among them; one is listed twice in a row, and once more."""
    folder = tmp_path / "in"
    folder.mkdir()
    rows = [json.dumps({"id": n, "text": f"row {n} {n**9}"}) for n in range(200)]
    (folder / "a.jsonl").write_text("\n".join([*rows[:50], "{broken", *rows[50:]]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("\n".join([*rows[150:], '{"text": "packed"}']).encode()))
    pq.write_table(pa.table({"text": [f"cell {n}" for n in range(200)]}), folder / "c.parquet", row_group_size=20)
    (folder / "d.csv").write_text("id,text\n" + "".join(f'{n},"line {n}\nand more"\n' for n in range(30)))
    (folder / "e.txt").write_text("one\n\ntwo\n\nrow 7 40353607\n")
    (folder / "f.jsonl").touch()
    (folder / "g.jsonl.gz").write_bytes((folder / "b.jsonl.gz").read_bytes()[:-20])
    twice = str(folder / "a.jsonl")
    return [twice, twice, str(folder), twice]


def test_every_record_and_every_byte_are_those_of_one_process(sources, tmp_path, monkeypatch):
    monkeypatch.setattr(slices_module, "iterate_slices", lambda source: iterate_slices(source, 500))
    outcomes = []
    for count in (1, 3):
        monkeypatch.setattr(stage, "reading_processes", lambda files, count=count: count)
        records = list(parse_sources(find_files(sources, tmp_path), count, Inputs()))
        for one in records:
            one.record.fields.clear()  # they do not come back from another process
        corpus = corpus_stage(sources, tmp_path / f"out {count}", "skip")
        content = [path.read_bytes() for path in part_files(corpus.path)]
        outcomes.append((records, content, corpus.manifest["counts"], corpus.fingerprint))
    assert outcomes[0] == outcomes[1]
    records, _, counts, _ = outcomes[0]
    assert [one.record.line for one in records if one.problem.startswith("not JSON")] == [51] * 4
    assert counts["rejected"] == {"unreadable": 4, "damaged file": 2}


def test_what_is_wrong_first_is_said_by_however_many_processes(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n{broken')
    sources = [str(tmp_path / "a.jsonl"), str(tmp_path / "missing.jsonl")]
    for count in (1, 2):
        with pytest.raises(DataError, match=r"a\.jsonl:2: not JSON"):
            list(read_documents(sources, "fail", Tally(), count))
        with pytest.raises(DataError, match=r"missing\.jsonl: no such file"):
            list(read_documents(sources, "skip", Tally(), count))
