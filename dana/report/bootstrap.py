"""Two-level bootstrap over seeds and test examples: predictions of two arms to an interval of their difference.

An interval over seeds alone takes the test set as given. With a few hundred test examples that is the larger
half of the uncertainty, so both are drawn again here. A report's intervals are these (docs/design.md, Statistics).
"""

from dataclasses import dataclass

import numpy as np

from dana.core.rng import generator
from dana.report.statistics import Interval
from dana.tasks.kinds.base import Kind, Scorer

BATCH = 100  # draws at a time


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
    kind: Kind,
    metric: str,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> TwoLevelInterval:
    """Difference in mean score between two arms, with a percentile interval over seeds and test examples.

    In every resample the seeds and the examples are drawn with replacement, the same for both arms.

    Args:
        predictions: Answers of the kind, class numbers mostly, of shape (seeds, examples).
        other: The same, of the arm it is compared with: the same seeds and examples in the same order.
        labels: True answers of shape (examples,).
        kind: What the answers are.
        metric: One of the kind's.
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
    answered, true, counts = kind.alike(np.vstack([predictions, other]), labels)
    seeds, scorer = len(predictions), kind.scorer(answered, true, metric)
    random = generator(seed, "report", "bootstrap")
    found, by_seed = [], []
    for begin in range(0, resamples, BATCH):
        many = min(BATCH, resamples - begin)
        weights = _draw(random, np.ones(seeds), many)
        by_seed.append(_differences(scorer, _draw(random, counts, many)))
        found.append((by_seed[-1] * weights).sum(1) / seeds)
    drawn = np.concatenate(found)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    observed = _differences(scorer, counts[None].astype(np.float64)).mean()
    ends = float(observed), float(drawn.std(ddof=1)), float(low), float(high)
    return TwoLevelInterval(*ends, seeds, *_parts(np.concatenate(by_seed)))


def _differences(scorer: Scorer, examples: np.ndarray) -> np.ndarray:
    """Each seed's difference in score, of each draw of examples: (draws, seeds).

    Args:
        scorer: Of the models: the first arm's seeds, then the other's.
        examples: How often each example counts, of shape (draws, examples).
    """
    scores = scorer(examples).reshape(len(examples), 2, -1)
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
    """How often things of each sort are drawn, with replacement, from so many of each sort: (draws, sorts)."""
    return random.multinomial(int(counts.sum()), counts / counts.sum(), draws).astype(np.float64)
