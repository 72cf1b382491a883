"""Kernel sum: embeddings to the negated decision function of a support vector machine, in torch; shared by both."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dana.detectors.base import OnDevice, check_rows, score_blocks


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
        """Offset - Σ α_i exp(-γ‖x - s_i‖²); higher = more anomalous, above 0 is outside. O(units · vectors · dims).

        The score is a small difference of large sums, so what all terms of a row share is float64: its squared
        length, and the sum. Distances and kernel are float32, whose errors differ from term to term and average out.
        """
        check_rows(embeddings, self.support.shape[1])
        centre = self.support.mean(0)  # centred rows lose fewer digits in the expanded square
        centred = self.support - centre
        squares = (centred.double().square().sum(1) * -self.gamma).float()
        towards = centred.T * (2 * self.gamma)

        def score(rows: Tensor) -> Tensor:
            rows = rows - centre
            exact = rows.double().square().sum(1) * self.gamma
            rounded = exact.float()
            exponent = torch.addmm(squares, rows, towards).sub_(rounded[:, None]).clamp_max_(0)
            # Where rounding exceeds 1 the row is so long that its kernels are all 0.
            correction = torch.exp((rounded - exact).clamp(-1, 1))
            return self.offset - correction * (exponent.exp_().double() @ self.coefficients)

        return score_blocks(embeddings, 3 * len(self.support) + len(centre), score)

    @classmethod
    def of_libsvm(cls, solved: Any, device: torch.device) -> "FittedKernelSum":
        """What a support vector machine of scikit-learn has learned; its positive class is the task."""
        return cls(
            gamma=float(solved._gamma),
            offset=-float(solved.intercept_[0]),
            support=torch.from_numpy(solved.support_vectors_).float().to(device),
            coefficients=torch.from_numpy(solved.dual_coef_[0].copy()).to(device),
        )
