"""Sources to a stream of records, each with its file and line.

==================  ==========================================================
``.jsonl .json``    one object a line
``.csv .tsv``       a header line, then a record a line
``.parquet``        a record a row
``.txt``            a document a line, a paragraph or a file
``hf:name``         ``hf:org/name[@revision][:config][:split]``, streamed
==================  ==========================================================

The text formats may end in ``.gz`` or ``.zst``. Which files a source means: :mod:`dana.corpus.sources`.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from dana.core.errors import Damage, DataError
from dana.core.lines import read_lines
from dana.core.storage import File, RemoteFile, file_size, pyarrow_source
from dana.corpus.hub import is_hub, read_hub
from dana.corpus.inputs import Record
from dana.corpus.sources import Source, expand, format_of

Lines = Iterable[tuple[int, str]]  # with their numbers

FIRST_LOOK = 1 << 24  # characters of plain text that decide its layout
PARAGRAPH = 20  # lines: longer ones on average, and the blank lines between are strays
LONGEST_FIELD = 1 << 27  # characters of a CSV


def read_records(sources: Sequence[Source], text_documents: str = "auto") -> Iterator[Record]:
    """Stream the records of all sources, in order; folders and globs in the order of their names.

    A file that is empty, damaged or ends early is a bad record, too: the last one of the file.

    Args:
        sources: Files, folders, globs, URLs, ``hf:`` names.
        text_documents: See :class:`dana.corpus.inputs.Inputs`.

    Raises:
        DataError: If a source is missing, has an unknown format, or the machine cannot read it.
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
    """The records of one file; of a Parquet file, those of some row groups, if they are given.

    `errors` is that of :func:`dana.core.lines.read_lines`.
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
                yield from _csv(str(path), read_lines(path, errors), "," if suffix == ".csv" else "\t")
            case _:
                yield from parse_json_lines(path, read_lines(path, errors))
    except Damage as damage:
        yield Record(str(path), damage.line, {}, str(damage), rest_lost=True)


def parse_json_lines(path: File, lines: Lines) -> Iterator[Record]:
    """A record a line."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            value = json.loads(line.lstrip("\ufeff"))  # joined files have marks within
        except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a plain ValueError
            value, problem = None, f"not JSON: {error}"
        else:
            problem = "" if isinstance(value, dict) else f"not a JSON object but {type(value).__name__}"
        if problem and line.lstrip().startswith("["):
            problem += "; a line must be an object, which jq -c '.[]' makes of an array"
        yield Record(str(path), number, {} if problem else value, problem)


def _plain_text(origin: str, lines: Callable[[], Lines], layout: str) -> Iterator[Record]:
    """A record a line, a paragraph (blank lines part them) or a file."""
    if layout == "auto":
        layout = _layout(lines())
    waiting: list[str] = []
    started = 1
    for number, line in lines():
        blank = not line.strip()
        if layout == "line" and not blank:
            yield Record(origin, number, {"text": line}, kind=layout)
        elif layout == "file" or not blank:
            started = started if waiting else number
            waiting.append(line)
        elif waiting:
            yield Record(origin, started, {"text": "".join(waiting)}, kind=layout)
            waiting = []
    if waiting or layout == "file":
        yield Record(origin, started, {"text": "".join(waiting)}, kind=layout)


def _layout(lines: Lines) -> str:
    """``paragraph`` where blank lines part the first 16 million characters every 20 lines or so, else ``line``.

    A few blank lines among many do not make paragraphs of lines.
    """
    filled = paragraphs = characters = 0
    within = False
    try:
        for _, line in lines:
            full = bool(line.strip())
            filled += full
            paragraphs += full and not within
            within = full
            characters += len(line)
            if characters > FIRST_LOOK:
                break
    except Damage:  # whoever reads on comes to it
        pass
    return "paragraph" if paragraphs > 1 and filled <= PARAGRAPH * paragraphs else "line"


def _csv(origin: str, lines: Lines, delimiter: str) -> Iterator[Record]:
    """A record a row, after a header.

    Raises:
        Damage: If the header names a column twice, or an error comes lines below the quote that opens before it: where
            that was to close, nobody knows.
    """
    csv.field_size_limit(LONGEST_FIELD)
    texts = (line.replace("\x00", "") for _, line in lines)
    rows = csv.reader(texts, delimiter=delimiter, strict=True)  # else an open quote swallows the file in silence
    header: list[str] = []
    while True:
        line, problem = rows.line_num + 1, ""
        try:
            row = next(rows, None)
        except csv.Error as error:
            row, problem = [], f"not CSV: {error}"
            if rows.line_num > line:
                raise Damage(line, f"{problem} in line {rows.line_num}, within the quote that opens here") from error
        if row is None:
            return
        if row and not header:
            header = [name.strip() for name in row]
            if twice := [name for place, name in enumerate(header) if name and name in header[:place]]:
                raise Damage(line, f"the header names the column {twice[0]!r} twice")
            continue
        if row and len(row) != len(header):
            problem = f"{len(row)} columns where the header has {len(header)}"
        if problem:
            yield Record(origin, line, {}, problem)
        elif row:
            yield Record(origin, line, dict(zip(header, row, strict=True)), kind="row")


def _parquet(path: File, groups: range | None = None) -> Iterator[Record]:
    """A record a row of a file, or of some of its row groups; rows are numbered from the file's beginning.

    What lies before a damaged place is read: whole row groups, and of the damaged one what its reader gives before it.

    Raises:
        DataError: Naming file and row, if the machine cannot read the file.
        Damage: If it is no Parquet file, or a damaged one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = 0
    try:
        about = metadata_of(path) if groups else None
        wanted = pyarrow_source(path, _end_of(about.row_group(groups[-1])) if about and groups else None)
        file = pq.ParquetFile(wanted, metadata=about, pre_buffer=False)  # else the whole file is read ahead
        row = sum(file.metadata.row_group(group).num_rows for group in range(groups.start)) if groups else 0
        for group in groups or range(file.num_row_groups):  # a batch of two would be lost with either
            for batch in file.iter_batches(batch_size=1024, row_groups=[group]):
                for fields, problem in _rows(batch):
                    row += 1
                    yield Record(str(path), row, fields, problem)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{path}:{row + 1}: cannot be read: {error}") from error
        raise Damage(row + 1, f"not a Parquet file, or a damaged one: {' '.join(str(error).split())}") from error


def metadata_of(path: File) -> Any:
    """What a file's end tells of its row groups: of a remote file fetched once for all slices that a process reads."""
    return _fetched(path) if isinstance(path, RemoteFile) and path.mark else _metadata(path)


def _metadata(path: File) -> Any:
    import pyarrow.parquet as pq

    return pq.read_metadata(pyarrow_source(path))


_fetched = lru_cache(maxsize=1)(_metadata)  # slices come in the order of their files


def _end_of(group: Any) -> int:
    """The byte behind a row group's last."""
    columns = (group.column(number) for number in range(group.num_columns))
    # A dictionary, where there is one, is the first page.
    return max(((c.dictionary_page_offset or c.data_page_offset) + c.total_compressed_size for c in columns), default=0)


def _rows(batch: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Fields of each row, and its problem; empty for a good one."""
    try:
        yield from ((fields, "") for fields in batch.to_pylist())
        return
    except (ValueError, OverflowError):  # text that is not UTF-8, a date Python does not know: see which row has it
        single = (batch.slice(row, 1) for row in range(batch.num_rows))
    for row in single:
        try:
            yield row.to_pylist()[0], ""
        except (ValueError, OverflowError) as error:
            yield {}, f"a value cannot be read: {error}"
