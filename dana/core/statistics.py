"""Statistics of arrays that come in shards: sums, mean and deviation, effective sample size."""

from collections.abc import Callable, Generator, Iterable
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

    @classmethod
    def streamed(cls, count: int, blocks: Callable[[], Iterable[np.ndarray]]) -> "Moments":
        """Those that :meth:`of` gives of one array, to the last bit, of an array that comes in blocks, twice.

        Args:
            count: Numbers in all blocks.
            blocks: Begins the blocks anew.
        """
        mean = streamed_sum(count, blocks()) / count if count else 0.0
        return cls(count, mean, streamed_sum(count, (np.square(block - mean) for block in blocks())))

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


class PairwiseSum:
    """The sum of a stream of known length, to the last bit that of numpy over one array, however the stream is cut.

    Halves are added as numpy adds them (pairwise summation, Higham 1993, The accuracy of floating point summation), so
    the sum depends on the length alone, not on who read which part; a part is in memory at a time.

    Args:
        count: Numbers that will come.
    """

    PART = 1 << 16  # numbers that numpy adds by itself

    def __init__(self, count: int) -> None:
        self._parts, self._waiting = self._halves(count), np.empty(0)
        self._wanted = next(self._parts)
        self.value = 0.0  # until all have come

    def add(self, values: np.ndarray) -> None:
        """The next numbers, float64 of shape (n,)."""
        self._waiting = np.concatenate([self._waiting, values])
        while 0 < self._wanted <= self._waiting.size:
            part, self._waiting = self._waiting[: self._wanted], self._waiting[self._wanted :]
            try:
                self._wanted = self._parts.send(float(part.sum()))
            except StopIteration as end:
                self.value, self._wanted = end.value, 0

    def _halves(self, count: int) -> Generator[int, float, float]:
        """Asks for the sums of parts in order, by their lengths."""
        if count <= self.PART:
            return (yield count)
        half = count // 2 - count // 2 % 8
        first = yield from self._halves(half)
        return first + (yield from self._halves(count - half))


def streamed_sum(count: int, blocks: Iterable[np.ndarray]) -> float:
    """The sum of blocks with `count` numbers in all; see :class:`PairwiseSum`."""
    total = PairwiseSum(count)
    for block in blocks:
        total.add(block)
    return total.value


def effective_sample_size(weights: np.ndarray) -> float:
    """(Σλ)² / Σλ²: how many fully weighted units these are worth; 0 if all weights are 0. Kish 1965."""
    squares = float(np.square(weights, dtype=np.float64).sum())
    return float(weights.sum(dtype=np.float64)) ** 2 / squares if squares else 0.0
