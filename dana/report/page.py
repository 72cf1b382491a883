"""Page builder: sections of sentences, tables, figures and examples to one self-contained HTML file and to Markdown.

Every page of the toolkit is a :class:`Report` that :func:`write_page` writes: a run's report, the comparison of
several, and the pages of the studies.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dana.core.artifacts import write_text
from dana.core.logging import get_logger
from dana.report.svg import Figure

log = get_logger(__name__)


@dataclass(frozen=True)
class Column:
    """One shown column.

    Attributes:
        header: Its title.
        cell: A row of the frame, as a named tuple, to text.
        numeric: Whether it is set flush right.
    """

    header: str
    cell: Callable[[Any], str]
    numeric: bool = True


def text_columns(*names: str) -> tuple[Column, ...]:
    """Columns of text as it stands, each titled by the frame's column."""
    return tuple(_column(name, str, numeric=False) for name in names)


def decimals(digits: int, *names: str, sign: bool = False) -> tuple[Column, ...]:
    """Columns of numbers, each titled by the frame's column."""
    return tuple(_column(name, lambda value: number(value, digits, sign)) for name in names)


def shares(*names: str) -> tuple[Column, ...]:
    """Columns of shares in [0, 1] as percentages, each titled by the frame's column."""
    return tuple(_column(name, percent) for name in names)


def _column(name: str, shown: Callable[[Any], str], numeric: bool = True) -> Column:
    return Column(name.replace("_", " "), lambda row: shown(getattr(row, name)), numeric)


@dataclass(frozen=True)
class Table:
    """A frame and how it is shown.

    Attributes:
        name: Stem of its CSV file.
        caption: What its columns mean.
        frame: Every number, not rounded.
        columns: What is shown of it; empty shows nothing, the file is still written.
        marked: Rows to be set in bold; by default none.
        most: Show so many rows; the file has all.
        folded: Whether it is shown on demand.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    columns: tuple[Column, ...] = ()
    marked: tuple[bool, ...] = ()
    most: int = 10**6
    folded: bool = False

    def rows(self) -> Iterator[tuple[list[str], bool]]:
        """Cells of every shown row, and whether it is marked."""
        for place, row in enumerate(each(self.frame.head(self.most))):
            yield [column.cell(row) for column in self.columns], bool(self.marked and self.marked[place])

    @property
    def left_out(self) -> int:
        """Rows that only the file has."""
        return max(0, len(self.frame) - self.most)


@dataclass(frozen=True)
class Finding:
    """A number for the top of the page.

    Attributes:
        value: Formatted.
        meaning: What it is the value of, and what it would be by chance.
    """

    value: str
    meaning: str


@dataclass(frozen=True)
class UnitExample:
    """One unit to read.

    Attributes:
        text: On one line.
        note: Its numbers, formatted.
        before: The end of the unit before it in its document; empty where there is none.
        after: The beginning of the unit after it.
    """

    text: str
    note: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class SourceExamples:
    """Units of one source, or of whatever else they are grouped by."""

    source: str
    units: tuple[UnitExample, ...]


Shown = tuple[SourceExamples, ...]


@dataclass(frozen=True)
class Section:
    """One question.

    Attributes:
        question: The title.
        answer: A sentence or two with the numbers.
        figures: Drawn side by side where there is room.
        tables: Below the figures; those without columns are files alone, those that are None or empty left out.
        examples: Units to read by source, by what they are examples of.
        command: What makes it, where the run does not have it.
        code: A block of shell to copy.
    """

    question: str
    answer: str
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table | None, ...] = ()
    examples: tuple[tuple[str, Shown], ...] = ()
    command: str = ""
    code: str = ""

    @property
    def shown(self) -> list[Table]:
        """Tables on the page."""
        return [table for table in self.files if table.columns]

    @property
    def files(self) -> list[Table]:
        """Tables that there are; each is a CSV file."""
        return [table for table in self.tables if table is not None and len(table.frame)]


@dataclass(frozen=True)
class Report:
    """A whole page and its files.

    Attributes:
        name: Of the run, or of what else the page is about.
        verdict: The first sentence.
        highlights: A few numbers.
        sections: In reading order.
        versions: Package to version.
        figure_folder: Where the figures are written as SVG and PNG, too, below the page's folder; empty writes none.
    """

    name: str
    verdict: str
    highlights: list[Finding]
    sections: list[Section]
    versions: dict[str, str] = field(default_factory=dict)
    figure_folder: str = ""

    @property
    def tables(self) -> list[Table]:
        """Every table."""
        return [table for section in self.sections for table in section.files]

    @property
    def figures(self) -> list[Figure]:
        """Every figure."""
        return [figure for section in self.sections for figure in section.figures]


def write_page(report: Report, folder: Path, stem: str) -> Path:
    """Write ``STEM.html``, ``STEM.md``, ``tables/NAME.csv`` and the figures' files; the same report, the same bytes.

    Returns:
        The path of the HTML file, which needs no other.
    """
    for table in report.tables:
        write_text(folder / "tables" / f"{table.name}.csv", table.frame.to_csv(index=False))
    for figure in report.figures if report.figure_folder else ():
        figure.write(folder / report.figure_folder)
    write_text(folder / f"{stem}.md", to_markdown(report))
    page = folder / f"{stem}.html"
    write_text(page, to_html(report))
    log.info("%-9s written  %s", "report", page)
    return page


def to_html(report: Report) -> str:
    """A page with its drawings and styles inside: light, dark and paper, no script."""
    return _fill("report.html.jinja", report, escape=True)


def to_markdown(report: Report) -> str:
    """The same words and tables; drawings are linked where they are files."""
    return _fill("report.md.jinja", report, escape=False)


def _fill(template: str, report: Report, escape: bool) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["plain"] = markdown_text
    return environment.get_template(template).render(report=report)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, also within a table: its marks escaped, on one line."""
    escaped = "".join(f"\\{letter}" if letter in r"\`*_{}[]<>#|~$" else letter for letter in text)
    return " ".join(escaped.split())


def each(frame: pd.DataFrame) -> Iterator[Any]:
    """Rows as named tuples."""
    yield from frame.itertuples(index=False)


def number(value: float | None, digits: int = 3, sign: bool = False) -> str:
    """A number with a true minus; an en dash where there is none."""
    if value is None or not np.isfinite(value):
        return "–"
    value = round(float(value), digits) + 0.0  # no minus before a zero
    return f"{value:{'+' if sign else ''},.{digits}f}".replace("-", "−")


def percent(share: float | None, digits: int = 1) -> str:
    """A share in [0, 1] as a percentage."""
    return "–" if share is None or not np.isfinite(share) else f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def interval_text(low: float, high: float, digits: int = 4) -> str:
    """Both ends of an interval; an en dash for one that cannot be computed."""
    return f"{number(low, digits, sign=True)} to {number(high, digits, sign=True)}" if np.isfinite(low) else "–"
