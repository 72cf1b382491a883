"""PCA: squared reconstruction error by the task's leading principal directions, in torch."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dana.core.config import require
from dana.detectors.base import OnDevice, check_rows, score_blocks


@dataclass(frozen=True)
class FittedPrincipalComponents(OnDevice):
    """The task's mean and leading directions.

    Attributes:
        mean: Shape (dims,).
        directions: Shape (dims, components), orthonormal columns.
    """

    mean: Tensor
    directions: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Squared length of the residual of the leading directions; higher = more anomalous.

        O(units · dims · components).
        """
        check_rows(embeddings, self.mean.numel())

        def score(rows: Tensor) -> Tensor:
            centred = rows - self.mean
            # Not |x|² - |Wx|²: that is one product less, but cancels for rows with a small residual.
            return torch.addmm(centred, centred @ self.directions, self.directions.T, alpha=-1).square_().sum(1)

        return score_blocks(embeddings, 3 * self.mean.numel(), score)


@dataclass(frozen=True)
class PrincipalComponents:
    """Squared reconstruction error of principal component analysis; higher = more anomalous.

    DANA names the reconstruction error. PyOD's PCA is another detector (a distance over all eigenvectors, weighted by
    inverse variance): ``pyod:PCA``.

    Scores equal scikit-learn's reconstruction error to 1e-5 of the largest.

    Cost: fit O(rows · dims²), score O(units · dims · components).

    Attributes:
        variance: Share of the task's variance that the kept directions explain. DANA gives none.

    References:
        Jackson and Mudholkar 1979, Control procedures for residuals associated with principal component
        analysis.
        DANA section 3.1 (PCA).
    """

    variance: float = 0.5
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedPrincipalComponents

    def __post_init__(self) -> None:
        allowed = "in (0, 1): with all directions the error is 0"
        require(0 < self.variance < 1, "variance", self.variance, allowed)

    def fit(self, embeddings: Tensor, seed: int) -> FittedPrincipalComponents:
        """Eigenvectors of the rows' covariance; nothing is random."""
        check_rows(embeddings, at_least=2)
        rows = embeddings.double()
        mean = rows.mean(0)
        variance, directions = torch.linalg.eigh((rows - mean).T @ (rows - mean))
        variance, directions = variance.flip(0).clamp_min(0), directions.flip(1)
        explained = variance.cumsum(0) / variance.sum().clamp_min(1e-30)
        count = min(int((explained < self.variance).sum()) + 1, len(variance) - 1) or 1
        kept = directions[:, :count]
        return FittedPrincipalComponents(mean.float(), kept.float().contiguous())
