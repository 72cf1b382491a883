"""Decide which examples each optimizer step trains on, as a pure function of the seed.

Epochs follow each other in one endless stream; a step is its next `batch_size` examples, or its
next `batch_tokens` tokens. Any step can be computed alone, so a run resumes without going through
the steps before. A phase reads each stream on from where the phase before stopped.

The parts of a mixture are streams of their own: of the first m examples, ⌊r·m⌋ are of the last
part, r its share of the examples; the rest is divided likewise among the others. So each step has
every share to within an example or two.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from dana.core.rng import derive_seed, hash_uniform
from dana.train.examples import ExampleSet
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


class Phase(Sequence[Step]):
    """The steps of one phase of a run.

    Args:
        examples: What the phase trains on.
        settings: Budget, step size, rates and seed of the phase.
        parts: Number of examples and share of the examples to draw of each part of a mixture, in
            order; empty for one.
        before: The phase before.
    """

    def __init__(
        self,
        examples: ExampleSet,
        settings: TrainSettings,
        parts: Sequence[tuple[int, Fraction]] = (),
        before: "Phase | None" = None,
    ) -> None:
        parts = parts or [(len(examples), Fraction(1))]
        self.settings = settings
        self._examples_a_step = settings.examples_a_step
        self._shares = [share for _, share in parts]
        self._firsts = [0, *accumulate(count for count, _ in parts)]
        if before is None:
            in_parts = [examples]
            if len(parts) > 1:
                spans = pairwise(self._firsts)
                in_parts = [examples.rows(np.arange(first, end)) for first, end in spans]
            self._streams = [_Stream(part, settings.seed) for part in in_parts]
        else:
            self._streams = before.rest()
        # Of the examples that are of none of the later parts, the share of each part but the first.
        totals = accumulate(self._shares)
        ratios = [share / (total or 1) for share, total in zip(self._shares, totals, strict=True)]
        self._ratios = ratios[1:]
        if settings.steps is not None:
            self._steps = settings.steps
            self._end = self._start(settings.steps)
            return
        if settings.tokens is not None:
            self._end = self._examples_before(settings.tokens)
        else:
            self._end = self._examples_of_epochs(settings.epochs or 1)
        if settings.batch_tokens is not None:
            self._steps = self._tokens_before(self._end - 1) // settings.batch_tokens + 1
        else:
            self._steps = -(-self._end // self._examples_a_step)

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> Step:  # type: ignore[override]
        if not 0 <= step < self._steps:
            raise IndexError(step)
        positions = np.arange(self._start(step), min(self._start(step + 1), self._end))
        rows = np.empty_like(positions)
        epochs = np.empty_like(positions)
        befores = self._counts(positions)
        afters = self._counts(positions + 1)
        for part, stream in enumerate(self._streams):
            before = befores[part]
            is_of_part = afters[part] > before
            part_rows, part_epochs = stream.rows(before[is_of_part])
            rows[is_of_part] = self._firsts[part] + part_rows
            epochs[is_of_part] = part_epochs
        return Step(rows, epochs)

    @property
    def tokens(self) -> int:
        """Tokens of the phase."""
        return self._tokens_before(self._end)

    @property
    def epochs(self) -> float:
        """Number of passes over the text, or over the first part of a mixture."""
        return int(self._counts(self._end)[0]) / self._streams[0].size

    def rest(self) -> "list[_Stream]":
        """Return the stream of each part after the examples of the phase."""
        counts = self._counts(self._end)
        return [stream.after(count) for stream, count in zip(self._streams, counts, strict=True)]

    def _start(self, step: int) -> int:
        if self.settings.batch_tokens is None:
            return step * self._examples_a_step
        return self._examples_before(step * self.settings.batch_tokens)

    def _counts(self, position: Any) -> list[Any]:
        """Count the examples of each part among the first `position` examples."""
        counts = []
        for ratio in reversed(self._ratios):
            counts.append(position * ratio.numerator // ratio.denominator)
            position = position - counts[-1]
        return [position, *reversed(counts)]

    def _tokens_before(self, position: int) -> int:
        """Count the tokens of the first `position` examples."""
        counts = self._counts(position)
        return sum(
            stream.tokens(count) for stream, count in zip(self._streams, counts, strict=True)
        )

    def _examples_before(self, tokens: int) -> int:
        """Count the examples that start before token number `tokens`."""
        mean = 0.0
        for share, stream in zip(self._shares, self._streams, strict=True):
            mean += float(share) * stream.mean
        return _first_position(tokens, int(tokens / mean), self._tokens_before)

    def _examples_of_epochs(self, epochs: float) -> int:
        """Count the examples of the shortest run with so many passes over the first part."""
        first = max(1, round(epochs * self._streams[0].size))
        return _first_position(
            first, int(first / self._shares[0]), lambda position: self._counts(position)[0]
        )


class Plan(Sequence[Step]):
    """All steps of a run: those of its phases, one after another.

    Attributes:
        phases: At least one.
        phase_bounds: Number of steps before each phase; the last entry is the end, that of all
            phases.
    """

    def __init__(self, phases: Sequence[Phase]) -> None:
        self.phases = phases
        self.phase_bounds = [0, *accumulate(len(phase) for phase in phases)]

    @classmethod
    def from_settings(cls, examples: ExampleSet, settings: TrainSettings) -> "Plan":
        """Plan the phases of a run over its examples."""
        phases: list[Phase] = []
        for index, phase_settings in enumerate(settings.by_phase()):
            parts: list[tuple[int, Fraction]] = []
            if examples.parts:
                parts = list(zip(examples.parts, examples.shares[index], strict=True))
            before = phases[-1] if phases else None
            phase = Phase(examples, phase_settings, parts, before)
            phases.append(phase)
        return cls(phases)

    def __len__(self) -> int:
        return self.phase_bounds[-1]

    def __getitem__(self, step: int) -> Step:  # type: ignore[override]
        index = self.phase_of(step)
        return self.phases[index][step - self.phase_bounds[index]]

    def phase_of(self, step: int) -> int:
        """Return the index of the phase that a step, from 0, is in."""
        return bisect_right(self.phase_bounds, step) - 1

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, from 0."""
        index = self.phase_of(step)
        phase = self.phases[index]
        return phase.settings.rate_at(step - self.phase_bounds[index], len(phase))

    @property
    def tokens(self) -> int:
        """Tokens of the whole run."""
        return sum(phase.tokens for phase in self.phases)

    @property
    def epochs(self) -> float:
        """Number of passes over the text, or over the first part of a mixture."""
        return sum(phase.epochs for phase in self.phases)


