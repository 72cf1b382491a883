"""Scores have the same bytes whoever scored which shard, when, and however often they were killed."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dana.errors import ArtifactError, ConfigError
from dana.schemas import DOCUMENTS, Document, iterate_documents, write_parts
from dana.stages import score as scoring_module
from dana.stages.corpus import corpus_stage, document_tables
from dana.stages.pipeline import ahead
from dana.stages.score import Scoring, build_selector, score_all
from dana.stages.selection import GeneralCorpus, TaskText
from dana.stages.shards import shards_of
from dana.stages.task import task_stage
from dana.stages.team import Share, Team
from tests.stages.two_topics import SELECTION


@pytest.fixture
def scoring(texts, tmp_path, monkeypatch):
    """Eight shards of a small pool, not scored yet."""
    monkeypatch.setattr(scoring_module, "shards_of", lambda corpus: shards_of(corpus, 17))
    task = TaskText(task_stage(str(texts / "cells.txt"), tmp_path / "task"))
    general = GeneralCorpus(corpus_stage([str(texts / "pool.jsonl")], tmp_path / "corpus"))
    selector = build_selector("detector", "knn", SELECTION)

    def make(name="scores", **changes):
        return replace(Scoring(task, general, SELECTION, selector, tmp_path / name), **changes)

    return make


def content(folder):
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_one_process_leaves_the_table_and_no_shards(scoring):
    made = score_all(scoring())
    assert pq.read_table(made.path / "part-00000.parquet").num_rows == made.manifest["counts"]["units"] > 200
    assert not scoring().shards.path.exists()
    assert score_all(scoring()).fingerprint == made.fingerprint, "a second call finds it"


@pytest.mark.parametrize("workers", [2, 3, 20])
def test_any_number_of_workers_in_any_order_gives_the_same_bytes(scoring, workers):
    expected = content(score_all(scoring("one")).path)
    many = scoring("many")
    many.prepare()
    for number in random.Random(workers).sample(range(workers), workers):
        worker = scoring("many")
        worker.score(worker.prepared(), Share(number, workers))
    assert content(many.merge().path) == expected


def test_the_size_of_shards_and_batches_changes_no_score(scoring, monkeypatch):
    expected = content(score_all(scoring("one")).path)
    monkeypatch.setattr(scoring_module, "shards_of", lambda corpus: shards_of(corpus, 5))
    original = scoring_module.units_of
    monkeypatch.setattr(scoring_module, "units_of", lambda documents, splitter: original(documents, splitter, 7))
    assert content(score_all(scoring("other")).path) == expected


def test_merging_too_early_says_what_is_missing(scoring):
    early = scoring()
    with pytest.raises(ArtifactError, match=r"(\d) of \1 shards are not scored yet, the first is number 0"):
        early.merge()
    early.score(early.prepare(), Share(0, 2))
    with pytest.raises(ArtifactError, match="the first is number 1; dana score, with the same flags"):
        early.merge()
    assert not early.folder.exists()


def test_a_share_of_what_was_not_prepared_is_refused(scoring):
    with pytest.raises(ArtifactError, match="make one with: dana score --prepare"):
        scoring().prepared()


def test_another_detector_is_refused_with_the_difference(scoring):
    begun = scoring()
    begun.score(begun.prepare(), Share(0, 2))
    other = scoring(selector=build_selector("detector", "pca", SELECTION))
    for attempt in (other.prepare, other.prepared):
        with pytest.raises(ArtifactError, match=r'selector\.detector: "knn" there, "pca" now'):
            attempt()


def test_killed_at_twenty_random_moments_the_bytes_are_the_same(scoring, monkeypatch):
    expected = content(score_all(scoring("one")).path)
    started = time.monotonic()
    score_all(scoring("timing"))
    takes, chance, alive = time.monotonic() - started, random.Random(0), 0
    original = scoring_module.table

    def slow(units, fitted):
        time.sleep(takes / 20)
        return original(units, fitted)

    monkeypatch.setattr(scoring_module, "table", slow)
    for _ in range(20):
        child = os.fork()
        if child == 0:  # pragma: no cover
            code = 1
            try:
                score_all(scoring("killed"))
                code = 0
            finally:
                os._exit(code)
        time.sleep(chance.uniform(0, takes / 2))
        os.kill(child, signal.SIGKILL)
        alive += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert alive >= 5
    assert content(score_all(scoring("killed")).path) == expected


def test_a_shard_reads_its_documents_and_no_others(tmp_path):
    documents = [Document(f"d{number}", "s", f"text {number}") for number in range(2500)]
    write_parts(document_tables(documents), tmp_path, DOCUMENTS, rows_per_part=1500)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["part-00000.parquet", "part-00001.parquet"]
    assert pq.ParquetFile(tmp_path / "part-00000.parquet").num_row_groups == 2, "groups of 1024 texts"
    for size in (7, 1024, 5000):
        found = shards_of(tmp_path, size)
        assert [shard.number for shard in found] == list(range(len(found)))
        assert [document for shard in found for document in shard.read()] == documents


def test_written_parts_do_not_depend_on_how_they_came(tmp_path):
    documents = [Document(f"d{number}", "s", f"text {number}") for number in range(2100)]
    whole = list(document_tables(documents))
    pieces = [part.slice(first, 333) for part in whole for first in range(0, part.num_rows, 333)]
    for name, batches in (("whole", whole), ("pieces", pieces)):
        assert write_parts(batches, tmp_path / name, DOCUMENTS, rows_per_part=1100) == 2100
    assert content(tmp_path / "whole") == content(tmp_path / "pieces")
    assert list(iterate_documents(tmp_path / "whole")) == documents


def test_reading_ahead_keeps_order_passes_errors_on_and_stops(tmp_path):
    assert list(ahead(iter(range(100)), depth=3)) == list(range(100))

    def broken():
        yield 1
        raise ValueError("line 2")

    found = ahead(broken())
    assert next(found) == 1
    with pytest.raises(ValueError, match="line 2"):
        next(found)
    seen = []

    def endless():
        while True:
            seen.append(1)
            yield 1

    early = ahead(endless(), depth=2)
    next(early)
    early.close()
    count = len(seen)
    time.sleep(0.05)
    assert len(seen) == count <= 4, "bounded, and over when nobody reads"


def test_shares_are_parsed_and_checked():
    assert Share.parse("2/8") == Share(1, 8)
    for wrong in ("0/8", "9/8", "2", "a/b", "2/", "-1/2"):
        with pytest.raises(ConfigError, match=r"--shard=.*: must be i/N with i from 1 to N"):
            Share.parse(wrong)


def test_a_launch_says_who_is_who(monkeypatch):
    assert Team.of_launch() == Team(0, 1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert Team.of_launch().share == Share(1, 3)


def command(texts, out, *more):
    return [
        *("score", "--task", str(texts / "cells.txt"), "--general", str(texts / "pool.jsonl"), "--out", str(out)),
        *("--detector", "knn", "--encoder", SELECTION.encoder, *more),
    ]


def dana(*arguments):
    return subprocess.run([sys.executable, "-m", "dana", *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_two_launched_processes_and_separate_shares_give_the_bytes_of_one(texts, tmp_path):
    assert dana(*command(texts, tmp_path / "one")).returncode == 0
    expected = content(tmp_path / "one" / "scores")
    recipe = str(Path(__file__).parent.parent.parent / "recipes" / "score.py")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", recipe]
    two = subprocess.run(
        [*launcher, *command(texts, tmp_path / "two")[1:]], capture_output=True, text=True, timeout=300
    )
    assert two.returncode == 0, two.stderr
    assert content(tmp_path / "two" / "scores") == expected
    for more in (["--prepare"], ["--shard", "2/2"], ["--shard", "1/2"], ["--merge"]):
        done = dana(*command(texts, tmp_path / "apart", *more))
        assert done.returncode == 0, done.stderr
    assert content(tmp_path / "apart" / "scores") == expected


def test_a_dry_run_writes_nothing_and_is_near_the_truth(texts, tmp_path):
    done = dana(*command(texts, tmp_path / "dry", "--dry-run"))
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "dry").exists()
    found = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()}
    units = score_count(texts, tmp_path)
    assert float(found["units"].replace(",", "")) == pytest.approx(units, rel=0.2)
    assert {"documents", "encoding", "time", "memory", "disk"} <= set(found)


def score_count(texts, tmp_path):
    general = GeneralCorpus(corpus_stage([str(texts / "pool.jsonl")], tmp_path / "counted"))
    return int(np.sum([len(units) for units in general.units(SELECTION)]))
