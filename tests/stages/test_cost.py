"""Long work is announced before it begins, by a probe of the model; a dry run says so of any command and ends there."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

import dana
from dana.cli.main import main
from dana.core.announce import Cost, announce, announcements
from dana.core.errors import DataError
from dana.core.schemas import iterate_documents
from dana.finetuning.settings import FinetuneSettings
from dana.stages import cost
from dana.stages.grid.cell import Cell
from dana.stages.settings import RunSettings
from dana.tasks.card import load_card
from dana.train.settings import PhaseSettings
from tests.stages.tiny_training import ADAPT, adapt
from tests.toy_task import write_checkpoint, write_task


def snapshot(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.fixture
def slow(monkeypatch):
    """Let every model train on ten tokens a second."""
    monkeypatch.setattr(cost, "SHORT", 0)
    monkeypatch.setattr(cost, "training_rate", lambda *arguments: 10.0)


def test_a_probe_measures_a_model_and_leaves_random_numbers_and_weights_alone(checkpoint):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    rate = cost.training_rate(
        checkpoint, "", cost.MANY, 1000, False
    )  # more than it has positions for
    assert rate > cost.training_rate(checkpoint, "", cost.MANY, 1000, True) / 3 > 0
    assert rate > 2 * cost.training_rate(checkpoint, "", 1, 5, False), "small batches are slow"
    assert torch.equal(torch.rand(3), expected)
    assert cost.training_rate(None, "tiny", 32, 64, True) > cost.training_rate(
        None, "small", 32, 64, True
    )


def test_seconds_are_the_tokens_by_the_rate(slow, tmp_path, opened):
    def seconds(weights=None, **settings):
        plan = replace(ADAPT, **{"steps": None, **settings})
        return cost.training_estimate(
            "m", "", plan, opened[2] / "corpus", weights, tmp_path
        ).seconds

    texts = opened[2] / "corpus", opened[2] / "task" / "held_out"
    corpus, held_out = (
        sum(len(row.text) for row in iterate_documents(folder)) / cost.CHARACTERS
        for folder in texts
    )
    before = 2 * cost.BASE_TOKENS / 30  # the base's losses
    evaluation = (ADAPT.evaluation_tokens + min(ADAPT.evaluation_tokens, held_out)) / 30
    assert seconds(steps=4) == pytest.approx(
        4 * 16 * 48 / 10 + min(4, 2 + ADAPT.evaluations) * evaluation + before
    )
    assert seconds(steps=4, eval_every=4) == pytest.approx(
        4 * 16 * 48 / 10 + 3 * evaluation + before
    )
    assert seconds(steps=4, batch_tokens=100, evaluations=0) == pytest.approx(
        40 + 2 * evaluation + before
    )
    assert seconds(tokens=7680, evaluations=1) == pytest.approx(768 + 3 * evaluation + before)
    phases = [PhaseSettings(5000), PhaseSettings(2680)]
    assert seconds(phases=phases, evaluations=1) == pytest.approx(768 + 4 * evaluation + before)
    plan = replace(ADAPT, steps=None, phases=phases)
    what = cost.training_estimate("m", "", plan, opened[2] / "corpus", None, tmp_path).what
    assert "on 7,680 tokens in 2 phases" in what
    assert seconds(epochs=30, evaluations=1) == pytest.approx(3 * corpus + 3 * evaluation + before)
    card = load_card(str(write_task(tmp_path)))
    settings = FinetuneSettings("quick", epochs=2, seeds=3, max_train=60)
    sizes = cost.labelled_sizes(card, settings, None)
    assert sizes[:3] == (60, 30, 60)
    tokens = round(min(24, 2 + sizes[3] / cost.CHARACTERS))
    estimate = cost.finetuning_estimate(
        str(write_checkpoint(tmp_path / "m")), card, sizes, settings, tmp_path
    )
    assert estimate.seconds == pytest.approx(3 * (2 * 60 + 90 / 3) * tokens / 10)
    settings = replace(settings, evaluate="best")
    best = cost.finetuning_estimate(str(tmp_path / "m"), card, sizes, settings, tmp_path).seconds
    assert best == pytest.approx(3 * (2 * 60 + 120 / 3) * tokens / 10), (
        "the development texts after each epoch"
    )


def test_cells_that_score_are_all_counted_and_those_that_train_side_by_side_share_the_time(
    slow, monkeypatch, tmp_path
):
    monkeypatch.setattr(
        cost, "estimate_score", lambda settings: Cost("score", 100.0, 5e9, reading=40.0)
    )
    monkeypatch.setattr(cost, "cores", lambda: 2)
    score = [
        Cell(f"score/dana{at}", "stages.score:score_read", {"selector": "auto"})
        for at in ("", "/1")
    ]
    train = {"settings": replace(ADAPT, steps=4), "out": tmp_path, "model": "m"}
    cells = [Cell("texts", "x:read_texts", {}), *score, Cell("adapt/dana", "x:adapt_stage", train)]
    one, two = (
        cost.cell_estimates(cells, RunSettings(out=str(tmp_path), jobs=jobs), {}) for jobs in (1, 3)
    )
    assert [one[name].seconds for name in ("texts", "score/dana", "score/dana/1")] == [40, 60, 60]
    assert sum(estimate.bytes for estimate in one.values()) == 5e9
    assert two["adapt/dana"].seconds == one["adapt/dana"].seconds / 2
    assert two["score/dana"].seconds == 60
    assert "texts" not in cost.cell_estimates(cells[1:], RunSettings(out=str(tmp_path)), {})
    with cost._side_by_side(10**6):
        assert torch.get_num_threads() == 1


def test_only_long_work_is_announced_and_only_once(heard, tmp_path):
    calls = []

    def estimate(seconds):
        calls.append(seconds)
        return Cost("dig a well", seconds, 2e9)

    def broken():
        raise DataError("no text")

    with heard.at_level("INFO", logger="dana"):
        announce(lambda: estimate(59))
        announce(lambda: estimate(7200))
        announce(lambda: estimate(7201), tmp_path)  # it is there already
        announce(broken)
        with announcements(loud=False):
            announce(lambda: estimate(7202))
    assert calls == [59, 7200]
    assert len(heard.messages) == 1
    assert re.fullmatch(r"time      about 2.0 h, 2.00 GB on \S.*: dig a well", heard.messages[0])


def test_a_training_is_announced_before_it_begins_and_not_again(
    slow, base, inputs, tmp_path, heard
):
    with heard.at_level("INFO", logger="dana"):
        for _ in range(2):
            adapt(base, inputs, tmp_path / "out")
    lines = [message for message in heard.messages if message.startswith("time ")]
    assert len(lines) == 1
    assert "about 1.8 h" in lines[0], "evaluations included"
    assert heard.messages.index(lines[0]) < next(
        at for at, line in enumerate(heard.messages) if "launch" in line
    )


def test_a_dry_run_of_any_command_says_how_long_it_takes_and_writes_nothing(
    opened, texts, tmp_path, capsys, base
):
    run, card, model, new = (
        opened[2],
        write_task(tmp_path),
        write_checkpoint(tmp_path / "model"),
        tmp_path / "new",
    )
    classifier = shutil.copytree(model, tmp_path / "classifier")
    AutoModelForSequenceClassification.from_pretrained(model, num_labels=3).save_pretrained(
        classifier
    )
    before = snapshot(tmp_path), snapshot(run), snapshot(texts)
    pool = str(texts / "pool.jsonl")
    text = ["--task", str(texts / "cells.txt"), "--general", pool, "--selector", "random"]
    labelled = ["--model", str(model), "--task", str(card), "--preset", "quick"]
    unweighted = ["--model", str(base), "--unweighted", "--steps"]
    for words, what in (
        (["score", *text, "--out", str(new)], r"read [\d,]+ documents and score"),
        (["weigh", str(run)], "weigh"),
        (["adapt", str(run), *unweighted, "900"], "train .* on 58,982,400 tokens"),
        (
            ["adapt", str(run), "--from-scratch", "tiny", "--steps", "1"],
            "train a new model of size tiny",
        ),
        (["finetune", *labelled, "--out", str(new)], "fine-tune .* on 120 texts of toy, 2 time"),
        (["predict", str(classifier), pool, "--out", str(new / "labels.jsonl")], "label 120 texts"),
        (["quickstart", "--out", str(new)], r"(\d+) of \1 cells"),
    ):
        assert main([*words, "--dry-run"]) == 0, words
        out = capsys.readouterr().out
        assert re.search(rf"time      about \d.* on .*: {what}", out), out
        assert out.endswith("nothing was written\n")
    assert before == (snapshot(tmp_path), snapshot(run), snapshot(texts))
    assert main(["adapt", str(tmp_path), *unweighted, "9", "--dry-run"]) == 2, "its text is missing"


def test_a_dry_run_in_python_prints_returns_none_and_writes_nothing(tmp_path, capsys, base):
    texts = [f"The cell number {number} divides." for number in range(30)]
    out = tmp_path / "run"
    assert dana.score(texts, texts, out=out, selector="random", dry_run=True) is None
    assert (
        dana.adapt(str(base), texts, texts, out=out, unweighted=True, steps=900, dry_run=True)
        is None
    )
    assert dana.weigh(np.arange(5.0), dry_run=True) is None
    assert not out.exists()
    printed = capsys.readouterr().out
    assert [
        what in printed
        for what in ("read 30 documents and score 30 units", "train ", "weigh 5 scores")
    ] == [True] * 3


@pytest.mark.parametrize(
    "changes", [{"model": "./none"}, {"selection.encoder": "transformer:./none"}]
)
def test_a_missing_model_is_named_by_its_own_key_not_by_an_arm(changes, tmp_path, capsys):
    words = [
        f"{key}={value}" for key, value in {"selection.units": "window:256", **changes}.items()
    ]
    command = [
        "run",
        str(tmp_path / "r.yaml"),
        "--task",
        str(write_task(tmp_path)),
        "--general",
        str(tmp_path / "toy"),
    ]
    (tmp_path / "r.yaml").write_text("arms: [random]", encoding="utf-8")
    assert main([*command, "--out", str(tmp_path / "out"), "--set", *words]) == 2
    key = "selection" if "selection.encoder" in changes else "model"
    assert f"error: {key}: ./none: " in capsys.readouterr().err
