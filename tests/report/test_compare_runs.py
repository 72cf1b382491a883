"""Several runs on one page: differences and settings, and the words of the page."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

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
from dana.report.page import to_markdown
from dana.report.run import RunFrames, read_run
from dana.stages.report import compare_stage
from tests.golden import check_golden
from tests.report.conftest import write_results

ARMS = {"base": 0.5, "random": 0.55, "dana": 0.7}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs; dana is better in the second, whose other task has more epochs and whose svm is new."""
    folder = tmp_path_factory.mktemp("runs")
    write_results(folder / "one", arms=ARMS)
    write_results(folder / "two", arms={**ARMS, "dana": 0.8, "svm": 0.6})
    write_results(folder / "one", "other", arms=ARMS)
    write_results(folder / "two", "other", arms=ARMS, epochs=9)
    return [read_run(folder / name) for name in ("one", "two")]


def test_golden_comparison(runs):
    stages = [
        {step: {**manifest, "versions": {}} for step, manifest in run.stages.items()}
        for run in runs
    ]
    report = compare_runs(
        [replace(run, stages=manifests) for run, manifests in zip(runs, stages, strict=True)]
    )
    check_golden(Path(__file__).parent / "golden" / "comparison.md", to_markdown(report))


@pytest.mark.parametrize("names", [["x", "y"], ["a/x", "b/x", "b/y"], ["a/b/x", "c/b/x"]])
def test_run_names_are_the_shortest_suffixes_that_differ(tmp_path, names):
    assert list(named_runs([RunFrames(tmp_path / "in" / name) for name in names])) == names


def test_rows_have_each_run_s_verdicts_and_pair_the_seeds_of_arms_made_alike(runs):
    analyses = named_runs(runs)
    frame = difference_rows(analyses).frame.set_index(["task", "arm", "other", "run"])
    for run, analysis in analyses.items():
        for row in analysis.questions:
            values = frame.loc[(row.task, row.arm, row.other, run)]
            assert (values["mean"], values["p_holm"], values["verdict"]) == (
                row.mean,
                row.p_holm,
                row.verdict,
            )
    frame = between_rows(analyses).frame.set_index(["task", "arm"])
    first, second = (
        {(result.task, result.arm): result.scores for result in run.results}["toy", "dana"]
        for run in runs
    )
    row = frame.loc[("toy", "dana")]
    assert row["mean"] == pytest.approx(np.mean([second[seed] - first[seed] for seed in first]))
    assert np.isnan(frame.loc[("other", "dana"), "mean"])


def test_setting_rows_name_settings_texts_and_versions_that_differ(tmp_path):
    def run(name, beta, digest, numpy, **stages):
        weights = {
            "kind": "weights",
            "depends_on": {"settings": {"beta": beta, "gamma": 15}, "scores": digest * 16},
        }
        pool = {
            "kind": "pool",
            "depends_on": {"files": {"pool.jsonl": digest * 16}},
            "versions": {"numpy": numpy},
        }
        return RunFrames(tmp_path / name, stages={"weights": weights, "pool": pool, **stages})

    ranking = {"kind": "ranking", "depends_on": {"seeds": 5}}
    frame = setting_rows(
        named_runs([run("a", 0.2, "ab", "2.1"), run("b", 0.3, "cd", "2.2", ranking=ranking)])
    ).frame
    assert list(frame) == ["step", "setting", "a", "b"]
    changes = [
        ["pool", "files.pool.jsonl", "ab" * 16, "cd" * 16],
        ["packages", "numpy", "2.1", "2.2"],
    ]
    changes += [["ranking", "seeds", "–", "5"], ["weights", "settings.beta", "0.2", "0.3"]]
    assert sorted(frame.values.tolist()) == sorted(changes)
    assert setting_rows(
        named_runs([run("a", 0.2, "ab", "2.1"), run("b", 0.2, "ab", "2.1")])
    ).frame.empty


def test_headline_counts_verdicts(tmp_path):
    for name, mean in (("one", 0.5), ("two", 0.7)):
        write_results(tmp_path / name, arms={"base": 0.7, "random": 0.5, "dana": mean})
    report = compare_runs([read_run(tmp_path / name) for name in ("one", "two")])
    assert report.verdict == "2 runs ask 4 questions: 1 better, 1 worse, 2 open."


def test_the_page_and_its_tables_are_written_outside_the_runs(runs, shared_run, tmp_path):
    shutil.copytree(shared_run / "scores", tmp_path / "bare" / "scores")  # without fine-tuning
    page = compare_stage([tmp_path / "bare", *(run.path for run in runs)], tmp_path / "out")
    assert page == tmp_path / "out" / "comparison.html"
    assert {file.name for file in (tmp_path / "out" / "tables").iterdir()} >= {"run_settings.csv"}
    assert len(pd.read_csv(tmp_path / "out" / "tables" / "run_differences.csv")) == 8
    assert not (runs[0].path / "comparison.html").exists()


def test_bad_runs_are_named_and_nothing_is_written(runs, tmp_path):
    one, wrong = runs[0].path, shutil.copytree(runs[1].path, tmp_path / "wrong")
    (wrong / "finetune" / "toy" / "dana" / MANIFEST).write_text(json.dumps([]))
    (tmp_path / "empty").mkdir()
    cases = [
        ([one, tmp_path / "empty"], ArtifactError, "empty"),
        ([one, one], ConfigError, str(one)),
    ]
    cases += [
        ([one], ConfigError, "--compare"),
        ([one, wrong], ArtifactError, "wrong/finetune/toy/dana"),
    ]
    for paths, error, name in cases:
        with pytest.raises(error, match=name):
            compare_stage(paths, tmp_path / "out")
    assert not (tmp_path / "out").exists()
