"""PyOD's PCA: distances to the unit vectors of all principal axes, weighted by inverse variance; scored in torch."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dana.detectors.base import OnDevice, check_rows, score_blocks

# Least share of variance of an axis: PyOD divides by it.
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
        weights: Shape (components,), one over each axis' share of the variance, divided by `largest`.
    """

    largest: float
    mean: Tensor
    remainder: Tensor
    precision: Tensor
    axes: Tensor
    weights: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Σ_j ‖z - v_j‖ / λ_j for the standardised unit z; higher = more anomalous. O(units · dims · components).

        All in float32. The mean is subtracted in two parts, because constant dimensions of an embedding hold rounding
        noise far below the last float32 digit of their mean; standardised rows are long, so distances do not cancel.
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

    The scores of PyOD's PCA with its defaults, to 1e-5; ``pyod:PCA`` is this detector. Axes of little variance
    dominate, so scores are large and close together: compare their ranks.

    Cost: fit O(rows · dims²), score O(units · dims²).

    References:
        Shyu, Chen, Sarinnapakorn and Chang 2003, A novel anomaly detection scheme based on principal component
        classifier; the formula is that of PyOD's ``PCA.decision_function``.
    """

    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedComponentDistance

    def fit(self, embeddings: Tensor, seed: int) -> FittedComponentDistance:
        """Standardise and find the axes with scikit-learn, as PyOD does; nothing is random."""
        from sklearn.decomposition import PCA
        from sklearn.preprocessing import StandardScaler

        check_rows(embeddings, at_least=2)
        scaler = StandardScaler()
        standardised = scaler.fit_transform(embeddings.double().cpu().numpy())
        solved = PCA().fit(standardised)
        weights = 1 / torch.from_numpy(solved.explained_variance_ratio_).clamp_min(TINY)
        mean = torch.from_numpy(scaler.mean_)
        device = embeddings.device
        return FittedComponentDistance(
            largest=float(weights.max()),
            mean=mean.float().to(device),
            remainder=(mean - mean.float()).float().to(device),
            precision=torch.from_numpy(1 / scaler.scale_).float().to(device),
            axes=torch.from_numpy(solved.components_.T).float().contiguous().to(device),
            weights=(weights / weights.max()).float().to(device),
        )
