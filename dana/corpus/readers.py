"""Read sources as a stream of records, each with its file and line.

==================  ==========================================================
``.jsonl .json``    one object per line
``.csv .tsv``       a header line, then one record per row
``.parquet``        one record per row
``.txt``            one document per line, paragraph or file
``hf:name``         ``hf:org/name[@revision][:config][:split]``, streamed
==================  ==========================================================

The text formats may end in ``.gz`` or ``.zst``. :mod:`dana.corpus.sources` finds the files of a
source.
"""

import csv
import json
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

from dana.core.errors import Damage, DataError
from dana.core.lines import COMPRESSIONS, read_lines
from dana.core.logging import get_logger
from dana.core.storage import File, RemoteFile, file_size, pyarrow_source
from dana.corpus.delimited import parse_delimited
from dana.corpus.hub import is_hub, read_hub
from dana.corpus.inputs import Record
from dana.corpus.sources import Source, expand, format_of
from dana.corpus.text import without_surrogates

log = get_logger(__name__)

Lines = Iterable[tuple[int, str]]  # line number and line

LAYOUT_SAMPLE = 1 << 24  # characters of plain text that decide its layout
MAX_PARAGRAPH = (
    20  # lines; with longer paragraphs on average, blank lines do not separate paragraphs
)
MAX_FIELD = 1 << 27  # characters of a CSV field
ROWS_OF_SAMPLE = 1000  # that decide separator and quotes


def read_records(sources: Sequence[Source], text_documents: str = "auto") -> Iterator[Record]:
    """Stream the records of all sources, in order, files of folders and globs sorted by name.

    An empty, damaged or truncated file ends with a bad record.

    Args:
        sources: Files, folders, globs, URLs, ``hf:`` names.
        text_documents: See :class:`dana.corpus.inputs.Inputs`.

    Raises:
        DataError: If a source is missing, has an unknown format, or cannot be read.
    """
    for source in sources:
        if is_hub(source):
            yield from read_hub(source)  # type: ignore[arg-type]
        else:
            for path in expand(source):
                yield from read_file(path, text_documents)


def read_file(
    path: File, text_documents: str = "auto", errors: str = "replace", groups: range | None = None
) -> Iterator[Record]:
    """Stream the records of one file.

    Args:
        path: The file.
        text_documents: See :class:`dana.corpus.inputs.Inputs`.
        errors: Handling of bytes that are not UTF-8, see :func:`dana.core.lines.read_lines`.
        groups: Row groups to read of a Parquet file; None for all.
    """
    try:
        if file_size(path) == 0:
            raise Damage(1, "the file is empty")
        match format_of(path):
            case ".parquet":
                yield from _parquet(path, groups)
            case ".txt":
                yield from _plain_text(str(path), lambda: read_lines(path, errors), text_documents)
            case ".csv" | ".tsv" as suffix:
                yield from _csv(
                    str(path), read_lines(path, errors), "," if suffix == ".csv" else "\t"
                )
            case _:
                yield from parse_json_lines(path, read_lines(path, errors))
    except Damage as damage:
        yield Record(str(path), damage.line, {}, str(damage), rest_lost=True)


