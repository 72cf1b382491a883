"""Find how delimited text is laid out: separator, quotes, header, and lines before the header.

The first thousand lines decide. What :class:`dana.corpus.inputs.Inputs` says is not looked for.
"""

import csv
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

from dana.core.errors import Damage
from dana.corpus.inputs import SEPARATORS, Inputs

NO_SEPARATOR = "\x1f"  # no text has it: each row is one cell
MOST_CHARACTERS = 1 << 27  # of a cell
LINES_OF_SAMPLE = 1000
CHARACTERS_OF_SAMPLE = 1 << 22
MOST_LEADING = 20  # lines before the header
MOST_WRONG = 0.05  # share of odd rows, above which lines before a header are not believed
EXCEL_HINT = re.compile(r'\ufeff?"?sep=(.)"?[,;\s]*')  # first line of some tables of Excel

Lines = Iterable[tuple[int, str]]  # line number and line


class Row(NamedTuple):
    """A row of delimited text.

    Attributes:
        line: Number of its first line.
        cells: Its cells; empty if it cannot be read.
        problem: Why it cannot be read, or empty.
    """

    line: int
    cells: list[str]
    problem: str = ""


@dataclass(frozen=True)
class Layout:
    """How delimited text, or a sheet, is laid out.

    Attributes:
        separator: Character between the cells.
        has_quotes: Whether quotation marks enclose cells.
        names: Names of the columns; those without a name have their number, from 1.
        has_header: Whether the first row names the columns.
        skipped: Number of lines before the header, or before the first row without one.
        has_empty_end: Whether each row ends in a separator that the header lacks.
        lead: The first of the skipped lines.
        is_even: Whether all rows of the sample have the cells of the header.
    """

    separator: str
    has_quotes: bool
    names: tuple[str, ...]
    has_header: bool
    skipped: int = 0
    has_empty_end: bool = False
    lead: str = ""
    is_even: bool = True

    def describe(self) -> str:
        """Say in words what was found."""
        words = []
        if self.separator != NO_SEPARATOR:
            name = SEPARATORS.get(self.separator)
            words.append(f"separated by {name}s" if name else f"separated by {self.separator!r}")
        if self.separator == NO_SEPARATOR:
            words.append("one column")
        if not self.has_header:
            columns = "columns 1"
            if len(self.names) > 1:
                columns += f" to {len(self.names)}"
            words.append(f"no header: {columns}")
        if self.skipped:
            noun = "line" if self.skipped == 1 else "lines"
            words.append(f"{self.skipped} {noun} before the header left out ({self.lead!r})")
        return "; ".join(words)

    @property
    def is_plain(self) -> bool:
        """Whether it is what a file's name promises: a header first, and nothing skipped."""
        return self.has_header and not self.skipped


def find_layout(
    lines: Callable[[], Lines], wanted: Sequence[str], is_tsv: bool, inputs: Inputs
) -> Layout | None:
    """Find the layout with which most rows have as many cells as the header.

    Args:
        lines: Returns the lines, with their ends, from the first.
        wanted: Names that the header may have; a separator with which it has them goes first.
        is_tsv: Whether a tab is tried first; else a comma is.
        inputs: Says what is not to be looked for.

    Returns:
        The layout; None if there is no row.

    Raises:
        Damage: If the header names a column twice.
    """
    stream = iter(lines())
    left_out = list(islice(stream, inputs.skip_lines or 0))
    sample, is_cut = _sample(stream)
    marks = sorted(SEPARATORS, key=lambda mark: (mark == "\t") != is_tsv)
    marks.append(NO_SEPARATOR)
    if sample and not left_out:
        hint = EXCEL_HINT.fullmatch(sample[0][1].strip("\r\n"))
        if hint:
            left_out = [sample.pop(0)]
            marks = [hint[1]]
    if inputs.mark is not None:
        marks = [inputs.mark]
    best = _best_reading(sample, is_cut, marks, wanted, inputs)
    if best is None:
        return None
    has_quotes = best.has_quotes
    if best.mark == "\t" and inputs.quotes is None:
        has_quotes = has_quotes and _encloses(sample, best.rows, is_cut)
    before = len(left_out)
    if best.guess.start:
        first_line = best.rows[best.guess.start].line
        titles = [row for row in sample if row[0] < first_line]
        before += len(titles)
        left_out += [row for row in titles if row[0] >= best.rows[0].line]
    lead = ""
    if left_out:
        lead = left_out[0][1].strip()
    header_line = best.rows[best.guess.start].line
    return best.guess.layout(best.mark, has_quotes, before, lead[:60], header_line)


