"""Parse delimited text whose separator and quotes are found by looking, and find whether it has a header."""

import csv
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice, product
from typing import Any, NamedTuple

SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
NO_SEPARATOR = "\x1f"  # no text has it: each row is one cell
MOST_CHARACTERS = 1 << 27  # of a cell
QUOTES = (csv.QUOTE_MINIMAL, csv.QUOTE_NONE)


class Delimited(NamedTuple):
    """Rows of delimited text, and how they were read.

    Attributes:
        separator: Character between the cells.
        quoting: Constant of :mod:`csv` for its quotes.
        rows: Cells of each row that is not empty.
        wrong: Numbers of the rows, from 1, that have more or fewer cells than the first.
    """

    separator: str
    quoting: int
    rows: list[list[str]]
    wrong: list[int]


def parse_delimited(
    lines: Callable[[], Iterable[str]],
    is_tsv: bool,
    columns: Collection[str] = (),
    most: int | None = None,
) -> Delimited | None:
    """Parse delimited text by the separator and quotes with which the most rows have as many cells as the first.

    Args:
        lines: Returns the lines, with their ends, from the first.
        is_tsv: Whether a tab is tried first; else a comma is.
        columns: Names that its first row should have: separators with which it has them go first,
            and a text of a single column is then read, too.
        most: Number of rows to read; None for all.

    Returns:
        The rows; None if no separator divides the first line, or quotes do not match.
    """
    csv.field_size_limit(MOST_CHARACTERS)
    marks = sorted(SEPARATORS, key=lambda mark: (mark == "\t") != is_tsv)
    if columns:
        marks.append(NO_SEPARATOR)
    found = []
    for order, (mark, quoting) in enumerate(product(marks, QUOTES)):
        options: dict[str, Any] = {"delimiter": mark, "quoting": quoting, "strict": True}
        try:
            rows = [*islice(filter(None, csv.reader(lines(), **options)), most)]
        except csv.Error:  # quotes that do not match
            continue
        if not rows or (len(rows[0]) == 1 and mark != NO_SEPARATOR):
            continue
        wrong = [number for number, cells in enumerate(rows, 1) if len(cells) != len(rows[0])]
        lacks = bool({*columns} - {name.strip() for name in rows[0]})
        share = len(wrong) / len(rows)
        found.append(
            (lacks, mark == NO_SEPARATOR, share, order, Delimited(mark, quoting, rows, wrong))
        )
    return min(found)[-1] if found else None


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row holds names: names of columns do not come again in them."""
    first = rows[0]
    return not any(
        cell.strip() and any(row[position] == cell for row in rows[1:] if position < len(row))
        for position, cell in enumerate(first)
    )
