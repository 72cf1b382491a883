"""Weighted loss of an optimizer step: token losses and example weights in, one sum for any cut into micro-batches out.

With weight λ_i, n_i predicted tokens and s_i = the sum of their negative log-likelihoods in nats, the loss of a
step's examples is, by denominator:

    batch         Σ λ_i s_i / n_i  /  number of examples     DANA, equation 3: small weights make a small step
    weight_sum    Σ λ_i s_i        /  Σ λ_i n_i              the scale of the weights cancels; weight 2 = a duplicate
    token_count   Σ λ_i s_i        /  Σ n_i                  small weights make a small step, long examples count more

Every form is a sum of token losses times a coefficient, over one number Z of the *whole* step:
Σ_i c_i s_i / Z. So Z is computed before the first backward pass, and each micro-batch on each rank
contributes its local Σ c_i s_i · world / Z, because data parallelism averages gradients over ranks.

References:
    DANA, equation 3, for ``batch``.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dana.core.config import require
from dana.train.objectives import DENOMINATORS

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LossScale:
    """Coefficients c_i and denominator Z that turn token losses l into the step's loss Σ c_i l / Z.

    Attributes:
        coefficients: float64 of shape (examples,), c_i.
        total: Z; 0 where no label has a weight above 0.
    """

    coefficients: np.ndarray
    total: float


def loss_scale(weights: np.ndarray, counts: np.ndarray, denominator: str) -> LossScale:
    """Coefficients and denominator of one whole optimizer step.

    Args:
        weights: Shape (examples,), λ of every example of the step, on all ranks.
        counts: Shape (examples,), predicted tokens of each.
        denominator: One of :data:`DENOMINATORS`.

    Raises:
        ConfigError: If the denominator is unknown.
    """
    require(denominator in DENOMINATORS, "denominator", denominator, f"one of {', '.join(DENOMINATORS)}")
    weights = weights.astype(np.float64)
    if denominator == "batch":
        coefficients = np.divide(weights, counts, out=np.zeros_like(weights), where=counts > 0)
        return LossScale(coefficients, float(weights.size) if coefficients.any() else 0.0)
    coefficients = np.where(counts > 0, weights, 0.0)
    counted = weights if denominator == "weight_sum" else np.ones_like(weights)
    return LossScale(coefficients, float((counted * counts).sum()) if coefficients.any() else 0.0)


def token_losses(logits: "Tensor", targets: "Tensor") -> "Tensor":
    """Negative log-likelihood in nats of shape (targets,), computed in float32.

    Args:
        logits: Shape (targets, vocabulary).
        targets: int64 of shape (targets,).
    """
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.float(), targets, reduction="none")


def micro_loss(
    losses: "Tensor", coefficients: "Tensor", total: float, world: int = 1, accumulation: int = 1
) -> "Tensor":
    """A micro-batch's share of the step's loss, a scalar to call ``backward`` on.

    Args:
        losses: Shape (targets,), from :func:`token_losses`.
        coefficients: Shape (targets,), each token's c of :func:`loss_scale`.
        total: The step's Z.
        world: Ranks over which gradients are averaged afterwards.
        accumulation: What the caller's framework divides each micro-loss by.
    """
    return (losses * coefficients).sum() * (world * accumulation / total)
