"""Statistics of arrays that come in shards: mean and deviation, effective sample size."""

from dataclasses import dataclass

import numpy as np


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


def effective_sample_size(weights: np.ndarray) -> float:
    """(Σλ)² / Σλ²: how many fully weighted units these are worth; 0 if all weights are 0. Kish 1965."""
    squares = float(np.square(weights, dtype=np.float64).sum())
    return float(weights.sum(dtype=np.float64)) ** 2 / squares if squares else 0.0
