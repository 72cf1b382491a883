"""``dana run`` from text to report: arms of any name, a plug-in's selector, several processes, a killed run."""

import json
import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from dana.cli.main import main
from dana.core.artifacts import MANIFEST, read_manifest
from dana.core.errors import ConfigError
from dana.core.schemas import read_table
from dana.core.settings import load
from dana.selectors.base import FittedSelector, Selector
from dana.stages.report import run_summary
from dana.stages.run import plan_run, run_recipe
from dana.stages.settings import RunSettings
from tests.toy_task import rows, write_checkpoint, write_task

ARMS = {
    "pool": "pool",
    "random": {"selector": "random"},
    "dana": {"weigh": {"beta": 0.3}},
    "mine": {"selector": "shortest:power=2"},
    "task": "task",
}


@dataclass(frozen=True)
class FittedShortest(FittedSelector):
    """An exponent."""

    power: float

    def score_units(self, units):
        """Characters to the power."""
        return np.array([float(len(text)) ** self.power for text in units.texts])


@dataclass(frozen=True)
class Shortest(Selector):
    """A selector of a third party: short units first."""

    power: float = 1.0
    fitted_type: ClassVar[type] = FittedShortest

    def learn(self, task, pool, seed):
        """Learn nothing."""
        return FittedShortest(self.power)


PLUGIN = f"[dana.selectors]\nshortest = {__name__}:Shortest\n"


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Install the selector as a package: a dist-info folder on the path."""
    info = tmp_path / "site" / "shortest-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shortest\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path / "site")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Write a recipe's task card, pool text and model."""
    folder = tmp_path_factory.mktemp("inputs")
    card = write_task(folder)
    lines = [
        json.dumps({"id": row["id"], "text": f"{row['text'].capitalize()}."})
        for row in rows(150, 9)
    ]
    (folder / "pool.jsonl").write_text("\n".join(lines), encoding="utf-8")
    model = str(write_checkpoint(folder / "model"))
    return {"task": str(card), "pool": [str(folder / "pool.jsonl")], "model": model}


SETTINGS = {
    "selection": {"encoder": "hashing:dims=32"},
    "ranking": {"detectors": ["knn", "pca"], "folds": 2},
    "weigh": {"gamma": 1},
    "adapt": {"steps": 2, "batch_size": 8, "max_tokens": 24, "evaluations": 0},
    "finetune": {"preset": "quick", "epochs": 1},
    "seeds": {"adaptations": 1, "finetunings": 2},
    "arms": ARMS,
}


def recipe(inputs, out, **settings):
    return load(RunSettings, {**inputs, "out": str(out), **SETTINGS, **settings})


@pytest.mark.slow
def test_five_arms_one_by_a_plug_in_from_text_to_report_by_one_job_or_two(
    inputs, plugin, tmp_path, caplog
):
    settings = recipe(inputs, tmp_path / "run")
    caplog.set_level("INFO", "dana")
    page = run_recipe(settings).read_text(encoding="utf-8")
    lines = [record.getMessage() for record in caplog.records]
    assert any(
        re.match("task +toy: 120 texts to train on, 60 to test on; 3 labels", line)
        for line in lines
    )
    assert any(
        re.search("of about 0.[0-9]+ macro-F1 can be decided by fine-tuning", line)
        for line in lines
    )
    gates = run_summary(tmp_path / "run")["gate"]
    assert {arm: [gate["adaptation"] for gate in rows] for arm, rows in gates.items()} == {
        "dana": [0],
        "mine": [0],
    }
    assert gates["dana"][0]["base_losses"]["selected"] > 0 < gates["dana"][0]["vocabulary"]
    shown = [number for number, line in enumerate(lines) if line.startswith("selected  dana: ")]
    adapts = [number for number, line in enumerate(lines) if "adapting: dana" in line]
    assert shown[0] < adapts[0], "text is shown before anything is trained on it"
    assert all(arm in page for arm in ARMS)
    table = pd.read_csv(tmp_path / "run" / "results.csv")
    scores = table[table["step"].str.startswith("finetune/") & (table["metric"] == "score")]
    assert scores.groupby("arm")["seed"].apply(list).to_dict() == {
        arm: [0, 1] for arm in ("base", *ARMS)
    }
    baselines = table[table["step"] == "baselines/toy"].set_index("arm")
    assert "tfidf" in baselines.index
    for name, row in baselines.iterrows():
        file = tmp_path / "run" / "baselines" / "toy" / name / "metrics.json"
        assert row["value"] == json.loads(file.read_text())["mean"]
        assert row["task"] == scores["task"].iloc[0]
    metrics = json.loads(
        (tmp_path / "run" / "finetune" / "toy" / "mine" / "metrics.json").read_text()
    )
    assert scores.loc[scores["arm"] == "mine", "value"].tolist() == [
        row["score"] for row in metrics["seeds"]
    ]
    weights = read_table(tmp_path / "run" / "arms" / "mine" / "weights").to_pandas()
    lengths = (weights["end"] - weights["start"]).groupby(weights["weight"] > 0).mean()
    assert lengths[True] < lengths[False], "the plug-in's scores decide"
    assert (
        read_manifest(tmp_path / "run" / "arms" / "task" / "adapted")["counts"]["documents_in"]
        == 120
    )
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob(MANIFEST)}
    run_recipe(settings)
    assert {path: path.stat().st_mtime_ns for path in before} == before, (
        "a second run makes nothing"
    )
    run_recipe(
        recipe(
            inputs, tmp_path / "two", jobs=2, arms={name: ARMS[name] for name in ("dana", "mine")}
        )
    )
    for file in ("finetune/toy/mine/predictions.parquet", "arms/dana/adapted/model.safetensors"):
        assert (tmp_path / "two" / file).read_bytes() == (tmp_path / "run" / file).read_bytes()
    rows = table[table["arm"].isin(["mine", "dana", "base"])].reset_index(drop=True)
    two = pd.read_csv(tmp_path / "two" / "results.csv")
    pd.testing.assert_frame_equal(two[two["step"].isin(rows["step"])].reset_index(drop=True), rows)


