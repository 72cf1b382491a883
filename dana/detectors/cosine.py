"""Cosine: minus the cosine to the mean of the task's embeddings, in torch (Aharoni and Goldberg 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import normalize

from dana.detectors.base import OnDevice, check_rows, score_blocks


@dataclass(frozen=True)
class FittedCosine(OnDevice):
    """The task's mean direction.

    Attributes:
        direction: float64 of shape (dims,), length 1.
    """

    direction: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Minus the cosine, in [-1, 1]; higher = more anomalous. A zero row scores 0. O(units · dims)."""
        check_rows(embeddings, self.direction.numel())
        per_row = 4 * self.direction.numel()
        return score_blocks(embeddings, per_row, lambda rows: -(normalize(rows.double()) @ self.direction))


@dataclass(frozen=True)
class CosineSimilarity:
    """Minus the cosine to the mean of the task units; higher = more anomalous.

    Scores equal minus scikit-learn's ``cosine_similarity`` to 1e-7.

    Cost: fit O(rows · dims), score O(units · dims).

    References:
        Aharoni and Goldberg 2020, Unsupervised domain clusters in pretrained language models, section 4.1
        (Domain-Cosine).
    """

    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedCosine

    def fit(self, embeddings: Tensor, seed: int) -> FittedCosine:
        """Take the mean; nothing is random."""
        check_rows(embeddings, at_least=2)
        return FittedCosine(normalize(embeddings.double().mean(0), dim=0))
