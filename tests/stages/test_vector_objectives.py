"""Adapting by position and crops: what is written, what decides it, what is refused, and stopping on the way."""

import math
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from dana.core.artifacts import MANIFEST, make, read_json
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.settings import load
from dana.stages.losses import loss_stage
from dana.train.settings import AdaptSettings, Execution, PretrainSettings
from tests.conftest import write_documents
from tests.stages.tiny_training import CROPS, POSITION, adapt, records
from tests.stages.two_topics import CELLS, one_document, write_weights_of
from tests.train.objectives.test_causal import gpt2

both = pytest.mark.parametrize("settings", [POSITION, CROPS], ids=["position", "crops"])


def unit_rows(documents, weight, units=4):
    """Rows of weights for the first sentences of documents, of ten characters each."""
    return [
        (f"pool-{number}", unit, 10 * unit, 10 * unit + 9, 0, weight)
        for number in range(documents)
        for unit in range(units)
    ]


@both
def test_the_folder_has_the_bases_architecture_and_says_what_was_not_trained(
    adapted_to, base, settings
):
    folder = adapted_to(settings).path
    before = AutoModelForMaskedLM.from_pretrained(base)
    after, report = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert AutoModel.from_pretrained(folder).config.model_type == "bert"
    notes = read_json(folder / MANIFEST)["untrained"]
    assert "cls.predictions.transform.dense.weight" in notes
    trained = dict(before.named_parameters())
    for name, value in after.named_parameters():
        assert torch.equal(value, trained[name]) == (name in notes), name
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "the head for language modelling was not" in card
    assert re.search(r"\| pool \| .* right \(guessing \d+\.\d%\)", card)


def test_the_card_of_a_base_without_a_head_names_none(base, inputs, tmp_path):
    backbone = tmp_path / "backbone"
    AutoModel.from_pretrained(base).save_pretrained(backbone)
    AutoTokenizer.from_pretrained(base).save_pretrained(backbone)
    folder = adapt(backbone, inputs, tmp_path / "out", POSITION).path
    assert read_json(folder / MANIFEST)["untrained"] == ["pooler.dense.weight", "pooler.dense.bias"]
    assert "the head for language modelling" not in (folder / "README.md").read_text("utf-8")
    assert type(AutoModel.from_pretrained(folder)).__name__ == "BertModel"


