"""Predict where in its document a sentence stands: in which fifth.

The label of sentence p of n, from 0, is ⌊5 (p + 1/2) / n⌋, n of the whole document. It is near to
what tasks ask about the role of a sentence: background, method, result. The head is linear, on the
vector that the checkpoint pools, before any normalisation.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dana.core.config import require
from dana.train.documents import DrawSentences, PieceBatch
from dana.train.examples import Batch
from dana.train.objectives.base import ModelCardTerms
from dana.train.objectives.classes import ClassObjective
from dana.train.objectives.masked import HELDOUT_SEED

BINS = 5


@dataclass(frozen=True)
class Position(ClassObjective):
    """Predict in which fifth of its document a sentence stands.

    Attributes:
        sentences: Sentences of each document that an epoch reads; 0 reads all.
    """

    sentences: int = 2
    version: ClassVar[int] = 1
    classes: ClassVar[int] = BINS

    def __post_init__(self) -> None:
        require(self.sentences >= 0, "sentences", self.sentences, "0 for all, or a number")

    def texts(
        self, batch: PieceBatch, epochs: np.ndarray | int, seed: int
    ) -> tuple[Batch, np.ndarray]:
        return batch, (BINS * (2 * batch.numbers + 1)) // (2 * batch.totals)

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
