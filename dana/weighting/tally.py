"""Count what is weighed, a block at a time: units kept and dropped, weight by target, source and group."""

from typing import Any

import numpy as np

from dana.weighting.pool import GROUP, Block
from dana.weighting.selection import BlockWeights

OF_UNITS = ("kept", "dropped_by_weight", "dropped_short_tail")
OF_SOURCES = ("units", "characters", "kept_units", "kept_characters")


class Sums:
    """Sums by group that go on where they were, so that they round as those over all rows in turn.

    Attributes:
        values: float64 of shape (columns, groups).
    """

    def __init__(self, columns: int, groups: int = 0) -> None:
        self.values = np.zeros((columns, groups))

    def add(self, of: np.ndarray, groups: int, *columns: np.ndarray) -> None:
        """Add the next rows: the group of each, how many groups there are so far, and an array a column."""
        before, places = np.pad(self.values, ((0, 0), (0, groups - self.values.shape[1]))), np.arange(groups)
        index, pairs = np.concatenate([places, of]), zip(before, columns, strict=True)
        self.values = np.stack([np.bincount(index, np.concatenate(pair)) for pair in pairs])


class WeightTally:
    """What a manifest says of weights.

    Args:
        targets: How many there are.
        groups: How many the budget is balanced over.
    """

    def __init__(self, targets: int, groups: int) -> None:
        self._units, self._targets, self._sources, self._groups = Sums(1, 3), Sums(2, targets), Sums(4), Sums(2, groups)
        self._places: dict[str, int] = {}  # of sources

    def add(self, block: Block, weighed: BlockWeights) -> None:
        """Count the next units: their spans, sources and groups, and what they weigh."""
        weight = weighed.weight.astype(np.float32).astype(np.float64)  # as it is written: the smallest are 0 there
        kind, ones = np.where(weight > 0, 0, np.where(block.inside, 1, 2)), np.ones(weight.size)
        self._units.add(kind, len(OF_UNITS), ones)
        target, squares = np.maximum(weighed.target, 0), np.square(weighed.weight)
        self._targets.add(target, self._targets.values.shape[1], weighed.weight, squares)
        sources = block.table["source"].combine_chunks().dictionary_encode()
        places = [self._places.setdefault(name, len(self._places)) for name in sources.dictionary.to_pylist()]
        characters = (block.table["end"].to_numpy() - block.table["start"].to_numpy()).astype(np.float64)
        source = np.array(places)[sources.indices.to_numpy()]
        self._sources.add(source, len(self._places), ones, characters, weight, weight * characters)
        if GROUP in block.table.column_names:
            self._groups.add(block.table[GROUP].to_numpy(), self._groups.values.shape[1], ones, weight)

    @property
    def counts(self) -> dict[str, Any]:
        """Units in, kept and dropped by reason; and of each source, in alphabetical order (DANA, Table 2)."""
        units = self._units.values[0].astype(int).tolist()
        by_source = {
            source: dict(zip(OF_SOURCES, self._sources.values[:, place].round(3).tolist(), strict=True))
            for source, place in sorted(self._places.items())
        }
        return {"units": {"in": sum(units), **dict(zip(OF_UNITS, units, strict=True))}, "by_source": by_source}

    @property
    def weights(self) -> list[float]:
        """Of all units together, for each target."""
        return self._targets.values[0].tolist()

    @property
    def effective_sample_size(self) -> float:
        """(Σλ)² / Σλ²: how many fully weighted units these are worth; 0 if all weights are 0. Kish 1965."""
        total, squares = self._targets.values.sum(axis=1).tolist()
        return total**2 / squares if squares else 0.0

    @property
    def groups(self) -> np.ndarray:
        """Units, and their weight, of each group; float64 of shape (2, groups)."""
        return self._groups.values
