"""Detectors by principal components: reconstruction error, and PyOD's distance over all axes."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dana.core.config import require
from dana.detectors.base import OnDevice, check_rows, score_blocks


@dataclass(frozen=True)
class FittedPrincipalComponents(OnDevice):
    """The target's mean and leading directions.

    Attributes:
        mean: Shape (dims,).
        directions: Shape (dims, components), orthonormal columns.
    """

    mean: Tensor
    directions: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Compute the squared reconstruction error; higher = more anomalous.

        O(units · dims · components).
        """
        check_rows(embeddings, self.mean.numel())

        def score(rows: Tensor) -> Tensor:
            offset = rows - self.mean
            # Not |x|² - |Wx|²: that is one product less, but cancels for rows with a small
            # residual.
            return (
                torch.addmm(offset, offset @ self.directions, self.directions.T, alpha=-1)
                .square_()
                .sum(1)
            )

        return score_blocks(embeddings, 3 * self.mean.numel(), score)


@dataclass(frozen=True)
class PrincipalComponents:
    """Squared reconstruction error of principal component analysis; higher = more anomalous.

    DANA names the reconstruction error. PyOD's PCA is another detector (a distance over all
    eigenvectors, weighted by inverse variance): ``pyod:PCA``.

    Scores equal scikit-learn's reconstruction error to 1e-5 of the largest.

    Cost: fit O(rows · dims²), score O(units · dims · components).

    Attributes:
        variance: Share of the target's variance that the leading directions explain. DANA gives none.

    References:
        Jackson and Mudholkar 1979, Control procedures for residuals associated with principal component
        analysis.
        DANA section 3.1 (PCA).
    """

    variance: float = 0.5
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedPrincipalComponents

    def __post_init__(self) -> None:
        require(
            0 < self.variance < 1,
            "variance",
            self.variance,
            "in (0, 1): with all directions the error is 0",
        )

    def fit(self, embeddings: Tensor, seed: int) -> FittedPrincipalComponents:
        """Compute the leading eigenvectors of the covariance; deterministic."""
        check_rows(embeddings, at_least=2)
        rows = embeddings.double()
        mean = rows.mean(0)
        variance, directions = torch.linalg.eigh((rows - mean).T @ (rows - mean))
        variance, directions = variance.flip(0).clamp_min(0), directions.flip(1)
        explained_share = variance.cumsum(0) / variance.sum().clamp_min(1e-30)
        count = min(int((explained_share < self.variance).sum()) + 1, len(variance) - 1) or 1
        leading = directions[:, :count]
        return FittedPrincipalComponents(mean.float(), leading.float().contiguous())


# Lower limit of an axis' share of variance, which is a divisor.
TINY = 1e-100
# Standardised values are clamped to this: its square, summed over any width, is a finite float32.
FAR = 1e16


@dataclass(frozen=True)
class FittedComponentDistance(OnDevice):
    """The task's standardised axes.

    Attributes:
        largest: The largest weight; with float64 range, as an axis without variance has about 1e30.
        mean: Shape (dims,).
        remainder: Shape (dims,), what float32 leaves of the mean.
        precision: Shape (dims,), one over the standard deviation.
        axes: Shape (dims, components), orthonormal columns.
        weights: Shape (components,), one over each axis' share of the variance, divided by
            `largest`.
    """

    largest: float
    mean: Tensor
    remainder: Tensor
    precision: Tensor
    axes: Tensor
    weights: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Compute Σ_j ‖z - v_j‖ / λ_j for the standardised unit z; higher = more anomalous.

        O(units · dims · components), in float32. The mean is subtracted in two parts, because
        constant dimensions of an embedding hold rounding noise far below the last float32 digit of
        their mean. Standardised rows are long, so distances do not cancel.
        """
        check_rows(embeddings, self.mean.numel())

        def score(rows: Tensor) -> Tensor:
            rows = (rows - self.mean).sub_(self.remainder).mul_(self.precision).clamp_(-FAR, FAR)
            squares = torch.addmm(rows.square().sum(1, keepdim=True) + 1, rows, self.axes, alpha=-2)
            return (squares.clamp_min_(0).sqrt_() @ self.weights).double() * self.largest

        return score_blocks(embeddings, 3 * self.mean.numel(), score)


@dataclass(frozen=True)
class ComponentDistance:
    """Distances to the unit vectors of all principal axes over their variances; higher = more anomalous.

    The scores of PyOD's PCA with its defaults, to 1e-5; ``pyod:PCA`` is this detector. Axes of
    little variance dominate, so scores are large and close together: compare their ranks.

    Cost: fit O(rows · dims²), score O(units · dims²).

    References:
        Shyu, Chen, Sarinnapakorn and Chang 2003, A novel anomaly detection scheme based on principal component
        classifier; the formula is that of PyOD's ``PCA.decision_function``.
    """

    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedComponentDistance

    def fit(self, embeddings: Tensor, seed: int) -> FittedComponentDistance:
        """Standardise and fit the axes with scikit-learn, as PyOD does; deterministic."""
        from sklearn.decomposition import PCA
        from sklearn.preprocessing import StandardScaler

        check_rows(embeddings, at_least=2)
        scaler = StandardScaler()
        rows = scaler.fit_transform(embeddings.double().cpu().numpy())
        pca = PCA().fit(rows)
        weights = 1 / torch.from_numpy(pca.explained_variance_ratio_).clamp_min(TINY)
        mean = torch.from_numpy(scaler.mean_)
        device = embeddings.device
        return FittedComponentDistance(
            largest=float(weights.max()),
            mean=mean.float().to(device),
            remainder=(mean - mean.float()).float().to(device),
            precision=torch.from_numpy(1 / scaler.scale_).float().to(device),
            axes=torch.from_numpy(pca.components_.T).float().contiguous().to(device),
            weights=(weights / weights.max()).float().to(device),
        )