def test_a_checkpoint_of_an_unknown_class_is_refused(base, inputs, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(base, damaged)
    config = damaged / "config.json"
    config.write_text(config.read_text("utf-8").replace("BertForMaskedLM", "BertForNothing"))
    with pytest.raises(ArtifactError, match="BertForNothing"):
        adapt(damaged, inputs, tmp_path / "out", POSITION)


@both
def test_lines_of_the_log_have_the_accuracy_beside_that_of_guessing(adapted_to, settings):
    folder = adapted_to(settings).path
    assert all(0 <= line["accuracy"] <= 1 for line in records(folder, "step"))
    for line in records(folder, "evaluation"):
        for text in ("target", "pool"):
            assert 0 <= line[f"{text}_accuracy"] <= 1
            assert 0 < line[f"{text}_guess"] <= 1
    first = records(folder, "evaluation")[0]
    if settings is POSITION:
        assert first["pool_loss"] == pytest.approx(math.log(5), abs=1e-6)


def test_training_teaches_where_a_sentence_stands(base, inputs, tmp_path):
    settings = replace(POSITION, steps=30, learning_rate=1e-3, objective="position:sentences=0")
    folder = adapt(base, inputs, tmp_path / "out", settings).path
    steps = records(folder, "step")
    for name, least in (("loss", -0.15), ("accuracy", 0.15)):
        first, last = (np.mean([line[name] for line in part]) for part in (steps[:5], steps[-5:]))
        gain = (last - first) * np.sign(least)
        assert gain > abs(least), "five steps together: one has few sentences"


def test_a_student_comes_nearer_to_its_teacher_and_keeps_no_map(base, adapted_to, inputs, tmp_path):
    """The teacher is the base, adapted by position; the student is the base."""
    teacher = adapted_to(replace(POSITION, steps=30, learning_rate=1e-3)).path
    objective = f"distill:teacher={teacher}"
    settings = replace(POSITION, steps=30, learning_rate=1e-3, objective=objective)
    done = adapt(base, inputs, tmp_path / "out", settings)
    losses = [line["pool_loss"] for line in records(done.path, "evaluation")]
    assert losses[-1] < 0.7 * losses[0]
    after = AutoModelForMaskedLM.from_pretrained(done.path).state_dict()
    assert set(after) == set(AutoModelForMaskedLM.from_pretrained(base).state_dict())
    written = read_json(done.path / MANIFEST)["depends_on"]["settings"]["objective"]
    assert written["teacher"] != str(teacher), "its weights, wherever they lie"
    card = (done.path / "README.md").read_text(encoding="utf-8")
    assert "vectors that" in card
    assert "mean cosine distance a sentence" in card


@both
def test_a_killed_run_goes_on_to_the_same_bytes(base, inputs, tmp_path, settings, monkeypatch):
    settings = replace(settings, execution=Execution(save_every=1))
    whole = adapt(base, inputs, tmp_path / "whole", settings).path

    class Killed(BaseException):
        pass

    steps = []

    def kill(accelerator, record):
        steps.append(record.step)
        if record.step == 3:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("dana.train.run.track", kill)
        with pytest.raises(Killed):
            adapt(base, inputs, tmp_path / "cut", settings)
    assert not (tmp_path / "cut").exists()
    cut = adapt(base, inputs, tmp_path / "cut", settings).path
    names = ["model.safetensors", "config.json"]
    assert [(whole / name).read_bytes() for name in names] == [
        (cut / name).read_bytes() for name in names
    ]


@both
def test_target_text_of_single_sentences_has_no_loss(
    base, inputs, repository_texts, tmp_path, settings
):
    pool = inputs[0]
    held_out = write_documents(tmp_path / "held out", repository_texts[20:60])
    target = write_documents(tmp_path / "target", ["A single sentence."] * 3)
    folder = adapt(base, (pool, target, held_out), tmp_path / "out", settings).path
    line = records(folder, "evaluation")[-1]
    assert line["target_loss"] is None
    assert "target_accuracy" not in line
    assert line["pool_loss"] > 0
    with pytest.raises(ConfigError, match=r"final=.best.: must be last"):
        adapt(base, (pool, target, held_out), tmp_path / "best", replace(settings, final="best"))
    assert not (tmp_path / "best").exists()


@both
@pytest.mark.parametrize(
    ("texts", "error"),
    [
        (["One sentence."] * 9, "objective=masked"),
        ([""] * 9, "objective=masked"),
    ],
)
def test_a_pool_without_documents_is_refused(base, inputs, tmp_path, settings, texts, error):
    pool = write_documents(tmp_path / "pool", texts)
    with pytest.raises(DataError, match=error):
        adapt(base, (pool, *inputs[1:]), tmp_path / "out", settings)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("count", [1, 6])
def test_crops_of_one_document_or_of_copies_have_nothing_to_learn(base, inputs, tmp_path, count):
    text = (
        "Alpha beta gamma delta. Epsilon zeta eta theta. Iota kappa lambda. Mu nu xi omicron. Pi."
    )
    pool = write_documents(tmp_path / "pool", [text] * count)
    with pytest.raises(DataError, match="nothing to learn from"):
        adapt(base, (pool, *inputs[1:]), tmp_path / "out", CROPS)
    assert not (tmp_path / "out").exists()


def test_one_document_is_enough_for_position(base, inputs, tmp_path):
    text = "Alpha beta gamma. Delta epsilon zeta. Eta theta iota. Kappa lambda mu."
    pool = write_documents(tmp_path / "pool", [text])
    folder = adapt(base, (pool, *inputs[1:]), tmp_path / "out", POSITION).path
    assert len(records(folder, "step")) == 4


@both
@pytest.mark.parametrize(
    ("weight", "error"), [(math.nan, "is nan; it must be a number"), (0.0, "without selected text")]
)
def test_bad_weights_are_refused(base, inputs, write_weights, tmp_path, settings, weight, error):
    weights = write_weights(unit_rows(5, weight))
    with pytest.raises(DataError, match=error):
        adapt(base, inputs, tmp_path / "out", settings, weights)
    assert not (tmp_path / "out").exists()


@both
@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"adapter": "lora:r=2"}, "adapter=.lora:r=2.: must be null"),
        ({"phases": [{"tokens": 9, "mask_rate": 0.2}], "steps": None}, "has no mask rate"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, values, error):
    kept = {"objective": settings.objective, "steps": 4}
    with pytest.raises(ConfigError, match=error):
        load(AdaptSettings, {**kept, **values})


