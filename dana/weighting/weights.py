"""Formulas of weighting: sigmoid weights, segment means and their shrinkage. DANA, section 3.2.

Scores are of shape (units,), in corpus order, higher = more foreign. Weights are in [0, 1], 1 =
in-domain.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from dana.core.statistics import Moments

DROPPED = -1  # segment number of a unit in no segment
PART = 1 << 16  # numbers of an array that are processed, and summed, at a time

Total = Callable[[Callable[[np.ndarray, np.ndarray], np.ndarray]], float]


def parts_of(size: int) -> Iterator[slice]:
    """Cut the rows of an array into slices of :data:`PART` rows."""
    return (slice(first, min(first + PART, size)) for first in range(0, size, PART))


def standardise(scores: np.ndarray, moments: Moments) -> np.ndarray:
    """Standardise scores, Ā = (A - μ) / σ; all zeros where every score is the same. DANA, section 3.2."""
    return (
        (scores - moments.mean) / moments.std
        if moments.std > 0
        else np.zeros_like(scores, dtype=np.float64)
    )


def sigmoid(standard: np.ndarray, sharpness: float, midpoint: float) -> np.ndarray:
    """Compute continuous weights λ = 1 / (1 + e^(-C (α - Ā))), which the loss of DANA's equation 1 multiplies by.

    DANA, section 3.2, continuous weights, where this formula has no number.

    Args:
        standard: Standardised scores Ā.
        sharpness: C >= 0; 0 gives 0.5 to all, a large one about 1 where Ā < α.
        midpoint: α; the standardised score that gets 0.5.
    """
    return expit(sharpness * (midpoint - standard))


@dataclass(frozen=True)
class Sigmoid:
    """The sigmoid fitted to a pool: moments of its scores, midpoint α and sharpness C."""

    moments: Moments
    midpoint: float
    sharpness: float

    @classmethod
    def of(
        cls, values: np.ndarray, sharpness: float, midpoint: float | None, share: float
    ) -> "Sigmoid":
        """Fit a sigmoid at midpoint α, by default the quantile `share` in (0, 1] of the standardised values."""
        moments = Moments.of(values)
        if midpoint is None:  # standardising keeps the order, so two values decide the quantile
            position = (values.size - 1) * share
            low, high = int(position), min(int(position) + 1, values.size - 1)
            neighbours = np.partition(values, (low, high))[[low, high]]
            midpoint = float(np.quantile(standardise(neighbours, moments), position - low))
        return cls(moments, midpoint, sharpness)

    def weights(self, values: np.ndarray) -> np.ndarray:
        """Weigh values of the pool; see :func:`sigmoid`."""
        return sigmoid(standardise(values, self.moments), self.sharpness, self.midpoint)


def segment_ids(
    document_starts: np.ndarray, units: int, gamma: int, min_tail: int = 1
) -> np.ndarray:
    """Cut units into numbered segments of γ consecutive units each, never across documents.

    Args:
        document_starts: Row of each document's first unit, ascending, the first is 0. The single
            entry 0 makes the corpus one stream, as in the paper.
        units: Total number of units.
        gamma: Units in a segment; the paper uses 15.
        min_tail: A document's last, short segment is dropped if it has fewer units.

    Returns:
        int64 of shape (units,): segment numbers from 0 over the corpus (a table has them from 0 in
        each document), DROPPED for dropped tails.
    """
    rows = np.arange(units)
    document = np.searchsorted(document_starts, rows, side="right") - 1
    within, new = (rows - document_starts[document]) // gamma, np.ones(units, dtype=bool)
    new[1:] = (document[1:] != document[:-1]) | (within[1:] != within[:-1])
    segment = np.cumsum(new) - 1
    if min_tail <= 1:
        return segment
    long_enough = np.bincount(segment) >= min_tail
    return np.where(long_enough, np.cumsum(long_enough) - 1, DROPPED)[segment]


def segment_means(values: np.ndarray, segment: np.ndarray) -> np.ndarray:
    """Average values over each segment's units, y_j. DANA, section 3.2, discrete λ."""
    inside = segment != DROPPED
    count = np.bincount(segment[inside])
    return np.bincount(segment[inside], weights=values[inside]) / np.maximum(count, 1)


def segment_groups(segment: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Find the majority group of each segment; of equally frequent groups the first.

    Args:
        segment: Segment of each unit, DROPPED for none.
        groups: int of shape (units,), from 0.

    Returns:
        int64 of shape (segments,).
    """
    inside, k = segment != DROPPED, int(groups.max(initial=0)) + 1
    pairs, counts = np.unique(
        segment[inside].astype(np.int64) * k + groups[inside], return_counts=True
    )
    by_count = pairs[np.lexsort((pairs, -counts, pairs // k))]
    return by_count[np.unique(by_count // k, return_index=True)[1]] % k


@dataclass(frozen=True)
class Components:
    """Variance components of the scores: y_ij = mean + segment_j + unit_ij, with independent normal effects.

    Attributes:
        mean: Mean of the segments, each weighted by the inverse variance of its mean.
        between: Variance of the segments' effects.
        within: Variance of the units' effects.
    """

    mean: float
    between: float
    within: float

    @classmethod
    def of(cls, residual: float, units: int, groups: int, total: Total) -> "Components":
        """Estimate variance components by the analysis of variance of unequal groups.

        Where segments do not differ (or none has two units) `between` is a millionth of `within`:
        in this limit segments rank by their summed deviations from the mean.

        Args:
            residual: Sum of squared deviations of units from the mean of their segment.
            units: Number of units in segments.
            groups: Number of segments.
            total: Sums a function of the means and sizes (float64) of segments over all segments.

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

        def precision(sizes: np.ndarray) -> np.ndarray:
            return 1 / np.maximum(between + within / np.maximum(sizes, 1), 1e-300)

        mean = total(lambda means, sizes: precision(sizes) * means) / total(
            lambda _, sizes: precision(sizes)
        )
        return cls(mean, between, within)

    def shrink(self, means: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Shrink segment means y_j towards the overall mean, short segments more (empirical Bayes).

        The mean of a short segment has a high variance. Without shrinkage short segments that are
        low by chance would fill the budget before long ones that are low throughout.

        Args:
            means: y_j, shape (segments,).
            sizes: Number of units in each.

        References:
            Efron and Morris 1975, Data analysis using Stein's estimator (empirical Bayes).
        """
        variance = np.maximum(self.between + self.within / sizes.astype(np.float64), 1e-300)
        return self.mean + (means - self.mean) * self.between / variance


def effective_number(amounts: np.ndarray) -> float:
    """Compute the effective number of groups, exp of the entropy of their shares: from 1 to k (all equal).

    Args:
        amounts: Size of each group, float of shape (k,), not negative; not all 0.

    References:
        Hill 1973, Diversity and evenness: a unifying notation and its consequences (the number of order 1).
    """
    shares = amounts[amounts > 0] / amounts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
