"""Sentence order, an objective of a stranger with own head, pairs and negatives: trained by the command line."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from transformers import AutoModel

from dana.cli.main import main
from dana.core.registry import OBJECTIVES
from dana.core.schemas import iterate_documents
from dana.corpus.units import sentences
from dana.train.checks import check_objective
from dana.train.examples import SpecialTokens, TrainingText
from dana.train.objectives.classes import ClassCollator
from dana.train.settings import TrainSettings
from dana.train.tokens import Tokens
from tests.toy_task import write_checkpoint
from tests.train.conftest import (
    SPECIAL_TOKENS,
    bert,
    gradient_of_step,
    new_state,
    random_documents,
    some_weights,
)
from tests.train.objectives.test_plugin import register
from tests.train.test_document_examples import LONGER, TEXT

VALUES = {"max_tokens": 16, "batch_size": 6, "steps": 3, "clip": 1e9}


@pytest.fixture(autouse=True)
def plugin(monkeypatch):
    register(monkeypatch)


@pytest.fixture
def settings(plugin):
    return TrainSettings(objective="sentence_order", denominator="weight_sum", **VALUES)


def documents(count=12, weights=some_weights):
    return random_documents(count, 4, OBJECTIVES.create("sentence_order").draw(0), weights)


def step_of(examples, denominator="weight_sum", epoch=0):
    collator = ClassCollator(OBJECTIVES.create("sentence_order"), SPECIAL_TOKENS, 0)
    return collator.step_batch(examples.take(np.arange(len(examples)), epoch), epoch, denominator)


def test_it_passes_every_check():
    results = check_objective("sentence_order")
    assert [str(result) for result in results if not result.passed or result.detail] == []


def test_pairs_are_neighbours_in_order_or_swapped():
    examples = documents()
    pieces = examples.take(np.arange(12))
    step = step_of(examples)
    halves = np.split(pieces.tokens, pieces.offsets[1:-1])
    for row, label in enumerate(step.labels):
        first, second = halves[2 * row : 2 * row + 2]
        assert pieces.numbers[2 * row + 1] == pieces.numbers[2 * row] + 1
        expected = [*second, *first] if label else [*first, *second]
        start, end = step.examples.offsets[row : row + 2]
        assert step.examples.tokens[start:end].tolist() == expected
    labels = np.concatenate([step_of(examples, epoch=epoch).labels for epoch in range(40)])
    assert labels.mean() == pytest.approx(0.5, abs=0.08)


def test_two_sizes_of_micro_batches_give_the_same_step(settings):
    step = step_of(documents())
    one, gradient = gradient_of_step(new_state(bert(), settings), step, settings)
    other, small = gradient_of_step(new_state(bert(), settings, budget=20), step, settings)
    assert other.loss == pytest.approx(one.loss, abs=1e-6)
    torch.testing.assert_close(small, gradient, atol=1e-6, rtol=1e-4)


def test_a_document_of_weight_0_is_absent(settings):
    examples = documents()
    is_absent = np.isin(np.repeat(np.arange(12), np.diff(examples.firsts)), [1, 4])
    zeros = replace(examples, sentence_weights=np.where(is_absent, 0, examples.sentence_weights))
    others = examples.rows(np.array([0, 2, 3, 5, 6, 7, 8, 9, 10, 11]))
    one, gradient = gradient_of_step(new_state(bert(), settings), step_of(zeros), settings)
    other, rest = gradient_of_step(new_state(bert(), settings), step_of(others), settings)
    assert one.loss == pytest.approx(other.loss, abs=1e-6)
    torch.testing.assert_close(gradient, rest, atol=1e-6, rtol=1e-4)


def text_of(number, sentences):
    words = ["word0 word1 word2", "apple pear plum", "iron zinc lead", "word20 word21 word22"]
    lines = [f"{words[(number + line) % 4].capitalize()} {number}." for line in range(sentences)]
    return " ".join(lines)


def test_the_command_line_trains_it_and_logs_accuracy_beside_guessing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, count in (("task", 12), ("pool", 60)):
        texts = [text_of(number, 4 + number % 4) for number in range(count)]
        Path(f"{name}.txt").write_text("\n\n".join(texts), encoding="utf-8")
    write_checkpoint(tmp_path / "base")
    score = "score --task task.txt --pool pool.txt --selector lexical --out run"
    assert main(score.split()) == 0
    assert main(["weigh", "run", "--beta", "0.5"]) == 0
    adapt = "adapt run --model base --objective sentence_order --steps 3 --max-tokens 24"
    assert main([*adapt.split(), "--batch-size", "8"]) == 0
    lines = Path("run/adapted/training.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    steps = [record for record in records if record["kind"] == "step"]
    assert len(steps) == 3
    assert all(0 <= record["accuracy"] <= 1 for record in steps)
    for record in records:
        if record["kind"] == "evaluation":
            assert 0 <= record["pool_accuracy"] <= 1
            assert 0.5 <= record["pool_guess"] <= 1
            assert np.isfinite(record["pool_loss"])
    assert AutoModel.from_pretrained("run/adapted").config.model_type
    recipe = yaml.safe_load(Path("run/recipe.yaml").read_text("utf-8"))
    assert "sentence_order" not in str(recipe), "a flag of one command is no part of the recipe"


def test_texts_have_at_most_the_tokens_that_are_allowed(tiny_tokenizer, write_corpus):
    objective = OBJECTIVES.create("sentence_order")
    assert objective.pieces_a_text == 2
    special_tokens = SpecialTokens.from_tokenizer(tiny_tokenizer)
    pool = write_corpus("c", [TEXT, LONGER])
    tokens = Tokens.from_documents(iterate_documents(pool), tiny_tokenizer)
    text = TrainingText(tokens, None, lambda: iterate_documents(pool), sentences)
    examples, _ = objective.examples(text, tiny_tokenizer, 8, 0)
    step = objective.collator(tiny_tokenizer, 0).step_batch(examples.take(np.arange(2)), 0, "batch")
    assert special_tokens.size == 2
    assert step.lengths.max() <= 8
    assert step.examples.tokens.size == examples.lengths_in(0).sum()
