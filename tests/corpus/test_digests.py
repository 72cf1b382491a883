"""Digests on disk: what a dictionary says, whatever is in memory, and the pool that the dictionary gave."""

import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dana.core.errors import ArtifactError, DataError
from dana.core.files import text_digest
from dana.core.schemas import part_files
from dana.corpus import digests
from dana.corpus.digests import DigestStore, DuplicateFilter
from dana.corpus.documents import Tally, read_documents
from dana.stages.texts import pool_stage
from tests.corpus.files import write_rows


@pytest.fixture
def tight(monkeypatch):
    """A page of digests in memory, all others in a file."""
    monkeypatch.setattr(digests, "OPEN", digests.OPEN.replace("-65536", "1"))


def _digest(number):
    return blake2b(str(number).encode(), digest_size=16).digest()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=150))
def test_it_is_a_dictionary(tight, calls):
    values = {}
    with closing(DigestStore()) as digest_store:
        for row, (adds, number) in enumerate(calls):
            if adds:
                value = row.to_bytes(8, "big")
                assert digest_store.add(_digest(number), value) == values.get(number)
                values.setdefault(number, value)
            elif number in values:
                digest_store.remove(_digest(number))
                del values[number]


def _admitted_by_sets(document, texts, names):
    """What read_documents did with a set and a dictionary: the reference."""
    text = text_digest(document.text)
    if text in texts:
        return "duplicate", "", None
    if names.get(text_digest(document.doc_id), document.source) != document.source:
        document = replace(document, doc_id=f"{document.source}/{document.doc_id}")
    name = text_digest(document.doc_id)
    if name in names:
        return (
            "repeated id",
            f"id {document.doc_id!r} is repeated with another text; ids must be unique",
            None,
        )
    texts.add(text)
    names[name] = document.source
    return "", "", document


FIELDS = {"text": st.integers(0, 30).map(str), "source": st.sampled_from(["one", "two", "three"])}
IDS = {"id": st.one_of(st.integers(0, 9), st.sampled_from(["two/1", "three/2", "two/two/1"]))}
RECORDS = st.lists(st.fixed_dictionaries(FIELDS, optional=IDS), max_size=80)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RECORDS)
def test_documents_are_those_of_sets_in_memory(tight, tmp_path, records):
    pool = write_rows(tmp_path / "pool.jsonl", records)

    def read(on_bad_record):
        tally = Tally()
        try:
            return list(read_documents([pool], on_bad_record, tally)), tally
        except DataError as error:
            return str(error)

    now = [read(on_bad_record) for on_bad_record in ("skip", "fail")]
    with pytest.MonkeyPatch.context() as patch:
        texts, names = set(), {}
        patch.setattr(
            DuplicateFilter,
            "admit",
            lambda self, document: _admitted_by_sets(document, texts, names),
        )
        reference = [read("skip")]
        texts, names = set(), {}
        assert now == [*reference, read("fail")]


def _pool(path, count):
    return write_rows(
        path, [{"text": f"text {number * 7919 % (count * 3 // 4)}"} for number in range(count)]
    )


KILLED = """
import os, signal, sys
from dana.stages import texts as reading
read = reading.read_documents
def dying(*arguments):
    for number, document in enumerate(read(*arguments)):
        if number == 2500:
            os.kill(os.getpid(), signal.SIGKILL)
        yield document
reading.read_documents = dying
reading.pool_stage([sys.argv[1]], reading.Path(sys.argv[2]))
"""


def test_killed_in_the_middle_nothing_but_the_draft_is_left_and_a_rerun_gives_the_bytes(tmp_path):
    source = _pool(tmp_path / "pool.jsonl", 4000)
    complete = pool_stage([source], tmp_path / "complete" / "pool")
    run = tmp_path / "run"
    process = subprocess.run([sys.executable, "-c", KILLED, source, str(run / "pool")], check=False)
    assert process.returncode == -signal.SIGKILL
    left = {path.name[:9] for path in run.rglob("*") if path.is_file()}
    assert left <= {"part-00000.parquet"[:9], ".pool.lock"[:9]}
    pool = pool_stage([source], run / "pool")
    assert [path.name for path in run.iterdir()] == ["pool"]
    assert part_files(pool.path)[0].read_bytes() == part_files(complete.path)[0].read_bytes()
    assert pool.fingerprint == complete.fingerprint


def test_a_full_disk_is_one_line_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(digests, "OPEN", f"PRAGMA max_page_count = 2; {digests.OPEN}")
    with pytest.raises(
        ArtifactError, match=r"temporary file .* is full.*; free some space .* or set TMPDIR"
    ):
        pool_stage([_pool(tmp_path / "pool.jsonl", 400)], tmp_path / "run" / "pool")
    assert [path.name for path in tmp_path.iterdir()] == ["pool.jsonl"]
