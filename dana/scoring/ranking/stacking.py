"""Stacking: standardised scores of several selectors on held-out text to one weight each, none negative."""

from dataclasses import dataclass

import numpy as np

RIDGE = 0.01  # strength of the pull towards equal weights; between .001 and .1 the outcome hardly changes


@dataclass(frozen=True)
class Stacked:
    """A logistic model of being general text, both classes of equal weight.

    Attributes:
        weights: Shape (selectors,), none negative, summing to one.
        slope: The log odds change by this for one unit of the weighted sum.
        intercept: Log odds where the weighted sum is 0.
    """

    weights: np.ndarray
    slope: float
    intercept: float


def stacking_weights(task: np.ndarray, general: np.ndarray) -> Stacked:
    """Fit a logistic model that tells task from general text, its weights drawn towards equal ones.

    Minimises the mean logistic loss, both classes of equal weight, plus RIDGE · Σ (w_k - mean w)². Equal weights are
    what little text supports; only where the scores say so does one selector count more.

    Args:
        task: Scores of task pieces, shape (pieces, selectors); higher = more foreign.
        general: Scores of general pieces, shape (pieces, selectors).

    Returns:
        Equal weights where no selector tells the two apart.

    References:
        Wolpert 1992, Stacked generalization. Breiman 1996, Stacked regressions (weights not negative).
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    rows = np.concatenate([task, general])
    sign = np.concatenate([-np.ones(len(task)), np.ones(len(general))])
    share = np.where(sign < 0, 0.5 / len(task), 0.5 / len(general))
    count = rows.shape[1]

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        weights, intercept = parameters[:-1], parameters[-1]
        margin = sign * (rows @ weights + intercept)
        slope = -share * sign * expit(-margin)
        apart = weights - weights.mean()
        value = float(share @ np.logaddexp(0, -margin) + RIDGE * apart @ apart)
        return value, np.append(rows.T @ slope + 2 * RIDGE * apart, slope.sum())

    bounds = [(0.0, None)] * count + [(None, None)]
    found = minimize(loss, np.append(np.ones(count), 0.0), jac=True, bounds=bounds, method="L-BFGS-B").x
    total = float(found[:-1].sum())
    weights = found[:-1] / total if total > 1e-6 else np.full(count, 1 / count)
    return Stacked(weights, total, float(found[-1]))
