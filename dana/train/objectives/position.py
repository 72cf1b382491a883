"""Predict where in its document a sentence stands: in which fifth.

The label of sentence p of n, from 0, is ⌊5 (p + 1/2) / n⌋, n of the whole document. It is near to
what tasks ask about the role of a sentence: background, method, result. The head is linear, on the
vector that the checkpoint pools, before any normalisation.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dana.core.config import require
from dana.models.heads import token_losses
from dana.train.documents import DrawSentences, PieceBatch
from dana.train.examples import Batch, SpecialTokens
from dana.train.layout import BatchLayout
from dana.train.objectives.base import Collator, ModelCardTerms
from dana.train.objectives.batch import ACCURACY, MicroBatch, StepBatch
from dana.train.objectives.masked import HELDOUT_SEED
from dana.train.objectives.vectors import HEAD_RATE, TextVectors, VectorObjective, text_inputs

BINS = 5


class PositionLogits(TextVectors):
    """A linear head on the vectors of texts: logits of shape (texts, 5).

    The head begins at zero, so the first step moves nothing but the head.
    """

    rate_factors: ClassVar[dict[str, float]] = {"head.": HEAD_RATE}

    def __init__(self, model: Any, bf16: bool = False) -> None:
        super().__init__(model, bf16)
        self.head = nn.Linear(model.config.hidden_size, BINS, device=model.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, *inputs: Any, **named_inputs: Any) -> Tensor:
        """Compute the logits of texts, float32 of shape (texts, 5)."""
        return self.head(super().forward(*inputs, **named_inputs))


@dataclass(frozen=True)
class PositionMicroBatch(MicroBatch):
    """Tensors of one forward pass over sentences; losses, then 1 for each that the head gets right."""

    @property
    def sizes(self) -> list[int]:
        return [self.labels.numel(), self.labels.numel()]

    def losses(self, module: nn.Module) -> Tensor:
        logits = module(**self.inputs)[: self.labels.numel()]
        hits = (logits.argmax(1) == self.labels).float()
        return torch.cat([token_losses(logits, self.labels), hits])


@dataclass(frozen=True)
class PositionBatch(StepBatch):
    """All sentences of one step on all ranks; ``labels`` and ``owners`` have one entry a sentence."""

    @property
    def loss_counts(self) -> dict[str, int]:
        return {"tokens": len(self.examples), ACCURACY: len(self.examples)}

    @property
    def guess(self) -> float:
        """Accuracy of always predicting the most frequent label."""
        return float(np.bincount(self.labels).max() / self.labels.size)

    def micro(self, rows: np.ndarray, layout: BatchLayout) -> PositionMicroBatch:
        is_idle = not rows.size
        passed = np.array([0]) if is_idle else rows
        inputs = text_inputs(self.inputs, self.examples.offsets, passed, layout)
        coefficients = self.scale.coefficients[rows].astype(np.float32)
        # What the head gets right is measured, not trained.
        coefficients = np.concatenate([coefficients, np.zeros_like(coefficients)])
        return PositionMicroBatch(
            inputs,
            torch.from_numpy(self.labels[rows]),
            torch.from_numpy(rows),
            torch.from_numpy(coefficients),
        )


@dataclass(frozen=True)
class PositionCollator(Collator):
    """Labels the sentences of a step by the fifth of the document that they stand in."""

    special_tokens: SpecialTokens

    def step_batch(self, batch: Batch, epochs: np.ndarray | int, denominator: str) -> PositionBatch:
        assert isinstance(batch, PieceBatch)
        labels = (BINS * (2 * batch.numbers + 1)) // (2 * batch.totals)
        owners = np.arange(len(batch))
        return PositionBatch.from_examples(batch, batch.tokens, labels, denominator, owners)  # type: ignore[return-value]


@dataclass(frozen=True)
class Position(VectorObjective):
    """Predict in which fifth of its document a sentence stands.

    Attributes:
        sentences: Sentences of each document that an epoch reads; 0 reads all.
    """

    sentences: int = 2
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(self.sentences >= 0, "sentences", self.sentences, "0 for all, or a number")

    def module(self, model: Any, bf16: bool = False) -> PositionLogits:
        return PositionLogits(model, bf16)

    def collator(self, tokenizer: Any, seed: int) -> PositionCollator:
        return PositionCollator(SpecialTokens.from_tokenizer(tokenizer))

    def heldout_collator(self, tokenizer: Any) -> PositionCollator:
        return self.collator(tokenizer, HELDOUT_SEED)

    def draw(self, seed: int) -> DrawSentences:
        return DrawSentences(seed, self.sentences or None)

    def heldout_draw(self) -> DrawSentences:
        return DrawSentences(HELDOUT_SEED, None)

    def card_terms(self) -> ModelCardTerms:
        count = f"{self.sentences} sentences" if self.sentences else "all sentences"
        return ModelCardTerms(
            f"the fifth of its document that a sentence stands in, {count} of each document a pass",
            "sentence",
            "feature-extraction",
            "AutoModel",
        )
