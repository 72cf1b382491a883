"""``dana run`` with the objective ``auto``: what the pilot sees and chooses, and what the arms make of it."""

import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dana.cli.main import main
from dana.core.artifacts import MANIFEST, open_artifact, read_manifest
from dana.core.errors import (
    ArtifactError,
    ConfigError,
    Contradiction,
    DataError,
    FirstProcessError,
    Preemption,
)
from dana.core.settings import load
from dana.finetuning.pilot import NONE
from dana.models.folder import model_identity
from dana.stages import pilot
from dana.stages.join import join_run
from dana.stages.pilot import choice_text
from dana.stages.report import report_stage
from dana.stages.run import plan_run, run_recipe
from dana.stages.settings import RunSettings
from dana.stages.steps.runner import StepError, execute
from dana.stages.training import adapt_stage
from dana.tasks.card import load_card
from dana.tasks.examples import read_splits
from dana.train.settings import AdaptSettings, PretrainSettings
from tests.stages.steps.test_run import SETTINGS
from tests.toy_task import SIGNS, rows, write_checkpoint, write_folds, write_split, write_task

FOLDS = 2
ARMS = ["random", "dana"]


def write_inputs(folder, sentences=5):
    """A card with folds, documents of so many sentences, and a model."""
    card = write_folds(folder, count=60, folds=FOLDS)
    texts = [row["text"] for row in rows(300, 9)]
    documents = [
        {"id": f"d{at}", "text": " ".join(f"{text.capitalize()}." for text in texts[at::60])}
        for at in range(60)
    ]
    if sentences == 1:
        documents = [{"id": f"d{at}", "text": text} for at, text in enumerate(texts)]
    write_split(folder, "pool", documents)
    model = write_checkpoint(folder / "model")
    return {"task": str(card), "pool": [str(folder / "pool.jsonl")], "model": str(model)}


def without_head(inputs, folder):
    """The inputs with a copy of their model that has no head, in the folder ``backbone``."""
    from transformers import AutoModel, AutoTokenizer

    backbone = folder / "backbone"
    AutoModel.from_pretrained(inputs["model"]).save_pretrained(backbone)
    AutoTokenizer.from_pretrained(inputs["model"]).save_pretrained(backbone)
    return {**inputs, "model": str(backbone)}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return write_inputs(tmp_path_factory.mktemp("inputs"))


def recipe(inputs, out, **settings):
    adapt = {**SETTINGS["adapt"], "tokens": None, "steps": 2, "objective": "auto", "batch_size": 4}
    values = {**SETTINGS, "selector": "random", "seeds": {"finetunings": 1}, "arms": ARMS}
    values |= {"adapt": adapt, "baselines": "none", "weigh": {"gamma": 5, "beta": 0.5}}
    return load(RunSettings, {**inputs, **values, "out": str(out), **settings})


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(pilot, "PILOT_STEPS", 2)


def run_to(out, inputs, choice, monkeypatch, **settings):
    with monkeypatch.context() as patch:
        patch.setattr(pilot, "choose_objective", lambda trials: choice)
        execute(plan_run(recipe(inputs, out, **settings)))
    return out


def test_the_arms_take_the_choice_of_the_first_fold_and_a_second_run_reuses_it(
    inputs, tmp_path, monkeypatch
):
    out = run_to(tmp_path / "run", inputs, "position", monkeypatch)
    manifest = read_manifest(out / "pilot")
    assert manifest["choice"] == "position"
    trials = {row["objective"]: row for row in manifest["trials"]}
    assert set(trials) == {NONE, "position", "crops", "masked"}
    assert not (out / "nested/1/pilot").exists()
    assert not (out / "pilot-candidates").exists()
    for folder in (out, out / "nested/1"):
        for arm in ARMS:
            adapted = read_manifest(folder / "arms" / arm / "adapted")
            assert adapted["depends_on"]["settings"]["objective"]["sentences"] == 2
            assert adapted["counts"]["steps"] == 2
    join_run(out)
    page = report_stage(out).read_text(encoding="utf-8")
    assert "Which objective suits the task?" in page
    assert "Other folds or adaptations choose as the first did" in page
    before = (out / "pilot" / MANIFEST).stat().st_mtime_ns
    run_to(out, inputs, "crops", monkeypatch)
    assert (out / "pilot" / MANIFEST).stat().st_mtime_ns == before
    other = recipe(inputs, out)
    adapt = replace(other.adapt, learning_rate=0.002)
    changed = steps_of(plan_run(replace(other, adapt=adapt)), *BEFORE_PILOT, "pilot")
    with pytest.raises(Contradiction, match="learning_rate"):
        execute(changed)


