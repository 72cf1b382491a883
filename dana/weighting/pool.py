"""Read the pool of a weighing: a scores artifact, or a table, to blocks of whole documents or of whole segments."""

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
from dana.core.schemas import count_rows, parts, read_rows
from dana.core.studies import studies
from dana.weighting.settings import Balance, WeighSettings
from dana.weighting.weights import DROPPED, segment_ids

ROWS = 1 << 14  # read at a time
LARGEST = 1e100  # of a score's size: its square is finite, and sums of many squares are
KEYS = ("doc_id", "unit")
UNIT = (*KEYS, "start", "end")  # what tells units apart
GROUP = "group"  # the column of groups, where no study names another; and the pool's column of their numbers


@dataclass(frozen=True)
class Block:
    """Neighbouring rows of a pool.

    Attributes:
        table: The rows.
        starts: Row of each document's first unit, in the table.
        document: Number of the first document.
        segment: int64 of shape (rows,), segment of each unit, numbered over the pool from 0; DROPPED for none.
        first: The lowest number of a segment that may be among these.
    """

    table: pa.Table
    starts: np.ndarray
    document: int
    segment: np.ndarray
    first: int

    @property
    def after(self) -> int:
        """The number behind the highest one of a segment."""
        return max(self.first, int(self.segment.max(initial=DROPPED)) + 1)

    @property
    def inside(self) -> np.ndarray:
        """Which units are in a segment."""
        return self.segment != DROPPED

    @property
    def segment_starts(self) -> np.ndarray:
        """Row of each segment's first unit."""
        return np.flatnonzero(self.inside & (np.diff(self.segment, prepend=DROPPED) != 0))

    @property
    def documents(self) -> np.ndarray:
        """Document of each unit, numbered over the pool from 0."""
        sizes = np.diff(self.starts, append=self.table.num_rows)
        return self.document + np.repeat(np.arange(self.starts.size), sizes)

    def scores(self) -> np.ndarray:
        """Score of each unit."""
        return self.table["score"].to_numpy()

    def of_units(self, values: np.ndarray, dropped: float) -> np.ndarray:
        """Values of all segments of the pool as values of the units here; `dropped` where a unit is in none."""
        own = np.append(values[self.first : self.after], dropped)
        return own[np.where(self.inside, self.segment - self.first, own.size - 1)]


