"""From anomaly scores to relevance weights: DANA section 3.2, D-06 to D-09 of the requirements.

Scores are of shape (units,), in corpus order, higher = more foreign. Weights are in [0, 1], 1 = in-domain.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from dana.config import require
from dana.errors import ConfigError, DataError
from dana.rng import derive_seed, hash_uniform

DROPPED = -1  # segment of a unit that no segment holds


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations; shards merge in any order.

    References:
        Chan, Golub and LeVeque 1983, Algorithms for computing the sample variance.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, scores: np.ndarray) -> "Moments":
        """Moments of one shard."""
        if scores.size == 0:
            return cls()
        mean = float(np.mean(scores, dtype=np.float64))
        return cls(scores.size, mean, float(np.square(scores - mean, dtype=np.float64).sum()))

    def merge(self, other: "Moments") -> "Moments":
        """Moments of both shards together."""
        count = self.count + other.count
        if count == 0:
            return self
        shift = other.mean - self.mean
        mean = self.mean + shift * other.count / count
        return Moments(count, mean, self.squares + other.squares + shift**2 * self.count * other.count / count)

    @property
    def std(self) -> float:
        """Population standard deviation (the paper's σ, ddof 0)."""
        return (self.squares / self.count) ** 0.5 if self.count else 0.0


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
class Budget:
    """How much to keep: a share of the units (the paper's β), or at most so many units or tokens.

    A share of the units, not of the segments: with short documents segments differ in size, and two selections of
    equally many segments would hold different amounts of text.

    Attributes:
        amount: In (0, 1] for a share, else a positive count.
        kind: ``share``, ``units`` or ``tokens``.
    """

    amount: float
    kind: str = "share"

    @classmethod
    def parse(cls, text: str | float) -> "Budget":
        """Read ``0.2``, ``50000 units`` or ``2e6 tokens``.

        Raises:
            ConfigError: If it is none of these.
        """
        number, _, kind = str(text).strip().partition(" ")
        allowed = 'a share in (0, 1], "N units" or "N tokens"'
        try:
            budget = cls(float(number), kind.strip() or "share")
        except ValueError as error:
            raise ConfigError(f"budget={text!r}: must be {allowed}") from error
        require(budget.kind in ("share", "units", "tokens"), "budget", text, allowed)
        upper = 1.0 if budget.kind == "share" else np.inf
        require(0 < budget.amount <= upper, "budget", text, allowed)
        return budget

    def count(self, order: np.ndarray, sizes: np.ndarray) -> int:
        """How many segments of `order` to keep.

        Args:
            order: Segment numbers, best first.
            sizes: Units (or tokens) of each segment.

        Returns:
            The longest prefix that does not exceed the budget, at least one segment. With segments of one
            size a share keeps the paper's β of them.
        """
        most = round(self.amount * sizes.sum()) if self.kind == "share" else self.amount
        return max(1, int(np.searchsorted(np.cumsum(sizes[order]), most, side="right")))


def lowest_segments(means: np.ndarray, sizes: np.ndarray, budget: Budget) -> np.ndarray:
    """Numbers of the kept segments, ascending: the lowest means within the budget, ties to the earlier."""
    order = np.argsort(means, kind="stable")
    return np.sort(order[: budget.count(order, sizes)])


def sampled_segments(
    relevance: np.ndarray, sizes: np.ndarray, keys: np.ndarray, budget: Budget, seed: int
) -> np.ndarray:
    """Numbers of segments drawn without replacement with probability proportional to relevance, ascending.

    Each segment's place is u^(1/λ) with u a hash of its key, so the draw does not depend on the order of the
    corpus. It joins the generality of continuous weights with the speed of discrete ones (DANA, appendix C).

    Args:
        relevance: λ of each segment, in [0, 1]; segments with 0 are never drawn.
        sizes: Units or tokens of each segment.
        keys: uint64, one stable key a segment.
        budget: How much to draw.
        seed: Root seed.

    References:
        Efraimidis and Spirakis 2006, Weighted random sampling with a reservoir, algorithm A.
    """
    u = hash_uniform(derive_seed(seed, "weights", "sampled"), keys)
    with np.errstate(divide="ignore"):
        place = np.where(relevance > 0, np.log(np.maximum(u, 2.0**-60)) / relevance, -np.inf)
    order = np.argsort(-place, kind="stable")
    count = min(budget.count(order, sizes), int((relevance > 0).sum()))
    return np.sort(order[:count])


def effective_sample_size(weights: np.ndarray) -> float:
    """(Σλ)² / Σλ²: how many fully weighted units these are worth; 0 if all weights are 0. Kish 1965."""
    squares = float(np.square(weights, dtype=np.float64).sum())
    return float(weights.sum(dtype=np.float64)) ** 2 / squares if squares else 0.0
