"""One-class SVM: outside the smallest region that holds the task units?"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dana.config import require
from dana.detectors.base import OnDevice, check_rows, score_blocks


@dataclass(frozen=True)
class FittedOneClassSVM(OnDevice):
    """The decision function, sign turned so that higher = more anomalous.

    Attributes:
        gamma: Width of the kernel, exp(-γ‖a-b‖²).
        offset: ρ.
        support: Shape (vectors, dims).
        coefficients: float64 (vectors,), the dual coefficients.
    """

    gamma: float
    offset: float
    support: Tensor
    coefficients: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """ρ - Σ α_i exp(-γ‖x - s_i‖²); above 0 is outside. O(units · vectors · dims).

        The score is a small difference of large sums, so what all terms of a row share is float64: its squared
        length, and the sum. Distances and kernel are float32, whose errors differ from term to term and average out.
        """
        check_rows(embeddings, self.support.shape[1])
        centre = self.support.mean(0)  # distances stay the same, and lose fewer digits to the expanded square
        centred = self.support - centre
        squares = (centred.double().square().sum(1) * -self.gamma).float()
        towards = centred.T * (2 * self.gamma)

        def score(rows: Tensor) -> Tensor:
            rows = rows - centre
            exact = rows.double().square().sum(1) * self.gamma
            rounded = exact.float()
            exponent = torch.addmm(squares, rows, towards).sub_(rounded[:, None]).clamp_max_(0)
            # Beyond 1 there is nothing to put right: every kernel of so long a row is 0.
            correction = torch.exp((rounded - exact).clamp(-1, 1))
            return self.offset - correction * (exponent.exp_().double() @ self.coefficients)

        return score_blocks(embeddings, 3 * len(self.support) + len(centre), score)


@dataclass(frozen=True)
class OneClassSVM:
    """One-class support vector machine with an RBF kernel; higher = more anomalous.

    Scores equal minus scikit-learn's decision function to 1e-5 of the largest.

    Cost: fit between O(rows²) and O(rows³), score O(units · vectors · dims); fit on some thousand rows.

    Attributes:
        nu: At most this share of the task units is outside, at least this share are support vectors.
        gamma: Kernel width; empty takes 1 / (dims · variance), the library default (A-D04).

    References:
        Schölkopf et al. 2001, Estimating the support of a high-dimensional distribution, section 4.
        DANA section 3.1 (OCS).
    """

    nu: float = 0.1
    gamma: float | None = None
    fitted_type: ClassVar[type] = FittedOneClassSVM

    def __post_init__(self) -> None:
        require(0 < self.nu <= 1, "nu", self.nu, "in (0, 1]")
        require(self.gamma is None or self.gamma > 0, "gamma", self.gamma, "above 0, or null")

    def fit(self, embeddings: Tensor, seed: int) -> FittedOneClassSVM:
        """Solve the dual with libsvm; nothing is random."""
        from sklearn.svm import OneClassSVM as Solver

        check_rows(embeddings, at_least=2)
        rows = embeddings.double().cpu().numpy()
        solved = Solver(kernel="rbf", nu=self.nu, gamma=self.gamma or "scale").fit(rows)
        return FittedOneClassSVM(
            gamma=float(solved._gamma),
            offset=-float(solved.intercept_[0]),
            support=torch.from_numpy(solved.support_vectors_).float().to(embeddings.device),
            coefficients=torch.from_numpy(solved.dual_coef_[0].copy()).to(embeddings.device),
        )