class _Reading(NamedTuple):
    """A sample as it is read by one separator, in quotes or not.

    The reading with the least :attr:`order` is the best.
    """

    order: tuple[Any, ...]
    mark: str
    has_quotes: bool
    guess: "_Guess"
    rows: list[Row]

    @property
    def is_perfect(self) -> bool:
        """Whether it has a name that is wanted, several columns, and all rows fit."""
        return self.order[:3] == (False, False, 0)


def _best_reading(
    sample: list[tuple[int, str]],
    is_cut: bool,
    marks: Sequence[str],
    wanted: Sequence[str],
    inputs: Inputs,
) -> _Reading | None:
    """Read a sample by each separator, in quotes and not, and return the best reading.

    It is None if there is no row.
    """
    has_marks = any('"' in line for _, line in sample)
    quotes = [True, False] if has_marks else [True]
    if inputs.quotes is not None:
        quotes = [inputs.quotes]
    best: _Reading | None = None
    for place, mark in enumerate(marks):
        for has_quotes in quotes:
            rows = _rows_of_sample(sample, mark, has_quotes, is_cut)
            guess = _Guess.of(rows, wanted, inputs)
            is_needed = len(marks) == 1 or mark == NO_SEPARATOR
            if guess is None or (guess.width == 1 and not is_needed):
                continue
            if mark == NO_SEPARATOR and not has_quotes and _spans_lines(best):
                continue  # any line is a row of one column, so this reading always fits
            # Quotes are text where all rows fit so, but for tabs, with which few programs quote.
            is_partial = not has_quotes and len(quotes) > 1 and mark != "\t"
            is_partial = is_partial and (guess.wrong > 0 or _has_pairs(rows))
            order = (
                not guess.has_wanted,
                mark == NO_SEPARATOR,
                guess.wrong + is_partial,
                place,
                # Of two readings that fit alike, one with fewer rows has swallowed some in quotes.
                -len(rows),
                not has_quotes,
            )
            if best is None or order < best.order:
                best = _Reading(order, mark, has_quotes, guess, rows)
        if best is not None and best.mark == mark and best.is_perfect:
            break
    return best


def layout_of_cells(
    rows: Sequence[Sequence[str]], wanted: Sequence[str], inputs: Inputs
) -> tuple[Layout, int] | None:
    """Find the header of rows that are cells already, as those of a sheet.

    Returns:
        The layout, and the place of the header's row; None if no row has a filled cell.
    """
    skipped = inputs.skip_lines or 0
    numbered = [Row(number, [*cells]) for number, cells in enumerate(rows, 1)]
    filled = [row for row in numbered[skipped:] if any(map(str.strip, row.cells))]
    guess = _Guess.of(filled, wanted, inputs, is_sheet=True)
    if guess is None:
        return None
    header_line = filled[guess.start].line
    first = header_line - 1
    lead = ""
    if first:
        lead = " ".join(rows[0]).strip()
    return guess.layout(NO_SEPARATOR, False, first, lead[:60], header_line), first


def _sample(lines: Lines) -> tuple[list[tuple[int, str]], bool]:
    """Return the first lines, and whether there are more."""
    sample: list[tuple[int, str]] = []
    characters = 0
    try:
        for number, line in lines:
            if len(sample) == LINES_OF_SAMPLE or characters > CHARACTERS_OF_SAMPLE:
                return sample, True
            sample.append((number, line))
            characters += len(line)
    except Damage:  # reported when the rows are read
        if not sample:
            raise
        return sample, True
    return sample, False


def _rows_of_sample(sample: Lines, separator: str, has_quotes: bool, is_cut: bool) -> list[Row]:
    """Parse a sample; of one that is cut, the last row may be, too, and is left out."""
    rows = [Row(*row) for row in parse_rows(sample, separator, has_quotes, is_cut)]
    if is_cut and len(rows) > 1:
        return rows[:-1]
    return rows


def _spans_lines(best: _Reading | None) -> bool:
    """Return whether a reading in quotes has cells of several lines."""
    if best is None:
        return False
    cells = chain.from_iterable(row.cells for row in best.rows)
    return any("\n" in cell for cell in cells)


