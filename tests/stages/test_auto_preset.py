"""Fine-tuning by the preset ``auto``: a rate that is found, marked texts, collapsed models that say so."""

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import toy_task
from toy_kinds import metrics
from transformers import AutoConfig

from dana.core.artifacts import read_manifest
from dana.core.errors import ConfigError, DataError, DivergenceError
from dana.stages import finetune_seed
from dana.stages.finetune import FinetuneSettings, finetune_stage, finetune_text
from tests.stages.tiny_training import adapt, label

BRIEF = FinetuneSettings(preset="quick", epochs=1, seeds=[4, 2])


@pytest.fixture
def relations(tmp_path):
    """Write a task whose first two words are marked in every text."""
    card = toy_task.write_task(tmp_path / "tasks")
    for split, (seed, count) in {"train": (1, 60), "dev": (2, 12), "test": (3, 12)}.items():
        rows = toy_task.rows(count, seed)
        for row in rows:
            first, second, *others = row["text"].split()
            row["text"] = " ".join(["<<", first, ">>", "[[", second, "]]", *others])
        toy_task.write_split(tmp_path / "tasks" / "toy", split, rows)
    return str(card)


def test_the_rate_is_found_on_a_fifth_of_the_training_texts_once(
    checkpoint, card, tmp_path, ran, heard, monkeypatch
):
    """The run runs the first seed; a stopped run and further seeds take the rate that was found."""
    found, sizes, original = replace(BRIEF, learning_rate="auto"), [], finetune_seed.run_seed

    def remember(*arguments):
        sizes.append([len(split.tokens) for split in arguments[1].values()])
        if len(sizes) == 6:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(finetune_seed, "run_seed", remember)
    with heard.at_level(logging.INFO, "dana"), pytest.raises(KeyboardInterrupt):
        finetune_stage(checkpoint, card, found, tmp_path / "out")
    assert sizes == [[96, 24, 1]] * 4 + [[120, 30, 60]] * 2
    finetune_stage(checkpoint, card, found, tmp_path / "out")
    finetune_stage(checkpoint, card, replace(found, seeds=[4, 2, 1], save=True), tmp_path / "out")
    assert ran[:5] == [0, 0, 0, 0, 4]
    assert len(ran) in (7, 8), (
        "seeds 2 and 1, and the best once more if its weights were not stored"
    )
    text = next(line for line in heard.messages if "learning_rate=" in line)
    rates = [float(pair.split()[0]) for pair in text.split("training texts: ")[1].split(", ")]
    assert rates == [1e-4, 3e-4, 1e-3, 3e-3], "around that of width 32"
    assert metrics(tmp_path / "out")["settings"]["learning_rate"] in rates
    depends_on = read_manifest(tmp_path / "out")["depends_on"]
    assert depends_on["preset"]["learning_rate"] == "auto", "how it was found decides, not what"


@pytest.mark.parametrize(
    ("method", "usual"), [("whole", 1e-3), ("contrastive", 1e-4)], ids=["width 32", "by pairs"]
)
def test_of_rates_that_score_alike_the_usual_one_is_taken(
    checkpoint, card, tmp_path, monkeypatch, method, usual
):
    alike = SimpleNamespace(dev_score=0.5)
    monkeypatch.setattr(finetune_seed, "run_seed", lambda *arguments: (None, alike))
    settings = FinetuneSettings(learning_rate="auto", method=method, epochs=1, seeds=[4])
    found = finetune_seed.rate_stage(checkpoint, card, settings, tmp_path / "rate")
    assert found.manifest["learning_rate"] == usual


