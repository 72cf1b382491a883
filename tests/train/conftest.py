"""A BERT of two tiny layers, and examples of random tokens for it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from accelerate import Accelerator

from dana.mlm.examples import Examples, Frame
from dana.mlm.masking import Masking
from dana.train.batch import Shape
from dana.train.loop import Prepared, adapt, prepare
from dana.train.settings import Execution, TrainSettings
from dana.train.torch_seed import seeded
from dana.train.wiring import set_up

VOCABULARY = 60


FRAME = Frame(np.array([2], dtype=np.int32), np.array([3], dtype=np.int32))
PAIR_FRAME = replace(FRAME, middle=np.array([3], dtype=np.int32))


def random_examples(count: int = 24, seed: int = 0, weights: np.ndarray | None = None) -> Examples:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(4, 16, count)
    stream = generator.integers(5, VOCABULARY, lengths.sum() - 2 * count).astype(np.uint16)
    sizes = lengths - 2
    ids = generator.integers(0, 2**63, count).astype(np.uint64)
    weights = np.ones(count) if weights is None else weights
    return Examples(stream, np.cumsum(sizes) - sizes, sizes, ids, weights.astype(np.float32), FRAME)


@pytest.fixture
def tiny_model() -> Callable[..., Any]:
    def make(dropout: float = 0.0, next_sentence: bool = False) -> Any:
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

    return make


@pytest.fixture
def masking() -> Masking:
    return Masking(4, np.arange(VOCABULARY) < 5, seed=0)


@pytest.fixture
def run(tiny_model, masking) -> Callable[..., tuple[Prepared, list[Any]]]:
    """Trains a fresh tiny model and returns it with its records."""

    def train(
        examples: Examples, dropout: float = 0.0, budget: int = 512, layout: str = "padded", **settings: Any
    ) -> tuple[Prepared, list[Any]]:
        execution = Execution(micro_batch_tokens=budget)
        chosen = TrainSettings(
            **{"max_tokens": 16, "batch_size": 8, "evaluations": 0, "execution": execution, **settings}
        )
        model = tiny_model(dropout, chosen.next_sentence)
        set_up(model, Shape(layout), False)
        prepared = prepare(model, chosen, Accelerator(cpu=True), Shape(layout, budget, width=16))
        heldout = {"task": random_examples(6, 11), "general": random_examples(6, 12)}
        return prepared, list(adapt(prepared, examples, masking, chosen, heldout))

    return train


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
    """The weighted examples, framed for next-sentence pairs."""
    return replace(weighted, frame=PAIR_FRAME)
