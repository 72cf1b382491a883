"""What is counted while weights are written: units kept and dropped, effective sample size, sums by source."""

from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.statistics import PairwiseSum


class UnitTally:
    """Counts of units and sums of their weights, for a manifest.

    Args:
        rows: Units that will come.
    """

    def __init__(self, rows: int) -> None:
        self._rows, self._kept, self._dropped, self._short = rows, 0, 0, 0
        self._sum, self._squares = PairwiseSum(rows), PairwiseSum(rows)

    def add(self, weight: np.ndarray, inside: np.ndarray) -> None:
        """The next units: float64 weights, and whether a segment holds each."""
        kept = weight.astype(np.float32) > 0  # as it is written: the smallest of a steep sigmoid are 0 there
        self._kept += int(kept.sum())
        self._dropped += int((~kept & inside).sum())
        self._short += int((~kept & ~inside).sum())
        self._sum.add(weight)
        self._squares.add(np.square(weight))

    @property
    def counts(self) -> dict[str, int]:
        """Units in, kept and dropped by reason."""
        dropped = {"dropped_by_weight": self._dropped, "dropped_short_tail": self._short}
        return {"in": self._rows, "kept": self._kept, **dropped}

    @property
    def weight(self) -> float:
        """Of all units together."""
        return self._sum.value

    @property
    def notes(self) -> dict[str, Any]:
        """The effective sample size (Σλ)² / Σλ²: how many fully weighted units these are worth. Kish 1965."""
        squares = self._squares.value
        return {"effective_sample_size": self._sum.value**2 / squares if squares else 0.0}


class GroupTally:
    """Units and their weights by group.

    Args:
        k: How many groups there are.
    """

    def __init__(self, k: int) -> None:
        self.units, self.kept = np.zeros(k, dtype=np.int64), np.zeros(k)

    def add(self, groups: np.ndarray, weight: np.ndarray) -> None:
        """The next units, whose weights are 0 or 1."""
        self.units += np.bincount(groups, minlength=self.units.size)
        self.kept += np.bincount(groups, weights=weight, minlength=self.units.size)


class SourceTally:
    """Units, characters, and their weighted sums, by source: DANA, Table 2."""

    NAMES = ("units", "characters", "kept_units", "kept_characters")

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._sums = np.zeros((len(self.NAMES), 0))

    def add(self, weighed: pa.Table) -> None:
        """The next rows of :data:`dana.core.schemas.WEIGHTS`."""
        sources = weighed["source"].combine_chunks().dictionary_encode()
        found = [self._places.setdefault(name, len(self._places)) for name in sources.dictionary.to_pylist()]
        own = np.array(found, dtype=np.int64)[sources.indices.to_numpy()]
        weight = weighed["weight"].to_numpy().astype(np.float64)
        characters = (weighed["end"].to_numpy() - weighed["start"].to_numpy()).astype(np.float64)
        columns = (np.ones_like(weight), characters, weight, weight * characters)
        # Each sum goes on where it was, so that it rounds as that over all rows in turn.
        before, every = np.pad(self._sums, ((0, 0), (0, len(self._places) - self._sums.shape[1]))), len(self._places)
        of = np.concatenate([np.arange(every), own])
        self._sums = np.stack([np.bincount(of, np.concatenate(pair)) for pair in zip(before, columns, strict=True)])

    @property
    def by_source(self) -> dict[str, dict[str, float]]:
        """Of each source, in alphabetical order."""
        return {
            source: {name: round(float(row[place]), 3) for name, row in zip(self.NAMES, self._sums, strict=True)}
            for source, place in sorted(self._places.items())
        }
