"""``dana run`` on a task with folds: no text that an index tests is in what it trains on; stopped, it can be read."""

import json
import os
import signal

import pandas as pd
import pytest

from dana.core.artifacts import read_manifest
from dana.core.errors import ConfigError, Preemption
from dana.core.schemas import DOCUMENTS, iterate_documents, table_identity
from dana.core.settings import load
from dana.corpus.text import words
from dana.stages import finetune_seed
from dana.stages.join import join_run
from dana.stages.run import describe_tasks, plan_run
from dana.stages.settings import RunSettings
from dana.stages.steps.runner import execute
from dana.tasks.card import load_card
from dana.tasks.examples import read_folds, read_splits
from tests.stages.steps.test_run import SETTINGS
from tests.toy_task import rows, write_checkpoint, write_folds, write_split, write_task

ARMS = {
    "random": {"selector": "random"},
    "dana": {},
    "ranked": {"selector": "detector"},
    "task": "task",
    "both": {"mix": {"task": 0.3, "selected": 0.7}},
}
FOLDS = range(3)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Write a card with three folds, and pool text with all of its texts, a third of them in capitals."""
    folder = tmp_path_factory.mktemp("inputs")
    card = write_folds(folder)
    texts = [example.text for example in read_folds(load_card(str(card)))]
    assert min(len(text.split()) for text in texts) < 8, (
        "one is too short for an n-gram or a sentence that counts"
    )
    copies = [
        {"id": f"copy-{at}", "text": text.upper() if at % 3 else text}
        for at, text in enumerate(texts)
    ]
    write_split(
        folder, "pool", [{"id": row["id"], "text": row["text"]} for row in rows(150, 9)] + copies
    )
    model = write_checkpoint(folder / "model")
    return {"task": str(card), "pool": [str(folder / "pool.jsonl")], "model": str(model)}


def recipe(inputs, out, **settings):
    values = {**SETTINGS, "selector": "lexical", "seeds": {"finetunings": 1}, "arms": ARMS}
    return load(RunSettings, {**inputs, **values, "out": str(out), **settings})


@pytest.fixture(scope="module")
def run(inputs, tmp_path_factory):
    """Run all steps."""
    folder = tmp_path_factory.mktemp("grid") / "run"
    execute(plan_run(recipe(inputs, folder)))
    join_run(folder)
    return folder


def home(run, fold):
    return run / "nested" / str(fold) if fold else run


def texts(folder):
    return {words(document.text) for document in iterate_documents(folder)}


def depends_on(folder):
    return read_manifest(folder)["depends_on"]


@pytest.mark.parametrize("fold", FOLDS)
def test_what_a_fold_tests_is_in_nothing_that_its_models_are_made_from(fold, inputs, run):
    splits = read_splits(load_card(inputs["task"]), fold=fold)
    tested, dev = ({words(example.text) for example in splits[name]} for name in ("test", "dev"))
    folder = home(run, fold)
    fit, held_out = texts(folder / "target" / "fit"), texts(folder / "target" / "held_out")
    assert fit == {words(example.text) for example in splits["train"]}
    assert held_out == dev
    assert not (tested | dev) & fit
    for arm in ("task", "both"):
        of_target = depends_on(folder / "arms" / arm / "adapted")["task"]
        assert of_target == table_identity(folder / "target" / "fit", DOCUMENTS)
    target = read_manifest(folder / "target")["fingerprint"]
    pool = read_manifest(run / "pool")["fingerprint"]
    for scores in ("scores", "arms/random/scores", "arms/ranked/scores", "ranking"):
        inputs_of = depends_on(folder / scores)
        assert (inputs_of["target"], inputs_of["pool"]) == (target, pool)
    for arm, scores in (
        ("random", "arms/random/scores"),
        ("dana", "scores"),
        ("ranked", "arms/ranked/scores"),
    ):
        weights = read_manifest(folder / "arms" / arm / "weights")
        assert weights["depends_on"]["scores"] == read_manifest(folder / scores)["fingerprint"]
        adapted = depends_on(folder / "arms" / arm / "adapted")
        assert (adapted["weights"], adapted["pool"]) == (weights["fingerprint"], pool)
    for arm in ("base", *ARMS):
        part = run / "nested" / str(fold) / "finetune" / "toy" / arm / f"seed-{fold}"
        assert depends_on(part)["fold"] == fold
        table = pd.read_parquet(part / "predictions.parquet")
        assert sorted(table["id"]) == sorted(example.id for example in splits["test"])
        assert set(table["seed"]) == {fold}


def test_the_pool_holds_no_labelled_text_each_of_which_its_folds_models_predict(inputs, run):
    labelled = {words(example.text) for example in read_folds(load_card(inputs["task"]))}
    assert not labelled & texts(run / "pool")
    assert read_manifest(run / "pool")["counts"]["dropped"] == {"overlap": 60}
    assert not [*run.glob("nested/*/corpus")]
    for arm in ("base", *ARMS):
        table = pd.read_parquet(run / "finetune" / "toy" / arm / "predictions.parquet")
        assert table.groupby("id")["seed"].size().tolist() == [1] * 60


def test_steps_are_planned_fold_by_fold_over_all_arms(inputs, tmp_path):
    seeds = {"finetunings": 2}
    steps = [step.name for step in plan_run(recipe(inputs, tmp_path / "run", seeds=seeds)).steps]
    tuned = [name for name in steps if name.startswith("finetune/")]
    assert tuned == [
        f"finetune/toy/{arm}/{fold}/seed-{seed}"
        for fold in FOLDS
        for arm in ("base", *ARMS)
        for seed in (2 * fold, 2 * fold + 1)
    ]
    assert steps.index("texts/1") > steps.index("finetune/toy/both/0/seed-1")
    seeds["adaptations"] = 2
    two = plan_run(recipe(inputs, tmp_path / "run", seeds=seeds)).steps
    assert [step.name for step in two] == steps[: len(two)], (
        "fewer adaptations test the first folds"
    )


def test_stopped_and_resumed_by_two_jobs_it_has_the_same_bytes_and_pairs_meanwhile(
    inputs, run, tmp_path, monkeypatch
):
    folder, run_seed = tmp_path / "run", finetune_seed.run_seed

    def stopped(*arguments):
        if arguments[4] == 1:  # the seed of the second fold
            os.kill(os.getpid(), signal.SIGTERM)
        return run_seed(*arguments)

    monkeypatch.setattr(finetune_seed, "run_seed", stopped)
    with pytest.raises(Preemption):
        execute(plan_run(recipe(inputs, folder)))
    join_run(folder)
    for arm in ("base", *ARMS):
        metrics = json.loads((folder / "finetune" / "toy" / arm / "metrics.json").read_text())
        assert [row["adaptation"] for row in metrics["seeds"]] == [0]
    execute(plan_run(recipe(inputs, folder)), jobs=2)
    join_run(folder)
    for arm in ("base", *ARMS):
        file = f"finetune/toy/{arm}/predictions.parquet"
        assert (folder / file).read_bytes() == (run / file).read_bytes()


def test_other_cards_of_a_run_have_as_many_folds_and_their_texts_are_kept_out_too(inputs, tmp_path):
    other = write_folds(tmp_path / "four", folds=4, name="other")
    with pytest.raises(ConfigError, match=r"cards=.*: must be of one number of folds"):
        plan_run(recipe(inputs, tmp_path / "run", cards=[inputs["task"], str(other)]))
    other = write_folds(tmp_path / "three", name="other")
    plain = write_task(tmp_path / "plain", name="plain")
    run = plan_run(recipe(inputs, tmp_path / "run", cards=[inputs["task"], str(other), str(plain)]))
    of = {step.name: step.settings for step in run.steps}
    assert of["texts"]["settings"].cards == [inputs["task"], str(other)]
    folds = [of[f"finetune/{task}/dana/2/seed-2"]["fold"] for task in ("toy", "other", "plain")]
    assert folds == [2, 2, None]
    models = [of[f"finetune/{task}/dana/2/seed-2"]["model"] for task in ("toy", "other")]
    assert models[0] == models[1]


def test_a_card_without_folds_is_described_with_the_adaptations_that_folds_leave(
    inputs, tmp_path, caplog
):
    plain = str(write_task(tmp_path / "plain"))

    def described(adaptations):
        settings = recipe(
            inputs,
            tmp_path / "run",
            cards=[inputs["task"], plain],
            seeds={"finetunings": 1, "adaptations": adaptations},
        )
        caplog.clear()
        describe_tasks(settings, quick=False)
        return caplog.messages

    with caplog.at_level("INFO"):
        three = described(3)
        assert any("toy" in line for line in three)
        assert described(8) == three  # there are three folds
        assert described(2) != three
