"""Detectors by centroid: cosine to the mean of the task, and distance to the means of target and pool text."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import normalize

from dana.detectors.base import BACKGROUND, OnDevice, check_classes, check_rows, score_blocks


@dataclass(frozen=True)
class FittedCosine(OnDevice):
    """The target's mean direction.

    Attributes:
        direction: float64 of shape (dims,), length 1.
    """

    direction: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Compute minus the cosine, in [-1, 1]; higher = more anomalous. A zero row scores 0. O(units · dims)."""
        check_rows(embeddings, self.direction.numel())
        per_row = 4 * self.direction.numel()
        return score_blocks(
            embeddings, per_row, lambda rows: -(normalize(rows.double()) @ self.direction)
        )


@dataclass(frozen=True)
class CosineSimilarity:
    """Minus the cosine to the mean of the target units; higher = more anomalous.

    Scores equal minus scikit-learn's ``cosine_similarity`` to 1e-7.

    Cost: fit O(rows · dims), score O(units · dims).

    References:
        Aharoni and Goldberg 2020, Unsupervised domain clusters in pretrained language models, section 4.1
        (Domain-Cosine).
    """

    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedCosine

    def fit(self, embeddings: Tensor, seed: int) -> FittedCosine:
        """Compute the mean direction; deterministic."""
        check_rows(embeddings, at_least=2)
        return FittedCosine(normalize(embeddings.double().mean(0), dim=0))


@dataclass(frozen=True)
class FittedCentroidDistance(OnDevice):
    """The means of both classes.

    Attributes:
        target: float64 of shape (dims,).
        pool: float64 of shape (dims,).
    """

    target: Tensor
    pool: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Compute ‖v - C_in‖ - ‖v - C_out‖; higher = more anomalous, below 0 the task is nearer. O(units · dims)."""
        check_rows(embeddings, self.target.numel())

        def score(rows: Tensor) -> Tensor:
            exact = rows.double()
            to_target: Tensor = (exact - self.target).norm(dim=1)
            to_pool: Tensor = (exact - self.pool).norm(dim=1)
            return to_target - to_pool

        return score_blocks(embeddings, 4 * self.target.numel(), score)


@dataclass(frozen=True)
class CentroidDistance:
    """Distance to the mean of the target units minus that to the mean of pool units; higher = more anomalous.

    Cost: fit O((rows + background) · dims), score O(units · dims).

    References:
        Wang, Finch, Utiyama and Sumita 2017, Sentence embedding for neural machine translation domain adaptation,
        section 3. DANA Table 4 (Distance).
    """

    version: ClassVar[int] = 1
    background: ClassVar[int] = BACKGROUND
    fitted_type: ClassVar[type] = FittedCentroidDistance

    def fit(self, embeddings: Tensor, seed: int, background: Tensor) -> FittedCentroidDistance:
        """Compute both means; deterministic."""
        check_classes(embeddings, background)
        return FittedCentroidDistance(embeddings.double().mean(0), background.double().mean(0))
