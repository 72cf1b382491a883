"""The formulas of weighing: anomaly scores to sigmoid weights, segments and budgets. DANA, section 3.2.

Scores are of shape (units,), in corpus order, higher = more foreign. Weights are in [0, 1], 1 = in-domain.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from dana.core.errors import DataError
from dana.core.statistics import Moments
from dana.weighting.settings import Budget

DROPPED = -1  # segment of a unit that no segment holds

Total = Callable[[Callable[[np.ndarray, np.ndarray], np.ndarray]], float]


def standardise(scores: np.ndarray, moments: Moments) -> np.ndarray:
    """Ā = (A - μ) / σ; all zeros where every score is the same. DANA section 3.2."""
    if not np.isfinite(scores).all():
        raise DataError(f"scores[{int(np.flatnonzero(~np.isfinite(scores))[0])}] is not finite")
    return (scores - moments.mean) / moments.std if moments.std > 0 else np.zeros_like(scores, dtype=np.float64)


def sigmoid(standard: np.ndarray, sharpness: float, midpoint: float) -> np.ndarray:
    """Continuous weights λ = 1 / (1 + e^(-C (α - Ā))). DANA section 3.2.

    Args:
        standard: Standardised scores Ā.
        sharpness: C >= 0; 0 gives 0.5 to all, infinity 1 where Ā < α.
        midpoint: α; the standardised score that gets 0.5.
    """
    if np.isinf(sharpness):
        return np.where(standard == midpoint, 0.5, (standard < midpoint).astype(np.float64))
    return expit(sharpness * (midpoint - standard))


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
    renumbered = np.where(long_enough, np.cumsum(long_enough) - 1, DROPPED)
    return renumbered[segment]


def segment_means(values: np.ndarray, segment: np.ndarray) -> np.ndarray:
    """y_j: mean value over each segment's units. Algorithm of DANA section 3.2, discrete λ."""
    inside = segment != DROPPED
    count = np.bincount(segment[inside])
    return np.bincount(segment[inside], weights=values[inside]) / np.maximum(count, 1)


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
    def of(cls, residual: float, units: int, groups: int, total: "Total") -> "Components":
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
        return self.mean + (means - self.mean) * self.between / np.maximum(self.between + self.within / sizes, 1e-300)


class Held:
    """What is held by an order of segments that comes in pieces: units, tokens, or documents, each counted once.

    Args:
        budget: Says what is counted.
        documents: How many there are; where they are counted, one bit of memory each.

    Attributes:
        total: Of all so far.
    """

    def __init__(self, budget: Budget, documents: int) -> None:
        self.total = 0.0
        self._seen = np.zeros(documents // 8 + 1, dtype=np.uint8) if budget.kind == "documents" else None

    def add(self, amounts: np.ndarray) -> np.ndarray:
        """What is held with each of the next segments and all before it, float64.

        Args:
            amounts: Units or tokens of each segment; where documents are counted, the number of its document.
        """
        counted = amounts if self._seen is None else self._new(amounts.astype(np.int64))
        held = self.total + np.cumsum(counted, dtype=np.float64)
        self.total = float(held[-1]) if held.size else self.total
        return held

    def _new(self, documents: np.ndarray) -> np.ndarray:
        """1 where a document comes for the first time."""
        assert self._seen is not None
        found, first = np.unique(documents, return_index=True)
        place, bit = found >> 3, np.left_shift(1, found & 7).astype(np.uint8)
        new = np.zeros(documents.size)
        new[first[self._seen[place] & bit == 0]] = 1
        np.bitwise_or.at(self._seen, place, bit)
        return new
