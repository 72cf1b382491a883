"""Support vector machine: task against background in an RBF kernel; fitted by libsvm, scored in torch."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.detectors.base import BACKGROUND, check_classes
from dana.detectors.kernel_sum import FittedKernelSum


@dataclass(frozen=True)
class SupportVectorMachine:
    """Distance from the boundary between task and background; higher = more anomalous, above 0 is background.

    Scores equal minus the decision function of scikit-learn's ``SVC(class_weight="balanced")`` to 1e-5 of the largest.

    Cost: fit between O((rows + background)²) and its cube, score O(units · vectors · dims).

    Attributes:
        c: Weight of a row on the wrong side, against a wide margin; both classes weigh the same in sum.
        gamma: Kernel width; None takes 1 / (dims · variance), the default of scikit-learn, about 1 for vectors of
            length 1.

    References:
        Cortes and Vapnik 1995, Support-vector networks.
    """

    c: float = 3.0
    gamma: float | None = None
    version: ClassVar[int] = 1
    background: ClassVar[int] = BACKGROUND
    fitted_type: ClassVar[type] = FittedKernelSum

    def __post_init__(self) -> None:
        require(self.c > 0, "c", self.c, "above 0")
        require(self.gamma is None or self.gamma > 0, "gamma", self.gamma, "above 0, or null")

    def fit(self, embeddings: Tensor, seed: int, background: Tensor) -> FittedKernelSum:
        """Solve the dual with libsvm; nothing is random."""
        from sklearn.svm import SVC

        check_classes(embeddings, background)
        rows = torch.cat([embeddings, background]).double().cpu().numpy()
        is_task = np.arange(len(rows)) < len(embeddings)
        solver = SVC(C=self.c, gamma=self.gamma or "scale", class_weight="balanced", cache_size=1000)
        return FittedKernelSum.of_libsvm(solver.fit(rows, is_task), embeddings.device)
