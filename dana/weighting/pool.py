"""Read a scored pool (an artifact or a table) in blocks of whole documents or whole segments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dana.core.artifacts import open_artifact, read_manifest
from dana.core.config import require
from dana.core.errors import ConfigError, DataError
from dana.core.schemas import count_rows, part_files, read_rows
from dana.core.studies import studies
from dana.weighting.settings import Balance, WeighSettings
from dana.weighting.weights import DROPPED, segment_ids

ROWS = 1 << 14  # rows read at a time
LARGEST = 1e100  # largest absolute score, so that sums of squares are finite
KEYS = ("doc_id", "unit")
UNIT = (*KEYS, "start", "end")  # columns that identify a unit
GROUP = "group"  # default column of a table of groups, and the pool's column of group numbers


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a pool.

    Attributes:
        table: The rows.
        starts: Row of each document's first unit, in the table.
        document: Number of the first document.
        segment: int64 of shape (rows,), segment of each unit, numbered over the pool from 0;
            DROPPED for none.
        first: Number of the first segment that may begin in this block.
    """

    table: pa.Table
    starts: np.ndarray
    document: int
    segment: np.ndarray
    first: int

    @property
    def after(self) -> int:
        """One more than the highest segment number so far."""
        return max(self.first, int(self.segment.max(initial=DROPPED)) + 1)

    @property
    def inside(self) -> np.ndarray:
        """Mask of the units that are in a segment."""
        return self.segment != DROPPED

    @property
    def segment_starts(self) -> np.ndarray:
        """Row of each segment's first unit."""
        return np.flatnonzero(self.inside & (np.diff(self.segment, prepend=DROPPED) != 0))

    @property
    def documents(self) -> np.ndarray:
        """Document of each unit, numbered over the pool from 0."""
        return self.document + np.repeat(
            np.arange(self.starts.size), np.diff(self.starts, append=self.table.num_rows)
        )

    def scores(self) -> np.ndarray:
        return self.table["score"].to_numpy()

    def of_units(self, values: np.ndarray, default: float) -> np.ndarray:
        """Map one value per segment of the pool to the units of this block; `default` for units in no segment."""
        block_values = np.append(values[self.first : self.after], default)
        return block_values[np.where(self.inside, self.segment - self.first, block_values.size - 1)]


