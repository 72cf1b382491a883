"""Linear discriminant: log odds of background against task under one shrunk covariance; fitted by scikit-learn."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.detectors.base import BACKGROUND, check_classes
from dana.detectors.linear import FittedLinear


@dataclass(frozen=True)
class LinearDiscriminant:
    """Linear discriminant analysis of task against background, equal priors; higher = more anomalous.

    Both classes are taken as normal with the mean of their covariances, so the score is the log odds, a linear
    function. The covariance is shrunk, because a hundred task units do not determine that of 384 dimensions.

    Scores equal minus the decision function of scikit-learn's ``LinearDiscriminantAnalysis(solver="lsqr")`` to 1e-5.

    Cost: fit O((rows + background) · dims² + dims³), score O(units · dims).

    Attributes:
        shrinkage: Share of the identity in each class's covariance, in [0, 1]; None estimates it (Ledoit and Wolf).

    References:
        Fisher 1936, The use of multiple measurements in taxonomic problems. Ledoit and Wolf 2004, A well-conditioned
        estimator for large-dimensional covariance matrices.
    """

    shrinkage: float | None = None
    version: ClassVar[int] = 1
    background: ClassVar[int] = BACKGROUND
    fitted_type: ClassVar[type] = FittedLinear

    def __post_init__(self) -> None:
        allowed = "in [0, 1], or null"
        require(self.shrinkage is None or 0 <= self.shrinkage <= 1, "shrinkage", self.shrinkage, allowed)

    def fit(self, embeddings: Tensor, seed: int, background: Tensor) -> FittedLinear:
        """Solve for the hyperplane with scikit-learn; nothing is random."""
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        check_classes(embeddings, background)
        rows = torch.cat([embeddings, background]).double().cpu().numpy()
        is_task = np.arange(len(rows)) < len(embeddings)
        shrinkage = "auto" if self.shrinkage is None else self.shrinkage
        solver = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=[0.5, 0.5])
        return FittedLinear.of_classifier(solver.fit(rows, is_task), embeddings.device)
