"""Scores have the same bytes whoever scored which shard, when, and however often they were killed."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from dana.core import schemas
from dana.core.artifacts import MANIFEST, add_seal, fingerprint
from dana.core.errors import ArtifactError, ConfigError, PluginError
from dana.core.launch import Share
from dana.core.logging import tick
from dana.core.schemas import DOCUMENTS, Document, iterate_documents, write_parts
from dana.corpus.documents import document_tables
from dana.encoders.hashing import HashingEncoder
from dana.scoring import scoring as scoring_module
from dana.scoring import sharded
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.scoring import Scoring, build_selector
from dana.scoring.sharded import shards_of
from dana.selectors.random import FittedRandom
from dana.stages.texts import corpus_stage, task_stage
from tests.stages.two_topics import SELECTION


@pytest.fixture
def scoring(texts, tmp_path, monkeypatch):
    """Eight shards of a small pool, not scored yet."""
    monkeypatch.setitem(schemas.ROWS_PER_GROUP, True, 17)
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
    made = scoring().run()
    assert pq.read_table(made.path / "part-00000.parquet").num_rows == made.manifest["counts"]["units"] > 200
    assert not scoring().shards.path.exists()
    assert scoring().run().fingerprint == made.fingerprint, "a second call finds it"


@pytest.mark.parametrize("workers", [2, 3, 20])
def test_any_number_of_workers_in_any_order_gives_the_same_bytes(scoring, workers):
    expected = content(scoring("one").run().path)
    many = scoring("many")
    many.prepare()
    for number in random.Random(workers).sample(range(workers), workers):
        worker = scoring("many")
        worker.score(worker.load_prepared(), Share(number, workers))
    assert content(many.merge().path) == expected


def test_the_size_of_shards_and_batches_changes_no_score(scoring, texts, tmp_path, monkeypatch):
    expected = content(scoring("one").run().path)
    monkeypatch.setitem(schemas.ROWS_PER_GROUP, True, 5)
    original = sharded.split_documents
    monkeypatch.setattr(sharded, "split_documents", lambda documents, splitter: original(documents, splitter, 7))
    general = GeneralCorpus(corpus_stage([str(texts / "pool.jsonl")], tmp_path / "other-corpus"))
    assert content(scoring("other", general=general).run().path) == expected


def test_another_detector_is_refused_with_the_difference(scoring):
    begun = scoring()
    begun.score(begun.prepare(), Share(0, 2))
    other = scoring(selector=build_selector("detector", "pca", SELECTION))
    for attempt in (other.prepare, other.load_prepared):
        with pytest.raises(ArtifactError, match=r'selector\.detector: "knn" there, "pca" now'):
            attempt()


def test_killed_at_twenty_random_moments_the_bytes_are_the_same(scoring, monkeypatch):
    expected = content(scoring("one").run().path)
    started = time.monotonic()
    scoring("timing").run()
    takes, chance, alive = time.monotonic() - started, random.Random(0), 0
    original = scoring_module.score_table

    def slow(units, fitted):
        time.sleep(takes / 20)
        return original(units, fitted)

    monkeypatch.setattr(scoring_module, "score_table", slow)
    for _ in range(20):
        child = os.fork()
        if child == 0:  # pragma: no cover
            code = 1
            try:
                scoring("killed").run()
                code = 0
            finally:
                os._exit(code)
        time.sleep(chance.uniform(0, takes / 2))
        os.kill(child, signal.SIGKILL)
        alive += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert alive >= 5
    assert content(scoring("killed").run().path) == expected


def test_shards_of_another_scoring_are_never_merged(scoring):
    """Whoever removes the selector's folder and takes another detector must not get a table of two."""
    expected = content(scoring("one", selector=build_selector("detector", "pca", SELECTION)).run().path)
    begun = scoring("two")
    begun.score(begun.prepare(), Share(0, 2))
    shutil.rmtree(begun.shards.path / "selector")
    other = scoring("two", selector=build_selector("detector", "pca", SELECTION))
    assert content(other.run().path) == expected


def _scored(scoring):
    done = scoring()
    done.score(done.prepare(), Share())
    return done


def test_the_seconds_of_scores_hold_fitting_and_every_shard(scoring):
    done = _scored(scoring)
    every = shards_of(done.general.artifact.path)
    measured = done.shards.seconds(every)
    assert 0 < measured < 60
    first = pq.read_table(done.shards.file(0)).replace_schema_metadata(None)
    done.shards.write(0, first, 1000.0)
    assert 1000 < done.shards.seconds(every) < 1000 + measured
    selector = done.shards.path / "selector" / MANIFEST
    manifest = {key: value for key, value in json.loads(selector.read_text()).items() if key != "digest"}
    selector.write_text(json.dumps(add_seal({**manifest, "seconds": 500.0})))
    assert 1500 < done.run().manifest["seconds"] < 1600