def parse_json_lines(path: File, lines: Lines) -> Iterator[Record]:
    """Parse JSON lines into one record per line."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            value = json.loads(
                line.lstrip("\ufeff")
            )  # concatenated files have byte-order marks within
        except (
            ValueError,
            RecursionError,
        ) as error:  # a number of 5,000 digits is a plain ValueError
            value, problem = None, f"not JSON: {error}"
        else:
            if "\\ud" in line or "\\uD" in line:  # escaped, the only way to write half a character
                value = without_surrogates(value)
            problem = (
                ""
                if isinstance(value, dict)
                else f"expected a JSON object, got {type(value).__name__}"
            )
        if problem and line.lstrip().startswith("["):
            problem += "; every line must be an object: convert an array with jq -c '.[]'"
        yield Record(str(path), number, {} if problem else value, problem)


def _plain_text(origin: str, lines: Callable[[], Lines], layout: str) -> Iterator[Record]:
    if layout == "auto":
        layout = _layout(lines())
    waiting: list[str] = []
    first_line = 1  # of the document being read
    for number, line in lines():
        blank = not line.strip()
        if layout == "line" and not blank:
            yield Record(origin, number, {"text": line}, kind=layout)
        elif layout == "file" or not blank:
            first_line = first_line if waiting else number
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
    text_lines = paragraphs = characters = 0
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
    return "paragraph" if paragraphs > 1 and text_lines <= MAX_PARAGRAPH * paragraphs else "line"


def read_delimited(path: File, columns: Sequence[str], header: bool = True) -> Iterator[Record]:
    """Stream the rows of delimited text, whose encoding, separator and quotes are found by looking.

    They are found as ``dana init`` finds those of a table (:mod:`dana.corpus.delimited`), by the
    first thousand rows. A text of a single column needs no separator.

    Args:
        path: The file.
        columns: Names that its header should have.
        header: Whether it has one; without, its columns are 1, 2 and so on, and a single one has
            the first name of `columns`.

    Raises:
        DataError: If the file cannot be read.
    """
    is_tsv = format_of(path) == ".tsv"
    try:
        if file_size(path) == 0:
            raise Damage(1, "the file is empty")
        lines = _lines_of_table(path)
        parsed = parse_delimited(
            lambda: (line.replace("\x00", "") for _, line in lines()),
            is_tsv,
            columns if header else columns[:1],
            ROWS_OF_SAMPLE,
        )
        if parsed is None:  # which the parser of all rows says
            yield from _csv(str(path), lines(), "\t" if is_tsv else ",")
            return
        names = [str(number) for number in range(1, len(parsed.rows[0]) + 1)]
        if header:
            cells = zip(parsed.rows[0], names, strict=True)
            names = [cell.strip() or name for cell, name in cells]
            names = [] if names == [cell.strip() for cell in parsed.rows[0]] else names
        elif len(names) == 1:
            names = [*columns[:1]]
        records = _csv(str(path), lines(), parsed.separator, parsed.quoting, names)
        yield from islice(records, 1 if header and names else 0, None)
    except Damage as damage:
        yield Record(str(path), damage.line, {}, str(damage), rest_lost=True)


def _lines_of_table(path: File) -> Callable[[], Lines]:
    """Return a function that reads a file's lines, in UTF-8, UTF-16 with its mark, or Windows' Latin encoding."""
    if isinstance(path, Path) and path.suffix.lower() not in COMPRESSIONS:
        with path.open("rb") as stream:
            has_mark = stream.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE)
        if has_mark:
            text = path.read_bytes().decode("utf-16", "replace")
            return lambda: enumerate(StringIO(text, newline=""), 1)
    encoding = "utf-8"
    try:
        for _ in read_lines(path, "strict"):
            pass
    except Damage as damage:  # any other is found again
        if isinstance(damage.__cause__, UnicodeDecodeError):
            log.info("%s is not UTF-8, and read as Windows' Latin encoding, cp1252", path)
            encoding = "cp1252"
    return lambda: read_lines(path, encoding=encoding)


def _csv(
    origin: str,
    lines: Lines,
    delimiter: str,
    quoting: int = csv.QUOTE_MINIMAL,
    names: Sequence[str] = (),
) -> Iterator[Record]:
    """Parse CSV into one record per row, with a header unless the names of its columns are given.

    Raises:
        Damage: If the header names a column twice, or a quoted field spans several lines up to an
            error: where it should have closed is unknown, so the rest of the file is lost.
    """
    csv.field_size_limit(MAX_FIELD)
    texts = (line.replace("\x00", "") for _, line in lines)
    # Strict: otherwise an open quote silently swallows the rest of the file.
    options: dict[str, Any] = {"delimiter": delimiter, "quoting": quoting, "strict": True}
    rows = csv.reader(texts, **options)
    header: list[str] = [*names]
    while True:
        line, problem = rows.line_num + 1, ""
        try:
            row = next(rows, None)
        except csv.Error as error:
            row, problem = [], f"not CSV: {error}"
            if rows.line_num > line:
                problem = f"{problem} in line {rows.line_num}, inside the quotes that open here"
                raise Damage(line, problem) from error
        if row is None:
            return
        if row and not header:
            header = [name.strip() for name in row]
            if repeats := [
                name for number, name in enumerate(header) if name and name in header[:number]
            ]:
                raise Damage(line, f"the header names the column {repeats[0]!r} twice; rename one")
            continue
        if row and len(row) != len(header):
            problem = f"expected {len(header)} columns as in the header, got {len(row)}"
        if problem:
            yield Record(origin, line, {}, problem)
        elif row:
            yield Record(origin, line, dict(zip(header, row, strict=True)), kind="row")


def _parquet(path: File, groups: range | None = None) -> Iterator[Record]:
    """Stream one record per row of a Parquet file, numbered from its beginning, or of some of its row groups.

    Rows before a damaged part are read.

    Raises:
        DataError: If the file cannot be read; names file and row.
        Damage: If it is not a Parquet file, or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = 0
    try:
        metadata = read_metadata(path) if groups else None
        stream = pyarrow_source(
            path, _end_of(metadata.row_group(groups[-1])) if metadata and groups else None
        )
        file = pq.ParquetFile(
            stream, metadata=metadata, pre_buffer=False
        )  # else the whole file is read ahead
        names = file.schema_arrow.names
        if twice := [name for position, name in enumerate(names) if name in names[:position]]:
            raise Damage(1, f"two columns are named {twice[0]!r}; rename one")
        row = (
            sum(file.metadata.row_group(group).num_rows for group in range(groups.start))
            if groups
            else 0
        )
        for group in groups or range(
            file.num_row_groups
        ):  # one at a time: damage in one loses no other
            for batch in file.iter_batches(batch_size=1024, row_groups=[group]):
                for fields, problem in _rows(batch):
                    row += 1
                    yield Record(str(path), row, fields, problem)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{path}:{row + 1}: cannot be read: {error}") from error
        raise Damage(
            row + 1, f"not a Parquet file, or damaged: {' '.join(str(error).split())}"
        ) from error


def read_metadata(path: File) -> Any:
    """Read the metadata of a Parquet file; of a remote file once per process, for all of its slices."""
    return _cached_metadata(path) if isinstance(path, RemoteFile) and path.mark else _metadata(path)


def _metadata(path: File) -> Any:
    import pyarrow.parquet as pq

    return pq.read_metadata(pyarrow_source(path))


_cached_metadata = lru_cache(maxsize=1)(
    _metadata
)  # one is enough: slices come in the order of their files


def _end_of(group: Any) -> int:
    """Return the position after the last byte of a row group."""
    columns = (group.column(number) for number in range(group.num_columns))
    # The dictionary, if there is one, is the first page of a column.
    return max(
        (
            (c.dictionary_page_offset or c.data_page_offset) + c.total_compressed_size
            for c in columns
        ),
        default=0,
    )


def _rows(batch: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Stream the fields of each row with its problem, empty for a good one."""
    try:
        yield from ((fields, "") for fields in batch.to_pylist())
        return
    except (ValueError, OverflowError):  # text that is not UTF-8, a date out of range: find the row
        single = (batch.slice(row, 1) for row in range(batch.num_rows))
    for row in single:
        try:
            yield row.to_pylist()[0], ""
        except (ValueError, OverflowError) as error:
            yield {}, f"a value cannot be read: {error}"