def test_where_no_objective_pays_the_arms_are_the_base(inputs, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", "dana")
    monkeypatch.setattr("dana.finetuning.pilot.LEAST_GAIN", 2.0)
    out = tmp_path / "run"
    run_recipe(recipe(inputs, out))
    # By the run, not by the step, whose lines may go into a log of its own.
    said = [record.getMessage() for record in caplog.records if record.name == "dana.stages.run"]
    said = [line for line in said if line.startswith("pilot     ")]
    assert len(said) == 1
    assert "No objective was worth it, so the arm is the base: the best, " in said[0]
    assert read_manifest(out / "pilot")["choice"] == NONE
    assert not list(out.rglob("adapted"))
    join_run(out)
    frames = [
        pd.read_parquet(out / "finetune/toy" / arm / "predictions.parquet").sort_values(
            ["seed", "id"]
        )
        for arm in ("base", "dana")
    ]
    assert np.array_equal(frames[0]["prediction"], frames[1]["prediction"])
    assert "No objective was worth it" in report_stage(out).read_text(encoding="utf-8")


def test_a_remade_run_removes_what_another_choice_adapted(inputs, tmp_path, monkeypatch):
    out = run_to(tmp_path / "run", inputs, "crops", monkeypatch)
    shutil.rmtree(out / "pilot")
    monkeypatch.setattr("dana.finetuning.pilot.LEAST_GAIN", 2.0)
    with pytest.raises(StepError, match="none now"):
        execute(plan_run(recipe(inputs, out)))
    execute(plan_run(recipe(inputs, out)), remake=True)
    assert not list(out.rglob("adapted"))


def steps_of(run, *names):
    return replace(run, steps=tuple(step for step in run.steps if step.name in names))


BEFORE_PILOT = ("texts", "base", "score/random", "weigh/random", "weigh/dana")


def predictions_of(inputs, out, **settings):
    execute(steps_of(plan_run(recipe(inputs, out, **settings)), *BEFORE_PILOT, "pilot"))
    return open_artifact(out / "pilot", "pilot")


def test_the_pilot_sees_no_label_of_a_tested_text(inputs, tmp_path):
    card = tmp_path / "other" / "toy.yaml"
    shutil.copytree(Path(inputs["task"]).parent, card.parent)
    texts = card.parent / "texts.jsonl"
    lines = [json.loads(line) for line in texts.read_text().splitlines()]
    names = list(SIGNS)
    for line in lines:
        if line["fold"] == 0:
            line["label"] = names[names.index(line["label"]) - 1]
    texts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    one = predictions_of(inputs, tmp_path / "one")
    two = predictions_of({**inputs, "task": str(card)}, tmp_path / "two")
    frames = [pd.read_parquet(found.path / "predictions.parquet") for found in (one, two)]
    pd.testing.assert_frame_equal(*frames)
    assert one.manifest["trials"] == two.manifest["trials"]
    splits = read_splits(load_card(inputs["task"]), fold=0)
    assert set(frames[0]["id"]) == {example.id for example in splits["train"]}
    assert set(frames[0].groupby(["objective", "id"]).size()) == {5}


def test_candidates_that_cannot_train_are_left_out_and_said(tmp_path, capfd):
    inputs = write_inputs(tmp_path / "inputs", sentences=1)
    manifest = predictions_of(inputs, tmp_path / "run").manifest
    left_out = {row["objective"]: row["left_out"] for row in manifest["trials"] if row["left_out"]}
    assert set(left_out) == {"position", "crops"}
    assert "sentence" in left_out["position"]
    assert "left out: " in choice_text(tmp_path / "run" / "pilot")
    # dana adapt alone has no labels to choose by.
    line = ["adapt", str(tmp_path / "run"), "--model", inputs["model"], "--objective", "auto"]
    line += ["--weights", str(tmp_path / "run/arms/dana/weights"), "--steps", "2"]
    assert main(line) == 2
    assert "dana run alone pilots them on labels" in capfd.readouterr().err
    assert not (tmp_path / "run/adapted").exists()


def test_a_base_without_a_head_is_tried_with_a_new_one_which_all_arms_start_from(
    inputs, tmp_path, monkeypatch
):
    headless = without_head(inputs, tmp_path)
    (tmp_path / "backbone/README.md").write_text("---\nlicense: mit\n---\n")
    np.save(tmp_path / "backbone/documents.npy", np.array([7], np.uint64))
    adapt = {**asdict(recipe(inputs, tmp_path).adapt), "head_warmup": {"steps": 2, "margin": -9}}
    out = run_to(tmp_path / "run", headless, "masked", monkeypatch, adapt=adapt)
    manifest = read_manifest(out / "pilot")
    trials = {row["objective"]: row for row in manifest["trials"]}
    assert trials["masked"]["left_out"] is None
    assert manifest["new_heads"] == ["masked"]
    head = model_identity(str(out / "pilot-head"))
    for folder in (out, out / "nested/1"):
        for arm in ARMS:
            adapted = read_manifest(folder / "arms" / arm / "adapted")
            assert adapted["depends_on"]["model"] == head
    assert read_manifest(out / "pilot-head")["new_head"]["steps"] == 2
    # The copy is not called the base, and hands on what is known of it.
    card = (out / "arms/dana/adapted/README.md").read_text(encoding="utf-8")
    assert "| base | backbone |" in card
    assert card.startswith("---\nlicense: mit\n")
    assert 7 in np.load(out / "arms/dana/adapted/documents.npy")

    adapt["head_warmup"]["steps"] = 3
    changed = plan_run(recipe(headless, out, adapt=adapt))
    with pytest.raises(Contradiction, match=r"pilot.*head_warmup"):
        execute(steps_of(changed, *BEFORE_PILOT, "pilot"))


@pytest.mark.parametrize(
    ("warmup", "words"),
    [
        ({"steps": 1, "margin": 5}, "must be 5 below"),
        ({"steps": 3, "margin": -9, "learning_rate": 1e30}, "head_warmup.*the loss is nan"),
    ],
)
def test_a_head_that_stays_too_bad_leaves_its_objective_out(inputs, tmp_path, warmup, words):
    adapt = {**asdict(recipe(inputs, tmp_path).adapt), "head_warmup": warmup}
    headless = without_head(inputs, tmp_path)
    run = plan_run(recipe(headless, tmp_path / "run", adapt=adapt))
    execute(steps_of(run, *BEFORE_PILOT, "pilot"))
    manifest = read_manifest(tmp_path / "run/pilot")
    left_out = {row["objective"]: row["left_out"] for row in manifest["trials"] if row["left_out"]}
    assert set(left_out) == {"masked"}
    assert re.search(words, left_out["masked"])
    assert manifest["new_heads"] == []
    assert not list((tmp_path / "run").glob("pilot-*"))


def test_a_copy_with_a_new_head_is_kept_only_where_masked_tokens_are_chosen(
    inputs, tmp_path, monkeypatch
):
    adapt = {**asdict(recipe(inputs, tmp_path).adapt), "head_warmup": {"steps": 2, "margin": -9}}
    headless = without_head(inputs, tmp_path)
    out = run_to(tmp_path / "run", headless, "crops", monkeypatch, adapt=adapt)
    assert read_manifest(out / "pilot")["new_heads"] == ["masked"]
    assert not (out / "pilot-head").exists()


def test_texts_longer_than_the_model_are_refused_by_that_and_not_left_out(inputs, tmp_path):
    adapt = {**asdict(recipe(inputs, tmp_path).adapt), "max_tokens": 33}
    for model in (inputs, without_head(inputs, tmp_path)):
        run = plan_run(recipe(model, tmp_path / "run", adapt=adapt))
        with pytest.raises(ConfigError, match="max_tokens=33: must be at most 32"):
            execute(steps_of(run, *BEFORE_PILOT, "pilot"))


@pytest.mark.parametrize(
    ("error", "of_first", "is_left_out"),
    [
        (DataError("no sentence"), DataError("no sentence"), True),
        (FirstProcessError(DataError.exit_code), DataError("no sentence"), True),
        (FirstProcessError(ArtifactError.exit_code), ArtifactError("other settings"), False),
        (FirstProcessError(Preemption.exit_code), Preemption("stopped"), False),
        (Preemption("stopped"), Preemption("stopped"), False),
    ],
)
def test_what_the_first_process_leaves_out_the_others_leave_out(
    monkeypatch, error, of_first, is_left_out
):
    reason = pilot._reason_to_leave_out(of_first)
    assert bool(reason) == is_left_out
    monkeypatch.setattr(pilot, "on_rank_0", lambda act: reason)
    assert pilot._reason_to_leave_out(error) == reason


def test_every_pilots_each_fold(inputs, tmp_path):
    def names(**settings):
        run = plan_run(recipe(inputs, tmp_path / "run", **settings))
        adapts = {
            step.name: step.settings["pilot"].step for step in run.steps if "adapt/" in step.name
        }
        return [step.name for step in run.steps if step.name.startswith("pilot")], adapts

    steps, adapts = names()
    assert steps == ["pilot"]
    assert set(adapts.values()) == {"pilot"}
    steps, adapts = names(pilot="every")
    assert steps == ["pilot", "pilot/1"]
    assert adapts["adapt/dana/1"] == "pilot/1"


def test_a_killed_pilot_goes_on_with_the_candidates_that_are_trained(inputs, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    trained = []

    def stop(*args, **kwargs):
        folder = args[6]
        if len(trained) == 1:
            raise Killed
        trained.append(folder.name)
        return adapt_stage(*args, **kwargs)

    whole = predictions_of(inputs, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(pilot, "adapt_stage", stop)
        with pytest.raises(Killed):
            predictions_of(inputs, tmp_path / "cut")
    made = tmp_path / "cut" / "pilot-candidates" / "position" / MANIFEST
    assert trained == ["position"]
    assert made.is_file()
    before = made.stat().st_mtime_ns
    times = []

    def look(*args, **kwargs):
        artifact = adapt_stage(*args, **kwargs)
        times.append((artifact.path / MANIFEST).stat().st_mtime_ns)
        return artifact

    monkeypatch.setattr(pilot, "adapt_stage", look)
    cut = predictions_of(inputs, tmp_path / "cut")
    assert times[0] == before
    assert cut.manifest["trials"] == whole.manifest["trials"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"adapter": "lora:r=2"}, "all weights, in one phase"),
        ({"phases": [{"tokens": 100}]}, "all weights, in one phase"),
    ],
)
def test_settings_that_no_candidate_shares_are_refused(values, words):
    with pytest.raises(ConfigError, match=words):
        load(AdaptSettings, {"objective": "auto", **values})


def test_a_model_from_scratch_has_no_pilot():
    with pytest.raises(ConfigError, match="must be masked"):
        load(PretrainSettings, {"objective": "auto"})


def test_auto_alone_is_refused_with_what_to_do(inputs, tmp_path):
    text = tmp_path / "target.jsonl"
    text.write_text("".join(json.dumps({"text": f"{row['text']}."}) + "\n" for row in rows(9, 3)))
    with pytest.raises(ConfigError, match="has no labels to choose by; name one"):
        plan_run(recipe({**inputs, "task": str(text)}, tmp_path / "run"))
    with pytest.raises(ConfigError, match="must be masked, position or crops"):
        AdaptSettings(objective="auto").make_objective()
    words = write_task(tmp_path, kind="token_labels", metric="span_f1", labels=["O", "B-x", "I-x"])
    with pytest.raises(ConfigError, match="each word of toy has a label"):
        plan_run(recipe({**inputs, "task": str(words)}, tmp_path / "run"))
