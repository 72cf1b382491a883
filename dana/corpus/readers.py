"""Read sources as a stream of records, each with its file and line.

Commands, recipes and the Python interface all read through these functions.

============================  ==========================================================
``.jsonl .ndjson .json``      JSON lines, an array of objects, or objects over lines
``.csv .tsv``                 a table; separator, quotes and header are found by looking
``.parquet .arrow``           one record per row
``.xlsx .xls .ods``           the first sheet with a cell
``.txt``                      one document per line, paragraph or file; or a table
without a suffix, ``-``       JSON, a table or text, whatever its beginning is
``hf:name``                   ``hf:org/name[@revision][:config][:split]``, streamed
============================  ==========================================================

Text may be packed and in any encoding (:mod:`dana.core.lines`). A ``.txt`` file is a table where a
table is expected, or where its first line divides into the columns that are wanted. Folders of the
form ``name=value`` directly above a file add a column, unless the file has one of this name.
:mod:`dana.corpus.sources` finds the files of a source.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dana.core.errors import Damage, DataError
from dana.core.lines import codec_of, read_lines
from dana.core.logging import get_logger
from dana.core.storage import File, RemoteFile, file_size
from dana.corpus.columnar import read_arrow, read_parquet
from dana.corpus.delimited import read_rows
from dana.corpus.hub import is_hub, read_hub
from dana.corpus.inputs import Inputs, Record
from dana.corpus.json_values import is_json_start, read_json
from dana.corpus.layout import NO_SEPARATOR, Layout, find_layout
from dana.corpus.sheets import PACKAGES, Sheet
from dana.corpus.sources import Source, expand, format_of, path_keys

log = get_logger(__name__)

Lines = Iterable[tuple[int, str]]  # line number and line

LAYOUT_SAMPLE = 1 << 24  # characters of plain text that decide its layout
# Lines; with longer paragraphs on average, blank lines do not separate paragraphs.
MAX_PARAGRAPH = 20
PARQUET = b"PAR1"  # at both ends of a Parquet file
# First bytes of other binary files, as long as they are: text may begin with a part of them.
BINARY = {
    b"ARROW1\x00\x00": ".arrow",
    b"PK\x03\x04": ".xlsx",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ".xls",
}
USUAL = {".csv": ",", ".tsv": "\t"}  # separator that a name promises
MOST_SAID = 10  # files of which the same is said

_said: Counter[str] = Counter()


def read_records(
    sources: Sequence[Source], inputs: Inputs | None = None, is_table: bool = False
) -> Iterator[Record]:
    """Stream the records of all sources, in order, files of folders and globs sorted by name.

    An empty, damaged or truncated file ends with a bad record.

    Args:
        sources: Files, folders, globs, URLs, ``hf:`` names, ``-`` for standard input.
        inputs: How files are read; ``text_field`` names columns that tables may have.
        is_table: Whether text is a table where it could be plain text.

    Raises:
        DataError: If a source is missing, has an unknown format, or cannot be read.
    """
    for source in sources:
        if is_hub(source):
            yield from read_hub(source)  # type: ignore[arg-type]
        else:
            for path in expand(source):
                yield from read_file(path, inputs, is_table)


def read_file(
    path: File,
    inputs: Inputs | None = None,
    is_table: bool = False,
    errors: str = "replace",
    groups: range | None = None,
    layout: Layout | None = None,
) -> Iterator[Record]:
    """Stream the records of one file.

    Args:
        path: The file.
        inputs: See :func:`read_records`.
        is_table: See :func:`read_records`.
        errors: Handling of bytes that are no text, see :func:`dana.core.lines.read_lines`.
        groups: Row groups to read of a Parquet file; None for all.
        layout: How a table is laid out; None looks, and says what was found.
    """
    inputs = inputs or Inputs()
    keys = path_keys(path)
    records = _records(path, inputs, is_table, errors, groups, layout)
    if not keys:
        yield from records
        return
    for record in records:
        yield with_keys(record, keys)


def with_keys(record: Record, keys: dict[str, str]) -> Record:
    """Add the keys of its path to a record's fields."""
    if record.problem or not keys:
        return record
    return replace(record, fields={**keys, **record.fields})


