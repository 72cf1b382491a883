"""Adapt and pretrain in one process: what is written, what decides it, and models on the way."""

import json
import math
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertForPreTraining

from dana.core.artifacts import MANIFEST, read_manifest
from dana.core.config import read_yaml
from dana.core.errors import ArtifactError, ConfigError, DataError, Preemption
from dana.core.schemas import DOCUMENTS, iterate_documents, read_table, table_identity
from dana.core.settings import load
from dana.stages.pack import pack_for
from dana.stages.settings import RunSettings
from dana.stages.training import TrainingData, head_stage, pretrain_stage
from dana.train import run
from dana.train.checkpoints import Checkpoints
from dana.train.evaluation import HeldOut
from dana.train.objectives import batch
from dana.train.records import StepRecord
from dana.train.settings import AdaptSettings, Execution, HeadWarmup
from tests.conftest import write_documents
from tests.stages.tiny_training import (
    ADAPT,
    BATCH,
    PAIRS,
    PRETRAIN,
    REPOSITORY,
    adapt,
    assert_same_weights,
    records,
)


def is_complete(model_class, folder):
    return not model_class.from_pretrained(folder, output_loading_info=True)[1]["missing_keys"]


def weights_of(artifact):
    return (artifact.path / "model.safetensors").read_bytes()


@pytest.fixture
def unit_weights(write_weights):
    """Write weights: the first documents count, the others do not."""
    return lambda count, weight: write_weights(
        [(f"pool-{n}", 0, 0, 60, 0, weight) for n in range(count)]
    )


@pytest.fixture(scope="module")
def backbone(base, tmp_path_factory):
    """Write the small model without its head."""
    folder = str(tmp_path_factory.mktemp("backbone"))
    AutoModel.from_pretrained(base, add_pooling_layer=False).save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_pretraining_from_scratch_lowers_both_losses(base, inputs, tmp_path, architecture):
    settings = replace(PRETRAIN, architecture=architecture)
    folder = (
        base
        if architecture == "bert"
        else pretrain_stage("tiny", *inputs, settings, tmp_path / "base").path
    )
    before, *_, after = records(folder, "evaluation")
    assert after["target_loss"] < before["target_loss"] - 0.3
    assert after["pool_loss"] < before["pool_loss"] - 0.3
    assert len(records(folder, "step")) == 30
    assert AutoModelForMaskedLM.from_pretrained(folder).config.model_type == architecture
    assert is_complete(AutoModelForMaskedLM, folder)


def test_adapting_writes_a_folder_that_loads_without_dana(inputs, base, tmp_path, unit_weights):
    artifact = adapt(base, inputs, tmp_path / "adapted", weights=unit_weights(40, 0.5))
    model = AutoModelForMaskedLM.from_pretrained(artifact.path)
    assert AutoModel.from_pretrained(artifact.path).config == model.config
    assert AutoTokenizer.from_pretrained(artifact.path)("weights")["input_ids"]
    counts = artifact.manifest["counts"]
    assert (counts["documents_kept"], counts["steps"]) == (40, 4)
    assert (
        counts["documents_in"] == 40 + counts["documents_left_out"] + counts["documents_excluded"]
    )
    assert artifact.manifest["losses"]["after"] == records(artifact.path, "evaluation")[-1]
    assert artifact.manifest["speed"]["tokens_per_second"] > 0
    card = (artifact.path / "README.md").read_text()
    assert "| tokens seen |" in card
    assert f"effective sample size {artifact.manifest['effective_sample_size']:,.0f}" in card
    first = records(artifact.path, "step")[0]
    assert first["loss"] == pytest.approx(first["plain_loss"] / 2, rel=0.1), (
        "`batch` halves it with every weight"
    )
    assert not (tmp_path / "logs").exists(), "no tracker was named"


def test_the_base_is_tested_on_the_selected_and_on_random_text(
    inputs, base, tmp_path, unit_weights, monkeypatch
):
    weights, settings = unit_weights(40, 0.5), replace(ADAPT, dropout=0.3)
    inputs = [write_documents(tmp_path / "pool", ["the " * 40] * 40), *inputs[1:]]
    artifact = adapt(base, inputs, tmp_path / "adapted", settings, weights)
    losses = artifact.manifest["base_losses"]
    assert losses["selected"] < losses["random"] - 1, "the most frequent word is the best known"
    assert "base_losses" not in adapt(base, inputs, tmp_path / "all", settings).manifest, (
        "all text is not selected"
    )
    monkeypatch.setattr(HeldOut, "with_selected", lambda heldout, *_: heldout)
    assert weights_of(adapt(base, inputs, tmp_path / "without", settings, weights)) == weights_of(
        artifact
    )


