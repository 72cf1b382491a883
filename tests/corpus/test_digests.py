"""Digests on disk: what a dictionary says, whatever is in memory, and the corpus that the dictionary gave."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dana.core.errors import ArtifactError, DataError
from dana.core.files import text_digest
from dana.core.schemas import part_files
from dana.corpus import digests
from dana.corpus.digests import NO_VALUE, DigestStore, DuplicateFilter
from dana.corpus.documents import Tally, read_documents
from dana.stages.texts import corpus_stage
from tests.corpus.files import write_rows

TIGHT = {"IN_MEMORY": 3, "BLOCK": 2, "FAN_IN": 2, "FILTER_BITS": 4}


@pytest.fixture
def tight(monkeypatch):
    """Three digests in memory, two records a block, a table that lets most digests pass."""
    for name, value in TIGHT.items():
        monkeypatch.setattr(digests, name, value)


def _digest(number):
    return blake2b(str(number).encode(), digest_size=16).digest()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 60), max_size=150))
def test_it_is_a_dictionary(tight, tmp_path, numbers):
    values = {}
    with closing(DigestStore(tmp_path)) as digest_store:
        for number in numbers:
            assert digest_store.get(_digest(number)) == values.get(number)
            if number not in values:
                values[number] = number.to_bytes(8, "big")
                digest_store.add(_digest(number), values[number])
        for number in range(-1, 61):
            assert digest_store.get(_digest(number)) == values.get(number)


def test_a_digest_that_lies_across_two_records_is_not_found(monkeypatch):
    monkeypatch.setattr(digests, "IN_MEMORY", 2)
    digest = bytes(range(100, 116))
    before, after = bytes(16), digest[8:] + bytes(8)
    with closing(DigestStore()) as some:
        some.add(before, digest[:8])
        some.add(after, NO_VALUE)  # the file now holds the digest, from byte 16 on
        assert (some.get(digest), some.get(after), some.get(before)) == (None, NO_VALUE, digest[:8])
        some.add(digest, b"87654321")
        some.add(bytes(15) + b"\xff")
        assert some.get(digest) == b"87654321"


def test_there_are_few_runs_and_their_files_have_no_names(monkeypatch, tmp_path):
    monkeypatch.setattr(digests, "IN_MEMORY", 2)
    with closing(DigestStore(tmp_path)) as some:
        for number in range(2 * 64 + 2 * 16 + 2 * 3):
            some.add(_digest(number))
        assert [run.level for run in some._runs] == [3, 2, 0, 0, 0]
        assert list(tmp_path.iterdir()) == []
        handles = [run._file for run in some._runs]
    assert all(handle.closed for handle in handles)


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
            return list(read_documents([pool], on_bad_record, tally, folder=tmp_path)), tally
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
from dana.corpus import digests
from dana.stages import texts as corpus
digests.IN_MEMORY = 100
read = corpus.read_documents
def dying(*arguments):
    for number, document in enumerate(read(*arguments)):
        if number == 2500:
            os.kill(os.getpid(), signal.SIGKILL)
        yield document
corpus.read_documents = dying
corpus.corpus_stage([sys.argv[1]], corpus.Path(sys.argv[2]))
"""


def test_killed_in_the_middle_nothing_but_the_draft_is_left_and_a_rerun_gives_the_bytes(
    monkeypatch, tmp_path
):
    pool = _pool(tmp_path / "pool.jsonl", 4000)
    complete = corpus_stage([pool], tmp_path / "complete" / "corpus")
    run = tmp_path / "run"
    process = subprocess.run([sys.executable, "-c", KILLED, pool, str(run / "corpus")], check=False)
    assert process.returncode == -signal.SIGKILL
    assert {path.name for path in run.rglob("*") if path.is_file()} <= {
        "part-00000.parquet",
        ".corpus.lock",
    }
    monkeypatch.setattr(digests, "IN_MEMORY", 100)
    corpus = corpus_stage([pool], run / "corpus")
    assert [path.name for path in run.iterdir()] == ["corpus"]
    assert part_files(corpus.path)[0].read_bytes() == part_files(complete.path)[0].read_bytes()
    assert corpus.fingerprint == complete.fingerprint


def test_a_full_disk_is_one_line_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(digests, "IN_MEMORY", 100)

    def full(dir):
        assert Path(dir).parent.name.startswith(".corpus.tmp-")
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(digests, "TemporaryFile", full)
    with pytest.raises(ArtifactError, match="corpus: cannot be written: No space left on device"):
        corpus_stage([_pool(tmp_path / "pool.jsonl", 400)], tmp_path / "run" / "corpus")
    assert [path.name for path in tmp_path.iterdir()] == ["pool.jsonl"]
