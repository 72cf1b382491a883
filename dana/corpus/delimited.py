"""Read delimited text as records, whatever separator, quotes and header it has."""

from collections.abc import Iterator, Sequence

from dana.corpus.inputs import SEPARATORS, Record
from dana.corpus.layout import NO_SEPARATOR, Layout, Lines, parse_rows


def read_rows(origin: str, lines: Lines, layout: Layout) -> Iterator[Record]:
    """Stream one record per row.

    Args:
        origin: Name of the file.
        lines: Its lines, with their ends, from the first.
        layout: How they are laid out.
    """
    stream = iter(lines)
    for _ in range(layout.skipped):
        next(stream, None)
    rows = parse_rows(stream, layout.separator, layout.has_quotes)
    if layout.has_header:
        next(rows, None)
    names = layout.names
    width = len(names) + layout.has_empty_end
    for line, cells, problem in rows:
        if problem:
            yield Record(origin, line, {}, problem)
        elif len(cells) != width or (layout.has_empty_end and cells[-1].strip()):
            yield Record(origin, line, {}, _describe_width(cells, len(names), layout))
        else:
            yield Record(origin, line, dict(zip(names, cells, strict=False)), kind="row")


def _describe_width(cells: Sequence[str], width: int, layout: Layout) -> str:
    """Say how a row differs from the header."""
    origin = "header" if layout.has_header else "first row"
    problem = f"expected {width} columns as in the {origin}, got {len(cells)}"
    if len(cells) > width and layout.separator != NO_SEPARATOR:
        mark = SEPARATORS.get(layout.separator, repr(layout.separator))
        problem += f"; quote texts that hold a {mark}"
    return problem
