"""Several runs on one page: verdicts and differences side by side, and what they were made from otherwise."""

import json

import numpy as np
import pandas as pd
import pytest

from dana.core.artifacts import MANIFEST
from dana.core.errors import ArtifactError, ConfigError
from dana.report.compare_runs import (
    between_rows,
    compare_runs,
    difference_rows,
    named_runs,
    setting_rows,
)
from dana.report.run import RunFrames, read_run
from dana.stages.report import compare_stage

ARMS = {"base": 0.5, "random": 0.55, "dana": 0.7}


@pytest.fixture
def two(tmp_path, write):
    """Two runs; the second's dana is better on toy, and its other task has more epochs."""
    write["results"](tmp_path / "one", arms=ARMS, collapsed="")
    write["results"](tmp_path / "two", arms={**ARMS, "dana": 0.8}, collapsed="")
    write["results"](tmp_path / "one", "other", arms=ARMS, collapsed="")
    write["results"](tmp_path / "two", "other", arms=ARMS, collapsed="", epochs=9)
    return [read_run(tmp_path / name) for name in ("one", "two")]


@pytest.mark.parametrize("names", [["x", "y"], ["a/x", "b/x", "b/y"], ["a/b/x", "c/b/x"]])
def test_runs_are_called_by_the_shortest_ends_that_differ(tmp_path, names):
    assert list(named_runs([RunFrames(tmp_path / "in" / name) for name in names])) == names


def test_every_run_s_questions_stand_together_and_what_was_made_otherwise_is_named(two):
    frame = difference_rows(named_runs(two)).frame
    keys = [(row.task, row.arm, row.other, row.run) for row in frame.itertuples()]
    assert keys == [
        (task, "dana", other, run)
        for task in ("other", "toy")
        for other in ("base", "random")
        for run in ("one", "two")
    ]
    made = frame.set_index(["task", "other", "run"])["made_otherwise"]
    assert made["other", "base", "two"] == "epochs 9 against 3"
    assert (made.drop([("other", "base", "two"), ("other", "random", "two")]) == "").all()
    own = [row for row in named_runs(two)["two"].comparisons if (row.task, row.other) == ("toy", "random")]
    shown = frame.set_index(["task", "other", "run"]).loc[("toy", "random", "two")]
    assert (shown["mean"], shown["p_holm"], shown["verdict"]) == (own[0].mean, own[0].p_holm, "better")


def test_the_same_arm_of_two_runs_is_compared_seed_by_seed_if_made_alike(two):
    frame = between_rows(named_runs(two)).frame.set_index(["task", "arm"])
    scores = [{cell.arm: cell.scores for cell in run.cells if cell.task == "toy"} for run in two]
    seeds = scores[0]["dana"]
    mean = np.mean([scores[1]["dana"][seed] - scores[0]["dana"][seed] for seed in seeds])
    row = frame.loc[("toy", "dana")]
    assert row["mean"] == pytest.approx(mean)
    assert mean > 0.05
    assert row["low"] < mean < row["high"]
    assert (row["run"], row["other"], row["n"]) == ("two", "one", 8)
    assert frame.loc[("toy", "base"), "mean"] == 0
    unlike = frame.loc[("other", "dana")]
    assert unlike["not_compared"] == "epochs 9 against 3"
    assert np.isnan(unlike["mean"])


def test_an_arm_of_one_run_alone_is_not_compared_between_runs(tmp_path, write):
    write["results"](tmp_path / "one", arms=ARMS, collapsed="")
    write["results"](tmp_path / "two", arms={"base": 0.5, "svm": 0.6}, collapsed="")
    runs = named_runs([read_run(tmp_path / name) for name in ("one", "two")])
    assert between_rows(runs).frame["arm"].tolist() == ["base"]


