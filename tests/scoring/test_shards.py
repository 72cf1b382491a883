"""Scores have the same bytes whoever scored which shard, when, and however often they were killed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dana.core import schemas
from dana.core.artifacts import MANIFEST, fingerprint
from dana.core.errors import ArtifactError, ConfigError, PluginError
from dana.core.launch import Share
from dana.core.schemas import DOCUMENTS, Document, iterate_documents, write_parts
from dana.corpus.documents import document_tables
from dana.scoring import scoring as scoring_module
from dana.scoring import sharded
from dana.scoring.inputs import PoolText, TargetText
from dana.scoring.scoring import Scoring, build_selector
from dana.scoring.sharded import shards_of
from dana.selectors.random import FittedRandom
from dana.stages.texts import pool_stage, target_stage
from tests.scoring.on_disk import contents, flip
from tests.stages.two_topics import SELECTION

KNN, PCA = (build_selector("detector", detector, SELECTION) for detector in ("knn", "pca"))
RECIPE = Path(__file__).parents[2] / "recipes" / "score.py"


@pytest.fixture(scope="module", autouse=True)
def small_shards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schemas, "DOCUMENTS_PER_SHARD", 17)
        yield


@pytest.fixture(scope="module")
def inputs(texts, tmp_path_factory):
    """A task and a pool of eight shards."""
    folder = tmp_path_factory.mktemp("inputs")
    pool = pool_stage([str(texts / "pool.jsonl")], folder / "pool")
    return TargetText(target_stage(str(texts / "cells.txt"), folder / "target")), PoolText(pool)


@pytest.fixture
def scoring(inputs, tmp_path):
    def make(name="scores", selector=KNN, selection=SELECTION, pool=inputs[1]):
        return Scoring(inputs[0], pool, selection, selector, tmp_path / name)

    return make


def rows_of(folder):
    """The bytes of all files but the manifest, which holds times."""
    return {
        name: content
        for name, content in contents(folder).items()
        if not name.endswith("manifest.json")
    }


@pytest.fixture(scope="module")
def by_one(inputs, tmp_path_factory):
    """What one process leaves: the table, and no shards."""
    job = Scoring(*inputs, SELECTION, KNN, tmp_path_factory.mktemp("one") / "scores")
    artifact = job.run()
    assert (
        pq.read_table(job.folder / "part-00000.parquet").num_rows
        == artifact.manifest["counts"]["units"]
        > 200
    )
    assert not job.shard_folder.path.exists()
    assert job.run().fingerprint == artifact.fingerprint, "a second call finds it"
    return rows_of(job.folder)


@pytest.mark.parametrize("workers", [2, 3, 20])
def test_any_number_of_workers_in_any_order_gives_the_same_bytes(scoring, by_one, workers):
    many = scoring("many")
    many.prepare()
    for number in random.Random(workers).sample(range(workers), workers):
        worker = scoring("many")
        worker.score(worker.load_prepared(), Share(number, workers))
    assert rows_of(many.merge().path) == by_one


def test_the_size_of_shards_and_batches_changes_no_score(
    scoring, by_one, texts, tmp_path, monkeypatch
):
    monkeypatch.setattr(schemas, "DOCUMENTS_PER_SHARD", 5)
    split = sharded.split_documents
    monkeypatch.setattr(
        sharded, "split_documents", lambda documents, splitter: split(documents, splitter, 7)
    )
    pool = PoolText(pool_stage([str(texts / "pool.jsonl")], tmp_path / "other-corpus"))
    assert rows_of(scoring("other", pool=pool).run().path) == by_one


def test_killed_at_twenty_random_moments_the_bytes_are_the_same(scoring, by_one, monkeypatch):
    start = time.monotonic()
    scoring("timing").run()
    seconds, chance, kills = time.monotonic() - start, random.Random(0), 0
    score_table = scoring_module.score_table

    def score_slowly(units, model, min_words):
        time.sleep(seconds / 20)
        return score_table(units, model, min_words)

    monkeypatch.setattr(scoring_module, "score_table", score_slowly)
    for _ in range(20):
        child = os.fork()
        if child == 0:  # pragma: no cover
            code = 1
            try:
                scoring("killed").run()
                code = 0
            finally:
                os._exit(code)
        time.sleep(chance.uniform(0, seconds / 2))
        os.kill(child, signal.SIGKILL)
        is_killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        kills += is_killed
        if not is_killed:  # it had finished: the next begins anew
            shutil.rmtree(scoring("killed").folder)
    assert kills >= 5
    assert rows_of(scoring("killed").run().path) == by_one


def test_another_detector_is_refused_and_its_shards_are_never_merged(scoring):
    """Whoever removes the selector's folder and takes another detector must not get a table of two."""
    begun = scoring()
    begun.score(begun.prepare(), Share(0, 2))
    other = scoring(selector=PCA)
    for attempt in (other.prepare, other.load_prepared):
        with pytest.raises(ArtifactError, match=r'selector\.detector: "knn" there, "pca" now'):
            attempt()
    shutil.rmtree(begun.shard_folder.path / "selector")
    assert rows_of(other.run().path) == rows_of(scoring("alone", selector=PCA).run().path)


