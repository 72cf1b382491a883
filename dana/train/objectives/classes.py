"""Predict a class of each text: the head, the batch and the base class of such objectives.

A subclass of :class:`ClassObjective` says which pieces of a document an epoch reads, how they become
texts, and which class each text has. All else is here: the head and its learning rate, weights and
denominators, micro-batches and ranks, and held-out accuracy beside that of guessing.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dana.core.rng import torch_seed
from dana.models.heads import token_losses
from dana.train.documents import PieceBatch
from dana.train.examples import Batch, SpecialTokens
from dana.train.layout import BatchLayout
from dana.train.objectives.base import Collator
from dana.train.objectives.batch import ACCURACY, MicroBatch, StepBatch
from dana.train.objectives.masked import HELDOUT_SEED
from dana.train.objectives.vectors import HEAD_RATE, TextVectors, VectorObjective, text_inputs

HEAD_SEED = 20211  # of the weights of a head that does not begin at zero


class ClassLogits(TextVectors):
    """A head on the vectors of texts: logits of shape (texts, classes).

    Args:
        model: The model.
        objective: Brings the head.
        bf16: Compute in bfloat16 by autocast.
    """

    rate_factors: ClassVar[dict[str, float]] = {"head.": HEAD_RATE}

    def __init__(self, model: Any, objective: "ClassObjective", bf16: bool = False) -> None:
        super().__init__(model, bf16)
        with torch_seed(HEAD_SEED, model.device):
            self.head = objective.head(model.config.hidden_size).to(model.device)

    def forward(self, *inputs: Any, **named_inputs: Any) -> Tensor:
        """Compute the logits of texts, float32 of shape (texts, classes)."""
        vectors = super().forward(*inputs, **named_inputs)
        # ZeRO in bfloat16 casts the head, too, and no autocast is on.
        dtype = next((value.dtype for value in self.head.parameters()), vectors.dtype)
        logits: Tensor = self.head(vectors.to(dtype)).float()
        return logits


@dataclass(frozen=True)
class ClassMicroBatch(MicroBatch):
    """Tensors of one forward pass over texts; losses, then 1 for each that the head gets right."""

    @property
    def sizes(self) -> list[int]:
        return [self.labels.numel(), self.labels.numel()]

    def losses(self, module: nn.Module) -> Tensor:
        logits = module(**self.inputs)[: self.labels.numel()]
        hits = (logits.argmax(1) == self.labels).float()
        return torch.cat([token_losses(logits, self.labels), hits])


@dataclass(frozen=True)
class ClassBatch(StepBatch):
    """All texts of one step on all ranks; ``labels`` and ``owners`` have one entry a text."""

    @property
    def loss_counts(self) -> dict[str, int]:
        return {"tokens": len(self.examples), ACCURACY: len(self.examples)}

    @property
    def guess(self) -> float:
        """Accuracy of always predicting the most frequent label."""
        return float(np.bincount(self.labels).max() / self.labels.size)

    def micro(self, rows: np.ndarray, layout: BatchLayout) -> ClassMicroBatch:
        is_idle = not rows.size
        passed = np.array([0]) if is_idle else rows
        inputs = text_inputs(self.inputs, self.examples.offsets, passed, layout)
        coefficients = self.scale.coefficients[rows].astype(np.float32)
        # What the head gets right is measured, not trained.
        coefficients = np.concatenate([coefficients, np.zeros_like(coefficients)])
        return ClassMicroBatch(
            inputs,
            torch.from_numpy(self.labels[rows]),
            torch.from_numpy(rows),
            torch.from_numpy(coefficients),
        )


@dataclass(frozen=True)
class ClassCollator(Collator):
    """Makes texts and their classes of the pieces of a step.

    Attributes:
        objective: Says how pieces become texts.
        seed: Seed of what it draws.
    """

    objective: "ClassObjective"
    special_tokens: SpecialTokens
    seed: int

    def step_batch(self, batch: Batch, epochs: np.ndarray | int, denominator: str) -> ClassBatch:
        assert isinstance(batch, PieceBatch)
        texts, labels = self.objective.texts(batch, epochs, self.seed)
        owners = np.arange(len(texts))
        return ClassBatch.from_examples(texts, texts.tokens, labels, denominator, owners)  # type: ignore[return-value]


class ClassObjective(VectorObjective):
    """An objective that predicts a class of each text, from its vector.

    Attributes:
        classes: Number of classes.
    """

    classes: ClassVar[int]

    @abstractmethod
    def texts(
        self, batch: PieceBatch, epochs: np.ndarray | int, seed: int
    ) -> tuple[Batch, np.ndarray]:
        """Make the texts of a step and their classes.

        Must be a pure function of the pieces, their epochs and the seed.

        Args:
            batch: The pieces of the step.
            epochs: Shape (documents,), or one for all: epoch of each document, from 0.
            seed: Seed of what is drawn here.

        Returns:
            The texts, such as the pieces themselves, or :meth:`PieceBatch.joined`; and int64 of
            shape (texts,), the class of each, from 0.
        """

    def head(self, width: int) -> nn.Module:
        """Make the head: by default a linear one that begins at zero, so that the first step moves nothing else.

        Args:
            width: Of the vectors.
        """
        head = nn.Linear(width, self.classes)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return head

    def module(self, model: Any, bf16: bool = False) -> ClassLogits:
        return ClassLogits(model, self, bf16)

    def collator(self, tokenizer: Any, seed: int) -> ClassCollator:
        return ClassCollator(self, SpecialTokens.from_tokenizer(tokenizer), seed)

    def heldout_collator(self, tokenizer: Any) -> ClassCollator:
        return type(self)().collator(tokenizer, HELDOUT_SEED)