def _records(
    path: File,
    inputs: Inputs,
    is_table: bool,
    errors: str,
    groups: range | None,
    layout: Layout | None,
) -> Iterator[Record]:
    origin = str(path)
    try:
        if file_size(path) == 0:
            raise Damage(1, "the file is empty")
        kind = kind_of(path, inputs, is_table)
        if kind == ".parquet":
            yield from read_parquet(path, groups)
        elif kind == ".arrow":
            yield from read_arrow(path)
        elif kind in PACKAGES:
            yield from _sheet(path, kind, inputs)
        elif kind in USUAL:
            found = layout or _layout_of_table(path, inputs)
            if found is None:
                raise Damage(1, "the file has no row that can be read")
            yield from read_rows(origin, read_lines(path, errors, inputs.encoding), found)
        elif kind == ".txt":
            documents = _documents_of(path, inputs)
            yield from _plain_text(origin, read_lines(path, errors, inputs.encoding), documents)
        else:
            yield from read_json(path, read_lines(path, errors, inputs.encoding))
    except Damage as damage:
        yield Record(origin, damage.line, {}, str(damage), rest_lost=True)


def _documents_of(path: File, inputs: Inputs) -> str:
    """Return what a document of plain text is."""
    if inputs.text_documents != "auto":
        return inputs.text_documents
    return _layout(_look(path, inputs))


def kind_of(path: File, inputs: Inputs, is_table: bool = False) -> str:
    """Return the format by which a file is read, as a suffix: that of its name, or of its content.

    Raises:
        DataError: If the format is unknown, or the file cannot be read.
        Damage: If its first lines cannot be read.
    """
    named = format_of(path)
    if named == ".ndjson":
        return ".jsonl"
    if named in (".parquet", ".arrow"):
        return named
    if isinstance(path, Path) and codec_of(path) is None:
        kind = _binary_kind(path)
        if kind and named in PACKAGES:
            return named
        if kind:
            return kind
    if named in (".jsonl", ".json"):
        return named
    return _kind_of_text(path, named, inputs, is_table)


def _kind_of_text(path: File, named: str, inputs: Inputs, is_table: bool) -> str:
    """Return the format of text by its first line."""
    first = _first_line(path, inputs)
    if named in PACKAGES:  # programs write tables of text under these names, too
        if first.startswith("<"):
            raise Damage(1, "holds HTML, no spreadsheet; open it there and save it as .xlsx or CSV")
        is_table = True
    if is_json_start(first) and (is_table or named != ".txt"):
        return ".json"
    if named in USUAL:
        return named
    is_table = is_table or inputs.separator is not None
    if is_table or _is_surely_table(path, first, inputs):
        return ".csv"
    return ".txt"


