"""Two-level bootstrap over seeds and test examples: predictions of two arms to an interval of their difference.

An interval over seeds alone takes the test set as given. With a few hundred test examples that is the larger
half of the uncertainty, so both are drawn again here. A report's intervals are these (docs/design.md, Statistics).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dana.core.rng import generator
from dana.report.statistics import Interval

BATCH = 100  # draws at a time
METRICS = ("accuracy", "micro_f1", "macro_f1")


@dataclass(frozen=True)
class TwoLevelInterval(Interval):
    """The interval over seeds and test examples, and what of it comes from the examples.

    Attributes:
        examples: Standard deviation over test sets of the difference, the part that all seeds share: the root of the
            covariance of two seeds' differences. Not a number with one seed.
        mixed: The same of the part that is a seed's own.
    """

    examples: float
    mixed: float


def paired_bootstrap(
    predictions: np.ndarray,
    other: np.ndarray,
    labels: np.ndarray,
    classes: int,
    metric: str,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> TwoLevelInterval:
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
    # Examples that all models of both arms answer alike are interchangeable: drawn together, they cost one.
    kinds, counts = np.unique(np.vstack([labels, predictions, other]), axis=1, return_counts=True)
    seeds = len(predictions)
    true, predicted = _tallies(kinds[:1], classes), _tallies(kinds[1:], classes)
    tallies = (predicted * true, predicted, true)
    random = generator(seed, "report", "bootstrap")
    found, by_seed = [], []
    for begin in range(0, resamples, BATCH):
        many = min(BATCH, resamples - begin)
        weights = _draw(random, np.ones(seeds), many)
        by_seed.append(_differences(tallies, _draw(random, counts, many), metric))
        found.append((by_seed[-1] * weights).sum(1) / seeds)
    drawn = np.concatenate(found)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    observed = _differences(tallies, counts[None].astype(np.float64), metric).mean()
    ends = float(observed), float(drawn.std(ddof=1)), float(low), float(high)
    return TwoLevelInterval(*ends, seeds, *_parts(np.concatenate(by_seed)))


def _differences(tallies: Sequence[np.ndarray], examples: np.ndarray, metric: str) -> np.ndarray:
    """Each seed's difference in score, of each draw of examples: (draws, seeds).

    Args:
        tallies: Right, predicted and true classes, of shape (kinds, models, classes); the models are the first
            arm's seeds, then the other's.
        examples: How often each kind counts, of shape (draws, kinds).
        metric: Which score.
    """
    right, predicted, true = (np.tensordot(examples, tally, 1) for tally in tallies)  # (draws, models, classes)
    scores = score_of_counts(right, predicted, true, metric).reshape(len(examples), 2, -1)
    return scores[:, 0] - scores[:, 1]


def _parts(by_seed: np.ndarray) -> tuple[float, float]:
    """Standard deviations over draws of examples: what seeds share, and what is a seed's own; (draws, seeds) in."""
    seeds = by_seed.shape[1]
    if seeds < 2:
        return float("nan"), float("nan")
    covariance = np.cov(by_seed, rowvar=False)
    each = float(np.trace(covariance)) / seeds
    shared = (float(covariance.sum()) - each * seeds) / (seeds * (seeds - 1))
    return float(np.sqrt(max(shared, 0.0))), float(np.sqrt(max(each - max(shared, 0.0), 0.0)))


def _draw(random: np.random.Generator, counts: np.ndarray, draws: int) -> np.ndarray:
    """How often things of each kind are drawn, with replacement, from so many of each kind: (draws, kinds)."""
    return random.multinomial(int(counts.sum()), counts / counts.sum(), draws).astype(np.float64)


def _tallies(numbers: np.ndarray, classes: int) -> np.ndarray:
    """Ones where models, of shape (models, kinds), say which class: (kinds, models, classes)."""
    return (numbers.T[..., None] == np.arange(classes)).astype(np.float64)


def confusions(predictions: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """Confusion tables of shape (seeds, classes, classes), of class numbers of shape (seeds, examples)."""
    seeds = len(predictions)
    cells = (np.arange(seeds)[:, None] * classes + labels) * classes + predictions
    return np.bincount(cells.ravel(), minlength=seeds * classes**2).reshape(seeds, classes, classes)


def score_of_confusion(confusion: np.ndarray, metric: str) -> np.ndarray:
    """Scores of confusion tables.

    Args:
        confusion: Counts of shape (..., classes, classes), rows the true class, columns the predicted one.
        metric: As for :func:`score_of_counts`.

    Returns:
        Scores in [0, 1] of shape (...).
    """
    right = np.diagonal(confusion, axis1=-2, axis2=-1)
    return score_of_counts(right, confusion.sum(-2), confusion.sum(-1), metric)


def score_of_counts(right: np.ndarray, predicted: np.ndarray, true: np.ndarray, metric: str) -> np.ndarray:
    """Scores of counts by class, each of shape (..., classes).

    Args:
        right: How many of a class were found.
        predicted: How often the class was predicted.
        true: How many of the class there are.
        metric: ``accuracy``, ``micro_f1`` (the same, with one label a text) or ``macro_f1`` over all classes,
            one that is neither there nor predicted counting 0.

    Returns:
        Scores in [0, 1] of shape (...).

    Raises:
        ValueError: If the metric is unknown.
    """
    if metric in ("accuracy", "micro_f1"):
        return right.sum(-1) / true.sum(-1)
    if metric != "macro_f1":
        raise ValueError(f"metric={metric!r}: must be one of {', '.join(METRICS)}")
    return (2 * right / np.maximum(predicted + true, 1)).mean(-1)
