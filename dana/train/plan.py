"""Which examples make up which optimizer step: known to every rank ahead, without a word between them.

Epochs follow each other end to end; a step is the next stretch of that stream, `batch_size` examples or
`batch_tokens` tokens long. Any step can be asked for alone, so a run resumes where it was without replaying.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dana.rng import derive_seed, hash_uniform
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
        settings: Budget, step size and seed.
    """

    def __init__(self, lengths: np.ndarray, ids: np.ndarray, settings: TrainSettings) -> None:
        self._lengths, self._ids, self._settings = lengths, ids, settings
        self._epoch = int(lengths.sum())
        self._cached: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        if settings.tokens is not None:
            self._end = self._seen_before(settings.tokens)
        else:
            self._end = lengths.size
        if settings.steps is not None:
            self._end = self._start(settings.steps)
            self._steps = settings.steps
        elif settings.batch_tokens is not None:
            self._steps = -(-(settings.tokens or self._epoch) // settings.batch_tokens)
        else:
            self._steps = -(-self._end // settings.batch_size)

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> Step:  # type: ignore[override]
        if not 0 <= step < self._steps:
            raise IndexError(step)
        places = np.arange(self._start(step), min(self._start(step + 1), self._end))
        epochs = places // self._ids.size
        rows = np.empty_like(places)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            rows[here] = self._order(int(epoch))[0][places[here] % self._ids.size]
        return Step(rows, epochs)

    @property
    def tokens(self) -> int:
        """Tokens of the whole run."""
        epochs, rest = divmod(self._end, self._ids.size)
        order, _ = self._order(epochs)
        return epochs * self._epoch + int(self._lengths[order[:rest]].sum())

    def _start(self, step: int) -> int:
        """The place in the stream at which a step starts."""
        if self._settings.batch_tokens is None:
            return step * self._settings.batch_size
        return self._seen_before(step * self._settings.batch_tokens)

    def _seen_before(self, tokens: int) -> int:
        """How many examples of the stream start before its token number `tokens`."""
        epoch, rest = divmod(tokens, self._epoch)
        return epoch * self._ids.size + int(np.searchsorted(self._order(epoch)[1], rest, side="left"))

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """An epoch's order, and the token at which each of its examples starts."""
        if epoch not in self._cached:
            order = epoch_order(self._ids, self._settings.seed, epoch)
            starts = np.cumsum(self._lengths[order]) - self._lengths[order]
            self._cached = {**dict(list(self._cached.items())[-1:]), epoch: (order, starts)}
        return self._cached[epoch]