def test_a_rate_that_diverges_is_left_out_and_only_all_of_them_end_the_search(
    checkpoint, card, tmp_path, monkeypatch, heard
):
    limit = 2e-3

    def train(model, inputs, task, preset, *others):
        if preset.learning_rate > limit:
            raise DivergenceError("the loss is nan")
        return None, SimpleNamespace(dev_score=preset.learning_rate)

    monkeypatch.setattr(finetune_seed, "run_seed", train)
    settings = replace(BRIEF, learning_rate="auto")
    with heard.at_level(logging.WARNING, "dana"):
        found = finetune_seed.rate_stage(checkpoint, card, settings, tmp_path / "rate")
    assert found.manifest["learning_rate"] == 1e-3, "the largest with a finite loss"
    assert "learning_rate=0.003 is left out: the loss is nan" in " ".join(heard.messages)
    limit = 0
    with pytest.raises(DivergenceError, match="the loss is nan"):
        finetune_seed.rate_stage(checkpoint, card, settings, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_texts_that_change_before_the_rate_is_sought_are_refused(
    checkpoint, card, tmp_path, monkeypatch
):
    data = Path(card).parent / "toy" / "train.jsonl"
    original = finetune_seed.read_splits

    def read_later(*arguments):
        with data.open("a", encoding="utf-8") as file:
            file.write("\n")
        return original(*arguments)

    monkeypatch.setattr(finetune_seed, "read_splits", read_later)
    settings = replace(BRIEF, learning_rate="auto")
    with pytest.raises(DataError, match="changed"):
        finetune_seed.rate_stage(checkpoint, card, settings, tmp_path / "rate")
    assert not (tmp_path / "rate").exists()


def test_marked_texts_are_pooled_at_their_markers_and_so_labelled(relations, checkpoint, tmp_path):
    settings = FinetuneSettings(steps=0, epochs=1, seeds=1, save=True)
    finetune_stage(checkpoint, relations, settings, tmp_path / "out")
    assert metrics(tmp_path / "out")["settings"]["pooling"] == "markers"
    rows = label(tmp_path / "out-model", Path(relations).parent / "toy" / "test.jsonl")
    table = finetune_seed.read_results(
        tmp_path / "out", finetune_seed.load_card(relations).label_kind
    )[0].outputs
    assert [row["probability"] for row in rows] == pytest.approx(table.max(1).tolist(), abs=1e-6)
    finetune_stage(
        checkpoint, relations, replace(settings, pooling="mean", save=False), tmp_path / "mean"
    )
    assert metrics(tmp_path / "mean")["settings"]["pooling"] == "mean"


def test_markers_are_refused_where_texts_have_none(checkpoint, card, tmp_path):
    with pytest.raises(
        ConfigError, match=r"pooling='markers': must be cls or mean: .*'<<', '\[\['"
    ):
        finetune_stage(checkpoint, card, replace(BRIEF, pooling="markers"), tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def test_a_collapsed_model_says_so_in_table_log_card_and_labels(checkpoint, card, tmp_path, heard):
    settings = replace(BRIEF, learning_rate=1e-9, save=True)
    with heard.at_level(logging.INFO, "dana"):
        result = finetune_stage(checkpoint, card, settings, tmp_path / "out")
        tables = finetune_text(result).splitlines()[1:3]
        rows = label(tmp_path / "out-model", Path(card).parent / "toy" / "test.jsonl")
    assert all(
        line.endswith("collapsed: not above the largest class, or nearly one label")
        for line in tables
    )
    [warning] = {row["warning"] for row in rows}
    assert warning.startswith("Beware: 2 of 2 models (seed 4, 2) do not beat the largest class")
    assert sum(warning in message for message in heard.messages) == 2, (
        "after the training, and before labels are read"
    )
    assert warning in (tmp_path / "out-model" / "README.md").read_text()


def test_adapting_hands_on_the_values_for_fine_tuning(inputs, base, tmp_path):
    entry = {"learning_rate": 5e-4, "pooling": "mean"}
    own = Path(shutil.copytree(base, tmp_path / "own", ignore=shutil.ignore_patterns("__dana__")))
    config = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps({**config, "dana": entry}))
    assert AutoConfig.from_pretrained(adapt(own, inputs, tmp_path / "adapted").path).dana == entry
