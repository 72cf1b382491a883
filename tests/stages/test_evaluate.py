"""``dana finetune`` of several checkpoints on cards to a leaderboard, step by step."""

import re

import numpy as np
import pandas as pd
import pytest

from dana.cli.main import main
from dana.core.artifacts import read_json
from dana.report.arm_results import read_arm_result
from dana.stages.evaluate import Checkpoint, leaderboard
from tests.toy_task import PRESET, write_checkpoint, write_folds, write_task


def evaluate(folder, *flags):
    cards = [str(folder / name / "toy.yaml") for name in ("toy", "other")]
    models = [str(folder / "one"), f"small={folder / 'two'}"]
    out = ["--preset", "quick", "--out", str(folder / "board")]
    return main(["finetune", "--model", *models, "--task", *cards, *out, *flags])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Evaluate two checkpoints, of which one has a single layer, on two cards."""
    folder = tmp_path_factory.mktemp("evaluate")
    write_checkpoint(folder / "one")
    write_checkpoint(folder / "two", seed=1, num_hidden_layers=1)
    for name in ("toy", "other"):
        write_task(folder / name, name=name, presets={"quick": {**PRESET, "epochs": 1, "seeds": 2}})
    assert evaluate(folder) == 0
    return folder


def test_every_checkpoint_has_a_row_on_every_task_with_its_seeds_mean_and_interval(folder):
    board = folder / "board"
    table = pd.read_csv(board / "leaderboard.csv")
    pairs = [("toy", "one"), ("toy", "small"), ("other", "one"), ("other", "small")]
    assert list(zip(table["task"], table["checkpoint"], strict=True)) == pairs
    for row in table.itertuples():
        metrics = read_json(board / "finetune" / row.task / row.checkpoint / "metrics.json")
        scores = [seed["score"] for seed in metrics["seeds"]]
        assert (row.n, row.metric) == (2, "macro_f1")
        assert row.mean == pytest.approx(np.mean(scores))
        assert row.std == pytest.approx(np.std(scores, ddof=1))
        assert row.low <= row.mean <= row.high
        assert row.collapsed == sum(seed["degenerate"] for seed in metrics["seeds"])
    first, second, *_ = read_json(board / "leaderboard.json")["results"]
    assert (first["task"], first["checkpoint"]) == ("toy", "one")
    assert set(first["scores"]) == {"0", "1"}
    assert first["depends_on"]["preset"]["seeds"] == [0, 1]
    assert first["versions"]["dana"]
    assert first["depends_on"]["model"] != second["depends_on"]["model"]
    differences = pd.read_csv(board / "tables" / "differences.csv")
    pairs = set(zip(differences["arm"], differences["other"], strict=True))
    assert pairs == {("one", "small"), ("one", "TF-IDF"), ("small", "TF-IDF")}
    assert "one − small" in (board / "report.html").read_text(encoding="utf-8")


def test_the_same_again_runs_nothing_and_writes_the_same_bytes(folder, capsys):
    board = folder / "board"
    files = [board / name for name in ("leaderboard.csv", "leaderboard.json", "report.html")]
    before, result = (
        [file.read_bytes() for file in files],
        board / "finetune" / "toy" / "one" / "metrics.json",
    )
    time = result.stat().st_mtime_ns
    assert evaluate(folder) == 0
    assert [file.read_bytes() for file in files] == before
    printed = capsys.readouterr().out
    assert re.search(r"baseline tfidf on toy: macro_f1 (1\.0|0\.9)\d+\n", printed)
    assert result.stat().st_mtime_ns == time


def test_the_text_has_the_best_mean_over_tasks_first():
    row = {"metric": "accuracy", "std": 0.01, "n": 2, "collapsed": 0}
    rows = [
        {**row, "checkpoint": "a", "task": "x", "mean": 0.5},
        {**row, "checkpoint": "b", "task": "x", "mean": 0.8, "collapsed": 1},
        {**row, "checkpoint": "a", "task": "y", "mean": 0.6},
        {**row, "checkpoint": "b", "task": "y", "mean": 0.5, "n": 1},
    ]
    head, *lines = leaderboard(pd.DataFrame(rows)).splitlines()
    assert head.split("  ")[0] == "checkpoint"
    assert "x (accuracy)" in head
    assert [" ".join(line.split()) for line in lines] == [
        "b 0.6500 0.8000 ± 0.0100 (1 of 2 collapsed) 0.5000",
        "a 0.5500 0.5000 ± 0.0100 0.6000 ± 0.0100",
    ]


def test_with_an_error_among_the_metrics_the_best_mean_rank_is_first():
    rows = [("a", "x", "accuracy", 0.9), ("b", "x", "accuracy", 0.8), ("c", "x", "accuracy", 0.7)]
    rows += [("a", "y", "mae", 300.0), ("b", "y", "mae", 100.0), ("c", "y", "mae", 200.0)]
    table = pd.DataFrame(rows, columns=["checkpoint", "task", "metric", "mean"]).assign(
        n=1, collapsed=0
    )
    head, *lines = leaderboard(table).splitlines()
    assert head.split("  ")[:2] == ["checkpoint", "mean rank"]
    assert [line.split()[:2] for line in lines] == [["b", "1.5"], ["a", "2.0"], ["c", "2.5"]]


def test_a_checkpoint_is_named_by_the_last_part_of_its_path_or_as_told(tmp_path, monkeypatch):
    assert Checkpoint.parse("runs/mine/adapted") == Checkpoint("adapted", "runs/mine/adapted")
    assert Checkpoint.parse("base=bert-base-uncased") == Checkpoint("base", "bert-base-uncased")
    assert Checkpoint.parse("org/a model") == Checkpoint("a-model", "org/a model")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=0.1" / "adapted").mkdir(parents=True)
    assert Checkpoint.parse("lr=0.1/adapted") == Checkpoint("adapted", "lr=0.1/adapted")
    assert Checkpoint.parse("mine=lr=0.1/adapted") == Checkpoint("mine", "lr=0.1/adapted")


def test_of_a_task_with_folds_the_mean_is_that_of_all_predictions(tmp_path):
    checkpoint, card = write_checkpoint(tmp_path / "one"), write_folds(tmp_path / "toy", count=50)
    models, out = [f"a={checkpoint}", f"b={checkpoint}"], ["--out", str(tmp_path / "board")]
    settings = ["--preset", "quick", "--seeds", "2", "--set", "finetune.epochs=1"]
    assert main(["finetune", "--model", *models, "--task", str(card), *out, *settings]) == 0
    table = pd.read_csv(tmp_path / "board" / "leaderboard.csv")
    result = read_arm_result(tmp_path / "board" / "finetune" / "toy" / "a" / "metrics.json", "a")
    assert table["mean"][0] == pytest.approx(result.estimate.mean)
    assert (table["low"][0], table["high"][0]) == pytest.approx(result.interval)
    assert table["n"].tolist() == [6, 6]
