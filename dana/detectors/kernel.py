"""Support vector machines with an RBF kernel: signed distance from the decision boundary, solved by libsvm."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from dana.core.config import require
from dana.detectors.base import BACKGROUND, OnDevice, check_rows, score_blocks, stack_classes


@dataclass(frozen=True)
class FittedKernelSum(OnDevice):
    """The negated decision function of libsvm, with an RBF kernel.

    Attributes:
        gamma: Width of the kernel, exp(-γ‖a-b‖²).
        offset: Score where every kernel is 0.
        support: Shape (vectors, dims).
        coefficients: float64 (vectors,), the dual coefficients.
    """

    gamma: float
    offset: float
    support: Tensor
    coefficients: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Compute offset - Σ α_i exp(-γ‖x - s_i‖²); higher = more anomalous, above 0 is outside.

        O(units · vectors · dims). The score is a small difference of large sums, so the squared
        length of a row and the sum are float64. Distances and kernels are float32, because their
        errors are independent and average out.
        """
        check_rows(embeddings, self.support.shape[1])
        centre = self.support.mean(0)  # centred rows lose fewer digits in the expanded square
        vectors = self.support - centre
        squares = (vectors.double().square().sum(1) * -self.gamma).float()
        towards = vectors.T * (2 * self.gamma)

        def score(rows: Tensor) -> Tensor:
            rows = rows - centre
            exact_square = rows.double().square().sum(1) * self.gamma
            float_square = exact_square.float()
            exponent = torch.addmm(squares, rows, towards).sub_(float_square[:, None]).clamp_max_(0)
            # Where rounding exceeds 1 the row is so long that its kernels are all 0.
            correction = torch.exp((float_square - exact_square).clamp(-1, 1))
            return self.offset - correction * (exponent.exp_().double() @ self.coefficients)

        return score_blocks(embeddings, 3 * len(self.support) + len(centre), score)

    @classmethod
    def of_libsvm(cls, machine: Any, device: torch.device) -> "FittedKernelSum":
        """Convert a fitted scikit-learn support vector machine whose positive class is the task."""
        return cls(
            gamma=float(machine._gamma),
            offset=-float(machine.intercept_[0]),
            support=torch.from_numpy(machine.support_vectors_).float().to(device),
            coefficients=torch.from_numpy(machine.dual_coef_[0].copy()).to(device),
        )


@dataclass(frozen=True)
class OneClassSVM:
    """One-class support vector machine with an RBF kernel; higher = more anomalous.

    Scores equal minus scikit-learn's decision function to 1e-5 of the largest.

    Cost: fit between O(rows²) and O(rows³), score O(units · vectors · dims); fit on some thousand
    rows.

    Attributes:
        nu: At most this share of the target units is outside, at least this share are support
            vectors.
        gamma: Kernel width; None takes 1 / (dims · variance), the default of scikit-learn. DANA
            gives no value.

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
        """Solve the dual with libsvm; deterministic."""
        from sklearn.svm import OneClassSVM as Solver

        check_rows(embeddings, at_least=2)
        rows = embeddings.double().cpu().numpy()
        solver = Solver(kernel="rbf", nu=self.nu, gamma=self.gamma or "scale")
        return FittedKernelSum.of_libsvm(solver.fit(rows), embeddings.device)


@dataclass(frozen=True)
class SupportVectorMachine:
    """Distance from the boundary between target and background; higher = more anomalous, above 0 is background.

    Scores equal minus the decision function of scikit-learn's ``SVC(class_weight="balanced")`` to
    1e-5 of the largest.

    Cost: fit between O((rows + background)²) and its cube, score O(units · vectors · dims).

    Attributes:
        c: Weight of a row on the wrong side, against a wide margin; both classes weigh the same in
            sum.
        gamma: Kernel width; None takes 1 / (dims · variance), the default of scikit-learn, about 1
            for vectors of length 1.

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
        """Solve the dual with libsvm; deterministic."""
        from sklearn.svm import SVC

        rows, is_target = stack_classes(embeddings, background)
        solver = SVC(
            C=self.c, gamma=self.gamma or "scale", class_weight="balanced", cache_size=1000
        )
        return FittedKernelSum.of_libsvm(solver.fit(rows, is_target), embeddings.device)