def _has_pairs(rows: Sequence[Row]) -> bool:
    """Return whether quotation marks mostly come in pairs around separators: they are no text."""
    opening = 0
    paired = 0
    is_open = False  # a cell of several lines closes in another row
    for row in rows:
        for cell in map(str.strip, row.cells):
            if cell.count('"') % 2 == 0:
                continue
            if is_open and cell.endswith('"'):
                paired += 1
                is_open = False
            elif cell.startswith('"'):
                opening += 1
                is_open = True
    return paired * 2 > opening


def _encloses(sample: Lines, rows: list[Row], is_cut: bool) -> bool:
    """Return whether quotation marks enclose a cell of a sample, instead of being text."""
    as_text = _rows_of_sample(sample, "\t", False, is_cut)
    return [row.cells for row in as_text] != [row.cells for row in rows]


def parse_rows(
    lines: Lines, separator: str, has_quotes: bool, is_cut: bool = False
) -> Iterator[tuple[int, list[str], str]]:
    """Parse delimited text into rows, as :class:`Row` has them; empty lines are none.

    A row whose quotes do not match is lost alone: what follows its first line is read again.

    Args:
        lines: Numbers and lines, with their ends.
        separator: Character between the cells.
        has_quotes: Whether quotation marks enclose cells.
        is_cut: Whether a row that is open at the end is complete beyond it, and no error.
    """
    return _RowParser(lines, separator, has_quotes).rows(is_cut)


class _RowParser:
    """A parser of delimited text that reads the lines of a row with unmatched quotes again.

    It goes back to the second line of such a row.
    """

    def __init__(self, lines: Lines, separator: str, has_quotes: bool) -> None:
        csv.field_size_limit(MOST_CHARACTERS)
        self._options: dict[str, Any] = {
            "delimiter": separator,
            "quoting": csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE,
            "strict": True,
        }
        self._lines = iter(lines)
        self._again: deque[tuple[int, str]] = deque()
        self._taken: list[tuple[int, str]] = []  # lines of the row that is being read
        self._is_at_end = False

    def rows(self, is_cut: bool) -> Iterator[tuple[int, list[str], str]]:
        """Stream the rows, as plain tuples, which are faster."""
        taken = self._taken
        reader = csv.reader(self._feed(), **self._options)
        while True:
            taken.clear()
            try:
                cells = next(reader, None)
            except csv.Error as error:
                if self._is_at_end and is_cut:
                    return
                yield self._bad_row(error)
                reader = csv.reader(self._feed(), **self._options)
                continue
            if cells is None:
                return
            if cells:
                yield taken[0][0], cells, ""

    def _feed(self) -> Iterator[str]:
        """Yield the lines to parse, first those that are read again."""
        self._is_at_end = False
        take = self._taken.append
        while self._again:
            item = self._again.popleft()
            take(item)
            yield item[1].replace("\x00", "")
        for item in self._lines:
            take(item)
            yield item[1].replace("\x00", "")
        self._is_at_end = True

    def _bad_row(self, error: csv.Error) -> tuple[int, list[str], str]:
        """Return the row that cannot be parsed, and read the lines behind its first one again."""
        first, *others = self._taken
        self._again.extendleft(reversed(others))
        problem = f"not CSV: {error}"
        if "new-line" in str(error):
            problem = "not CSV: a carriage return within a cell that is not quoted"
        if others:
            problem += f" in line {others[-1][0]}, inside the quotes that open here"
        return first[0], [], problem


class _Guess(NamedTuple):
    """A reading of the first rows.

    Attributes:
        start: Place of the first row: the header, or the first of the others.
        names: Names of the columns.
        has_header: Whether the first row holds them.
        has_wanted: Whether a wanted name is among its columns; numbers are the names of columns
            without a header.
        wrong: Share of rows with more or fewer cells.
        has_empty_end: See :class:`Layout`.
    """

    start: int
    names: tuple[str, ...]
    has_header: bool
    has_wanted: bool
    wrong: float
    has_empty_end: bool

    @property
    def width(self) -> int:
        return len(self.names)

    def layout(
        self, mark: str, has_quotes: bool, skipped: int, lead: str, header_line: int
    ) -> Layout:
        """Make the layout.

        Raises:
            Damage: If the header, which is in line `header_line`, names a column twice.
        """
        _check_names(self.names, header_line)
        return Layout(
            separator=mark,
            has_quotes=has_quotes,
            names=self.names,
            has_header=self.has_header,
            skipped=skipped,
            has_empty_end=self.has_empty_end,
            lead=lead,
            is_even=self.wrong == 0,
        )

    @classmethod
    def of(
        cls, rows: Sequence[Row], wanted: Sequence[str], inputs: Inputs, is_sheet: bool = False
    ) -> "_Guess | None":
        """Read the first rows; None if there is none."""
        if not rows:
            return None
        start = 0
        if inputs.skip_lines is None:
            start = _start_of_table(rows, wanted, is_sheet)
        first = [cell.strip() for cell in rows[start].cells]
        if not first:
            return None
        others = [row.cells for row in rows[start + 1 :]]
        has_header = inputs.header
        if has_header is None:
            has_header = _has_header(rows[start].cells, others, wanted)
        has_empty_end = False
        if has_header:
            has_wanted = bool({*wanted} & {*first})
            names, has_empty_end = _names_by_header(first, others)
        else:
            names = [str(number) for number in range(1, len(first) + 1)]
            has_wanted = bool({*wanted} & {*names})
            if len(names) == 1 and wanted:
                names = [wanted[0]]
        expected = len(names) + has_empty_end
        wrong = sum(len(cells) != expected for cells in others) / max(1, len(others))
        return cls(start, tuple(names), has_header, has_wanted, wrong, has_empty_end)


