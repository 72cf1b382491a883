"""Build a page of sentences, tables, figures and examples as one HTML file and as Markdown.

The HTML file needs no other file. Every page of dana is a :class:`Report` written by
:func:`write_page`: the report of a run, the comparison of several runs, and the pages of the
studies.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dana.core.artifacts import read_json, write_json, write_text
from dana.core.errors import ArtifactError
from dana.core.logging import get_logger
from dana.core.text_table import csv_text
from dana.report.svg import Figure

# Characters that make text read in another order than it is written.
REORDERING = re.compile("[\u202a-\u202e\u2066-\u2069]")
NOISE = 1e-12  # of a sum that is zero
# Titles of columns that differ from their names in the frame.
HEADERS = {
    "f1_mean": "F1",
    "auroc_mean": "AUROC",
    "ap_mean": "average precision",
    "fit_s": "fit (s)",
    "score_s": "score (s)",
    "recall_5": "recall at 5\N{NO-BREAK SPACE}%",
    "recall_20": "recall at 20\N{NO-BREAK SPACE}%",
    "auroc": "AUROC",
    "auroc_against_pool": "AUROC against pool",
    "spearman_score_length": "score ~ length (Spearman)",
    "degenerate": "collapsed",
    "error": "standard error",
    "std": "deviation",
    "detectable": "difference that would show",
}
log = get_logger(__name__)


@dataclass(frozen=True)
class Column:
    """One column of a table on the page.

    Attributes:
        header: Title.
        cell: Function that formats a row of the frame, a named tuple, as text.
        numeric: Align right.
    """

    header: str
    cell: Callable[[Any], str]
    numeric: bool = True


def text_columns(*names: str) -> tuple[Column, ...]:
    """Make columns of text, each titled by its name in the frame."""
    return tuple(_column(name, str, numeric=False) for name in names)


def decimals(digits: int, *names: str, sign: bool = False) -> tuple[Column, ...]:
    """Make columns of numbers, each titled by its name in the frame."""
    return tuple(_column(name, lambda value: number(value, digits, sign)) for name in names)


def shares(*names: str) -> tuple[Column, ...]:
    """Make columns of percentages from shares in [0, 1], each titled by its name in the frame."""
    return tuple(_column(name, percent) for name in names)


def _column(name: str, format_value: Callable[[Any], str], numeric: bool = True) -> Column:
    """Make a column of the values that have a name in the frame."""
    header = HEADERS.get(name, name.replace("_", " "))
    return Column(header, lambda row: format_value(getattr(row, name)), numeric)


@dataclass(frozen=True)
class Table:
    """A table of the page and its CSV file.

    Attributes:
        name: Stem of the CSV file.
        caption: Explanation of the columns.
        frame: All values, not rounded; the content of the CSV file.
        columns: Columns on the page; if empty, only the file is written.
        bold: Whether to set each row in bold; empty for none.
        grey: Whether to show each row as no measurement; empty for none.
        max_rows: Number of rows on the page; the file has all.
        folded: Show only on demand.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    columns: tuple[Column, ...] = ()
    bold: tuple[bool, ...] = ()
    grey: tuple[bool, ...] = ()
    max_rows: int = 10**6
    folded: bool = False

    def rows(self) -> Iterator[tuple[list[str], str]]:
        """Yield the cells of each row on the page, and its class: ``marked``, ``grey`` or empty."""
        for index, row in enumerate(each(self.frame.head(self.max_rows))):
            look = ""
            if self.bold and self.bold[index]:
                look = "marked"
            elif self.grey and self.grey[index]:
                look = "grey"
            yield [column.cell(row) for column in self.columns], look

    @property
    def hidden_rows(self) -> int:
        """Number of rows that are only in the file."""
        return max(0, len(self.frame) - self.max_rows)


@dataclass(frozen=True)
class Finding:
    """A number at the top of the page.

    Attributes:
        value: Formatted value.
        meaning: Explanation, with the value expected by chance.
    """

    value: str
    meaning: str


@dataclass(frozen=True)
class UnitExample:
    """One unit of text as an example.

    Attributes:
        text: Text on one line.
        note: What is said of it, such as its score.
        before: End of the previous unit of the document; empty if there is none.
        after: Beginning of the next unit.
    """

    text: str
    note: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class SourceExamples:
    """Example units of one source, or of another group."""

    source: str
    units: tuple[UnitExample, ...]


ExamplesBySource = tuple[SourceExamples, ...]


@dataclass(frozen=True)
class ExampleGroup:
    """Examples of text below the tables of a section.

    Attributes:
        title: What they are.
        examples: The texts, by source or another heading.
        folded: Show only on demand.
    """

    title: str
    examples: ExamplesBySource
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """One section of the page, a question and its answer.

    Attributes:
        question: Title.
        answer: A sentence or two with the numbers.
        figures: Figures, side by side if there is room.
        tables: Tables below the figures. Those without columns are written as files only; None and
            empty are skipped.
        examples: Groups of texts; empty ones are skipped.
        command: Command that makes the missing results.
        code: Shell commands to copy.
    """

    question: str
    answer: str
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table | None, ...] = ()
    examples: tuple[ExampleGroup, ...] = ()
    command: str = ""
    code: str = ""

    @property
    def visible_tables(self) -> list[Table]:
        """Tables shown on the page."""
        return [table for table in self.files if table.columns]

    @property
    def shown_examples(self) -> list[ExampleGroup]:
        """Groups that have a text."""
        return [group for group in self.examples if group.examples]

    @property
    def files(self) -> list[Table]:
        """Tables that are written as CSV files."""
        return [table for table in self.tables if table is not None and len(table.frame)]


