"""Tables of groups, a group for every unit: opened, checked, read as numbers; and the group of a segment."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dana.core.artifacts import open_artifact, read_manifest
from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.schemas import parts, read_rows
from dana.core.studies import study_table
from dana.weighting.pool import UNIT, Pool, alongside
from dana.weighting.settings import Balance
from dana.weighting.weights import DROPPED

KEYS = ("doc_id", "unit")
GROUP = "group"  # the column of groups, where no study names another; and the pool's column of their numbers


@dataclass(frozen=True)
class Groups:
    """A table of groups: the group of each unit.

    Attributes:
        path: Parquet file, or folder of ``part-*.parquet``: ``doc_id``, ``unit`` and the group, in the scores' order.
        column: That holds the group, whole numbers or text.
        values: The groups, in order.
        names: What each is called.
        keys: Columns that tell units apart: ``doc_id``, ``unit`` and, where it has them, ``start`` and ``end``.
    """

    path: Path
    column: str
    values: list[Any]
    names: list[str]
    keys: tuple[str, ...] = KEYS

    @classmethod
    def open(cls, path: Path) -> "Groups":
        """Open a table of groups, a study's or anybody's.

        Raises:
            ConfigError: If it is no Parquet, or has no column of groups.
        """
        manifest = read_manifest(path) if path.is_dir() else {}
        if manifest:  # a study's, whose bytes are known
            manifest = open_artifact(path, manifest["kind"]).manifest
        table = study_table(manifest["kind"]) if manifest else None
        column = table.group if table is not None and table.group else GROUP
        try:
            there = pq.read_schema(parts(path)[0])
        except (OSError, pa.ArrowException) as error:
            raise ConfigError(
                f"{path}: no Parquet that can be read; a table of groups has doc_id, unit, {column}"
            ) from error
        missing = [name for name in (*KEYS, column) if name not in there.names]
        holds = f"{path}: holds {', '.join(there.names)}; a table of groups has"
        _require(not missing, f"{holds} {', '.join((*KEYS, column))}")
        kind = there.field(column).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        whole = pa.types.is_integer(there.field("unit").type)
        _require(whole, f"{path}: unit is {there.field('unit').type}; it is the number of a unit in its document")
        fits = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
        _require(fits, f"{path}: {column} is {kind}; a group is a whole number or text")
        keys = tuple(name for name in UNIT if name in there.names)
        if "names" in manifest:
            return cls(path, column, list(range(len(manifest["names"]))), manifest["names"], keys)
        values: set[Any] = set()
        for batch in read_rows(path, [column]):
            values.update(batch.column(0).unique().to_pylist())
        _require(None not in values, f"{path}: {column} is null in some row; every unit is of a group")
        ordered = sorted(values)
        return cls(path, column, ordered, [str(value) for value in ordered], keys)

    def shares(self, balance: Balance) -> np.ndarray:
        """Share of the budget of each group, float64 of shape (groups,): those named, or all alike.

        Raises:
            ConfigError: If there is no such group.
        """
        known = [str(value) for value in self.values]
        for group in balance.shares:
            require(group in known, "balance", f"{balance.table}:{group}", f"among its groups: {', '.join(known[:20])}")
        if not balance.shares:
            return np.full(len(known), 1 / len(known))
        return np.array([balance.shares.get(value, 0.0) for value in known])

    def beside(self, pool: Pool) -> Pool:
        """A pool with the column ``group``: the place of each unit's group in :attr:`values`.

        Raises:
            ConfigError: If the rows are not those of the pool; while it is read, or at once if they are not as many.
        """
        said = f"{self.path}: its rows are not those of the scores (the same {', '.join(self.keys)}, in the same order)"
        hint = "" if self.keys == KEYS else "; make both with the same --units"

        def codes(column: pa.ChunkedArray) -> np.ndarray:
            kind = column.type
            plain = column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column
            return pc.index_in(plain, pa.array(self.values, plain.type)).to_numpy().astype(np.int64)

        return alongside(pool, Pool.of_folder(self.path), self.column, GROUP, said + hint, self.keys, codes)


def _require(holds: bool, message: str) -> None:
    """Raise a ConfigError unless the claim holds."""
    if not holds:
        raise ConfigError(message)


def segment_groups(segment: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The group that most units of each segment are of, of equally frequent ones the first.

    Args:
        segment: Of each unit, DROPPED for none.
        groups: int of shape (units,), from 0.

    Returns:
        int64 of shape (segments,).
    """
    inside = segment != DROPPED
    k = int(groups.max(initial=0)) + 1
    pairs, counts = np.unique(segment[inside].astype(np.int64) * k + groups[inside], return_counts=True)
    ranked = pairs[np.lexsort((pairs, -counts, pairs // k))]
    return ranked[np.unique(ranked // k, return_index=True)[1]] % k
