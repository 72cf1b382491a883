"""The two-level bootstrap: would the difference survive other seeds and another test set of the same kind?

The t interval over seeds takes the test set as given. With a few hundred test examples that is the larger
half of the uncertainty, so both are drawn again here.
"""

import numpy as np

from dana.report.statistics import Interval
from dana.rng import generator

METRICS = ("accuracy", "micro_f1", "macro_f1")


def paired_bootstrap(
    predictions: np.ndarray,
    other: np.ndarray,
    labels: np.ndarray,
    classes: int,
    metric: str,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Difference in mean score between two arms, with a percentile interval over seeds and test examples.

    In every resample the seeds and the examples are drawn with replacement, the same for both arms.

    Args:
        predictions: Class numbers of shape (seeds, examples).
        other: The same, of the arm it is compared with: the same seeds and examples in the same order.
        labels: True class numbers of shape (examples,).
        classes: Size of the full label set.
        metric: ``accuracy``, ``micro_f1`` or ``macro_f1``.
        resamples: How many times to draw.
        level: Coverage.
        seed: Decides the draws.

    Returns:
        `mean` is the difference observed, not the mean of the resamples; `n` is the number of seeds.

    Raises:
        ValueError: If the shapes do not fit or the metric is unknown.

    References:
        Efron and Tibshirani 1993, An introduction to the bootstrap; Sellam et al. 2022, The MultiBERTs.
    """
    if predictions.shape != other.shape or predictions.shape[1:] != labels.shape:
        raise ValueError(f"shapes do not fit: {predictions.shape}, {other.shape}, {labels.shape}")
    arms = [_cells(arm, labels, classes) for arm in (predictions, other)]
    seeds, examples = predictions.shape
    random = generator(seed, "report", "bootstrap")

    def difference(seed_weights: np.ndarray, example_weights: np.ndarray) -> float:
        first, second = (_scores(cells, example_weights, classes, metric) for cells in arms)
        return float(seed_weights @ (first - second)) / seeds

    drawn = np.array([difference(_draw(random, seeds), _draw(random, examples)) for _ in range(resamples)])
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    observed = difference(np.ones(seeds), np.ones(examples))
    return Interval(observed, float(drawn.std(ddof=1)), float(low), float(high), seeds)


def _draw(random: np.random.Generator, count: int) -> np.ndarray:
    """How often each of `count` things is drawn in `count` draws with replacement."""
    return np.bincount(random.integers(0, count, count), minlength=count).astype(np.float64)


def _cells(predictions: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """For each prediction its cell in a stack of confusion tables, one a seed: (seeds, examples)."""
    seed = np.arange(len(predictions))[:, None] * classes * classes
    return seed + labels[None, :] * classes + predictions


def _scores(cells: np.ndarray, weights: np.ndarray, classes: int, metric: str) -> np.ndarray:
    """A score a seed, of shape (seeds,), where example i counts `weights[i]` times."""
    seeds = len(cells)
    counted = np.bincount(cells.ravel(), np.tile(weights, seeds), minlength=seeds * classes * classes)
    return score_of_confusion(counted.reshape(seeds, classes, classes), metric)


def score_of_confusion(confusion: np.ndarray, metric: str) -> np.ndarray:
    """Scores of confusion tables.

    Args:
        confusion: Counts of shape (..., classes, classes), rows the true class, columns the predicted one.
        metric: ``accuracy``, ``micro_f1`` (the same, with one label a text) or ``macro_f1`` over all classes,
            one that is neither there nor predicted counting 0.

    Returns:
        Scores in [0, 1] of shape (...).

    Raises:
        ValueError: If the metric is unknown.
    """
    right = np.diagonal(confusion, axis1=-2, axis2=-1)
    if metric in ("accuracy", "micro_f1"):
        return right.sum(-1) / confusion.sum((-2, -1))
    if metric != "macro_f1":
        raise ValueError(f"metric={metric!r}: must be one of {', '.join(METRICS)}")
    involved = confusion.sum(-1) + confusion.sum(-2)
    return (2 * right / np.maximum(involved, 1)).mean(-1)