@dataclass(frozen=True)
class Report:
    """A page and its files.

    Attributes:
        name: Name of the run or other subject.
        verdict: First sentence of the page.
        highlights: Numbers at the top of the page.
        sections: Sections in reading order.
        versions: Versions of packages by name.
        figure_folder: Folder for the figures as SVG and PNG, relative to the page; empty writes
            none.
        notes: Sentences below the numbers.
    """

    name: str
    verdict: str
    highlights: list[Finding]
    sections: list[Section]
    versions: dict[str, str] = field(default_factory=dict)
    figure_folder: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def tables(self) -> list[Table]:
        """Every table."""
        return [table for section in self.sections for table in section.files]

    @property
    def figures(self) -> list[Figure]:
        """Every figure."""
        return [figure for section in self.sections for figure in section.figures]


def write_page(report: Report, folder: Path, stem: str) -> Path:
    """Write ``STEM.html``, ``STEM.md``, ``tables/NAME.csv`` and figures.

    Equal reports give the same bytes. All texts are made before the first file is written. Tables that
    only an earlier page of this stem had are removed; ``tables/STEM.json`` lists those of the page,
    because pages of other stems may have theirs in the same folder.

    Returns:
        Path of the HTML file, which needs no other file.
    """
    page = folder / f"{stem}.html"
    tables = folder / "tables"
    texts = {}
    for table in report.tables:
        texts[tables / f"{table.name}.csv"] = csv_text(table.frame)
    names = [file.name for file in texts]
    texts[page.with_suffix(".md")] = to_markdown(report)
    texts[page] = to_html(report)
    if report.figure_folder:
        for figure in report.figures:
            figure.write(folder / report.figure_folder)
    listing = tables / f"{stem}.json"
    earlier_names = _listed_names(listing)
    for file in tables.glob("*.csv"):
        if file.name in earlier_names and file.name not in names:
            file.unlink(missing_ok=True)  # another process may be writing this page
    write_json(listing, names)
    for file, text in texts.items():
        write_text(file, text)
    log.info("%-9s written  %s", "report", page)
    return page


def _listed_names(listing: Path) -> list[Any]:
    """Read the names of the tables of an earlier page; empty without one, and from a damaged list.

    The page that is written now writes the list anew, so damage is no error.
    """
    try:
        names = read_json(listing)
    except ArtifactError:
        return []
    return names if isinstance(names, list) else []


def to_html(report: Report) -> str:
    """Render a report as HTML with inline figures and styles (light, dark, print), no scripts."""
    return _fill("report.html.jinja", report, escape=True)


def to_markdown(report: Report) -> str:
    """Render a report as Markdown; figures are linked if they are written as files."""
    return _fill("report.md.jinja", report, escape=False)


def _fill(template: str, report: Report, escape: bool) -> str:
    """Fill a template of this folder with a report."""
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
    return REORDERING.sub("", environment.get_template(template).render(report=report))


def markdown_text(text: str) -> str:
    """Escape text for Markdown, tables included, on one line."""
    escaped_text = re.sub(r"[\\`*_{}\[\]<>#|~$]", r"\\\g<0>", text)
    return " ".join(escaped_text.split())


def each(frame: pd.DataFrame) -> Iterator[Any]:
    """Iterate over rows as named tuples."""
    yield from frame.itertuples(index=False)


def number(value: float | None, digits: int = 3, sign: bool = False) -> str:
    """Format a number with a true minus sign; an en dash for None, NaN and infinity."""
    if value is None or not np.isfinite(value):
        return "–"
    if not sign or abs(value) < NOISE:
        value = round(float(value), digits) + 0.0  # no minus before a zero
    plus = "+" if sign else ""
    return f"{value:{plus},.{digits}f}".replace("-", "−")


def p_text(p: float) -> str:
    """Format a p value; "< 0.0001" below that."""
    return "< 0.0001" if p < 0.0001 else number(p, 4)


def percent(share: float | None, digits: int = 1) -> str:
    """Format a share in [0, 1] as a percentage; an en dash for None, NaN and infinity."""
    if share is None or not np.isfinite(share):
        return "–"
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def interval_text(low: float, high: float, digits: int = 4, sign: bool = True) -> str:
    """Format an interval; an en dash if it is not finite."""
    if not np.isfinite(low):
        return "–"
    return f"{number(low, digits, sign)} to {number(high, digits, sign)}"


def plain_value(value: Any) -> str:
    """Format the value of a setting or a count in words.

    Lists and dictionaries have no brackets and quotes; None and empty ones are "none".
    """
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {plain_value(part)}" for key, part in value.items()) or "none"
    if isinstance(value, list | tuple):
        is_nested = any(isinstance(part, dict | list) for part in value)
        separator = "; " if is_nested else ", "
        return separator.join(map(plain_value, value)) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