def _binary_kind(path: Path) -> str:
    """Return the format of a binary file by its first and last bytes; empty for text.

    Raises:
        DataError: If the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(8)
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - len(PARQUET)))
            tail = stream.read()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if head.startswith(PARQUET) and tail == PARQUET:
        return ".parquet"
    for magic, kind in BINARY.items():
        if head.startswith(magic):
            return kind
    return ""


def _first_line(path: File, inputs: Inputs) -> str:
    """Return the first line that is not blank, stripped; empty if there is none."""
    for _, line in _look(path, inputs):
        text = line.strip("\ufeff \t\r\n")
        if text:
            return text
    return ""


def _is_surely_table(path: File, first: str, inputs: Inputs) -> bool:
    """Return whether plain text is a table.

    It is one if rows of equal length stand below columns of which one is wanted. Without a header
    only tabs, which prose lacks, make a table of it.
    """
    wanted = inputs.text_field
    has_numbers = all(name.isdecimal() for name in wanted) and "\t" in first
    if not has_numbers and not any(name in first for name in wanted):
        return False
    try:
        layout = _find(path, inputs, is_tsv=False)
    except Damage:  # of a table; as text it can be read
        return False
    if layout is None or layout.separator == NO_SEPARATOR or not layout.is_even:
        return False
    if not layout.has_header and layout.separator != "\t":
        return False
    return len(layout.names) > 1 and bool({*wanted} & {*layout.names})


def _find(path: File, inputs: Inputs, is_tsv: bool) -> Layout | None:
    return find_layout(lambda: _look(path, inputs), inputs.text_field, is_tsv, inputs)


def layout_of(path: File, inputs: Inputs, is_table: bool = False) -> Layout | None:
    """Find how a file of delimited text is laid out, and say it unless it is as its name promises.

    Args:
        path: The file.
        inputs: What is given, and names of columns that are wanted.
        is_table: See :func:`read_records`.

    Returns:
        The layout; None for other formats, and where there is no row.

    Raises:
        DataError: If the file cannot be read.
        Damage: If its first lines cannot be read.
    """
    if kind_of(path, inputs, is_table) not in USUAL:
        return None
    return _layout_of_table(path, inputs)


def _layout_of_table(path: File, inputs: Inputs) -> Layout | None:
    """Find and say how a file that is known to be delimited text is laid out."""
    named = format_of(path)
    layout = _find(path, inputs, named == ".tsv")
    if layout is None:
        return None
    if layout.separator != USUAL.get(named) or not layout.is_plain:
        _say(path, layout.describe())
    return layout


def _say(path: File, found: str) -> None:
    """Log how a file is read; of many files alike, only the first."""
    if _said[found] < MOST_SAID and not _said[f"{path}: {found}"]:
        log.info("input     %s: %s", path, found)
    _said.update([found, f"{path}: {found}"])


def _sheet(path: File, kind: str, inputs: Inputs) -> Iterator[Record]:
    """Read a spreadsheet."""
    if isinstance(path, RemoteFile):
        raise DataError(f"{path}: a spreadsheet at a URL is not read; download it first")
    sheet = Sheet(path, kind)
    found = sheet.layout(inputs.text_field, inputs)
    if found is None:
        raise Damage(1, "the file has no cell that is filled")
    layout, first = found
    _say(path, sheet.describe(layout))
    yield from sheet.records(str(path), layout, first)


def _look(path: File, inputs: Inputs) -> Lines:
    """Read the lines of a file to decide how it is read."""
    return read_lines(path, encoding=inputs.encoding, is_look=True)


def _plain_text(origin: str, lines: Lines, layout: str) -> Iterator[Record]:
    waiting: list[str] = []
    first_line = 1  # of the document being read
    for number, line in lines:
        blank = not line.strip()
        if layout == "line" and not blank:
            yield Record(origin, number, {"text": line}, kind=layout)
        elif layout == "file" or not blank:
            if not waiting:
                first_line = number
            waiting.append(line)
        elif waiting:
            yield Record(origin, first_line, {"text": "".join(waiting)}, kind=layout)
            waiting = []
    if waiting or layout == "file":
        yield Record(origin, first_line, {"text": "".join(waiting)}, kind=layout)


def _layout(lines: Lines) -> str:
    """Detect the layout of plain text from its first 16 million characters.

    Returns:
        ``paragraph`` where blank lines divide the text every 20 lines on average or more often,
        else ``line``.
    """
    text_lines = 0
    paragraphs = 0
    characters = 0
    within = False
    try:
        for _, line in lines:
            has_text = bool(line.strip())
            text_lines += has_text
            paragraphs += has_text and not within
            within = has_text
            characters += len(line)
            if characters > LAYOUT_SAMPLE:
                break
    except Damage:  # reported when the records are read
        pass
    if paragraphs > 1 and text_lines <= MAX_PARAGRAPH * paragraphs:
        return "paragraph"
    return "line"