def test_a_flipped_bit_in_a_shard_is_found_when_it_is_merged(scoring):
    done = _scored(scoring)
    file = done.shards.file(3)
    raw = bytearray(file.read_bytes())
    raw[40] ^= 1
    file.write_bytes(raw)
    with pytest.raises(ArtifactError, match=r"shard-000003-\w+\.parquet: damaged .*remove it and score again"):
        done.merge()
    assert not done.folder.exists()
    file.unlink()
    assert done.run().manifest["counts"]["units"] > 200


def test_a_shard_is_written_aside_and_renamed(scoring, monkeypatch):
    """Killed while it writes, a process must not leave a file that looks like a shard."""
    done = scoring()
    fitted = done.prepare()

    def killed(table, where, **options):
        where.write_bytes(b"PAR1 and half of the rest")
        raise KeyboardInterrupt

    monkeypatch.setattr("dana.scoring.sharded.pq.write_table", killed)
    with pytest.raises(KeyboardInterrupt):
        done.score(fitted, Share())
    assert not list(done.shards.path.glob("shard-*"))


def test_a_second_scoring_in_one_folder_waits_and_then_says_who_is_at_it(scoring, monkeypatch):
    one = scoring()
    monkeypatch.setattr("dana.core.files.PATIENCE", 0.2)
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            monkeypatch.setattr(Scoring, "score", lambda *_: time.sleep(60))
            one.run()
        finally:
            os._exit(1)
    try:
        deadline = time.monotonic() + 30
        while not (one.shards.path / "selector").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for attempt in (one.run, one.merge):
            with pytest.raises(ArtifactError, match=rf"scores-shards: process {child} on .* is writing it"):
                attempt()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert one.run().manifest["counts"]["units"] > 200, "taken over once it is dead"


@pytest.mark.slow
def test_two_commands_in_one_folder_destroy_nothing(texts, tmp_path):
    """At the same moment, and again beside one that is killed."""
    assert dana(*command(texts, tmp_path / "one")).returncode == 0
    expected = content(tmp_path / "one" / "scores")
    for start in range(2):
        out = tmp_path / f"two-{start}"
        line = [sys.executable, "-m", "dana", *command(texts, out)]
        both = [subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        if start == 1:
            time.sleep(6)
            both[0].kill()
        errors = [one.communicate(timeout=120)[1] for one in both]
        codes = sorted(one.returncode for one in both)
        assert codes in ([0, 0], [0, 2], [-9, 0], [-9, 2]), errors
        assert "Traceback" not in "".join(errors)
        assert dana(*command(texts, out)).returncode == 0
        assert content(out / "scores") == expected
        assert dana("verify", str(out)).returncode == 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            lambda scores: np.where(np.arange(scores.size) == 2, np.nan, scores),
            r"selector 'FittedRandom' of dana: ValueError: the score of unit 2 of \d+ is nan",
        ),
        (lambda scores: np.where(np.arange(scores.size) == 0, np.inf, scores), r"the score of unit 0 of \d+ is inf"),
        (lambda scores: scores[:-1], "expected scores of shape"),
        (lambda scores: scores[:, None], "expected scores of shape"),
    ],
)
def test_what_is_no_finite_number_a_unit_is_never_committed(scoring, monkeypatch, wrong, says):
    done = scoring(selector=build_selector("random", "", SELECTION))
    original = FittedRandom.score
    monkeypatch.setattr(FittedRandom, "score", lambda fitted, units: wrong(original(fitted, units)))
    with pytest.raises(PluginError, match=says):
        done.run()
    assert not done.folder.exists()
    assert not done.shards.path.exists()


def test_a_shard_reads_its_documents_and_no_others(tmp_path):
    documents = [Document(f"d{number}", "s", f"text {number}") for number in range(2500)]
    write_parts(document_tables(documents), tmp_path, DOCUMENTS, rows_per_part=1500)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["part-00000.parquet", "part-00001.parquet"]
    assert pq.ParquetFile(tmp_path / "part-00000.parquet").num_row_groups == 2, "groups of 1024 texts"
    shards = shards_of(tmp_path)
    assert [(shard.number, shard.documents) for shard in shards] == [(0, 1024), (1, 476), (2, 1000)]
    assert [document for shard in shards for document in shard.read()] == documents