def test_next_sentence_is_one_more_objective_and_all_else_is_as_it_was(
    inputs, adapted_to, tmp_path
):
    plain, pairs = adapted_to(ADAPT), adapted_to(PAIRS)
    assert all(
        is_complete(kind, pairs.path)
        for kind in (AutoModelForMaskedLM, AutoModel, BertForPreTraining)
    )
    codes = [
        artifact.manifest["depends_on"]["settings"]["objective"]["code"]
        for artifact in (plain, pairs)
    ]
    assert [(code["class"], code["version"]) for code in codes] == [
        ("MaskedTokens", 1),
        ("NextSentence", 1),
    ]
    assert all("next_sentence_loss" not in line for line in records(plain.path, "step"))
    losses = [line["next_sentence_loss"] for line in records(pairs.path, "step")]
    assert losses == pytest.approx([math.log(2)] * 4, abs=0.1), "four small steps of a new head"
    assert pairs.manifest["losses"]["before"] == plain.manifest["losses"]["before"]
    assert pairs.manifest["execution"]["shape"]["layout"] == "padded"
    assert (
        "| objective | masked tokens and next sentence, mask rate 0.15 |"
        in (pairs.path / "README.md").read_text()
    )
    assert "| objective | masked tokens, mask rate 0.15 |" in (plain.path / "README.md").read_text()
    settings = replace(PRETRAIN, steps=1, evaluations=0, objective="next_sentence")
    assert is_complete(
        BertForPreTraining, pretrain_stage("tiny", *inputs, settings, tmp_path / "scratch").path
    )


def test_the_same_settings_give_the_same_bytes_and_a_second_call_reuses_them(
    inputs, base, adapted_to, tmp_path
):
    artifact = adapted_to(ADAPT)
    assert weights_of(adapt(base, inputs, tmp_path / "again")) == weights_of(artifact)
    changes = ({"seed": 1}, {"dropout": 0.0}, {"dropout": 0.5})
    other_seed, no_dropout, dropout = (
        weights_of(adapted_to(replace(ADAPT, **change))) for change in changes
    )
    assert no_dropout == weights_of(artifact), "the small model was made without"
    assert len({no_dropout, dropout, other_seed}) == 3
    time = (artifact.path / MANIFEST).stat().st_mtime_ns
    adapt(base, inputs, artifact.path)
    assert (artifact.path / MANIFEST).stat().st_mtime_ns == time


def test_held_out_documents_in_the_pool_are_not_trained_on(inputs, base, tmp_path):
    pool, task, _ = inputs
    with pytest.raises(DataError, match="no text to train on"):
        adapt(base, (pool, task, pool), tmp_path / "adapted")
    assert not (tmp_path / "adapted").exists()


def test_a_backbone_gets_a_new_head_alone_or_one_that_arms_share(inputs, base, backbone, tmp_path):
    artifact = adapt(backbone, inputs, tmp_path / "adapted")
    head = artifact.manifest["new_head"]
    assert head["steps"] == 3
    assert any("transform.dense.weight" in name for name in head["parameters"])
    data = TrainingData(inputs[0], None, *inputs[1:])
    assert head_stage(str(base), data, ADAPT, tmp_path / "none") == str(base), "it has a head"
    assert not (tmp_path / "none").exists()
    folder = head_stage(backbone, data, ADAPT, tmp_path / "head")
    assert is_complete(AutoModelForMaskedLM, artifact.path)
    assert is_complete(AutoModelForMaskedLM, folder)
    body = AutoModelForMaskedLM.from_pretrained(folder).bert.state_dict()
    before = AutoModel.from_pretrained(backbone, add_pooling_layer=False).state_dict()
    assert all(value.equal(before[name]) for name, value in body.items()), "the rest is untouched"
    with pytest.raises(ArtifactError, match=r"mask_rate: 0\.15 there, 0\.3 now"):
        head_stage(
            backbone, data, replace(ADAPT, objective="masked:mask_rate=0.3"), tmp_path / "head"
        )


