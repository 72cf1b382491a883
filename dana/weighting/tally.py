"""Count weighted units block by block: selected and dropped units, weight by target, source and group."""

from typing import Any

import numpy as np

from dana.weighting.pool import GROUP, Block
from dana.weighting.selection import BlockWeights

OF_UNITS = ("kept", "dropped_by_weight", "dropped_short_tail")
OF_SOURCES = ("units", "characters", "kept_units", "kept_characters")


class Sums:
    """Running sums by group, rounded as if all rows were summed in order.

    Attributes:
        values: float64 of shape (columns, groups).
    """

    def __init__(self, columns: int, groups: int = 0) -> None:
        self.values = np.zeros((columns, groups))

    def add(self, group: np.ndarray, groups: int, *columns: np.ndarray) -> None:
        """Add the next rows.

        Args:
            group: Group of each row.
            groups: Number of groups so far.
            columns: One array of values per column.
        """
        before, numbers = (
            np.pad(self.values, ((0, 0), (0, groups - self.values.shape[1]))),
            np.arange(groups),
        )
        index, pairs = np.concatenate([numbers, group]), zip(before, columns, strict=True)
        self.values = np.stack([np.bincount(index, np.concatenate(pair)) for pair in pairs])


class WeightTally:
    """Counts and sums of weights for the manifest.

    Args:
        targets: Number of targets.
        groups: Number of groups that the budget is balanced over.
    """

    def __init__(self, targets: int, groups: int) -> None:
        self._units, self._targets, self._sources, self._groups = (
            Sums(1, 3),
            Sums(2, targets),
            Sums(4),
            Sums(2, groups),
        )
        self._names: dict[str, int] = {}  # source to its number

    def add(self, block: Block, weights: BlockWeights) -> None:
        """Count the next units, their sources, groups and weights."""
        weight = weights.weight.astype(np.float32).astype(
            np.float64
        )  # as in the file, where the smallest are 0
        kind, ones = np.where(weight > 0, 0, np.where(block.inside, 1, 2)), np.ones(weight.size)
        self._units.add(kind, len(OF_UNITS), ones)
        target, squares = np.maximum(weights.target, 0), np.square(weights.weight)
        self._targets.add(target, self._targets.values.shape[1], weights.weight, squares)
        sources = block.table["source"].combine_chunks().dictionary_encode()
        numbers = [
            self._names.setdefault(name, len(self._names))
            for name in sources.dictionary.to_pylist()
        ]
        characters = (block.table["end"].to_numpy() - block.table["start"].to_numpy()).astype(
            np.float64
        )
        source = np.array(numbers)[sources.indices.to_numpy()]
        self._sources.add(source, len(self._names), ones, characters, weight, weight * characters)
        if GROUP in block.table.column_names:
            self._groups.add(
                block.table[GROUP].to_numpy(), self._groups.values.shape[1], ones, weight
            )

    @property
    def counts(self) -> dict[str, Any]:
        """Units read, selected and dropped by reason; the same by source, in alphabetical order (DANA, Table 2)."""
        units = self._units.values[0].astype(int).tolist()
        sums = {
            name: self._sources.values[:, number].round(3).tolist()
            for name, number in sorted(self._names.items())
        }
        by_source = {
            name: dict(zip(OF_SOURCES, values, strict=True)) for name, values in sums.items()
        }
        return {
            "units": {"in": sum(units), **dict(zip(OF_UNITS, units, strict=True))},
            "by_source": by_source,
        }

    @property
    def weights(self) -> list[float]:
        """Total weight of all units, for each target."""
        return self._targets.values[0].tolist()

    @property
    def effective_sample_size(self) -> float:
        """Effective sample size (Σλ)² / Σλ² (Kish 1965); 0 if all weights are 0."""
        total, squares = self._targets.values.sum(axis=1).tolist()
        return total**2 / squares if squares else 0.0

    @property
    def groups(self) -> np.ndarray:
        """Number of units and total weight of each group; float64 of shape (2, groups)."""
        return self._groups.values