def test_written_parts_do_not_depend_on_how_they_came(tmp_path):
    documents = [Document(f"d{number}", "s", f"text {number}") for number in range(2100)]
    whole = list(document_tables(documents))
    pieces = [part.slice(first, 333) for part in whole for first in range(0, part.num_rows, 333)]
    for name, batches in (("whole", whole), ("pieces", pieces)):
        assert write_parts(batches, tmp_path / name, DOCUMENTS, rows_per_part=1100) == 2100
    assert content(tmp_path / "whole") == content(tmp_path / "pieces")
    assert list(iterate_documents(tmp_path / "whole")) == documents


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


def test_a_step_without_the_one_before_it_names_the_command(scoring):
    early = scoring()
    with pytest.raises(ArtifactError, match="dana score --prepare"):
        early.load_prepared()
    with pytest.raises(ArtifactError, match=r"(\d) of \1 shards .* number 0"):
        early.merge()
    model = early.prepare()
    early.score(model, Share(0, 2))
    with pytest.raises(ArtifactError, match="number 1; run dana score"):
        early.merge()
    assert not early.folder.exists()
    shutil.rmtree(early.shards.path)
    with pytest.raises(ArtifactError, match="another process has merged"):
        early.score(model, Share())


def test_a_damaged_selector_is_named(scoring):
    one = scoring()
    one.score(one.prepare(), Share())
    folder = one.shards.path / "selector" / "__dana__"
    files = [path for path in sorted(folder.glob("selector/**/*")) if path.is_file()]
    assert len(files) == 5
    for file in [*files, folder / "held_out_task.parquet"]:
        whole = file.read_bytes()
        file.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
        for step in (one.load_prepared, one.prepare, one.merge):  # merging would seal it anew
            with pytest.raises(ArtifactError, match=re.escape(file.name)):
                step()
        file.write_bytes(whole)
    assert not one.is_done


def test_the_fingerprint_of_scores_holds_all_that_decides_them(scoring):
    changes = [{}, {"seed": 1}, {"units": "window:8"}, {"units": "window:9"}, {"geometry": "l2"}, {"max_task_units": 9}]
    prints = set()
    for change in changes:
        selection = replace(SELECTION, **change)
        one = scoring(selection=selection, selector=build_selector("detector", "knn", selection))
        prints.add(fingerprint(one.depends_on))
    assert len(prints) == len(changes)


def test_shares_are_parsed_and_those_of_a_launch(monkeypatch):
    assert (Share.parse("2/8"), Share.of_launch()) == (Share(1, 8), Share(0, 1))
    for wrong in ("0/8", "9/8", "2", "a/b", "-1/2"):
        with pytest.raises(ConfigError, match="--shard="):
            Share.parse(wrong)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert Share.of_launch() == Share(1, 3)


def test_bars_count_units_and_the_encoder_moves_them(scoring, monkeypatch):
    bars = []

    def progress(*, what, unit, total=None):
        bar = SimpleNamespace(name=(what, unit), total=total, first=total, n=0, moves=[])
        bar.update = lambda count: (setattr(bar, "n", bar.n + count), bar.moves.append(count))
        bars.append(bar)
        return nullcontext(bar)

    for module in (scoring_module, sharded):
        monkeypatch.setattr(module, "progress", progress)
    original = HashingEncoder.encode
    monkeypatch.setattr(HashingEncoder, "encode", lambda encoder, texts: (tick(1), original(encoder, texts))[1])
    units = scoring().run().manifest["counts"]["units"]
    assert [bar.name for bar in bars] == [("drawing samples", "documents"), ("fitting", "units"), ("scoring", "units")]
    assert all(bar.n == bar.total for bar in bars)
    assert bars[2].first == units
    assert 1 in bars[1].moves
    assert 1 in bars[2].moves
    half = scoring("half")
    half.score(half.prepare(), Share(0, 2))
    assert bars[-1].first == pytest.approx(units / 2, rel=0.2)


def test_a_dry_run_writes_nothing_and_is_near_the_truth(texts, tmp_path):
    general = GeneralCorpus(corpus_stage([str(texts / "pool.jsonl")], tmp_path / "counted"))
    units = sum(len(batch) for batch in general.units(SELECTION))
    done = dana(*command(texts, tmp_path / "dry", "--dry-run"))
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "dry").exists()
    table = {line.split()[0]: line.split()[1].replace(",", "") for line in done.stdout.splitlines()}
    assert float(table["units"]) == pytest.approx(units, rel=0.2)
    assert {"documents", "encoding", "fitting", "time", "memory", "disk"} <= set(table)
    fit_units = re.search(r"encodes up to ([\d,]+) units", done.stdout)[1].replace(",", "")
    assert float(fit_units) == pytest.approx(SELECTION.max_task_units + units, rel=0.05)
    done = dana(*command(texts, tmp_path / "dry")[:-4], "--dry-run", "--selector", "lexical")
    assert re.search(r"^fitting +unknown", done.stdout, re.MULTILINE), "nothing is encoded for it"