def test_a_new_head_learns_from_the_whole_pool_and_not_from_the_selected_text_alone(
    inputs, backbone, tmp_path, unit_weights
):
    data = TrainingData(inputs[0], None, *inputs[1:])
    head_stage(backbone, data, ADAPT, tmp_path / "head")
    of_pool = read_manifest(tmp_path / "head")["new_head"]
    weights = unit_weights(2, 1.0)
    artifact = adapt(backbone, inputs, tmp_path / "adapted", weights=weights)
    assert artifact.manifest["new_head"] == of_pool
    assert not (tmp_path / "adapted-head").exists()
    from_copy = adapt(tmp_path / "head", inputs, tmp_path / "from-copy", weights=weights)
    assert weights_of(artifact) == weights_of(from_copy)


@pytest.mark.parametrize("name", ["adapt", "pretrain"])
def test_the_recipes_yaml_explains_every_setting_of_the_step(name):
    path = REPOSITORY / "recipes" / f"{name}.yaml"
    values = read_yaml(path)
    settings = getattr(load(RunSettings, values, origin=str(path)), name)
    assert set(values[name]) >= set(vars(settings)) - {"steps", "tokens", "epochs", "batch_tokens"}


def test_text_of_which_the_tokenizer_knows_no_word_is_refused(inputs, write_corpus, tmp_path):
    pool, settings = (
        write_corpus("new", ["supercalifragilistic"] * 20),
        replace(PRETRAIN, vocabulary=64, steps=1),
    )
    with pytest.raises(DataError, match="no step had a token to predict"):
        pretrain_stage("tiny", pool, *inputs[1:], settings, tmp_path / "base")


def test_many_times_through_little_text_is_a_warning(
    inputs, base, adapted_to, tmp_path, unit_weights
):
    settings = replace(ADAPT, epochs=30.0, steps=None, evaluations=0)
    little = adapt(base, inputs, tmp_path / "little", settings, unit_weights(4, 1.0))
    warning = "the run has 30 epochs over 4 examples"
    assert little.manifest["epochs"] == 30
    assert [text for text in little.manifest["warnings"] if warning in text]
    assert f"**Warning:** {warning}" in (little.path / "README.md").read_text()
    assert adapted_to(ADAPT).manifest["warnings"] == []
    assert "Warning" not in (adapted_to(ADAPT).path / "README.md").read_text()


def test_only_selected_text_is_tokenised_and_the_model_is_the_same(
    inputs, base, tmp_path, unit_weights
):
    pool = inputs[0]
    tokens = pool.parent / "tokens"
    shutil.rmtree(tokens, ignore_errors=True)
    weights = unit_weights(12, 1.0)
    alone = adapt(base, inputs, tmp_path / "alone", weights=weights)
    (folder,) = tokens.iterdir()
    rows = read_table(folder).to_pylist()
    documents = [document.doc_id for document in iterate_documents(pool)]
    assert [row["doc_id"] for row in rows] == documents
    assert [row["doc_id"] for row in rows if row["tokens"]] == documents[:12]

    whole = pack_for(str(base), pool)
    assert whole.manifest["counts"]["tokens"] > sum(row["tokens"] for row in rows)
    after = adapt(base, inputs, tmp_path / "after", weights=weights)
    assert len(list(tokens.iterdir())) == 2, "the tokens of the whole pool serve, too"
    assert weights_of(alone) == weights_of(after)
    assert alone.manifest["counts"] == after.manifest["counts"]