def _names_by_header(first: list[str], others: Sequence[Sequence[str]]) -> tuple[list[str], bool]:
    """Name the columns below a header.

    Args:
        first: The cells of the header, without white space at their ends.
        others: The cells of the other rows.

    Returns:
        The names, and whether each row ends in an empty cell that the header lacks.
    """
    has_empty_end = False
    is_longer = bool(others) and all(len(cells) == len(first) + 1 for cells in others)
    if is_longer and len(first) > 1:
        has_empty_end = all(not cells[-1].strip() for cells in others)
        has_numbers = all(cells[0] == str(row) for row, cells in enumerate(others, 1))
        if has_numbers and not has_empty_end:
            first = ["", *first]  # R numbers the rows in a column without a name
    names = []
    for number, name in enumerate(first, 1):
        if not name:
            # pandas writes the columns "", 0, 1 and so on, of which one is named like the number.
            name = f"column {number}" if str(number) in first else str(number)
        names.append(name)
    return names, has_empty_end


def _start_of_table(rows: Sequence[Row], wanted: Sequence[str], is_sheet: bool) -> int:
    """Return the place of the first row of the table; 0 where what follows is too uneven."""
    counts = Counter(len(row.cells) for row in rows)
    usual = max(counts, key=lambda width: (counts[width], width))
    start = _leading_rows(rows, usual, wanted, is_sheet)
    odd = sum(len(row.cells) != usual for row in rows[start:])
    if odd > MOST_WRONG * (len(rows) - start):
        return 0
    return start


def _leading_rows(rows: Sequence[Row], usual: int, wanted: Sequence[str], is_sheet: bool) -> int:
    """Count the rows at the beginning that are no rows of the table: titles and comments.

    They have one filled cell at most, or begin with a comment's mark, and another number of cells
    than the table, unless a title is followed by empty cells, as in spreadsheets, or a comment by
    the names that are wanted.
    """
    alike = sum(len(row.cells) == usual for row in rows)
    if usual < 2 or 2 * alike <= len(rows):
        return 0
    names = [{*map(str.strip, row.cells)} for row in rows[: MOST_LEADING + 1]]
    last = max((place for place, cells in enumerate(names) if cells & {*wanted}), default=0)
    for place, row in enumerate(rows[: MOST_LEADING + 1]):
        if row.problem or names[place] & {*wanted}:
            return place
        filled = [number for number, cell in enumerate(row.cells) if cell.strip()]
        is_odd = len(row.cells) != usual
        is_title = filled in ([], [0]) and (is_odd or usual > 2 or is_sheet)
        has_mark = bool(row.cells) and row.cells[0].lstrip().startswith("#")
        is_comment = has_mark and (is_odd or place < last)
        if not is_title and not is_comment:
            return place
    return 0


def _has_header(
    first: Sequence[str], others: Sequence[Sequence[str]], wanted: Sequence[str]
) -> bool:
    """Return whether the first row holds names.

    It does if it has a name that is wanted, or if no cell of it comes again in its column.
    """
    if {*wanted} & {cell.strip() for cell in first}:
        return True
    if wanted and all(name.isdecimal() for name in wanted):  # of a table without a header
        return False
    for place, cell in enumerate(first):
        if cell.strip() and any(row[place] == cell for row in others if place < len(row)):
            return False
    return True


def _check_names(names: Sequence[str], header_line: int) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise Damage(header_line, f"the header names the column {name!r} twice; rename one")
