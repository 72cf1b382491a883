"""``dana evaluate``: checkpoints on cards to a leaderboard, cell by cell."""

import json

import numpy as np
import pandas as pd
import pytest

from dana.cli.main import main
from dana.core.artifacts import read_json
from dana.stages.evaluate import Checkpoint, leaderboard
from tests.toy_task import PRESET, write_checkpoint, write_task

SHORT = {**PRESET, "epochs": 2, "seeds": 2}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two checkpoints, of which one has no hidden layer to speak of, and two cards."""
    folder = tmp_path_factory.mktemp("evaluate")
    write_checkpoint(folder / "one")
    write_checkpoint(folder / "two", seed=1, num_hidden_layers=1)
    for name in ("toy", "other"):
        write_task(folder / name, name=name, presets={"quick": SHORT})
    return folder


def evaluate(place, *more, out="board"):
    cards = [str(place / name / "toy.yaml") for name in ("toy", "other")]
    models = [str(place / "one"), f"small={place / 'two'}"]
    return main(["evaluate", *models, "--tasks", *cards, "--preset", "quick", "--out", str(place / out), *more])


@pytest.fixture(scope="module")
def board(place):
    assert evaluate(place) == 0
    return place / "board"


def test_every_checkpoint_has_a_row_on_every_task_with_its_seeds_mean_and_interval(board):
    table = pd.read_csv(board / "leaderboard.csv")
    assert list(zip(table["task"], table["checkpoint"], strict=True)) == [
        ("toy", "one"), ("toy", "small"), ("other", "one"), ("other", "small"),
    ]  # fmt: skip
    for row in table.itertuples():
        metrics = read_json(board / "finetune" / row.task / row.checkpoint / "metrics.json")
        scores = [seed["score"] for seed in metrics["seeds"]]
        assert (row.n, row.metric) == (2, "macro_f1")
        assert row.mean == pytest.approx(np.mean(scores))
        assert row.std == pytest.approx(np.std(scores, ddof=1))
        assert row.low <= row.mean <= row.high
        assert row.collapsed == sum(seed["degenerate"] for seed in metrics["seeds"])


def test_the_json_says_where_each_number_comes_from(board, place):
    results = json.loads((board / "leaderboard.json").read_text(encoding="utf-8"))["results"]
    first = results[0]
    assert (first["task"], first["checkpoint"]) == ("toy", "one")
    assert set(first["scores"]) == {"0", "1"}
    assert first["depends_on"]["preset"]["seeds"] == [0, 1]
    assert first["versions"]["dana"]
    assert results[0]["depends_on"]["model"] != results[1]["depends_on"]["model"]


def test_the_page_compares_the_checkpoints_in_pairs(board):
    page = (board / "report.html").read_text(encoding="utf-8")
    differences = pd.read_csv(board / "tables" / "differences.csv")
    assert set(zip(differences["arm"], differences["other"], strict=True)) == {("one", "small")}
    assert "one − small on toy" in page


def test_the_same_again_runs_nothing_and_writes_the_same_bytes(board, place, capsys):
    files = ("leaderboard.csv", "leaderboard.json", "report.html")
    before = {name: (board / name).read_bytes() for name in files}
    made = (board / "finetune" / "toy" / "one" / "metrics.json").stat().st_mtime_ns
    assert evaluate(place) == 0
    assert {name: (board / name).read_bytes() for name in files} == before
    assert evaluate(place, "--dry-run") == 0
    states = dict(reversed(line.split()) for line in capsys.readouterr().out.splitlines()[-4:])
    assert set(states.values()) == {"done"}
    assert (board / "finetune" / "toy" / "one" / "metrics.json").stat().st_mtime_ns == made


def test_the_text_has_the_best_mean_over_tasks_first():
    row = {"metric": "accuracy", "std": 0.01, "n": 2, "collapsed": 0}
    table = pd.DataFrame(
        [
            {**row, "checkpoint": "a", "task": "x", "mean": 0.5},
            {**row, "checkpoint": "b", "task": "x", "mean": 0.8, "collapsed": 1},
            {**row, "checkpoint": "a", "task": "y", "mean": 0.6},
            {**row, "checkpoint": "b", "task": "y", "mean": 0.5, "n": 1},
        ]
    )
    head, first, second = leaderboard(table).splitlines()
    assert head.split("  ")[0] == "checkpoint"
    assert "x (accuracy)" in head
    said = [" ".join(line.split()) for line in (first, second)]
    assert said[0] == "b 0.6500 0.8000 ± 0.0100 (1 of 2 collapsed) 0.5000"
    assert said[1] == "a 0.5500 0.5000 ± 0.0100 0.6000 ± 0.0100"


def test_with_an_error_among_the_metrics_the_best_mean_rank_is_first():
    rows = [("a", "x", "accuracy", 0.9), ("b", "x", "accuracy", 0.8), ("c", "x", "accuracy", 0.7)]
    rows += [("a", "y", "mae", 300.0), ("b", "y", "mae", 100.0), ("c", "y", "mae", 200.0)]
    names = ("checkpoint", "task", "metric", "mean")
    table = pd.DataFrame([{**dict(zip(names, row, strict=True)), "n": 1, "collapsed": 0} for row in rows])
    head, *lines = leaderboard(table).splitlines()
    assert head.split("  ")[:2] == ["checkpoint", "mean rank"]
    assert [line.split()[:2] for line in lines] == [["b", "1.5"], ["a", "2.0"], ["c", "2.5"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runs/mine/adapted", Checkpoint("adapted", "runs/mine/adapted")),
        ("base=bert-base-uncased", Checkpoint("base", "bert-base-uncased")),
        ("org/a model", Checkpoint("a-model", "org/a model")),
    ],
)
def test_a_checkpoint_is_named_by_the_last_part_of_its_path_or_as_told(text, expected):
    assert Checkpoint.parse(text) == expected