def test_a_mixture_draws_its_shares_of_tokens(inputs, base, tmp_path, unit_weights, monkeypatch):
    original, weights_of_steps = batch.loss_scale, []
    monkeypatch.setattr(
        batch,
        "loss_scale",
        lambda weights, *rest: weights_of_steps.append(weights) or original(weights, *rest),
    )
    settings, weights = (
        replace(ADAPT, evaluations=0, steps=None, tokens=3000),
        unit_weights(40, 0.5),
    )
    mixed = replace(settings, mix={"pool": 0.25, "selected": 0.75})
    mixture = adapt(base, inputs, tmp_path / "mixed", mixed, weights)
    steps = [step for step in weights_of_steps if step.size == 16 and 0.5 in step]
    assert steps
    assert all(0 < (step == 1).sum() < 8 for step in steps)
    counts = mixture.manifest["counts"]
    assert counts["windows_of_pool"] > 200 > 100 > counts["examples"]
    assert mixture.manifest["effective_sample_size"] == counts["examples"], (
        "that of what was selected"
    )
    plain = adapt(base, inputs, tmp_path / "plain", settings, weights)
    assert abs(plain.manifest["counts"]["tokens_seen"] - counts["tokens_seen"]) <= 48, (
        "equal tokens"
    )
    assert plain.manifest["epochs"] > mixture.manifest["epochs"]
    assert "| mixture | 75% selected, 25% pool |" in (mixture.path / "README.md").read_text()
    with pytest.raises(
        ConfigError, match=r"mix=.*: must be without selected, as there are no weights"
    ):
        adapt(base, inputs, tmp_path / "none", mixed)


def test_the_tasks_own_text_is_trained_on_alone_or_beside_selected_text(
    inputs, base, tmp_path, unit_weights
):
    pool, _, held_out_pool = inputs
    task = write_documents(tmp_path / "target" / "fit", ["enzyme " * 30, "receptor " * 30])
    held_out = write_documents(tmp_path / "target" / "held_out", ["enzyme " * 30])
    settings, texts = replace(ADAPT, evaluations=0, steps=20), (pool, held_out, held_out_pool)
    alone, mixed = (
        adapt(base, texts, tmp_path / name, replace(settings, mix=mix), unit_weights(40, 0.5))
        for name, mix in (("alone", {"task": 1}), ("mixed", {"task": 0.5, "selected": 0.5}))
    )
    assert alone.manifest["counts"]["documents_kept"] == 2
    assert alone.manifest["depends_on"]["weights"] is None
    assert mixed.manifest["counts"]["windows_of_task"] == alone.manifest["counts"]["examples"]
    of_target = [one.manifest["depends_on"]["task"] for one in (alone, mixed)]
    assert of_target == [table_identity(task, DOCUMENTS)] * 2
    after = [one.manifest["losses"]["after"]["target_loss"] for one in (alone, mixed)]
    assert after[0] < after[1] < alone.manifest["losses"]["before"]["target_loss"]


def test_phases_train_on_the_text_of_each_and_the_model_says_so(
    inputs, base, tmp_path, unit_weights
):
    pool, _, held_out_pool = inputs
    write_documents(tmp_path / "target" / "fit", ["enzyme " * 30, "receptor " * 30])
    texts = pool, write_documents(tmp_path / "target" / "held_out", ["enzyme " * 30]), held_out_pool
    phases = [
        {"tokens": 2400},
        {
            "tokens": 1600,
            "mix": {"task": 0.5, "pool": 0.5},
            "mask_rate": 0.3,
            "optimizer": "reset",
        },
        {"tokens": 1000, "mix": {"task": 1}, "schedule": "1-sqrt", "learning_rate": 1e-3},
    ]
    values = {**BATCH, "learning_rate": 2e-5, "phases": phases}
    artifact = adapt(
        base, texts, tmp_path / "phases", load(AdaptSettings, values), unit_weights(40, 0.5)
    )
    manifest, card = artifact.manifest, (artifact.path / "README.md").read_text()
    assert manifest["depends_on"]["mix"] == {"selected": 0.48, "task": 0.36, "pool": 0.16}
    assert "| mixture | 48% selected, 36% task, 16% pool |" in card
    assert (
        "| phases | 2,400 tokens of 100% selected, then 1,600 tokens of 50% task, 50% pool, optimizer rese"
        in card
    )
    assert (
        "| 2e-05 at its peak, schedule `linear`, then 0.001 at its peak, schedule `1-sqrt` |"
        in card
    )
    assert (
        "| masked tokens, mask rate 0.15, then masked tokens, mask rate 0.3, then masked tokens, mask rate 0.15 |"
        in card
    )
    counts = manifest["counts"]
    assert counts["windows_of_pool"] > counts["windows_of_task"] > 0
    assert 5000 <= counts["tokens_seen"] < 5000 + 3 * 48
    evaluations = {line["phase"]: line for line in records(artifact.path, "evaluation")}
    assert (
        evaluations[2]["target_loss"]
        < evaluations[1]["target_loss"]
        < evaluations[0]["target_loss"]
    ), "the task's last"
    one = {**values, "phases": phases[:1]}
    plain = adapt(
        base, inputs, tmp_path / "plain", load(AdaptSettings, {**one, "tokens": 2400, "phases": []})
    )
    alone = adapt(base, inputs, tmp_path / "alone", load(AdaptSettings, one))
    assert weights_of(alone) == weights_of(plain), "one phase is the run"
    assert not [line for line in records(alone.path, "step") if "phase" in line]
    assert "| phases |" not in (plain.path / "README.md").read_text()


