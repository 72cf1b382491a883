"""Columns on disk: numpy arrays and sorted records too large for memory, in plain files that are read in pieces.

Scratch: the files have no header, and go with their folder.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

ROWS = 1 << 16  # in memory at a time, of what is read in order
RUN = 1 << 18  # records that are sorted in memory, or held by the runs that are merged
FAN_IN = 64  # runs that are merged at a time


class DiskColumn:
    """A numpy array in a file, appended to as it comes.

    Args:
        path: The file.
        dtype: Of one row.
    """

    def __init__(self, path: Path, dtype: np.dtype | str) -> None:
        self.path, self.dtype, self.size = path, np.dtype(dtype), 0
        path.touch(exist_ok=False)  # another column of this name would be appended to

    def append(self, rows: np.ndarray) -> None:
        """Add to the end."""
        with self.path.open("ab") as stream:
            np.ascontiguousarray(rows, self.dtype).tofile(stream)
        self.size += rows.size

    def read(self, first: int, last: int) -> np.ndarray:
        """Rows `first` to before `last`."""
        return np.fromfile(self.path, self.dtype, count=last - first, offset=first * self.dtype.itemsize)

    def blocks(self, rows: int | None = None) -> Iterator[np.ndarray]:
        """All rows in order, so many (:data:`ROWS`) at a time."""
        rows = rows or ROWS
        for first in range(0, self.size, rows):
            yield self.read(first, min(first + rows, self.size))


class SortedRuns:
    """Records in ascending order of their ``key``, those of equal keys in the order in which they were added.

    An external merge sort (Knuth 1998, The art of computer programming, volume 3, section 5.4): runs are sorted in
    memory and merged from disk. Iterating gives structured arrays; it may be left early and begun again.

    Args:
        folder: For the runs; made here.
        fields: Name to numpy type of what a record holds besides ``key``, a float64 that is not NaN.
    """

    def __init__(self, folder: Path, **fields: str) -> None:
        folder.mkdir()
        self._folder, self._made = folder, 0
        self._dtype = np.dtype([("key", "f8"), *fields.items()])
        self._waiting: list[np.ndarray] = []
        self._runs: list[DiskColumn] = []

    def add(self, **columns: np.ndarray) -> None:
        """Add records, an array a field."""
        records = np.empty(columns["key"].size, self._dtype)
        for name, values in columns.items():
            records[name] = values
        for first in range(0, records.size, RUN):
            self._waiting.append(records[first : first + RUN])
            if sum(part.size for part in self._waiting) >= RUN:
                self._write_run()

    def __iter__(self) -> Iterator[np.ndarray]:
        if self._waiting:
            self._write_run()
        while len(self._runs) > FAN_IN:
            groups = [self._runs[first : first + FAN_IN] for first in range(0, len(self._runs), FAN_IN)]
            self._runs = [self._joined(group) for group in groups]
        return _merged(self._runs)

    def _write_run(self) -> None:
        records, self._waiting = np.concatenate(self._waiting), []
        run = self._new_run()
        run.append(records[np.argsort(records["key"], kind="stable")])
        self._runs.append(run)

    def _new_run(self) -> DiskColumn:
        self._made += 1
        return DiskColumn(self._folder / f"run-{self._made}", self._dtype)

    def _joined(self, runs: Sequence[DiskColumn]) -> DiskColumn:
        """One run of neighbouring ones, which are removed."""
        joined = self._new_run()
        for records in _merged(runs):
            joined.append(records)
        for run in runs:
            run.path.unlink()
        return joined


def _merged(runs: Sequence[DiskColumn]) -> Iterator[np.ndarray]:
    """Sorted runs as one; of equal keys those of an earlier run come first.

    What may be given is known by the run whose block ends first: nothing that is still on disk comes before that end.
    """
    rows = max(1, RUN // max(1, len(runs)))
    streams = [run.blocks(rows) for run in runs]
    heads = [next(stream, np.empty(0, run.dtype)) for stream, run in zip(streams, runs, strict=True)]
    keys = [np.ascontiguousarray(head["key"]) for head in heads]
    while there := [place for place, head in enumerate(heads) if head.size]:
        ends = min(there, key=lambda place: (keys[place][-1], place))
        bound, taken = keys[ends][-1], []
        for place in there:
            count = int(np.searchsorted(keys[place], bound, side="right" if place <= ends else "left"))
            taken.append(heads[place][:count])
            if count == heads[place].size:
                heads[place] = next(streams[place], heads[place][:0])
                keys[place] = np.ascontiguousarray(heads[place]["key"])
            else:
                heads[place], keys[place] = heads[place][count:], keys[place][count:]
        together = np.concatenate(taken)
        yield together[np.argsort(together["key"], kind="stable")]
