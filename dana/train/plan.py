"""Decide which examples each optimizer step trains on, as a pure function of the seed.

Epochs follow each other in one endless stream; a step is its next `batch_size` examples, or its next `batch_tokens`
tokens. Any step can be computed alone, so a run resumes without going through the steps before.

With a replay share r, a stream of selected text and a stream of general text are merged: of the first m examples,
⌊r·m⌋ are general text, for every m. So each step has that share to within one example, and a budget counts both.
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
    """Return the permutation that sorts examples by a hash of (seed, epoch, id).

    Examples that two arms share are therefore in the same relative order in both.

    Args:
        ids: uint64 of shape (examples,).
        seed: The run's seed.
        epoch: From 0.
    """
    return np.argsort(hash_uniform(derive_seed(seed, "order", epoch), ids), kind="stable")


@dataclass(frozen=True)
class Step:
    """The examples of one optimizer step.

    Attributes:
        rows: Shape (examples,), indices into the examples.
        epochs: Shape (examples,), epoch of each: a step may reach into the next epoch.
    """

    rows: np.ndarray
    epochs: np.ndarray


class Plan(Sequence[Step]):
    """All steps of a run.

    Args:
        lengths: Shape (examples,), tokens of each.
        ids: uint64 of shape (examples,).
        settings: Budget, step size, replay share and seed.
        replay_count: The last so many examples are for replay.
    """

    def __init__(self, lengths: np.ndarray, ids: np.ndarray, settings: TrainSettings, replay_count: int = 0) -> None:
        count = ids.size - replay_count
        self._settings = settings
        self._selection = _Stream(lengths[:count], ids[:count], settings.seed)
        self._replay = _Stream(lengths[count:], ids[count:], settings.seed)
        share = min(Fraction(settings.replay).limit_denominator(10**6), 1 - Fraction(1, 10**6))
        self._share = share if replay_count else Fraction(0)
        if settings.steps is not None:
            self._steps, self._end = settings.steps, self._start(settings.steps)
            return
        if settings.tokens is not None:
            self._end = self._examples_before(settings.tokens)
        else:
            examples_seen = max(1, round((settings.epochs or 1) * count))
            # the shortest stream with so many selected examples
            self._end = int((examples_seen - 1) / (1 - self._share)) + 1
        if settings.batch_tokens is not None:
            self._steps = self._tokens_before(self._end - 1) // settings.batch_tokens + 1
        else:
            self._steps = -(-self._end // settings.batch_size)

    @classmethod
    def of(cls, examples: Examples, settings: TrainSettings) -> "Plan":
        return cls(examples.lengths, examples.ids, settings, examples.replay_count)

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> Step:  # type: ignore[override]
        if not 0 <= step < self._steps:
            raise IndexError(step)
        positions = np.arange(self._start(step), min(self._start(step + 1), self._end))
        before = self._replays_before(positions)
        is_replay = self._replays_before(positions + 1) > before
        rows, epochs = np.empty_like(positions), np.empty_like(positions)
        rows[~is_replay], epochs[~is_replay] = self._selection.rows((positions - before)[~is_replay])
        rows[is_replay], epochs[is_replay] = self._replay.rows(before[is_replay])
        return Step(rows + is_replay * self._selection.size, epochs)

    @property
    def tokens(self) -> int:
        """Tokens of the whole run."""
        return self._tokens_before(self._end)

    @property
    def epochs(self) -> float:
        """Number of passes over the selected text."""
        return (self._end - int(self._replays_before(self._end))) / self._selection.size

    def _start(self, step: int) -> int:
        if self._settings.batch_tokens is None:
            return step * self._settings.batch_size
        return self._examples_before(step * self._settings.batch_tokens)

    def _replays_before(self, position: Any) -> Any:
        """Count the replay examples among the first `position` examples of the stream: ⌊r · position⌋."""
        return position * self._share.numerator // self._share.denominator

    def _tokens_before(self, position: int) -> int:
        """Count the tokens of the first `position` examples of the stream."""
        replay_count = self._replays_before(position)
        return self._selection.tokens(position - replay_count) + self._replay.tokens(replay_count)

    def _examples_before(self, tokens: int) -> int:
        """Count the examples that start before token number `tokens` of the stream."""
        share = float(self._share)
        low = high = int(tokens / ((1 - share) * self._selection.mean + share * self._replay.mean))
        width = 1
        while low > 0 and self._tokens_before(low) >= tokens:
            low, width = max(0, low - width), 2 * width
        width = 1
        while self._tokens_before(high) < tokens:
            high, width = high + width, 2 * width
        return low + bisect_left(range(low, high + 1), tokens, key=self._tokens_before)


class _Stream:
    """Examples in endless epochs, each epoch in its own order."""

    def __init__(self, lengths: np.ndarray, ids: np.ndarray, seed: int) -> None:
        self._lengths, self._ids, self._seed = lengths, ids, seed
        self._epoch = int(lengths.sum())
        self._cached: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.size: int = ids.size
        self.mean: float = self._epoch / max(1, ids.size)

    def rows(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Look up the examples at positions of the stream, and the epoch of each."""
        epochs = positions // max(1, self.size)
        rows = np.empty_like(positions)
        for epoch in np.unique(epochs):
            in_epoch = epochs == epoch
            rows[in_epoch] = self._order(int(epoch))[0][positions[in_epoch] % self.size]
        return rows, epochs

    def tokens(self, count: int) -> int:
        """Count the tokens of the first `count` examples."""
        epochs, rest = divmod(count, max(1, self.size))
        return epochs * self._epoch + (int(self._order(epochs)[1][rest]) if rest else 0)

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return an epoch's order, and the token at which each of its examples starts."""
        if epoch not in self._cached:
            order = epoch_order(self._ids, self._seed, epoch)
            starts = np.cumsum(self._lengths[order]) - self._lengths[order]
            self._cached = {**dict(list(self._cached.items())[-1:]), epoch: (order, starts)}
        return self._cached[epoch]