def test_models_on_the_way_are_those_of_their_step_and_change_nothing(
    inputs, base, adapted_to, tmp_path
):
    execution = Execution(export_every=2, gradient_checkpointing=True)
    artifact = adapt(base, inputs, tmp_path / "out", replace(ADAPT, execution=execution))
    assert artifact.fingerprint == adapted_to(ADAPT).fingerprint
    halfway, last = sorted((tmp_path / "out-exports").iterdir())
    assert (halfway.name, last.name) == ("step-00000002", "step-00000004")
    assert_same_weights(artifact.path, adapted_to(ADAPT).path)
    assert_same_weights(last, artifact.path)
    one, two = (load_file(folder / "model.safetensors") for folder in (halfway, last))
    assert max((two[name] - one[name]).abs().max() for name in two) > 1e-6
    assert AutoModelForMaskedLM.from_pretrained(halfway).config.vocab_size == 800


def test_a_run_that_cannot_save_leaves_no_handler_of_signals(inputs, base, tmp_path, monkeypatch):
    monkeypatch.setattr(
        Checkpoints, "write", lambda *args: Path(tmp_path / "missing" / "file").touch()
    )
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(
        OSError, match="missing"
    ) as kept:  # as a run keeps the error of a failed step
        adapt(base, inputs, tmp_path / "out", replace(ADAPT, execution=Execution(save_every=1)))
    assert (kept.type, signal.getsignal(signal.SIGTERM)) == (FileNotFoundError, before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_resumed_run_differs_no_more_than_unstopped_ones_do(
    inputs, base, tmp_path, monkeypatch
):
    settings = replace(ADAPT, steps=12, execution=Execution(save_every=5))
    straight = [adapt(base, inputs, tmp_path / name, settings) for name in ("a", "b", "c")]
    with monkeypatch.context() as context:
        context.setattr(run, "track", stop_after(7))
        with pytest.raises(Preemption):
            adapt(base, inputs, tmp_path / "resumed", settings)
    resumed = adapt(base, inputs, tmp_path / "resumed", settings)
    first, *others = (tensors_of(artifact) for artifact in straight)
    noise = max(largest_difference(first, other) for other in others)
    assert largest_difference(first, tensors_of(resumed)) <= max(2 * noise, 1e-7)


def stop_after(step):
    """Make a stand-in for the tracker that asks this process to stop after a step."""

    def track(accelerator, record):
        if isinstance(record, StepRecord) and record.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return track


def tensors_of(artifact):
    return load_file(artifact.path / "model.safetensors")


def largest_difference(one, other):
    return max(float((value - other[name]).abs().max()) for name, value in one.items())


def test_a_new_head_that_is_no_better_than_guesses_is_refused_and_nothing_is_written(
    inputs, backbone, tmp_path
):
    settings = replace(ADAPT, head_warmup=HeadWarmup(3, 8))
    words = r"where guessing by frequency costs .* a base with a trained head"
    with pytest.raises(DataError, match=words):
        adapt(backbone, inputs, tmp_path / "adapted", settings)
    data = TrainingData(inputs[0], None, *inputs[1:])
    with pytest.raises(DataError, match=words):
        head_stage(backbone, data, settings, tmp_path / "head")
    assert not (tmp_path / "adapted").exists()
    assert not (tmp_path / "head").exists()
    artifact = head_stage(backbone, data, ADAPT, tmp_path / "head")
    note = json.loads((Path(artifact) / MANIFEST).read_text())["new_head"]
    assert note["heldout_loss"] > 0 < note["entropy"]
