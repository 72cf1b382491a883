"""Density ratio: log odds of background against task by L2-regularised logistic regression; fitted by scikit-learn."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.detectors.base import BACKGROUND, check_classes
from dana.detectors.linear import FittedLinear


@dataclass(frozen=True)
class DensityRatio:
    """Logistic regression of task against background, both classes of equal weight; higher = more anomalous.

    With equal weights the log odds estimate the log of the ratio of the two densities.

    Scores equal minus the decision function of scikit-learn's ``LogisticRegression(class_weight="balanced")``.

    Cost: fit O(iterations · (rows + background) · dims), score O(units · dims).

    Attributes:
        c: Inverse strength of the penalty for rows of total variance 1, divided by their variance, so that it means the
            same at any scale. Normalised embeddings have about 1, so 1 is scikit-learn's default for them.

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
        """Solve with scikit-learn's L-BFGS; nothing is random."""
        from sklearn.linear_model import LogisticRegression

        check_classes(embeddings, background)
        rows = torch.cat([embeddings, background]).double().cpu().numpy()
        is_task = np.arange(len(rows)) < len(embeddings)
        c = self.c / max(float(rows.var(0).sum()), 1e-12)
        solver = LogisticRegression(C=c, class_weight="balanced", max_iter=1000)
        return FittedLinear.of_classifier(solver.fit(rows, is_task), embeddings.device)
