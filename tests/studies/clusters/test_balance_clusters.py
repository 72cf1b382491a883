"""``dana weigh --balance clusters`` in a run's folder and in a recipe, and the clusters that are refused."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dana
from dana.cli.main import main
from dana.core.artifacts import read_manifest
from dana.core.errors import ConfigError
from dana.core.settings import load
from dana.stages.run import plan_run
from dana.stages.settings import RunSettings
from dana.stages.steps.step import OutputOf, call_stage
from tests.stages.two_topics import PLANTED, POOL, SELECTION

FEW = ["--encoder", SELECTION.encoder, "--k", "3", "--pca", "4", "--seeds", "2", "--fit", "300"]
SETTINGS = ["--gamma", "1", "--budget", "90 units"]


@pytest.fixture(scope="module")
def clusters_run(scores_run, tmp_path_factory):
    run = tmp_path_factory.mktemp("balanced") / "run"
    shutil.copytree(scores_run[2], run)
    assert main(["studies", "clusters", "--out", str(run), *FEW]) == 0
    return run


@pytest.fixture
def run(clusters_run, tmp_path):
    return Path(shutil.copytree(clusters_run, tmp_path / "run"))


def selected_by_cluster(run, weights):
    clusters = pd.read_parquet(run / "clusters")
    table = pd.read_parquet(weights)
    assert table[["doc_id", "unit"]].equals(clusters[["doc_id", "unit"]])
    return table.groupby(clusters["cluster"])["weight"].sum().tolist()


def test_the_budget_is_spread_evenly_and_the_manifest_says_over_what(run, tmp_path):
    assert main(["weigh", str(run), *SETTINGS, "--out", str(tmp_path / "plain")]) == 0
    assert read_manifest(tmp_path / "plain")["depends_on"]["settings"]["balance"] is None
    assert selected_by_cluster(run, tmp_path / "plain").count(0.0) >= 1, (
        "by the scores alone no cluster is spared"
    )
    assert main(["weigh", str(run), *SETTINGS, "--balance", "clusters"]) == 0
    assert selected_by_cluster(run, run / "weights") == [30, 30, 30]
    manifest = read_manifest(run / "weights")
    balance, units = (
        manifest["balance"],
        pd.read_parquet(run / "clusters")["cluster"].value_counts().sort_index(),
    )
    assert [row["share"] for row in balance["groups"]] == pytest.approx([1 / 3] * 3)
    assert [row["units"] for row in balance["groups"]] == units.tolist()
    assert [row["selected_units"] for row in balance["groups"]] == [30, 30, 30]
    assert [row["name"] for row in balance["groups"]] == read_manifest(run / "clusters")["names"]
    shares = units / units.sum()
    assert balance["effective_groups"]["pool"] == pytest.approx(
        np.exp(-(shares * np.log(shares)).sum())
    )
    assert balance["effective_groups"]["selected"] == pytest.approx(3)
    assert manifest["depends_on"]["groups"] == read_manifest(run / "clusters")["fingerprint"]
    assert manifest["given"]["weigh.balance"] == "clusters"


def test_shares_may_be_given_and_python_takes_them_too(run):
    weights = dana.weigh(run, balance="clusters:0=0.1,2=0.9", budget="50 units", gamma=1)
    assert selected_by_cluster(run, run / "weights") == [5, 0, 45]
    assert len(weights) == len(pd.read_parquet(run / "scores"))
    with pytest.raises(ConfigError, match="balance='clusters'"):
        dana.weigh(pd.read_parquet(run / "scores"), balance="clusters")


def test_clusters_of_another_pool_are_refused(run, texts, tmp_path, capsys):
    other = tmp_path / "other"
    lines = (texts / "pool.jsonl").read_text().splitlines()[: POOL + PLANTED - 1]
    (tmp_path / "fewer.jsonl").write_text("\n".join(lines))
    assert (
        main(
            [
                "studies",
                "clusters",
                "--pool",
                str(tmp_path / "fewer.jsonl"),
                "--out",
                str(other),
                *FEW,
            ]
        )
        == 0
    )
    shutil.rmtree(run / "clusters")
    shutil.copytree(other / "clusters", run / "clusters")
    before = sorted(run.rglob("*"))
    assert main(["weigh", str(run), *SETTINGS, "--balance", "clusters"]) == 2
    assert sorted(run.rglob("*")) == before
    message = capsys.readouterr().err
    assert f"{run / 'clusters'}" in message
    assert f"{run / 'pool'}" in message


def test_an_arm_of_a_recipe_is_balanced_by_a_step_that_clusters(scores_run, texts, card, tmp_path):
    out = Path(shutil.copytree(scores_run[2], tmp_path / "run"))
    recipe = {
        "task": str(texts / "cells.txt"),
        "cards": [card],
        "pool": [str(texts / "pool.jsonl")],
        "out": str(out),
        "size": "tiny",
        "selection": {"encoder": SELECTION.encoder, "store": None},
        "clusters": {"k": [3], "pca": 4, "seeds": 2},
        "arms": {
            "dana": {"detector": "knn", "weigh": {"balance": "clusters"}},
            "random": {"selector": "random"},
        },
        "weigh": {"gamma": 1, "budget": "60 units"},
    }
    steps = {step.name: step for step in plan_run(load(RunSettings, recipe)).steps}
    assert steps["weigh/dana"].settings["groups"] == OutputOf("clusters")
    assert "groups" not in steps["weigh/random"].settings
    clusters_path, _ = call_stage(steps["clusters"].stage, steps["clusters"].arguments({}))
    assert clusters_path == str(out / "clusters")
    scores = {"score/dana": str(out / "scores"), "clusters": clusters_path}
    weights, _ = call_stage(steps["weigh/dana"].stage, steps["weigh/dana"].arguments(scores))
    assert selected_by_cluster(out, weights) == [20, 20, 20]
    plain = {**recipe, "arms": {"dana": {}}}
    assert "clusters" not in {step.name for step in plan_run(load(RunSettings, plain)).steps}