def _first_position(target: int, guess: int, count: Callable[[int], int]) -> int:
    """Return the first position at which a count that grows with the position is at least `target`."""
    low = guess
    width = 1
    while low > 0 and count(low) >= target:
        low = max(0, low - width)
        width *= 2
    high = guess
    width = 1
    while count(high) < target:
        high += width
        width *= 2
    return low + bisect_left(range(low, high + 1), target, key=count)


class _Stream:
    """Examples in endless epochs, each epoch in its own order."""

    def __init__(self, examples: ExampleSet, seed: int) -> None:
        self._examples = examples
        self._seed = seed
        self._first = 0  # examples before the stream, and their tokens
        self._skipped = 0
        self._tokens_before_epoch = [0]  # for as many epochs as were asked for
        self._cached: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.size: int = len(examples)
        self.mean: float = self._tokens_before(1) / self.size

    def rows(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Look up the examples at positions of the stream, and the epoch of each."""
        positions = positions + self._first
        epochs = positions // self.size
        rows = np.empty_like(positions)
        for epoch in np.unique(epochs):
            in_epoch = epochs == epoch
            rows[in_epoch] = self._order(int(epoch))[0][positions[in_epoch] % self.size]
        return rows, epochs

    def tokens(self, count: int) -> int:
        """Count the tokens of the first `count` examples."""
        epoch, row = divmod(self._first + count, self.size)
        tokens = self._tokens_before(epoch) - self._skipped
        if row:
            _, starts = self._order(epoch)
            tokens += int(starts[row])
        return tokens

    def after(self, count: int) -> "_Stream":
        """Return the stream that begins after the first `count` examples."""
        stream = copy(self)
        stream._first = self._first + count
        stream._skipped = self._skipped + self.tokens(count)
        return stream

    def _tokens_before(self, epoch: int) -> int:
        """Count the tokens of all epochs before one."""
        totals = self._tokens_before_epoch
        while len(totals) <= epoch:
            lengths = self._examples.lengths_in(len(totals) - 1)
            totals.append(totals[-1] + int(lengths.sum()))
        return totals[epoch]

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return an epoch's order, and the token at which each of its examples starts."""
        if epoch not in self._cached:
            order = epoch_order(self._examples.ids, self._seed, epoch)
            lengths = self._examples.lengths_in(epoch)[order]
            starts = np.cumsum(lengths) - lengths
            newest = list(self._cached.items())[-1:]  # a step may reach over two epochs
            self._cached = {**dict(newest), epoch: (order, starts)}
        return self._cached[epoch]
