"""Robust covariance: squared Mahalanobis distance from the bulk of the task, under a shrunk covariance, in torch."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dana.core.config import require
from dana.detectors.base import OnDevice, check_rows, score_blocks

STEPS = 30  # most C-steps; each lowers the determinant, about ten suffice


@dataclass(frozen=True)
class FittedRobustCovariance(OnDevice):
    """Mean and whitening of the bulk of the fitted rows.

    Attributes:
        location: Shape (dims,).
        whitening: float32 (dims, dims): (x - location) @ whitening has unit covariance.
    """

    location: Tensor
    whitening: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Squared Mahalanobis distance; higher = more anomalous. O(units · dims²)."""
        check_rows(embeddings, self.location.numel())

        def score(rows: Tensor) -> Tensor:
            return ((rows - self.location) @ self.whitening).square_().sum(1)

        return score_blocks(embeddings, 2 * self.location.numel(), score)


@dataclass(frozen=True)
class RobustCovariance:
    """Squared Mahalanobis distance under a robust, shrunk covariance; higher = more anomalous.

    The rows nearest the spatial median start the C-steps of the minimum covariance determinant, so nothing is
    random and one start replaces scikit-learn's hundreds (67 s at 4,000 x 384). Every covariance is shrunk
    towards a multiple of the identity by the Ledoit-Wolf rule, so it works with fewer rows than dimensions,
    where the determinant has no minimum. One start has a cost: a tight cluster of outliers nearer the median
    than the ends of the bulk is excluded when it is a tenth of the rows, and included when it is a sixth.

    Scores are not those of scikit-learn's ``MinCovDet``, which starts at random and does not shrink: rank correlation
    is above 0.9. With ``support=1`` they equal its ``LedoitWolf().mahalanobis`` to 1e-5.

    Cost: fit O(steps · (rows · dims² + dims³)), score O(units · dims²).

    Attributes:
        support: Share of the rows that form the bulk.

    References:
        Rousseeuw and Van Driessen 1999, A fast algorithm for the minimum covariance determinant estimator.
        Hubert, Rousseeuw and Verdonck 2012, A deterministic algorithm for robust location and scatter.
        Ledoit and Wolf 2004, A well-conditioned estimator for large-dimensional covariance matrices.
        DANA section 3.1 (RC).
    """

    support: float = 0.75
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedRobustCovariance

    def __post_init__(self) -> None:
        require(0.5 <= self.support <= 1, "support", self.support, "in [0.5, 1]")

    def fit(self, embeddings: Tensor, seed: int) -> FittedRobustCovariance:
        """C-steps until the bulk, the `support` share of rows with the least distance, no longer changes."""
        check_rows(embeddings, at_least=4)
        rows = embeddings.double()
        count = max(2, int(self.support * len(rows)))
        bulk = (rows - spatial_median(rows)).square().sum(1).argsort(stable=True)[:count].sort().values
        for _ in range(STEPS):
            location, whitening = shrunk(rows[bulk])
            distance = ((rows - location) @ whitening).square().sum(1)
            nearest = distance.argsort(stable=True)[:count].sort().values
            if torch.equal(nearest, bulk):
                break
            bulk = nearest
        location, whitening = shrunk(rows[bulk])
        return FittedRobustCovariance(location.float(), whitening.float())


def spatial_median(rows: Tensor, steps: int = 50) -> Tensor:
    """The point with the least sum of distances, by Weiszfeld's iteration; half the rows may be outliers."""
    median = rows.median(0).values
    for _ in range(steps):
        weight = 1 / (rows - median).norm(dim=1).clamp_min(1e-12)
        moved = (weight[:, None] * rows).sum(0) / weight.sum()
        if torch.allclose(moved, median, rtol=0, atol=1e-9):
            break
        median = moved
    return median


def shrunk(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean, and the whitening of the Ledoit-Wolf covariance.

    Dimensions without variance get the shrunk share of the mean variance, never a division by zero.
    """
    from sklearn.covariance import ledoit_wolf_shrinkage

    location = rows.mean(0)
    centred = rows - location
    covariance = centred.T @ centred / len(rows)
    strength = float(ledoit_wolf_shrinkage(centred.cpu().numpy(), assume_centered=True))
    typical = covariance.diagonal().mean().clamp_min(1e-12)
    covariance = (1 - strength) * covariance
    covariance.diagonal().add_(max(strength, 1e-6) * typical)
    variance, directions = torch.linalg.eigh(covariance)
    return location, directions / variance.sqrt()
