"""Several runs on one page: differences and settings; the words are in golden/comparison.md."""

import json

import numpy as np
import pandas as pd
import pytest

from dana.core.artifacts import MANIFEST
from dana.core.errors import ArtifactError, ConfigError
from dana.report.compare_runs import between_rows, compare_runs, difference_rows, named_runs, setting_rows
from dana.report.run import RunFrames, read_run
from dana.stages.report import compare_stage

ARMS = {"base": 0.5, "random": 0.55, "dana": 0.7}


@pytest.fixture
def runs(tmp_path, write):
    """Two runs; dana is better in the second, whose other task has more epochs and whose svm is new."""
    write["results"](tmp_path / "one", arms=ARMS)
    write["results"](tmp_path / "two", arms={**ARMS, "dana": 0.8, "svm": 0.6})
    write["results"](tmp_path / "one", "other", arms=ARMS)
    write["results"](tmp_path / "two", "other", arms=ARMS, epochs=9)
    return [read_run(tmp_path / name) for name in ("one", "two")]


@pytest.mark.parametrize("names", [["x", "y"], ["a/x", "b/x", "b/y"], ["a/b/x", "c/b/x"]])
def test_run_names_are_the_shortest_suffixes_that_differ(tmp_path, names):
    assert list(named_runs([RunFrames(tmp_path / "in" / name) for name in names])) == names


def test_difference_rows_have_each_run_s_verdicts(runs):
    analyses = named_runs(runs)
    frame = difference_rows(analyses).frame.set_index(["task", "arm", "other", "run"])
    for run, analysis in analyses.items():
        for row in analysis.questions:
            values = frame.loc[(row.task, row.arm, row.other, run)]
            assert (values["mean"], values["p_holm"], values["verdict"]) == (row.mean, row.p_holm, row.verdict)
    differing = frame[frame["made_otherwise"] != ""]["made_otherwise"]
    assert set(differing.index) == {("other", "dana", rival, "two") for rival in ("base", "random")}
    assert set(differing) == {"epochs 9 against 3"}


def test_between_rows_pair_the_seeds_of_arms_made_alike(runs):
    frame = between_rows(named_runs(runs)).frame.set_index(["task", "arm"])
    assert ("toy", "svm") not in frame.index
    first, second = ({cell.arm: cell.scores for cell in run.cells if cell.task == "toy"}["dana"] for run in runs)
    row = frame.loc[("toy", "dana")]
    assert row["mean"] == pytest.approx(np.mean([second[seed] - first[seed] for seed in first]))
    assert row["mean"] > 0.05
    assert row["low"] < row["mean"] < row["high"]
    assert (row["run"], row["other"], row["n"]) == ("two", "one", 8)
    assert frame.loc[("toy", "base"), "mean"] == 0
    assert frame.loc[("other", "dana"), "not_compared"] == "epochs 9 against 3"
    assert np.isnan(frame.loc[("other", "dana"), "mean"])


def test_setting_rows_name_settings_texts_and_versions_that_differ(tmp_path):
    def run(name, beta, digest, numpy, **stages):
        weights = {"kind": "weights", "depends_on": {"settings": {"beta": beta, "gamma": 15}, "scores": digest * 16}}
        corpus = {"kind": "corpus", "depends_on": {"files": {"pool.jsonl": digest * 16}}, "versions": {"numpy": numpy}}
        return RunFrames(tmp_path / name, stages={"weights": weights, "corpus": corpus, **stages})

    ranking = {"kind": "ranking", "depends_on": {"seeds": 5}}
    frame = setting_rows(named_runs([run("a", 0.2, "ab", "2.1"), run("b", 0.3, "cd", "2.2", ranking=ranking)])).frame
    assert list(frame) == ["step", "setting", "a", "b"]
    assert sorted(frame.values.tolist()) == [
        ["corpus", "files.pool.jsonl", "ab" * 16, "cd" * 16],
        ["packages", "numpy", "2.1", "2.2"],
        ["ranking", "seeds", "–", "5"],
        ["weights", "settings.beta", "0.2", "0.3"],
    ]
    assert setting_rows(named_runs([run("a", 0.2, "ab", "2.1"), run("b", 0.2, "ab", "2.1")])).frame.empty


def test_headline_counts_verdicts(tmp_path, write):
    for name, mean in (("one", 0.5), ("two", 0.7)):
        write["results"](tmp_path / name, arms={"base": 0.7, "random": 0.5, "dana": mean})
    report = compare_runs([read_run(tmp_path / name) for name in ("one", "two")])
    assert report.verdict == "2 runs ask 4 questions: 1 better, 1 worse, 2 open."


def test_the_page_and_its_tables_are_written_outside_the_runs(runs, tmp_path, write):
    write["selection"](tmp_path / "bare")  # without fine-tuning
    page = compare_stage([tmp_path / "bare", *(run.path for run in runs)], tmp_path / "out")
    assert page == tmp_path / "out" / "comparison.html"
    names = {file.name for file in (tmp_path / "out" / "tables").iterdir()}
    assert {"run_differences.csv", "run_settings.csv"} <= names
    assert len(pd.read_csv(tmp_path / "out" / "tables" / "run_differences.csv")) == 8
    assert not (runs[0].path / "comparison.html").exists()


def test_bad_runs_are_named_and_nothing_is_written(runs, tmp_path):
    one, two = (run.path for run in runs)
    (tmp_path / "empty").mkdir()
    for paths, error, name in (
        ([one, tmp_path / "empty"], ArtifactError, "empty"),
        ([one, one], ConfigError, str(one)),
        ([one], ConfigError, "--compare"),
    ):
        with pytest.raises(error) as caught_error:
            compare_stage(paths, tmp_path / "out")
        assert name in str(caught_error.value)
    (two / "finetune" / "toy" / "dana" / MANIFEST).write_text(json.dumps([]))
    with pytest.raises(ArtifactError, match="two/finetune/toy/dana"):
        compare_stage([one, two], tmp_path / "out")
    assert not (tmp_path / "out").exists()
