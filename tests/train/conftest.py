"""A BERT of two tiny layers, and examples of random tokens for it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from dana.core.rng import seeded
from dana.models.varlen import NAME, register
from dana.train.evaluation import HeldOut
from dana.train.examples import Examples, SpecialTokens
from dana.train.layout import BatchLayout
from dana.train.loop import StepOutcome, TrainingState, prepare, take_step, train
from dana.train.objectives.batch import StepBatch
from dana.train.objectives.masked import HELDOUT_RATE, HELDOUT_SEED, MaskedCollator, Masking
from dana.train.objectives.next_sentence import PairCollator
from dana.train.settings import Execution, TrainSettings

VOCABULARY = 60


SPECIAL_TOKENS = SpecialTokens(np.array([2], dtype=np.int32), np.array([3], dtype=np.int32))
PAIR_TOKENS = replace(SPECIAL_TOKENS, middle=np.array([3], dtype=np.int32))
MASKED = MaskedCollator(Masking(4, np.arange(VOCABULARY) < 5, seed=0), SPECIAL_TOKENS)
PAIRS = PairCollator(MASKED.masking, PAIR_TOKENS)
HELDOUT = replace(MASKED, masking=replace(MASKED.masking, seed=HELDOUT_SEED, rate=HELDOUT_RATE))


def random_examples(count: int = 24, seed: int = 0, weights: np.ndarray | None = None) -> Examples:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(4, 16, count)
    stream = generator.integers(5, VOCABULARY, lengths.sum() - 2 * count).astype(np.uint16)
    sizes = lengths - 2
    ids = generator.integers(0, 2**63, count).astype(np.uint64)
    weights = np.ones(count) if weights is None else weights
    return Examples(stream, np.cumsum(sizes) - sizes, sizes, ids, weights.astype(np.float32), SPECIAL_TOKENS)


def held_out(task: Examples, general: Examples) -> HeldOut:
    return HeldOut({"task": task, "general": general}, HELDOUT)


def bert(dropout: float = 0.0, next_sentence: bool = False) -> Any:
    from transformers import BertConfig, BertForMaskedLM, BertForPreTraining

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    with seeded(1):
        return (BertForPreTraining if next_sentence else BertForMaskedLM)(config)


def use_varlen(model: Any) -> None:
    """Attention over rows without padding, as the planner sets it up."""
    register()
    model.set_attn_implementation(NAME)


@pytest.fixture
def tiny_model() -> Callable[..., Any]:
    return bert


@pytest.fixture
def collator() -> MaskedCollator:
    return MASKED


@pytest.fixture
def run(tiny_model) -> Callable[..., tuple[TrainingState, list[Any]]]:
    """Trains a fresh tiny model and returns it with its records."""

    def train_tiny(
        examples: Examples, dropout: float = 0.0, budget: int = 512, layout: str = "padded", **settings: Any
    ) -> tuple[TrainingState, list[Any]]:
        execution = Execution(micro_batch_tokens=budget)
        chosen = TrainSettings(
            **{"max_tokens": 16, "batch_size": 8, "evaluations": 0, "execution": execution, **settings}
        )
        pairs = chosen.objective == "next_sentence"
        model = tiny_model(dropout, pairs)
        if layout == "unpadded":
            use_varlen(model)
        prepared = prepare(model, chosen, Accelerator(cpu=True), BatchLayout(layout, budget))
        heldout = held_out(random_examples(6, 11), random_examples(6, 12))
        return prepared, list(train(prepared, examples, PAIRS if pairs else MASKED, chosen, heldout))

    return train_tiny


@pytest.fixture
def make_examples() -> Callable[..., Examples]:
    return random_examples


@pytest.fixture
def examples() -> Examples:
    return random_examples()


@pytest.fixture
def weighted(examples) -> Examples:
    weights = np.random.default_rng(5).uniform(0.05, 1, len(examples))
    return replace(examples, weights=weights.astype(np.float32))


@pytest.fixture
def paired(weighted) -> Examples:
    """The weighted examples, with the special tokens of next-sentence pairs."""
    return replace(weighted, special_tokens=PAIR_TOKENS)


def gradient_of_step(
    prepared: TrainingState, batch: StepBatch, settings: TrainSettings
) -> tuple[StepOutcome, torch.Tensor]:
    """Take a step; returns what came of it and the gradient that it was taken with."""
    found = []
    zero_grad = prepared.optimizer.zero_grad

    def keep_gradients():
        found.append(torch.cat([value.grad.flatten() for value in prepared.module.parameters()]))
        zero_grad()

    prepared.optimizer.zero_grad = keep_gradients
    taken = take_step(prepared, batch, 1e-4, 0, settings)
    return taken, found[-1]
