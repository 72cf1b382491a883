"""A BERT of two tiny layers, and examples of random tokens for it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from accelerate import Accelerator

from dana.mlm.examples import Examples
from dana.mlm.masking import Masking
from dana.train.loop import Prepared, adapt, prepare
from dana.train.settings import TrainSettings
from dana.train.torch_seed import seeded

VOCABULARY = 60


def random_examples(count: int = 24, seed: int = 0, weights: np.ndarray | None = None) -> Examples:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(4, 16, count)
    tokens = generator.integers(5, VOCABULARY, lengths.sum()).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens[offsets[:-1]], tokens[offsets[1:] - 1] = 2, 3
    weights = np.ones(count) if weights is None else weights
    return Examples(tokens, offsets, generator.integers(0, 2**63, count).astype(np.uint64), weights.astype(np.float32))


@pytest.fixture
def tiny_model() -> Callable[..., Any]:
    def make(dropout: float = 0.0) -> Any:
        from transformers import BertConfig, BertForMaskedLM

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
            return BertForMaskedLM(config)

    return make


@pytest.fixture
def masking() -> Masking:
    return Masking(4, np.arange(VOCABULARY) < 5, seed=0)


@pytest.fixture
def run(tiny_model, masking) -> Callable[..., tuple[Prepared, list[Any]]]:
    """Trains a fresh tiny model and returns it with its records."""

    def train(examples: Examples, dropout: float = 0.0, **settings: Any) -> tuple[Prepared, list[Any]]:
        chosen = TrainSettings(
            **{"max_tokens": 16, "batch_size": 8, "evaluations": 0, "micro_batch_tokens": 512, **settings}
        )
        prepared = prepare(tiny_model(dropout), chosen, Accelerator(cpu=True))
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
    return Examples(examples.tokens, examples.offsets, examples.ids, weights.astype(np.float32))