@dataclass(frozen=True)
class Pool:
    """Scored units in corpus order.

    Attributes:
        source: The table, or the folder of its Parquet files.
        columns: More columns, each an array over all rows.
        first: First row.
        last: One more than the last row; None for all.
    """

    source: pa.Table | Path
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    first: int = 0
    last: int | None = None

    @property
    def rows(self) -> int:
        """Number of units."""
        table = self.source
        rows = (
            table.num_rows
            if isinstance(table, pa.Table)
            else sum(map(count_rows, part_files(table)))
        )
        return (rows if self.last is None else self.last) - self.first

    def with_columns(self, **columns: np.ndarray) -> "Pool":
        """Return the same units with more columns."""
        return replace(self, columns={**self.columns, **columns})

    def read(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Read columns of all rows, in tables of :data:`ROWS` rows whatever the row groups of the files."""
        row = 0
        for table in self._tables([name for name in names if name not in self.columns]):
            for name in self.columns.keys() & {*names}:
                table = table.append_column(
                    name, pa.array(self.columns[name][row : row + table.num_rows])
                )
            yield table
            row += table.num_rows

    def _tables(self, names: list[str]) -> Iterator[pa.Table]:
        if isinstance(self.source, pa.Table):
            table = self.source.select(names)
            yield from (table.slice(first, ROWS) for first in range(0, table.num_rows, ROWS))
            return
        waiting: list[pa.RecordBatch] = []
        for batch in read_rows(self.source, names, self.first, self.last, ROWS):
            table = pa.Table.from_batches([*waiting, batch])
            if table.num_rows >= ROWS:
                yield table.slice(0, ROWS)
                table = table.slice(ROWS)
            waiting = table.to_batches()
        if waiting:
            yield pa.Table.from_batches(waiting)

    def documents(
        self, names: Sequence[str], multiple: int = 0
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Read columns, and ``doc_id`` and ``unit``, in tables of whole documents.

        With `multiple`, tables end at a multiple of that many rows instead. A document has to fit
        in memory.

        Yields:
            A table, and the row in it of each document's first unit.
        """
        waiting: pa.Table | None = None
        for table in self.read(list(dict.fromkeys([*KEYS, *names]))):
            waiting = (
                table if waiting is None else pa.concat_tables([waiting, table])
            ).combine_chunks()
            starts = document_starts(waiting)
            cut = waiting.num_rows // multiple * multiple if multiple else int(starts[-1])
            if cut:
                yield waiting.slice(0, cut), starts[starts < cut]
                waiting = waiting.slice(cut)
        if waiting is not None and waiting.num_rows:
            yield waiting, document_starts(waiting)

    def blocks(
        self, names: Sequence[str], settings: WeighSettings, by_segment: bool = False
    ) -> Iterator[Block]:
        """Read all rows in blocks of whole documents, or of whole segments, which differ with ``stream``."""
        row = document = first = 0
        for table, starts in self.documents(
            names, settings.gamma if by_segment and settings.stream else 0
        ):
            if settings.stream:  # only the very last segment may be short
                segment, first = (
                    (row + np.arange(table.num_rows)) // settings.gamma,
                    row // settings.gamma,
                )
                last_segment, tail = divmod(self.rows, settings.gamma)
                if 0 < tail < settings.min_tail:
                    segment[segment == last_segment] = DROPPED
            else:
                segment = segment_ids(starts, table.num_rows, settings.gamma, settings.min_tail)
                segment[segment != DROPPED] += first
            block = Block(table, starts, document, segment, first)
            yield block
            row, document, first = row + table.num_rows, document + starts.size, block.after

    def read_aligned(
        self, other: "Pool", names: list[str], error: str, keys: Sequence[str] = UNIT
    ) -> Iterator[pa.Table]:
        """Read columns of another table with the same units, in tables of :data:`ROWS` rows.

        Raises:
            ConfigError: With the message `error`, if the number of units or their keys differ.
        """
        if self.rows != other.rows:
            raise ConfigError(error)
        for expected_keys, table in zip(self.read(keys), other.read([*keys, *names]), strict=True):
            if any(
                not table[key].cast(expected_keys[key].type).equals(expected_keys[key])
                for key in keys
            ):
                raise ConfigError(error)
            yield table.select(names)


def document_starts(table: pa.Table) -> np.ndarray:
    """Find the row of each document's first unit, int64 of shape (documents,), ascending.

    Args:
        table: Columns ``doc_id`` and ``unit``, rows of a document adjacent. A document may lack its
            first units.
    """
    unit = table["unit"].to_numpy()
    document = (
        table["doc_id"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    )
    return np.flatnonzero((np.diff(document, prepend=-1) != 0) | (unit == 0))


def document_numbers(table: pa.Table) -> np.ndarray:
    """Number the document of each unit from 0, in order; int64 of shape (units,).

    Args:
        table: See :func:`document_starts`.
    """
    return np.searchsorted(document_starts(table), np.arange(table.num_rows), side="right") - 1


def require_finite(score: np.ndarray, row: int) -> None:
    """Check that scores are finite and not too large for a variance; `row` is the number of the first.

    Raises:
        DataError: Naming the first bad row.
    """
    bad = ~(np.abs(score) <= LARGEST)
    if bad.any():
        index = int(np.flatnonzero(bad)[0])
        problem = f"beyond ±{LARGEST:g}" if np.isfinite(score[index]) else "not finite"
        raise DataError(f"scores[{row + index}] is {score[index]:.3g}, {problem}")


class Sample:
    """Sample of a pool that is read in blocks: random whole documents, about `size` units in all.

    A pool of at most `size` units is taken whole. If none of a few huge documents is drawn, every
    n-th unit is taken.

    Args:
        units: Units of the whole pool.
        size: About how many units to take.
        random: Generator of the draw.
    """

    def __init__(self, units: int, size: int, random: np.random.Generator) -> None:
        self.random, self._share, self._step = random, size / units, -(-units // size)
        self._units = self._documents = 0
        self._tables: list[pa.Table] = []
        self._spare: list[pa.Table] = []  # every n-th unit, used if no document is drawn

    def add(self, documents: np.ndarray, rows: pa.Table) -> None:
        """Sample from the next units, given their document numbers over the pool."""
        if self._share >= 1:
            self._tables.append(rows)
            return
        count = int(documents[-1]) + 1 - self._documents if documents.size else 0
        mask = (self.random.random(count) < self._share)[documents - self._documents]
        if mask.any():
            self._tables.append(rows.filter(pa.array(mask)))
        elif not self._tables:
            nth = (self._units + np.arange(documents.size)) % self._step == 0
            self._spare.append(rows.filter(pa.array(nth)))
        self._units, self._documents = self._units + documents.size, self._documents + count

    def table(self) -> pa.Table:
        """Return the sample."""
        return pa.concat_tables(self._tables or self._spare)


@dataclass(frozen=True)
class Groups:
    """Table with the group of each unit.

    Attributes:
        path: Parquet file, or folder of ``part-*.parquet``: ``doc_id``, ``unit`` and the group, in
            the scores' order.
        column: Column of the group, whole numbers or text.
        values: Distinct groups, sorted.
        names: Display name of each.
        keys: Columns that identify a unit: ``doc_id``, ``unit`` and, if present, ``start`` and
            ``end``.
    """

    path: Path
    column: str
    values: list[Any]
    names: list[str]
    keys: tuple[str, ...] = KEYS

    @classmethod
    def open(cls, path: Path) -> "Groups":
        """Open a table of groups, written by a study or by hand.

        Raises:
            ConfigError: If the file is not Parquet, or its columns or types do not fit.
        """
        manifest = read_manifest(path) if path.is_dir() else {}
        if manifest:  # written by a study: check its digests
            manifest = open_artifact(path, manifest["kind"]).manifest
        artifact = manifest.get("kind", "")
        column = next(
            (study.groups[artifact] for study in studies() if artifact in study.groups), GROUP
        )
        needs = f"a table of groups has the columns {', '.join((*KEYS, column))}"
        try:
            schema = pq.read_schema(part_files(path)[0])
        except (OSError, pa.ArrowException) as error:
            raise ConfigError(f"{path}: not a readable Parquet file; {needs}") from error
        if not {*KEYS, column} <= {*schema.names}:
            raise ConfigError(f"{path}: has the columns {', '.join(schema.names)}; {needs}")
        kind, unit = schema.field(column).type, schema.field("unit").type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not pa.types.is_integer(unit):
            raise ConfigError(f"{path}: column unit is {unit}; must be whole numbers")
        if not (
            pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
        ):
            raise ConfigError(f"{path}: column {column} is {kind}; must be whole numbers or text")
        keys = tuple(name for name in UNIT if name in schema.names)
        if "names" in manifest:
            return cls(path, column, list(range(len(manifest["names"]))), manifest["names"], keys)
        values: set[Any] = set()
        for batch in read_rows(path, [column]):
            values.update(batch.column(0).unique().to_pylist())
        if None in values:
            raise ConfigError(f"{path}: column {column} has nulls; every unit needs a group")
        groups = sorted(values)
        return cls(path, column, groups, [str(value) for value in groups], keys)

    def shares(self, balance: Balance) -> np.ndarray:
        """Return the share of the budget of each group, float64 of shape (groups,); equal if none are named.

        Raises:
            ConfigError: If a named group does not exist.
        """
        names, choices = (
            [str(value) for value in self.values],
            ", ".join(map(str, self.values[:20])),
        )
        for group in balance.shares:
            require(
                group in names,
                "balance",
                f"{balance.table}:{group}",
                f"one of its groups: {choices}",
            )
        if not balance.shares:
            return np.full(len(names), 1 / len(names))
        return np.array([balance.shares.get(value, 0.0) for value in names])

    def of_pool(self, pool: Pool) -> np.ndarray:
        """Return each unit's group as index into :attr:`values`, of shape (units,), in the smallest integer type.

        Raises:
            ConfigError: If the rows are not the units of the pool.
        """
        error = f"{self.path}: its rows must be those of the scores, with the same {', '.join(self.keys)} in order"
        error += "" if self.keys == KEYS else "; make both with the same --units"
        indices = []
        for table in pool.read_aligned(Pool(self.path), [self.column], error, self.keys):
            groups = table[self.column]
            plain = (
                groups.cast(groups.type.value_type)
                if pa.types.is_dictionary(groups.type)
                else groups
            )
            index = pc.index_in(plain, pa.array(self.values, plain.type)).to_numpy()
            indices.append(index.astype(np.min_scalar_type(len(self.values))))
        return np.concatenate(indices)