@pytest.mark.slow
def test_adaptations_go_from_text_to_report(inputs, tmp_path):
    run = tmp_path / "run"
    arms = {"random": {"selector": "random"}, "dana": {}}
    seeds = {"adaptations": 2, "finetunings": 1}
    page = run_recipe(recipe(inputs, run, arms=arms, seeds=seeds)).read_text(encoding="utf-8")
    assert "Each adaptation has a selection of its own" in page
    one, two = (
        read_table(folder / "arms" / "random" / "weights") for folder in (run, run / "nested" / "1")
    )
    assert not one["weight"].equals(two["weight"])
    table = pd.read_csv(run / "tables" / "differences.csv")
    assert (table["n"] == 2).all()


def test_a_dry_run_counts_the_steps_and_runs_none(inputs, tmp_path, capsys):
    values = {**inputs, "out": str(tmp_path / "run"), **SETTINGS, "arms": ["pool"]}
    (tmp_path / "recipe.json").write_text(json.dumps(values))
    assert main(["run", str(tmp_path / "recipe.json"), "--dry-run"]) == 0
    head, *lines, total, end = capsys.readouterr().out.splitlines()
    assert head.split() == ["steps", "all", "done", "changed", "missing"]
    assert [line.split()[-4:] for line in lines] == [
        [str(n), "0", "0", str(n)] for n in (1, 1, 1, 1, 4)
    ]
    assert [line.rsplit(maxsplit=4)[0] for line in lines] == [
        "computing baselines",
        "reading texts",
        "preparing the base",
        "adapting",
        "fine-tuning",
    ]
    assert "8 of 8 steps" in total
    assert total.endswith("; 1 × training on 2 steps; 4 × fine-tuning"), total
    assert end.endswith("nothing was written")
    assert not (tmp_path / "run").exists()
    assert main(["--verbose", "run", str(tmp_path / "recipe.json"), "--dry-run"]) == 0
    named = [
        line.split()[1]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("missing")
    ]
    assert named == [
        "baselines/toy",
        "texts",
        "base",
        "adapt/pool",
        *(f"finetune/toy/{arm}/0/seed-{seed}" for arm in ("base", "pool") for seed in (0, 1)),
    ]


@pytest.mark.slow
def test_the_model_of_another_run_is_a_base(inputs, tmp_path):
    run_recipe(recipe(inputs, tmp_path / "first", arms=["pool"]))
    model = tmp_path / "first" / "arms" / "pool" / "adapted"
    run_recipe(recipe({**inputs, "model": str(model)}, tmp_path / "second", arms=[]))
    table = pd.read_csv(tmp_path / "second" / "results.csv")
    assert set(table.loc[table["step"] == "base", "artifact"]) == {str(model)}
    (tmp_path / "first" / "pool").rename(tmp_path / "gone")
    run = plan_run(recipe(inputs, tmp_path / "first", arms=["pool"]))
    assert run.states()["texts"] == "changed", "what it made is gone"