@both
def test_models_from_scratch_losses_and_windows_are_refused(
    base, inputs, tmp_path, tiny_tokenizer, settings
):
    with pytest.raises(ConfigError, match="objective"):
        load(PretrainSettings, {"objective": settings.objective})
    with pytest.raises(ConfigError, match="no such loss to measure"):
        loss_stage(str(base), inputs[1], "target", settings, 0, tmp_path / "loss")
    assert not (tmp_path / "loss").exists()


@both
def test_the_step_is_64_documents_unless_it_is_set(settings):
    assert AdaptSettings(objective=settings.objective).examples_a_step == 64
    assert AdaptSettings(objective=settings.objective, batch_size=9).examples_a_step == 9
    assert AdaptSettings().examples_a_step == 256
    assert AdaptSettings().decisive() == AdaptSettings(batch_size=256).decisive()


def test_the_learning_rate_is_that_of_objective_and_base_unless_it_is_set():
    rates = {64: 1e-3, 256: 1e-3, 300: 2e-4, 384: 2e-4, 768: 5e-5, 1024: 5e-5}
    for width, rate in rates.items():
        for objective in ("position", "crops"):
            assert AdaptSettings(objective=objective).for_width(width).learning_rate == rate
        assert AdaptSettings().for_width(width).learning_rate == 1e-4, "the paper's"
    assert AdaptSettings(learning_rate=3e-4).for_width(384).learning_rate == 3e-4


def test_the_rate_that_was_not_given_is_used_and_written_down(base, inputs, tmp_path):
    settings = replace(POSITION, steps=2, learning_rate=None, warmup=0.0)
    folder = adapt(base, inputs, tmp_path / "out", settings).path
    assert records(folder, "step")[0]["lr"] == 1e-3
    assert read_json(folder / MANIFEST)["depends_on"]["settings"]["learning_rate"] == 1e-3
    given = replace(settings, learning_rate=1e-3)
    assert adapt(base, inputs, tmp_path / "out", given).path == folder, "the same adaptation"


DOCUMENT = "Alpha beta gamma. Delta epsilon zeta. Eta theta iota. Kappa lambda mu. Nu xi omicron."


@both
@pytest.mark.parametrize("policy", ["segments", "sampled", "sigmoid"])
def test_weights_of_each_policy_train(base, inputs, topics, tmp_path, settings, policy):
    _, pool, _ = topics
    options = {} if policy == "sigmoid" else {"beta": 0.6}
    weights = write_weights_of(topics, tmp_path / "weights", policy=policy, **options).path
    folder = adapt(
        base, (pool.artifact.path, *inputs[1:]), tmp_path / "out", settings, weights
    ).path
    counts = read_json(folder / MANIFEST)["counts"]
    outcomes = ("kept", "left_out", "too_short", "excluded")
    assert counts["documents_in"] == sum(counts[f"documents_{name}"] for name in outcomes)
    assert counts["documents_too_short"] > 0, "documents of one to nine sentences"
    size = records(folder, "step")[0]["effective_sample_size"]
    if policy == "sigmoid":
        assert counts["documents_left_out"] == 0
        assert size != pytest.approx(round(size), abs=1e-3), "every unit has a weight of its own"
    else:
        assert counts["documents_left_out"] > 0


