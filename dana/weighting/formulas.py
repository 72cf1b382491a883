"""Formulas of DANA, section 3.2: segments and their means, the sigmoid; and ours: shrunken means, groups.

Scores are of shape (units,), in pool order, higher = more foreign. Weights λ are in [0, 1],
1 = in-domain; equation 1 of the paper multiplies the loss of a text by its weight. Section 3.2
numbers none of its formulas.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from dana.core.statistics import Moments

DROPPED = -1  # segment number of a unit in no segment


def standardise(score: np.ndarray, counted: np.ndarray | None = None) -> np.ndarray:
    """Standardise scores, Ā = (A - μ) / σ; all zeros where every score is the same. DANA, section 3.2.

    Args:
        score: Score of each unit.
        counted: Mask of the units that μ and σ are computed on; None takes all.
    """
    moments = Moments.from_scores(score if counted is None else score[counted])
    if moments.std == 0:
        return np.zeros_like(score, dtype=np.float64)
    standard = score - moments.mean
    standard /= moments.std
    return standard


def sigmoid(standard: np.ndarray, sharpness: float, midpoint: float) -> np.ndarray:
    """Compute continuous weights λ = 1 / (1 + e^(-C (α - Ā))). DANA, section 3.2, continuous weights.

    Args:
        standard: Standardised scores Ā.
        sharpness: C >= 0; 0 gives 0.5 to all, a large one about 1 where Ā < α.
        midpoint: α; the standardised score that gets 0.5.
    """
    exponent = midpoint - standard
    exponent *= sharpness
    weights: np.ndarray = expit(exponent, out=exponent)
    return weights


def segment_ids(
    document_starts: np.ndarray, units: int, gamma: int, min_tail: int = 1
) -> np.ndarray:
    """Cut units into numbered segments of γ consecutive units each, never across documents.

    Args:
        document_starts: Row of each document's first unit, ascending, the first is 0. The single
            entry 0 makes the pool one stream, as in the paper.
        units: Total number of units.
        gamma: Units in a segment; the paper uses 15.
        min_tail: A document's last, short segment is dropped if it has fewer units.

    Returns:
        Segment numbers of shape (units,), from 0 over the pool, DROPPED for dropped tails.
    """
    document_sizes = np.diff(document_starts, append=units)
    segment_counts = -(-document_sizes // gamma)
    sizes = np.full(segment_counts.sum(), gamma)
    last_segments = np.cumsum(segment_counts) - 1
    sizes[last_segments] = document_sizes - (segment_counts - 1) * gamma
    is_long_enough = sizes >= min_tail
    numbers = np.where(is_long_enough, np.cumsum(is_long_enough) - 1, DROPPED)
    dtype = np.int32 if units < 2**31 else np.int64
    return np.repeat(numbers.astype(dtype), sizes)


def segment_sizes(segment: np.ndarray, segments: int | None = None) -> np.ndarray:
    """Count the units of each segment, int64 of shape (segments,).

    Args:
        segment: Segment of each unit, DROPPED for none.
        segments: Number of segments, of which the last may have no unit; None takes the highest.
    """
    return _sums(1, segment, np.int64, segments)


def segment_sums(
    values: np.ndarray, segment: np.ndarray, segments: int | None = None
) -> np.ndarray:
    """Sum values over the units of each segment, float64 of shape (segments,); see :func:`segment_sizes`."""
    return _sums(values, segment, np.float64, segments)


def _sums(
    values: np.ndarray | int, segment: np.ndarray, dtype: type, segments: int | None
) -> np.ndarray:
    """Sum values over the units of each segment, in the order of the units."""
    if segments is None:
        segments = int(segment.max(initial=DROPPED)) + 1
    sums: np.ndarray = np.zeros(segments + 1, dtype)
    np.add.at(sums, segment, values)
    return sums[:segments]  # DROPPED is the last index


def segment_means(
    score: np.ndarray, segment: np.ndarray, segments: int | None = None
) -> np.ndarray:
    """Average scores over the units of each segment, y_j; infinite without a unit. DANA, section 3.2, discrete weights.

    See :func:`segment_sizes`.
    """
    sums = segment_sums(score, segment, segments)
    sizes = segment_sizes(segment, segments)
    means = np.full(sizes.size, np.inf)
    np.divide(sums, sizes, out=means, where=sizes > 0)
    return means


def of_units(values: np.ndarray, segment: np.ndarray, default: float) -> np.ndarray:
    """Give each unit the value of its segment, and `default` to units in no segment."""
    unit_values: np.ndarray = np.append(values, default)[segment]  # DROPPED is the last index
    return unit_values


def segment_groups(segment: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Find the majority group of each segment; of equally frequent groups the first.

    Args:
        segment: Segment of each unit, DROPPED for none.
        groups: int of shape (units,), from 0.

    Returns:
        int64 of shape (segments,).
    """
    inside = segment != DROPPED
    group_count = int(groups.max(initial=0)) + 1
    pair_of_unit = segment[inside].astype(np.int64) * group_count + groups[inside]
    pairs, counts = np.unique(pair_of_unit, return_counts=True)
    segments = pairs // group_count
    by_count = np.lexsort((pairs, -counts, segments))
    first_of_segment = np.unique(segments[by_count], return_index=True)[1]
    return pairs[by_count][first_of_segment] % group_count


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
    def estimate(
        cls, score: np.ndarray, segment: np.ndarray, segments: int | None = None
    ) -> "Components":
        """Estimate variance components by the analysis of variance of unequal groups.

        Where segments do not differ (or none has two units) `between` is a millionth of `within`:
        in this limit segments rank by their summed deviations from the mean.

        Args:
            score: Score of each unit.
            segment: Segment of each unit, DROPPED for none.
            segments: See :func:`segment_sizes`; those without a unit do not count.

        References:
            Searle, Casella and McCulloch 1992, Variance components, section 3.6 (one-way, unbalanced data).
        """
        means = segment_means(score, segment, segments)
        residuals = of_units(means, segment, 0.0)
        sizes = segment_sizes(segment, segments).astype(np.float64)
        means = means[sizes > 0]
        sizes = sizes[sizes > 0]
        units = sizes.sum()
        groups = sizes.size
        np.subtract(score, residuals, out=residuals)
        residuals[segment == DROPPED] = 0.0
        within = 0.0
        if units > groups:
            within = float(np.square(residuals, out=residuals).sum() / (units - groups))
        between = 0.0
        if groups > 1:
            average = (sizes * means).sum() / units
            spread = (sizes * np.square(means - average)).sum() / (groups - 1)
            unequal = units - np.square(sizes).sum() / units
            between = float((spread - within) * (groups - 1) / unequal)
        between = max(between, 1e-6 * within)
        precision = 1 / np.maximum(between + within / sizes, 1e-300)
        mean = float((precision * means).sum() / precision.sum())
        return cls(mean, between, within)

    def shrink(self, means: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Shrink segment means y_j towards the overall mean, short segments more (empirical Bayes).

        The mean of a short segment has a high variance. Without shrinkage short segments that are
        low by chance would fill the budget before long ones that are low throughout.

        Args:
            means: y_j, shape (segments,); an infinite one, of a segment without a unit, stays.
            sizes: Number of units in each.

        References:
            Efron and Morris 1975, Data analysis using Stein's estimator (empirical Bayes).
        """
        has_units = sizes > 0
        if not has_units.all():
            shrunken = means.copy()
            shrunken[has_units] = self.shrink(means[has_units], sizes[has_units])
            return shrunken
        variance = np.maximum(self.between + self.within / sizes, 1e-300)
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
