"""Step plan: lengths and ids of examples in, the examples of every optimizer step out, a pure function of the seed.

Epochs follow each other end to end; a step is the next stretch of that stream, `batch_size` examples or
`batch_tokens` tokens long. Any step can be asked for alone, so a run resumes where it was without replaying.

With a replay share r there are two such streams, and one is made of them: of its first m examples ⌊r·m⌋ are of the
replayed text, for every m. So each step holds that share to within one example, and a budget counts both.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dana.core.rng import derive_seed, hash_uniform
from dana.train.examples import Examples
from dana.train.settings import TrainSettings


def epoch_order(ids: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """A permutation that sorts examples by a hash of (seed, epoch, id).

    Examples common to two arms therefore come in the same relative order in both.

    Args:
        ids: uint64 of shape (examples,).
        seed: The run's seed.
        epoch: From 0.
    """
    return np.argsort(hash_uniform(derive_seed(seed, "order", epoch), ids), kind="stable")


@dataclass(frozen=True)
class Step:
    """One optimizer step.

    Attributes:
        rows: Shape (examples,), indices into the examples.
        epochs: Shape (examples,), the epoch each is seen in: a step may reach into the next.
    """

    rows: np.ndarray
    epochs: np.ndarray


class Plan(Sequence[Step]):
    """All steps of a run.

    Args:
        lengths: Shape (examples,), tokens of each.
        ids: uint64 of shape (examples,).
        settings: Budget, step size, replay share and seed.
        replayed: How many of the examples, the last ones, are only there for the replay.
    """

    def __init__(self, lengths: np.ndarray, ids: np.ndarray, settings: TrainSettings, replayed: int = 0) -> None:
        kept = ids.size - replayed
        self._settings = settings
        self._kept = _Stream(lengths[:kept], ids[:kept], settings.seed)
        self._replay = _Stream(lengths[kept:], ids[kept:], settings.seed)
        share = min(Fraction(settings.replay).limit_denominator(10**6), 1 - Fraction(1, 10**6))
        self._share = share if replayed else Fraction(0)
        if settings.steps is not None:
            self._steps, self._end = settings.steps, self._start(settings.steps)
            return
        if settings.tokens is not None:
            self._end = self._seen_before(settings.tokens)
        else:
            seen = max(1, round((settings.epochs or 1) * kept))
            self._end = int((seen - 1) / (1 - self._share)) + 1  # the first place by which so many were kept ones
        if settings.batch_tokens is not None:
            self._steps = self._tokens_before(self._end - 1) // settings.batch_tokens + 1
        else:
            self._steps = -(-self._end // settings.batch_size)

    @classmethod
    def of(cls, examples: Examples, settings: TrainSettings) -> "Plan":
        """The plan of a run over some examples."""
        return cls(examples.lengths, examples.ids, settings, examples.replayed)

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> Step:  # type: ignore[override]
        if not 0 <= step < self._steps:
            raise IndexError(step)
        places = np.arange(self._start(step), min(self._start(step + 1), self._end))
        before = self._replayed_before(places)
        replayed = self._replayed_before(places + 1) > before
        rows, epochs = np.empty_like(places), np.empty_like(places)
        rows[~replayed], epochs[~replayed] = self._kept.rows((places - before)[~replayed])
        rows[replayed], epochs[replayed] = self._replay.rows(before[replayed])
        return Step(rows + replayed * self._kept.size, epochs)

    @property
    def tokens(self) -> int:
        """Tokens of the whole run."""
        return self._tokens_before(self._end)

    @property
    def epochs(self) -> float:
        """How many times the run goes through the text that was kept."""
        return (self._end - int(self._replayed_before(self._end))) / self._kept.size

    def _start(self, step: int) -> int:
        """The place in the stream at which a step starts."""
        if self._settings.batch_tokens is None:
            return step * self._settings.batch_size
        return self._seen_before(step * self._settings.batch_tokens)

    def _replayed_before(self, place: Any) -> Any:
        """How many of the stream's first examples, `place` of them, are replayed ones: ⌊r · place⌋."""
        return place * self._share.numerator // self._share.denominator

    def _tokens_before(self, place: int) -> int:
        """Tokens of the stream's first examples, `place` of them."""
        replayed = self._replayed_before(place)
        return self._kept.tokens(place - replayed) + self._replay.tokens(replayed)

    def _seen_before(self, tokens: int) -> int:
        """How many examples of the stream start before its token number `tokens`."""
        share = float(self._share)
        low = high = int(tokens / ((1 - share) * self._kept.mean + share * self._replay.mean))
        width = 1
        while low > 0 and self._tokens_before(low) >= tokens:
            low, width = max(0, low - width), 2 * width
        width = 1
        while self._tokens_before(high) < tokens:
            high, width = high + width, 2 * width
        return low + bisect_left(range(low, high + 1), tokens, key=self._tokens_before)


class _Stream:
    """Examples in endless epochs, each in an order of its own."""

    def __init__(self, lengths: np.ndarray, ids: np.ndarray, seed: int) -> None:
        self._lengths, self._ids, self._seed = lengths, ids, seed
        self._epoch = int(lengths.sum())
        self._cached: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.size: int = ids.size
        self.mean: float = self._epoch / max(1, ids.size)

    def rows(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which examples are at some places, and in which epoch."""
        epochs = places // max(1, self.size)
        rows = np.empty_like(places)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            rows[here] = self._order(int(epoch))[0][places[here] % self.size]
        return rows, epochs

    def tokens(self, count: int) -> int:
        """Tokens of the first examples, `count` of them."""
        epochs, rest = divmod(count, max(1, self.size))
        return epochs * self._epoch + (int(self._order(epochs)[1][rest]) if rest else 0)

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """An epoch's order, and the token at which each of its examples starts."""
        if epoch not in self._cached:
            order = epoch_order(self._ids, self._seed, epoch)
            starts = np.cumsum(self._lengths[order]) - self._lengths[order]
            self._cached = {**dict(list(self._cached.items())[-1:]), epoch: (order, starts)}
        return self._cached[epoch]