@both
def test_task_and_mixtures_train_where_the_target_text_comes_in_documents(
    base, inputs, tmp_path, settings
):
    random = np.random.default_rng(0)
    target = write_documents(tmp_path / "heldout", [DOCUMENT] * 2)
    fit = write_documents(tmp_path / "fit", [one_document(CELLS, random, 6) for _ in range(5)])
    texts = (inputs[0], target, inputs[2])
    for name, mix in (("task", {"task": 1.0}), ("mixed", {"task": 0.5, "pool": 0.5})):
        folder = adapt(base, texts, tmp_path / name, replace(settings, mix=mix)).path
        assert len(records(folder, "step")) == 4
        assert records(folder, "evaluation")[-1]["target_loss"] is not None
    write_documents(fit, ["A single sentence."] * 5)
    for mix in ({"task": 1.0}, {"pool": 0.5, "task": 0.5}):
        with pytest.raises(DataError, match=r"mix=.*: task \(.*fit\): .*objective=masked"):
            adapt(base, texts, tmp_path / "out", replace(settings, mix=mix))
    assert not (tmp_path / "out").exists()


@both
def test_weights_of_windows_are_refused(base, inputs, write_weights, tmp_path, settings):
    weights = write_weights(unit_rows(5, 1.0))
    depends_on = {"selection": {"units": "window:256"}}
    make(weights.parent / "scores", "scores", depends_on, lambda draft: None)
    with pytest.raises(ConfigError, match=r"masked: it reads sentences.*units=window:256"):
        adapt(base, inputs, tmp_path / "out", settings, weights)
    assert not (tmp_path / "out").exists()


@both
def test_what_is_too_short_or_too_long_is_said(base, inputs, tmp_path, settings, heard):
    longest = " ".join(["alpha"] * 90)
    long_text = " ".join(f"Alpha {longest} {row}." for row in range(5))
    texts = [*(f"{DOCUMENT} Pi rho {row}." for row in range(6)), long_text, "One sentence."]
    pool = write_documents(tmp_path / "pool", texts)
    adapt(base, (pool, *inputs[1:]), tmp_path / "out", settings)
    assert "1 of 8 documents are too short: fewer than 4 sentences" in heard.text
    cut, pieces = 5, "41 sentences"
    if settings.objective == "crops":
        cut, pieces = 4, "34 pairs of neighbouring sentences"
    assert f"{cut} of {pieces} are longer than 46 tokens, and cut there" in heard.text
    counts = read_json(tmp_path / "out" / MANIFEST)["counts"]
    assert (counts["documents_too_short"], counts["pieces_cut"]) == (1, cut)


@both
def test_texts_longer_than_the_model_are_refused(base, inputs, tmp_path, settings):
    with pytest.raises(ConfigError, match="max_tokens=65: must be at most 64 for this model"):
        adapt(base, inputs, tmp_path / "out", replace(settings, max_tokens=65))


@both
def test_decoders_are_refused(inputs, byte_level, tmp_path, settings):
    gpt2(len(byte_level)).save_pretrained(tmp_path / "gpt2")
    byte_level.save_pretrained(tmp_path / "gpt2")
    with pytest.raises(
        ConfigError, match=r"a model of type gpt2 has no .*; adapt it with --objective causal"
    ):
        adapt(tmp_path / "gpt2", inputs, tmp_path / "out", settings)
    assert not (tmp_path / "out").exists()