@pytest.fixture
def scored_job(scoring):
    """All shards are there, nothing is merged."""
    job = scoring()
    job.score(job.prepare(), Share())
    return job


def test_the_seconds_of_scores_hold_fitting_and_every_shard(scored_job):
    shards, folder = shards_of(scored_job.pool.artifact.path), scored_job.shard_folder
    seconds = folder.seconds(shards)
    assert 0 < seconds < 60
    folder.write(0, pq.read_table(folder.file(0)).replace_schema_metadata(None), 1000.0)
    assert 1000 < folder.seconds(shards) < 1000 + seconds
    path = folder.path / "selector" / MANIFEST
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "seconds": 500.0}))
    assert 1500 < scored_job.run().manifest["seconds"] < 1600


def test_damage_of_a_shard_is_named(scored_job):
    shard = scored_job.shard_folder.file(3)
    flip(shard, 40)
    with pytest.raises(
        ArtifactError, match=r"shard-000003-\w+\.parquet: damaged .*remove it and score again"
    ):
        scored_job.merge()
    assert not scored_job.is_done
    assert not scored_job.folder.exists()
    shard.unlink()
    assert scored_job.run().manifest["counts"]["units"] > 200


def test_a_shard_is_written_aside_and_renamed(scoring, monkeypatch):
    """Killed while it writes, a process must not leave a file that looks like a shard."""
    job = scoring()
    model = job.prepare()

    def kill(table, where, **options):
        where.write_bytes(b"PAR1 and half of the rest")
        raise KeyboardInterrupt

    monkeypatch.setattr("dana.scoring.sharded.pq.write_table", kill)
    with pytest.raises(KeyboardInterrupt):
        job.score(model, Share())
    assert not list(job.shard_folder.path.glob("shard-*"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda scores: np.where(np.arange(scores.size) == 2, np.nan, scores),
            r"the score of unit 2 of \d+ is nan",
        ),
        (
            lambda scores: np.where(np.arange(scores.size) == 0, np.inf, scores),
            r"the score of unit 0 of \d+ is inf",
        ),
        (lambda scores: scores[:-1], "expected scores of shape"),
        (lambda scores: scores[:, None], "expected scores of shape"),
    ],
)
def test_what_is_no_finite_number_a_unit_is_never_committed(scoring, monkeypatch, change, message):
    job, score = scoring(selector=build_selector("random", "", SELECTION)), FittedRandom.score
    monkeypatch.setattr(FittedRandom, "score", lambda model, units: change(score(model, units)))
    with pytest.raises(
        PluginError, match=f"selector 'FittedRandom' of dana: ValueError: .*{message}"
    ):
        job.run()
    assert not job.folder.exists()
    assert not job.shard_folder.path.exists()


