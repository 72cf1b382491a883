"""Linear classifiers of background against task as detectors, fitted by scikit-learn and scored in torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from dana.core.config import require
from dana.detectors.base import BACKGROUND, OnDevice, check_rows, score_blocks, stack_classes


@dataclass(frozen=True)
class FittedLinear(OnDevice):
    """A hyperplane between target and background.

    Attributes:
        offset: Score of the zero vector.
        weights: float64 of shape (dims,); the score rises along them.
    """

    offset: float
    weights: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Compute log odds of background against task at equal priors; higher = more anomalous. O(units · dims)."""
        check_rows(embeddings, self.weights.numel())
        per_row = 3 * self.weights.numel()
        return score_blocks(
            embeddings, per_row, lambda rows: rows.double() @ self.weights + self.offset
        )

    @classmethod
    def of_classifier(cls, classifier: Any, device: torch.device) -> "FittedLinear":
        """Convert a fitted binary classifier of scikit-learn whose positive class is the task."""
        weights = torch.from_numpy(-classifier.coef_[0]).double().to(device)
        return cls(-float(classifier.intercept_[0]), weights)


@dataclass(frozen=True)
class LinearDiscriminant:
    """Linear discriminant analysis of target against background, equal priors; higher = more anomalous.

    Both classes are taken as normal with the mean of their covariances, so the score is the log
    odds, a linear function. The covariance is shrunk, because a hundred target units do not determine
    that of 384 dimensions.

    Scores equal minus the decision function of scikit-learn's
    ``LinearDiscriminantAnalysis(solver="lsqr")`` to 1e-5.

    Cost: fit O((rows + background) · dims² + dims³), score O(units · dims).

    Attributes:
        shrinkage: Share of the identity in each class's covariance, in [0, 1]; None estimates it
            (Ledoit and Wolf).

    References:
        Fisher 1936, The use of multiple measurements in taxonomic problems. Ledoit and Wolf 2004, A well-conditioned
        estimator for large-dimensional covariance matrices.
    """

    shrinkage: float | None = None
    version: ClassVar[int] = 1
    background: ClassVar[int] = BACKGROUND
    fitted_type: ClassVar[type] = FittedLinear

    def __post_init__(self) -> None:
        fits = self.shrinkage is None or 0 <= self.shrinkage <= 1
        require(fits, "shrinkage", self.shrinkage, "in [0, 1], or null")

    def fit(self, embeddings: Tensor, seed: int, background: Tensor) -> FittedLinear:
        """Fit the hyperplane with scikit-learn; deterministic."""
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        rows, is_target = stack_classes(embeddings, background)
        shrinkage = "auto" if self.shrinkage is None else self.shrinkage
        solver = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=[0.5, 0.5])
        return FittedLinear.of_classifier(solver.fit(rows, is_target), embeddings.device)


@dataclass(frozen=True)
class DensityRatio:
    """Logistic regression of target against background, both classes of equal weight; higher = more anomalous.

    With equal weights the log odds estimate the log of the ratio of the two densities.

    Scores equal minus the decision function of scikit-learn's
    ``LogisticRegression(class_weight="balanced")``.

    Cost: fit O(iterations · (rows + background) · dims), score O(units · dims).

    Attributes:
        c: Inverse strength of the penalty for rows of total variance 1, divided by their variance,
            so that it means the same at any scale. Normalised embeddings have about 1, so 1 is
            scikit-learn's default for them.

    References:
        Bickel, Brückner and Scheffer 2009, Discriminative learning under covariate shift, section 4.
        Sugiyama, Suzuki and Kanamori 2012, Density ratio estimation in machine learning, chapter 4.
    """

    c: float = 1.0
    version: ClassVar[int] = 1
    background: ClassVar[int] = BACKGROUND
    fitted_type: ClassVar[type] = FittedLinear

    def __post_init__(self) -> None:
        require(self.c > 0, "c", self.c, "above 0")

    def fit(self, embeddings: Tensor, seed: int, background: Tensor) -> FittedLinear:
        """Fit with scikit-learn's L-BFGS; deterministic."""
        from sklearn.linear_model import LogisticRegression

        rows, is_target = stack_classes(embeddings, background)
        c = self.c / max(float(rows.var(0).sum()), 1e-12)
        solver = LogisticRegression(C=c, class_weight="balanced", max_iter=1000)
        return FittedLinear.of_classifier(solver.fit(rows, is_target), embeddings.device)
