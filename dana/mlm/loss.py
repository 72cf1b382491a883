"""The weighted loss of one optimizer step, exact however the step is cut into micro-batches and ranks.

With weight λ_i, n_i hidden tokens and s_i = the sum of their negative log-likelihoods in nats, the loss of a
step's examples is, by denominator:

    batch         Σ λ_i s_i / n_i  /  number of examples     the paper: an irrelevant batch takes a small step
    weight_sum    Σ λ_i s_i        /  Σ λ_i n_i              the scale of the weights cancels; 2 = twice there
    token_count   Σ λ_i s_i        /  Σ n_i                  weights shrink the step, long examples count more

Every form is a sum of token losses times a coefficient, over one number Z of the *whole* step:
Σ_i c_i s_i / Z. So Z is computed before the first backward pass, and each micro-batch on each rank
contributes its local Σ c_i s_i · world / Z, because data parallelism averages gradients over ranks.

References:
    DANA equation 3 (``batch``: D-10 and A-D13 of the requirements).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dana.config import require

DENOMINATORS = ("batch", "weight_sum", "token_count")


@dataclass(frozen=True)
class Scale:
    """What turns token losses into the step's loss.

    Attributes:
        coefficients: float64 of shape (examples,), c_i.
        total: Z; 0 when nothing in the step can be learnt from.
    """

    coefficients: np.ndarray
    total: float


def scale(weights: np.ndarray, hidden: np.ndarray, denominator: str) -> Scale:
    """Coefficients and denominator of one whole optimizer step.

    Args:
        weights: Shape (examples,), λ of every example of the step, on all ranks.
        hidden: Shape (examples,), hidden tokens of each.
        denominator: One of :data:`DENOMINATORS`.

    Raises:
        ConfigError: If the denominator is unknown.
    """
    require(denominator in DENOMINATORS, "denominator", denominator, f"one of {', '.join(DENOMINATORS)}")
    weights = weights.astype(np.float64)
    if denominator == "batch":
        coefficients = np.divide(weights, hidden, out=np.zeros_like(weights), where=hidden > 0)
        return Scale(coefficients, float(weights.size) if coefficients.any() else 0.0)
    coefficients = np.where(hidden > 0, weights, 0.0)
    counted = weights if denominator == "weight_sum" else np.ones_like(weights)
    return Scale(coefficients, float((counted * hidden).sum()) if coefficients.any() else 0.0)


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood in nats of shape (hidden tokens,), computed in float32.

    Args:
        logits: Shape (hidden tokens, vocabulary).
        targets: int64 of shape (hidden tokens,).
    """
    return torch.nn.functional.cross_entropy(logits.float(), targets, reduction="none")


def micro_loss(losses: Tensor, coefficients: Tensor, total: float, world: int = 1, accumulation: int = 1) -> Tensor:
    """A micro-batch's share of the step's loss, a scalar to call ``backward`` on.

    Args:
        losses: Shape (hidden tokens,), from :func:`token_losses`.
        coefficients: Shape (hidden tokens,), each token's c of :func:`scale`.
        total: The step's Z.
        world: Ranks over which gradients are averaged afterwards.
        accumulation: What the caller's framework divides each micro-loss by.
    """
    return (losses * coefficients).sum() * (world * accumulation / total)