@pytest.mark.slow
def test_a_run_stops_early_says_so_and_is_continued_without_the_setting(inputs, tmp_path):
    """Two steps of training change nothing, so no question would be decided."""
    run, seeds = tmp_path / "run", {"adaptations": 4, "finetunings": 1}
    settings = {"arms": {"random": {"selector": "random"}, "dana": {}}, "baselines": "none"}
    page = run_recipe(
        recipe(inputs, run, seeds={**seeds, "stop_early": True}, **settings)
    ).read_text(encoding="utf-8")
    assert "Stopped early, after 3 of 4 adaptations: 0 of 2 questions are decided" in page
    assert "p and interval allow for a look after each adaptation" in page
    assert "Unfinished" not in page
    assert run_summary(run)["stopped_early"].startswith("0 of 2 questions")
    assert run_summary(run)["verdicts"][0]["level"] < 0.025
    assert not [*run.glob("nested/3")]
    page = run_recipe(recipe(inputs, run, seeds=seeds, **settings)).read_text(encoding="utf-8")
    assert "Stopped early" not in page
    assert "p and interval allow for a look after each adaptation" in page
    assert (pd.read_csv(run / "tables" / "differences.csv")[["n", "horizon"]] == 4).all(axis=None)
    run_recipe(recipe(inputs, run, seeds={**seeds, "stop_early": True}, **settings))
    assert json.loads((run / "looks.json").read_text())["adaptations"] == 3, (
        "a look that is over decides nothing"
    )


def test_looks_are_planned_from_the_third_adaptation_on_and_less_of_them_are_refused(
    inputs, tmp_path
):
    seeds = {"adaptations": 5, "stop_early": True}
    steps = [
        step.name for step in plan_run(recipe(inputs, tmp_path, seeds=seeds, arms=["task"])).steps
    ]
    assert [
        steps[at - 1 : at + 1] for at, name in enumerate(steps) if name.startswith("look/")
    ] == [[f"finetune/toy/task/{index}/seed-{2 * index + 1}", f"look/{index}"] for index in (2, 3)]
    with pytest.raises(
        ConfigError, match=r"seeds.adaptations=3: must be above 3, as many as the first look has"
    ):
        recipe(inputs, tmp_path, seeds={**seeds, "adaptations": 3})


PROBED = {"enabled": True, "sizes": [12], "draws": 2, "max_tokens": 24, "documents": 50}


def test_a_run_probes_the_base_once_and_every_arm_of_each_adaptation(inputs, tmp_path):
    settings = recipe(
        inputs,
        tmp_path / "run",
        arms=["random", "dana"],
        seeds={"adaptations": 2, "finetunings": 1},
        probe=PROBED,
        baselines="none",
    )
    names = [step.name for step in plan_run(settings).steps]
    assert names[0] == "probe/toy/base", "it costs seconds and waits for no pool"
    quick = [step.name for step in plan_run(settings, quick=True).steps]
    assert names[: len(quick)] == quick, "a run goes on where a quick one ends"
    assert not [name for name in quick if name.startswith("finetune/")]
    assert names[len(quick)].startswith("finetune/")
    assert [name for name in names if name.startswith("probe/")] == [
        "probe/toy/base",
        "probe/toy/random/0",
        "probe/toy/dana/0",
        "probe/toy/random/1",
        "probe/toy/dana/1",
    ]
    assert [name for name in names if name.startswith("retrieval/")] == [
        "retrieval/base",
        "retrieval/random",
        "retrieval/dana",
    ], "searched in the first adaptation alone"
    off = recipe(inputs, tmp_path / "run", arms=["random", "dana"])
    assert not [step for step in plan_run(off).steps if step.name.startswith(("probe", "retr"))]


@pytest.mark.slow
def test_arms_are_compared_by_their_vectors_draw_by_draw(inputs, tmp_path):
    settings = recipe(
        inputs,
        tmp_path / "run",
        selector="lexical",
        arms=["random", "dana"],
        seeds={"adaptations": 2, "finetunings": 1},
        probe=PROBED,
        baselines="none",
    )
    run_recipe(settings)
    folder = tmp_path / "run" / "tables"
    differences = pd.read_csv(folder / "probe_differences.csv")
    probe = pd.read_csv(folder / "probe.csv").set_index(["arm", "measure"])["mean"]
    pairs = differences[differences["measure"] == "12 labels"]
    assert set(zip(pairs["arm"], pairs["other"], strict=True)) == {
        ("dana", "base"),
        ("dana", "random"),
        ("random", "base"),
    }
    assert (pairs["n"] == 2).all()
    for row in pairs.itertuples():
        expected = probe[row.arm, "12 labels"] - probe[row.other, "12 labels"]
        assert row.mean == pytest.approx(expected)
        assert row.low <= row.mean <= row.high
