"""The pool of a weighing: rows of a scores artifact or a table, streamed in blocks of whole documents or segments."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from dana.core.errors import ConfigError, DataError
from dana.core.schemas import count_rows, parts, read_rows
from dana.weighting.documents import document_starts
from dana.weighting.settings import WeighSettings
from dana.weighting.weights import DROPPED, segment_ids

ROWS = 1 << 14  # read at a time
LARGEST = 1e100  # of a score's size: its square is finite, and sums of many squares are
UNIT = ("doc_id", "unit", "start", "end")  # what tells units apart


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
    def documents(self) -> np.ndarray:
        """Document of each unit, numbered over the pool from 0."""
        sizes = np.diff(self.starts, append=self.table.num_rows)
        return self.document + np.repeat(np.arange(self.starts.size), sizes)

    def of_units(self, values: np.ndarray, dropped: float) -> np.ndarray:
        """Values of the segments :attr:`first` to :attr:`after` as values of the units; `dropped` for none."""
        return np.append(values, dropped)[np.where(self.inside, self.segment - self.first, values.size)]


@dataclass(frozen=True)
class Pool:
    """Scored units in corpus order.

    Attributes:
        rows: How many.
        read: Some columns of them, anew from the first, in tables of any length.
    """

    rows: int
    read: Callable[[list[str]], Iterator[pa.Table]]

    @classmethod
    def of_folder(cls, folder: Path) -> "Pool":
        """Of an artifact's Parquet files, read :data:`ROWS` at a time."""
        return cls.of_rows(folder, 0, sum(map(count_rows, parts(folder))))

    @classmethod
    def of_rows(cls, folder: Path, first: int, last: int) -> "Pool":
        """Of the rows `first` to before `last` of an artifact's Parquet files."""

        def read(columns: list[str]) -> Iterator[pa.Table]:
            for batch in read_rows(folder, columns, first, last, ROWS):
                yield pa.Table.from_batches([batch])

        return cls(last - first, read)

    @classmethod
    def of_table(cls, table: pa.Table) -> "Pool":
        """Of a table in memory."""

        def read(columns: list[str]) -> Iterator[pa.Table]:
            for first in range(0, table.num_rows, ROWS):
                yield table.select(columns).slice(first, ROWS)

        return cls(table.num_rows, read)

    def with_column(self, name: str, needs: list[str], make: Callable[[], Callable[[pa.Table], np.ndarray]]) -> "Pool":
        """The same units with one column more.

        Args:
            name: Of the column.
            needs: Columns that it is made from.
            make: Begins anew; what it gives is called with the tables, in order, and returns a row for each of theirs.
        """

        def read(columns: list[str]) -> Iterator[pa.Table]:
            if name not in columns:
                yield from self.read(columns)
                return
            wanted, made = [one for one in columns if one != name], make()
            for table in self.read(list(dict.fromkeys([*wanted, *needs]))):
                yield table.append_column(name, pa.array(made(table))).select(columns)

        return replace(self, read=read)

    def scores(self) -> Iterator[np.ndarray]:
        """All scores in order.

        Raises:
            DataError: If one is not finite.
        """
        row = 0
        for table in self.read(["score"]):
            score = table["score"].to_numpy()
            require_finite(score, row)
            yield score
            row += score.size

    def documents(self, columns: list[str]) -> Iterator[pa.Table]:
        """All rows in order, in tables of whole documents; the columns with ``doc_id`` and ``unit``."""
        for table, _ in _whole(self.read(list(dict.fromkeys(["doc_id", "unit", *columns]))), 0):
            yield table

    def blocks(self, columns: list[str], settings: WeighSettings, of: str = "documents") -> Iterator[Block]:
        """All rows in order, in blocks of whole documents or, for `of` = ``segments``, of whole segments.

        A document, or with ``stream`` a segment, has to fit in memory.
        """
        columns = list(dict.fromkeys(["doc_id", "unit", *columns]))
        by_rows = settings.stream and of == "segments"
        row = document = first = 0
        for table, starts in _whole(self.read(columns), settings.gamma if by_rows else 0):
            if settings.stream:
                segment, first = self._stream_segments(row, table.num_rows, settings), row // settings.gamma
            else:
                segment = segment_ids(starts, table.num_rows, settings.gamma, settings.min_tail)
                segment[segment != DROPPED] += first
            block = Block(table, starts, document, segment, first)
            yield block
            row, document, first = row + table.num_rows, document + starts.size, block.after

    def _stream_segments(self, row: int, rows: int, settings: WeighSettings) -> np.ndarray:
        """Of neighbouring rows, where segments run across documents: only the very last segment may be short."""
        segment = (row + np.arange(rows)) // settings.gamma
        whole, tail = divmod(self.rows, settings.gamma)
        return np.where(segment == whole, DROPPED, segment) if 0 < tail < settings.min_tail else segment


def require_finite(score: np.ndarray, row: int) -> None:
    """Refuse scores that no order, mean and variance can be had of.

    Raises:
        DataError: Naming the row, of which the first has the number `row`.
    """
    bad = ~(np.abs(score) <= LARGEST)
    if bad.any():
        place = int(np.flatnonzero(bad)[0])
        said = f"is {score[place]:.3g}, beyond {LARGEST:g}" if np.isfinite(score[place]) else "is not finite"
        raise DataError(f"scores[{row + place}] {said}")


def _whole(tables: Iterator[pa.Table], gamma: int) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """Tables cut anew, between documents or, if `gamma` is given, at its multiples; with the documents' first rows."""
    waiting: pa.Table | None = None
    for table in tables:
        waiting = (table if waiting is None else pa.concat_tables([waiting, table])).combine_chunks()
        starts = document_starts(waiting)
        cut = waiting.num_rows // gamma * gamma if gamma else int(starts[-1]) if starts.size else 0
        if cut:
            yield waiting.slice(0, cut), starts[starts < cut]
            waiting = waiting.slice(cut)
    if waiting is not None and waiting.num_rows:
        yield waiting, document_starts(waiting)


def alongside(
    pool: Pool,
    other: Pool,
    column: str,
    name: str,
    said: str,
    keys: Sequence[str] = UNIT,
    values: Callable[[pa.ChunkedArray], np.ndarray] = pa.ChunkedArray.to_numpy,
) -> Pool:
    """A pool with a column of another one of the same units.

    Args:
        pool: The units.
        other: The others.
        column: Its name there.
        name: Its name here.
        said: The error where the units differ.
        keys: Columns that tell units apart.
        values: Turns the column's values into those that are wanted here.

    Raises:
        ConfigError: While it is read, if they differ; at once if they are not as many.
    """
    if pool.rows != other.rows:
        raise ConfigError(said)

    def make() -> Callable[[pa.Table], np.ndarray]:
        tables = other.read([*keys, column])
        waiting = next(tables)

        def same_rows(table: pa.Table) -> np.ndarray:
            nonlocal waiting
            while waiting.num_rows < table.num_rows:
                waiting = pa.concat_tables([waiting, next(tables)])
            found, waiting = waiting.slice(0, table.num_rows), waiting.slice(table.num_rows)
            if any(not found[name].cast(table[name].type).equals(table[name]) for name in keys):
                raise ConfigError(said)
            return values(found[column])

        return same_rows

    return pool.with_column(name, list(keys), make)
