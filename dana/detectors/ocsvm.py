"""One-class SVM: distance from the boundary of an RBF-kernel region; fitted by libsvm, scored in torch."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from dana.core.config import require
from dana.detectors.base import check_rows
from dana.detectors.kernel_sum import FittedKernelSum


@dataclass(frozen=True)
class OneClassSVM:
    """One-class support vector machine with an RBF kernel; higher = more anomalous.

    Scores equal minus scikit-learn's decision function to 1e-5 of the largest.

    Cost: fit between O(rows²) and O(rows³), score O(units · vectors · dims); fit on some thousand rows.

    Attributes:
        nu: At most this share of the task units is outside, at least this share are support vectors.
        gamma: Kernel width; None takes 1 / (dims · variance), the default of scikit-learn. DANA gives no value.

    References:
        Schölkopf et al. 2001, Estimating the support of a high-dimensional distribution, section 4.
        DANA section 3.1 (OCS).
    """

    nu: float = 0.1
    gamma: float | None = None
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedKernelSum

    def __post_init__(self) -> None:
        require(0 < self.nu <= 1, "nu", self.nu, "in (0, 1]")
        require(self.gamma is None or self.gamma > 0, "gamma", self.gamma, "above 0, or null")

    def fit(self, embeddings: Tensor, seed: int) -> FittedKernelSum:
        """Solve the dual with libsvm; nothing is random."""
        from sklearn.svm import OneClassSVM as Solver

        check_rows(embeddings, at_least=2)
        rows = embeddings.double().cpu().numpy()
        solver = Solver(kernel="rbf", nu=self.nu, gamma=self.gamma or "scale")
        return FittedKernelSum.of_libsvm(solver.fit(rows), embeddings.device)
