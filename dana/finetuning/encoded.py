"""Examples of a split to token ids in padded batches, in an order that the seed and the epoch decide."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core.rng import generator
from dana.tasks.examples import Example

BUCKET = 32  # batches whose examples are sorted by length together, so that little is padding


@dataclass(frozen=True)
class Encoded:
    """One split, tokenised once for all seeds.

    Attributes:
        tokens: Token ids of each example, special tokens included.
        labels: int64 of shape (examples,).
        pad: Token id to pad with.
    """

    tokens: list[list[int]]
    labels: np.ndarray
    pad: int

    @classmethod
    def of(cls, examples: list[Example], tokenizer: Any, max_tokens: int) -> "Encoded":
        """Tokenise examples, each cut to `max_tokens`."""
        texts = [example.text for example in examples]
        tokens = tokenizer(texts, truncation=True, max_length=max_tokens)["input_ids"]
        labels = np.array([example.label for example in examples], dtype=np.int64)
        return cls(tokens, labels, tokenizer.pad_token_id or 0)

    @property
    def lengths(self) -> np.ndarray:
        """int64 of shape (examples,), tokens of each."""
        return np.array([len(tokens) for tokens in self.tokens], dtype=np.int64)

    def batch(self, rows: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
        """Token ids and attention mask of some examples, both int64 of shape (rows, longest)."""
        lengths = torch.tensor([len(self.tokens[row]) for row in rows])
        ids = torch.full((len(rows), int(lengths.max())), self.pad)
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        ids[mask.bool()] = torch.tensor([token for row in rows for token in self.tokens[row]])
        return ids.to(device), mask.to(device)


def order(lengths: np.ndarray, size: int, seed: int, epoch: int) -> Iterator[np.ndarray]:
    """Rows of each step of an epoch: shuffled, sorted by length within buckets, and the batches shuffled.

    A function of its arguments alone: checkpoints with the same tokenizer see the same order.

    Args:
        lengths: Tokens of each example.
        size: Examples a step.
        seed: The fine-tuning seed.
        epoch: From 0.
    """
    random = generator(seed, "finetune", "order", epoch)
    shuffled = random.permutation(lengths.size)
    steps = []
    for start in range(0, shuffled.size, size * BUCKET):
        bucket = shuffled[start : start + size * BUCKET]
        bucket = bucket[np.argsort(lengths[bucket], kind="stable")]
        steps += [bucket[at : at + size] for at in range(0, bucket.size, size)]
    for place in random.permutation(len(steps)):
        yield steps[place]