def test_a_shard_reads_its_documents_and_parts_do_not_depend_on_how_they_came(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(schemas, "DOCUMENTS_PER_SHARD", 1024)
    documents = [Document(f"d{number}", "s", f"text {number}") for number in range(2500)]
    tables = list(document_tables(documents))
    pieces = [
        table.slice(first, 333) for table in tables for first in range(0, table.num_rows, 333)
    ]
    for name, batches in (("tables", tables), ("pieces", pieces)):
        assert write_parts(batches, tmp_path / name, DOCUMENTS, rows_per_part=1500) == 2500
    assert rows_of(tmp_path / "tables") == rows_of(tmp_path / "pieces")
    assert list(iterate_documents(tmp_path / "pieces")) == documents
    assert list(contents(tmp_path / "tables")) == ["part-00000.parquet", "part-00001.parquet"]
    assert pq.ParquetFile(tmp_path / "tables/part-00000.parquet").num_row_groups == 2
    shards = shards_of(tmp_path / "tables")
    assert [(shard.number, shard.document_count) for shard in shards] == [
        (0, 1024),
        (1, 476),
        (2, 1000),
    ]
    assert [document for shard in shards for document in shard.read()] == documents


def command(texts, out, *flags):
    sources = [
        "--task",
        str(texts / "cells.txt"),
        "--pool",
        str(texts / "pool.jsonl"),
        "--out",
        str(out),
    ]
    return ["score", *sources, "--selector", "detector:knn", "--encoder", SELECTION.encoder, *flags]


def launch(*arguments):
    subprocess.run(
        [sys.executable, "-m", *arguments], check=True, capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
def test_two_launched_processes_and_separate_shares_give_the_bytes_of_one(texts, tmp_path):
    launch("dana", *command(texts, tmp_path / "one"))
    one = rows_of(tmp_path / "one" / "scores")
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(RECIPE)]
    launch(*launcher, *command(texts, tmp_path / "two")[1:])
    assert rows_of(tmp_path / "two" / "scores") == one
    for flags in (["--prepare"], ["--shard", "2/2"], ["--shard", "1/2"], ["--merge"]):
        launch("dana", *command(texts, tmp_path / "apart", *flags))
    assert rows_of(tmp_path / "apart" / "scores") == one


def test_a_step_without_the_one_before_it_names_the_command(scoring):
    job = scoring()
    with pytest.raises(ArtifactError, match="dana score --prepare"):
        job.load_prepared()
    with pytest.raises(ArtifactError, match=r"(\d) of \1 shards .* number 0"):
        job.merge()
    model = job.prepare()
    job.score(model, Share(0, 2))
    with pytest.raises(ArtifactError, match="number 1; run dana score"):
        job.merge()
    assert not job.folder.exists()
    shutil.rmtree(job.shard_folder.path)
    with pytest.raises(ArtifactError, match="another process has merged"):
        job.score(model, Share())


def test_only_one_process_at_a_time_runs_or_merges(scoring, monkeypatch):
    def refuse(path):
        raise ArtifactError(f"{path}: process 7 is writing it")

    job = scoring()
    monkeypatch.setattr(sharded, "folder_lock", refuse)
    for attempt in (job.run, job.merge):
        with pytest.raises(ArtifactError, match="scores-shards: process 7"):
            attempt()
    assert not job.shard_folder.path.exists()


def test_the_fingerprint_of_scores_holds_all_that_decides_them_and_no_more(scoring):
    def print_of(selector, **changes):
        selection = replace(SELECTION, **changes)
        job = scoring(selection=selection, selector=build_selector(selector, "knn", selection))
        return fingerprint(job.depends_on)

    changes = [
        {},
        {"seed": 1},
        {"units": "window:8"},
        {"units": "window:9"},
        {"geometry": "l2"},
        {"max_target_units": 9},
    ]
    assert len({print_of("detector", **change) for change in changes}) == len(changes)
    assert print_of("random") == print_of(
        "random", encoder="hashing", geometry="l2", pool_share=0.1
    )
    assert print_of("random") != print_of("random", max_target_units=7)
    assert print_of("detector:geometry=l2") == print_of("detector:geometry=l2", geometry="none")


def test_shares_are_parsed_and_those_of_a_launch(monkeypatch):
    assert (Share.parse("2/8"), Share.of_launch()) == (Share(1, 8), Share(0, 1))
    for wrong in ("0/8", "9/8", "2", "a/b", "-1/2"):
        with pytest.raises(ConfigError, match="--shard="):
            Share.parse(wrong)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert Share.of_launch() == Share(1, 3)
