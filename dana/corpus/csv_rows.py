"""CSV and TSV files to records; an unclosed quote is a bad record of its own line, not of the rest of the file."""

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from dana.core.errors import Damage
from dana.core.storage import File
from dana.corpus.records import Record

LONGEST_RECORD = 100_000  # lines
SUSPICIOUS = 20  # lines of a record; those of longer ones are checked for being rows themselves
ALIKE = 0.9  # share of these lines that are rows where the quote is taken for unclosed


def parse_csv(path: File, lines: Iterator[tuple[int, str]], delimiter: str) -> Iterator[Record]:
    """A record a row, after a header.

    A quote that is opened and not closed, or closed so far below that the lines between are rows themselves, makes a
    bad record of its own line alone: the lines below are read again.

    Args:
        path: Where they come from.
        lines: With their numbers.
        delimiter: Between columns.

    Raises:
        Damage: If the header names a column twice.
    """
    csv.field_size_limit(1 << 30)
    feed = _Feed(lines)
    reader = csv.reader(feed, delimiter=delimiter, strict=True)  # else an open quote swallows the file in silence
    header: list[str] | None = None
    while True:
        feed.taken.clear()
        try:
            row = next(reader, None)
            problem = ""
        except csv.Error as error:
            row, problem = [], f"not CSV: {error}"
        if row is None:
            return
        line = feed.taken[0][0]
        if header is None and not problem:
            header = _names(row, line)
            continue
        columns = len(header or ())
        if not problem and row and len(row) != columns:
            problem = f"{len(row)} columns where the header has {columns}"
        swallowed = 0 if problem else _rows_within(feed.taken, columns, delimiter)
        if swallowed:
            problem = (
                f"not CSV: a quote that opens here closes {len(feed.taken) - 1:,} lines below, and {swallowed:,} of the"
                " lines between are rows themselves"
            )
        if problem:
            feed.give_back()
            yield Record(str(path), line, {}, problem)
        elif row:
            yield Record(str(path), line, dict(zip(header or (), row, strict=True)), kind="row")


def _names(row: list[str], line: int) -> list[str]:
    header = [name.strip() for name in row]
    twice = [name for place, name in enumerate(header) if name and name in header[:place]]
    if twice:
        raise Damage(line, f"the header names the column {twice[0]!r} twice")
    return header


def _rows_within(taken: list[tuple[int, str]], columns: int, delimiter: str) -> int:
    """Lines within a record that are rows of the table themselves; 0 where fewer than 90 % of them are."""
    within = [line for _, line in islice(taken, 1, len(taken) - 1) if line.strip()]
    if len(within) < SUSPICIOUS or columns < 2:
        return 0
    rows = sum(_columns(line, delimiter) == columns for line in within)
    return rows if rows >= ALIKE * len(within) else 0


def _columns(line: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader([line], delimiter=delimiter, strict=True)))
    except csv.Error:
        return 0


class _Feed:
    """Lines for a CSV reader that can be given back, to read those within an unclosed quote again."""

    def __init__(self, lines: Iterable[tuple[int, str]]) -> None:
        self.taken: list[tuple[int, str]] = []
        self._lines = iter(lines)
        self._again: deque[tuple[int, str]] = deque()

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        if len(self.taken) == LONGEST_RECORD:  # the reader takes it for the end of the file
            raise StopIteration
        self.taken.append(self._again.popleft() if self._again else next(self._lines))
        return self.taken[-1][1].replace("\x00", "")

    def give_back(self) -> None:
        """All lines but the first."""
        self._again.extendleft(reversed(self.taken[1:]))