def test_only_settings_texts_and_versions_that_differ_are_named(tmp_path):
    def run(name, beta, digest, numpy, **more):
        weights = {"kind": "weights", "depends_on": {"settings": {"beta": beta, "gamma": 15}, "scores": digest * 16}}
        corpus = {"kind": "corpus", "depends_on": {"files": {"pool.jsonl": digest * 16}}, "versions": {"numpy": numpy}}
        return RunFrames(tmp_path / name, stages={"weights": weights, "corpus": corpus, **more})

    ranking = {"kind": "ranking", "depends_on": {"seeds": 5}}
    runs = named_runs([run("a", 0.2, "ab", "2.1"), run("b", 0.3, "cd", "2.2", ranking=ranking)])
    frame = setting_rows(runs).frame
    assert list(frame) == ["step", "setting", "a", "b"]
    assert sorted(frame.values.tolist()) == [
        ["corpus", "files.pool.jsonl", "ab" * 16, "cd" * 16],
        ["packages", "numpy", "2.1", "2.2"],
        ["ranking", "seeds", "–", "5"],
        ["weights", "settings.beta", "0.2", "0.3"],
    ]
    alike = named_runs([run("a", 0.2, "ab", "2.1"), run("b", 0.2, "ab", "2.1")])
    assert setting_rows(alike).frame.empty


def test_the_page_says_what_each_run_found_and_every_table_is_a_file(two, tmp_path):
    report = compare_runs(two)
    assert report.verdict == "2 runs ask 8 questions: 8 better, 0 worse, 0 open."
    assert [found.value for found in report.highlights] == ["one", "two"]
    page = compare_stage([run.path for run in two], tmp_path / "out")
    assert page == tmp_path / "out" / "comparison.html"
    assert "epochs 9 against 3" in page.read_text()
    assert "| toy | dana − base | two | better |" in (tmp_path / "out" / "comparison.md").read_text()
    names = {file.name for file in (tmp_path / "out" / "tables").iterdir()}
    kinds = ("run_differences", "between_runs", "run_settings")
    assert names == {f"{name}.csv" for name in kinds}
    assert len(pd.read_csv(tmp_path / "out" / "tables" / "run_differences.csv")) == 8
    assert not (two[0].path / "comparison.html").exists()


def test_the_headline_counts_what_is_worse_and_what_is_open(tmp_path, write):
    for name, mean in (("one", 0.5), ("two", 0.7)):
        write["results"](tmp_path / name, arms={"base": 0.7, "random": 0.5, "dana": mean}, collapsed="")
    report = compare_runs([read_run(tmp_path / name) for name in ("one", "two")])
    assert report.verdict == "2 runs ask 4 questions: 1 better, 1 worse, 2 open."


def test_runs_without_fine_tuning_are_still_set_side_by_side(whole_run, tmp_path, write):
    write["selection"](tmp_path / "bare")
    page = compare_stage([tmp_path / "bare", whole_run], tmp_path / "out").read_text()
    assert "2 runs ask 2 questions" in page
    assert "They share no arm of a task." in page
    write["selection"](tmp_path / "barer")
    page = compare_stage([tmp_path / "bare", tmp_path / "barer"], tmp_path / "out").read_text()
    assert "2 runs, none of which asks a question of fine-tuned models." in page


def test_a_run_that_cannot_be_reported_is_named_and_nothing_is_written(two, tmp_path):
    paths = [run.path for run in two]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactError, match="empty: nothing to report"):
        compare_stage([*paths, tmp_path / "empty"], tmp_path / "out")
    broken = paths[1] / "finetune" / "toy" / "dana" / MANIFEST
    broken.write_text(json.dumps([]))
    with pytest.raises(ArtifactError, match="two/finetune/toy/dana"):
        compare_stage(paths, tmp_path / "out")
    with pytest.raises(ConfigError, match="named once"):
        compare_stage([paths[0], paths[0]], tmp_path / "out")
    with pytest.raises(ConfigError, match="two runs"):
        compare_stage(paths[:1], tmp_path / "out")
    assert not (tmp_path / "out").exists()