@dataclass(frozen=True)
class Pool:
    """Scored units in corpus order.

    Attributes:
        source: The table, or the folder of its Parquet files.
        columns: More columns, an array of all rows each.
        first: Row that it begins with.
        last: Row behind its last one; None for all.
    """

    source: pa.Table | Path
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    first: int = 0
    last: int | None = None

    @property
    def rows(self) -> int:
        """How many units there are."""
        table = self.source
        whole = table.num_rows if isinstance(table, pa.Table) else sum(map(count_rows, parts(table)))
        return (whole if self.last is None else self.last) - self.first

    def with_columns(self, **columns: np.ndarray) -> "Pool":
        """The same units with more columns."""
        return replace(self, columns={**self.columns, **columns})

    def read(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns of all rows, in tables of :data:`ROWS` rows, however the files are cut."""
        row = 0
        for table in self._tables([name for name in names if name not in self.columns]):
            for name in self.columns.keys() & {*names}:
                table = table.append_column(name, pa.array(self.columns[name][row : row + table.num_rows]))
            yield table
            row += table.num_rows

    def _tables(self, names: list[str]) -> Iterator[pa.Table]:
        if isinstance(self.source, pa.Table):
            for first in range(0, self.source.num_rows, ROWS):
                yield self.source.select(names).slice(first, ROWS)
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

    def documents(self, names: Sequence[str], multiple: int = 0) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Read columns with ``doc_id`` and ``unit``, cut between documents or, if given, at multiples of a number.

        A document has to fit in memory.

        Yields:
            A table, and the row of each document's first unit in it.
        """
        waiting: pa.Table | None = None
        for table in self.read(list(dict.fromkeys([*KEYS, *names]))):
            waiting = (table if waiting is None else pa.concat_tables([waiting, table])).combine_chunks()
            starts = document_starts(waiting)
            cut = waiting.num_rows // multiple * multiple if multiple else int(starts[-1])
            if cut:
                yield waiting.slice(0, cut), starts[starts < cut]
                waiting = waiting.slice(cut)
        if waiting is not None and waiting.num_rows:
            yield waiting, document_starts(waiting)

    def blocks(self, names: Sequence[str], settings: WeighSettings, by_segment: bool = False) -> Iterator[Block]:
        """Read all rows in blocks of whole documents, or of whole segments, which differ where ``stream`` is set."""
        row = document = first = 0
        for table, starts in self.documents(names, settings.gamma if by_segment and settings.stream else 0):
            if settings.stream:  # only the very last segment may be short
                segment, first = (row + np.arange(table.num_rows)) // settings.gamma, row // settings.gamma
                whole, tail = divmod(self.rows, settings.gamma)
                if 0 < tail < settings.min_tail:
                    segment[segment == whole] = DROPPED
            else:
                segment = segment_ids(starts, table.num_rows, settings.gamma, settings.min_tail)
                segment[segment != DROPPED] += first
            block = Block(table, starts, document, segment, first)
            yield block
            row, document, first = row + table.num_rows, document + starts.size, block.after

    def read_aligned(
        self, other: "Pool", names: list[str], error: str, keys: Sequence[str] = UNIT
    ) -> Iterator[pa.Table]:
        """Read columns of another table of the same units, in tables of :data:`ROWS` rows.

        Raises:
            ConfigError: With this text, where the keys of the units differ or there are fewer or more.
        """
        if self.rows != other.rows:
            raise ConfigError(error)
        for own, table in zip(self.read(keys), other.read([*keys, *names]), strict=True):
            if any(not table[key].cast(own[key].type).equals(own[key]) for key in keys):
                raise ConfigError(error)
            yield table.select(names)


def document_starts(table: pa.Table) -> np.ndarray:
    """Row of each document's first unit, int64 of shape (documents,), ascending.

    Args:
        table: With ``doc_id`` and ``unit``, the rows of a document together. Its first units may be missing.
    """
    unit = table["unit"].to_numpy()
    document = table["doc_id"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return np.flatnonzero((np.diff(document, prepend=-1) != 0) | (unit == 0))


def document_numbers(table: pa.Table) -> np.ndarray:
    """Document of each unit, numbered from 0 in their order; int64 of shape (units,).

    Args:
        table: See :func:`document_starts`.
    """
    return np.searchsorted(document_starts(table), np.arange(table.num_rows), side="right") - 1


def require_finite(score: np.ndarray, row: int) -> None:
    """Refuse scores that no order, mean and variance can be had of.

    Raises:
        DataError: Naming the row, of which the first has the number `row`.
    """
    bad = ~(np.abs(score) <= LARGEST)
    if bad.any():
        place = int(np.flatnonzero(bad)[0])
        why = f"is {score[place]:.3g}, beyond {LARGEST:g}" if np.isfinite(score[place]) else "is not finite"
        raise DataError(f"scores[{row + place}] {why}")


class Sample:
    """Units of a pool that comes in blocks of whole documents: all, or of many units those of documents at random.

    Of few huge documents maybe none is drawn. Every n-th unit is taken then, of about all documents.

    Args:
        units: Of the whole pool.
        most: That are taken, about.
        random: Decides which documents.
    """

    def __init__(self, units: int, most: int, random: np.random.Generator) -> None:
        self.random, self._share, self._step = random, most / units, -(-units // most)
        self._units = self._documents = 0
        self._drawn: list[pa.Table] = []
        self._spare: list[pa.Table] = []  # where no document is drawn

    def add(self, documents: np.ndarray, rows: pa.Table) -> None:
        """Take of the next units, with their documents, numbered over the pool from 0."""
        if self._share >= 1:
            self._drawn.append(rows)
            return
        count = int(documents[-1]) + 1 - self._documents if documents.size else 0
        drawn = (self.random.random(count) < self._share)[documents - self._documents]
        if drawn.any():
            self._drawn.append(rows.filter(pa.array(drawn)))
        elif not self._drawn:
            nth = (self._units + np.arange(documents.size)) % self._step == 0
            self._spare.append(rows.filter(pa.array(nth)))
        self._units, self._documents = self._units + documents.size, self._documents + count

    def table(self) -> pa.Table:
        """All that was taken."""
        return pa.concat_tables(self._drawn or self._spare)


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
        artifact = manifest.get("kind", "")
        column = next((study.groups[artifact] for study in studies() if artifact in study.groups), GROUP)
        needed = (*KEYS, column)
        try:
            schema = pq.read_schema(parts(path)[0])
        except (OSError, pa.ArrowException) as error:
            expected = f"a table of groups has {', '.join(needed)}"
            raise ConfigError(f"{path}: no Parquet that can be read; {expected}") from error
        if not {*needed} <= {*schema.names}:
            holds = ", ".join(schema.names)
            raise ConfigError(f"{path}: holds {holds}; a table of groups has {', '.join(needed)}")
        kind, unit = schema.field(column).type, schema.field("unit").type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not pa.types.is_integer(unit):
            raise ConfigError(f"{path}: unit is {unit}; it is the number of a unit in its document")
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise ConfigError(f"{path}: {column} is {kind}; a group is a whole number or text")
        keys = tuple(name for name in UNIT if name in schema.names)
        if "names" in manifest:
            return cls(path, column, list(range(len(manifest["names"]))), manifest["names"], keys)
        values: set[Any] = set()
        for batch in read_rows(path, [column]):
            values.update(batch.column(0).unique().to_pylist())
        if None in values:
            raise ConfigError(f"{path}: {column} is null in some row; every unit is of a group")
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

    def of_pool(self, pool: Pool) -> np.ndarray:
        """The place of each unit's group in :attr:`values`, of shape (units,), in as few bytes as hold it.

        Raises:
            ConfigError: If the rows are not those of the pool.
        """
        error = (
            f"{self.path}: its rows are not those of the scores (the same {', '.join(self.keys)}, in the same order)"
        )
        error += "" if self.keys == KEYS else "; make both with the same --units"
        places = []
        for table in pool.read_aligned(Pool(self.path), [self.column], error, self.keys):
            groups = table[self.column]
            plain = groups.cast(groups.type.value_type) if pa.types.is_dictionary(groups.type) else groups
            place = pc.index_in(plain, pa.array(self.values, plain.type)).to_numpy()
            places.append(place.astype(np.min_scalar_type(len(self.values))))
        return np.concatenate(places)
