"""The formulas of weighing: anomaly scores to sigmoid weights, segments and their shrunken means. DANA, section 3.2.

Scores are of shape (units,), in corpus order, higher = more foreign. Weights are in [0, 1], 1 = in-domain.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from dana.core.statistics import Moments

DROPPED = -1  # segment of a unit that no segment holds
PART = 1 << 16  # numbers of an array that are worked on, and added, at a time

Total = Callable[[Callable[[np.ndarray, np.ndarray], np.ndarray]], float]


def parts_of(size: int) -> Iterator[slice]:
    """Cut the rows of an array into slices of :data:`PART`."""
    return (slice(first, min(first + PART, size)) for first in range(0, size, PART))


def moments_of(values: np.ndarray) -> Moments:
    """Compute :meth:`dana.core.statistics.Moments.of`, bit by bit, with one other array as large in memory."""
    mean = float(values.mean())
    deviations = values - mean
    return Moments(values.size, mean, float(np.square(deviations, out=deviations).sum()))


def standardise(scores: np.ndarray, moments: Moments) -> np.ndarray:
    """Ā = (A - μ) / σ; all zeros where every score is the same. DANA section 3.2."""
    return (scores - moments.mean) / moments.std if moments.std > 0 else np.zeros_like(scores, dtype=np.float64)


def sigmoid(standard: np.ndarray, sharpness: float, midpoint: float) -> np.ndarray:
    """Continuous weights λ = 1 / (1 + e^(-C (α - Ā))). DANA section 3.2.

    Args:
        standard: Standardised scores Ā.
        sharpness: C >= 0; 0 gives 0.5 to all, a large one about 1 where Ā < α.
        midpoint: α; the standardised score that gets 0.5.
    """
    return expit(sharpness * (midpoint - standard))


@dataclass(frozen=True)
class Sigmoid:
    """Continuous weights of values whose moments are known."""

    moments: Moments
    midpoint: float
    sharpness: float

    @classmethod
    def of(cls, values: np.ndarray, sharpness: float, midpoint: float | None, share: float) -> "Sigmoid":
        """Place a sigmoid at a midpoint α, or at the quantile `share` in (0, 1] of the standardised values."""
        moments = moments_of(values)
        if midpoint is None:  # standardising keeps the order, so two values decide the quantile
            place = (values.size - 1) * share
            low, high = int(place), min(int(place) + 1, values.size - 1)
            around = np.partition(values, (low, high))[[low, high]]
            midpoint = float(np.quantile(standardise(around, moments), place - low))
        return cls(moments, midpoint, sharpness)

    def weights(self, values: np.ndarray) -> np.ndarray:
        """Weigh some of the values; see :func:`sigmoid`."""
        return sigmoid(standardise(values, self.moments), self.sharpness, self.midpoint)


def segment_ids(document_starts: np.ndarray, units: int, gamma: int, min_tail: int = 1) -> np.ndarray:
    """Number the segments: γ consecutive units each, never across documents.

    Args:
        document_starts: Row of each document's first unit, ascending, the first is 0. One entry, 0,
            reads the corpus as one stream, as the paper does.
        units: Number of units in all.
        gamma: Units in a segment; the paper uses 15.
        min_tail: A document's last, short segment is dropped if it has fewer units.

    Returns:
        int64 of shape (units,): segment numbers from 0 over the corpus, DROPPED for dropped tails.
    """
    rows = np.arange(units)
    document = np.searchsorted(document_starts, rows, side="right") - 1
    within = (rows - document_starts[document]) // gamma
    new = np.ones(units, dtype=bool)
    new[1:] = (document[1:] != document[:-1]) | (within[1:] != within[:-1])
    segment = np.cumsum(new) - 1
    if units == 0 or min_tail <= 1:
        return segment
    long_enough = np.bincount(segment) >= min_tail
    return np.where(long_enough, np.cumsum(long_enough) - 1, DROPPED)[segment]


def segment_means(values: np.ndarray, segment: np.ndarray) -> np.ndarray:
    """y_j: mean value over each segment's units. Algorithm of DANA section 3.2, discrete λ."""
    inside = segment != DROPPED
    count = np.bincount(segment[inside])
    return np.bincount(segment[inside], weights=values[inside]) / np.maximum(count, 1)


def segment_groups(segment: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The group that most units of each segment are of, of equally frequent ones the first.

    Args:
        segment: Of each unit, DROPPED for none.
        groups: int of shape (units,), from 0.

    Returns:
        int64 of shape (segments,).
    """
    inside, k = segment != DROPPED, int(groups.max(initial=0)) + 1
    pairs, counts = np.unique(segment[inside].astype(np.int64) * k + groups[inside], return_counts=True)
    ranked = pairs[np.lexsort((pairs, -counts, pairs // k))]
    return ranked[np.unique(ranked // k, return_index=True)[1]] % k


@dataclass(frozen=True)
class Components:
    """Where the scores vary: y_ij = mean + segment_j + unit_ij, with independent normal effects.

    Attributes:
        mean: Of the segments, each weighted by what its mean is worth.
        between: Variance of the segments' effects.
        within: Variance of the units' effects.
    """

    mean: float
    between: float
    within: float

    @classmethod
    def of(cls, residual: float, units: int, groups: int, total: Total) -> "Components":
        """Estimate them from the scores themselves, by the analysis of variance of unequal groups.

        Where units say nothing of their segment (or no segment has two units) `between` is a millionth of `within`,
        so that segments are in the order of their summed deviations, the limit.

        Args:
            residual: Sum over the units in segments of their squared distance to the mean of their segment.
            units: In segments.
            groups: How many segments.
            total: Sums what is made of the means and sizes (float64) of segments over all of them.

        References:
            Searle, Casella and McCulloch 1992, Variance components, section 3.6 (one-way, unbalanced data).
        """
        within = residual / (units - groups) if units > groups else 0.0
        between = 0.0
        if groups > 1:
            average = total(lambda means, sizes: sizes * means) / units
            spread = total(lambda means, sizes: sizes * np.square(means - average)) / (groups - 1)
            squares = total(lambda _, sizes: np.square(sizes))
            between = (spread - within) * (groups - 1) / (units - squares / units)
        between = max(between, 1e-6 * within)

        def worth(sizes: np.ndarray) -> np.ndarray:
            return 1 / np.maximum(between + within / np.maximum(sizes, 1), 1e-300)

        mean = total(lambda means, sizes: worth(sizes) * means) / total(lambda _, sizes: worth(sizes))
        return cls(mean, between, within)

    def shrink(self, means: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """What a segment's mean would be if all its text were known: y_j drawn to the mean, the more the fewer units.

        The mean of one unit varies as units do, so of many short segments some are low by chance alone, and would fill
        the budget before long ones that are low throughout.

        Args:
            means: y_j, shape (segments,).
            sizes: Units of each.

        References:
            Efron and Morris 1975, Data analysis using Stein's estimator (empirical Bayes).
        """
        varies = np.maximum(self.between + self.within / sizes.astype(np.float64), 1e-300)
        return self.mean + (means - self.mean) * self.between / varies


def effective_number(amounts: np.ndarray) -> float:
    """The exponential of the entropy of the groups' shares: k where all hold the same, 1 where one holds all.

    Args:
        amounts: Of each group, float of shape (k,), not negative; not all 0.

    References:
        Hill 1973, Diversity and evenness: a unifying notation and its consequences (the number of order 1).
    """
    shares = amounts[amounts > 0] / amounts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
