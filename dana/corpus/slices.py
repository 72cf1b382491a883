"""Read sources as parsed records, in order, with one process or several.

Large files are read in slices. A slice is a byte range of JSON lines or some row groups of Parquet.
Any other file, compressed ones included, is one slice, because it can only be read from its
beginning. Worker processes return a parsed slice in one piece, so they only get small slices; the
main process streams large files that cannot be split, in constant memory.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import NamedTuple

from dana.core.errors import DataError
from dana.core.launch import cores
from dana.core.lines import (
    MAX_LINE,
    around_letter,
    check_line_length,
    codec_of,
    decode_line,
    is_foreign,
    is_sliceable,
    read_head,
    say_foreign,
)
from dana.core.storage import BEHIND, File, RemoteFile, file_size, open_until
from dana.core.workers import worker_pool
from dana.corpus.columnar import read_metadata
from dana.corpus.hub import is_hub
from dana.corpus.inputs import Inputs
from dana.corpus.json_values import is_json_lines, parse_json_lines
from dana.corpus.parse import ParsedRecord, parse_records
from dana.corpus.readers import read_file, read_records, with_keys
from dana.corpus.sources import Source, expand, format_of, path_keys

SLICE_BYTES = 1 << 20  # of a file that can be split; its records take some ten times the memory
WHOLE_BYTES = 1 << 24  # largest file that a worker reads in one piece
# The same for compressed files and Parquet, which grow some four times.
PACKED_BYTES = WHOLE_BYTES // 8
PARALLEL_BYTES = 1 << 28  # smallest input that several processes read
PARALLEL_CORES = 4
COLUMNAR = (".parquet", ".arrow")
JSON = (".jsonl", ".ndjson", ".json")
MAX_READERS = 8  # more would wait for the main process


class Parsed(NamedTuple):
    """The records that begin in a slice.

    Attributes:
        items: The records.
        lines: Number of lines to add to those of the next slice: the lines of a byte range are
            numbered from 1 at its beginning, rows and lines of other slices from the beginning of
            the file.
        foreign: Lines of a byte range that are no UTF-8.
    """

    items: list[ParsedRecord]
    lines: int
    foreign: list[str]


def parse_sources(
    sources: Sequence[Source], processes: int, inputs: Inputs
) -> Iterator[ParsedRecord]:
    """Parse every record of all sources, in order, with one process or several."""
    if processes == 1:
        yield from parse_records(read_records(sources, inputs), inputs)
        return
    with worker_pool(processes) as pool:
        for from_hub, group in groupby(sources, is_hub):
            if from_hub:
                yield from parse_records(read_records(list(group)), inputs)
            else:
                # Slices of all files together: one file may be too small for several processes.
                parts = chain.from_iterable(map(iterate_slices, group))
                yield from _parse_slices(pool, parts, processes + 2, inputs)


def _parse_slices(
    pool: Executor, parts: Iterable["Slice"], limit: int, inputs: Inputs
) -> Iterator[ParsedRecord]:
    """Parse slices and number the lines by file.

    Where the rest of a file is lost, its later slices are skipped.
    """
    lines = 0  # of the file, before the slice
    is_lost = False
    foreign: list[str] = []  # lines of the file that are no UTF-8
    for part, future in _submit(pool, parts, limit, inputs):
        if part.first == 0:  # a new file, perhaps the same one again
            lines = 0
            is_lost = False
            foreign = []
        if is_lost:
            continue
        items: Iterable[ParsedRecord]
        if future is None:
            items = parse_records(read_file(part.path, inputs), inputs)
            line_count = 0
        else:
            items, line_count, foreign_lines = future.result()
            foreign += foreign_lines
        for item in items:
            is_lost = item.record.rest_lost
            yield _move(item, lines)
        lines += line_count
        if foreign and part.is_last:
            say_foreign(part.path, len(foreign), around_letter(foreign[0]))


def _move(item: ParsedRecord, lines: int) -> ParsedRecord:
    """Return a record as of a place some lines further down."""
    if not lines:
        return item
    return replace(item, record=replace(item.record, line=item.record.line + lines))


def _submit(
    pool: Executor, parts: Iterable["Slice"], limit: int, inputs: Inputs
) -> Iterator[tuple["Slice", Future[Parsed] | None]]:
    """Submit at most `limit` slices at a time, and stream them in order with their futures.

    A file that no worker can read in one piece has None for a future.
    """
    pending: deque[tuple[Slice, Future[Parsed] | None]] = deque()
    failure: Exception | None = None
    try:
        for part in parts:
            future = None
            if part.is_small:
                future = pool.submit(parse_slice, part, inputs)
            pending.append((part, future))
            if len(pending) == limit:
                yield pending.popleft()
    except (DataError, OSError) as error:  # errors of the earlier files that are pending come first
        failure = error
    yield from pending
    if failure:
        raise failure


def parse_slice(part: "Slice", inputs: Inputs) -> Parsed:
    """Parse the records that begin in a slice.

    Raises:
        DataError: If the file cannot be read.
    """
    lines: list[tuple[int, str]] = []
    foreign: list[str] = []
    if part.after is None:
        records = read_file(part.path, inputs)
    elif format_of(part.path) == ".parquet":
        records = read_file(part.path, inputs, groups=range(part.first, part.after))
    else:
        lines = list(_lines(part, part.after, foreign))
        keys = path_keys(part.path)
        records = (with_keys(record, keys) for record in parse_json_lines(part.path, lines))
    items = list(parse_records(records, inputs))
    for item in items:
        item.record.fields.clear()
    return Parsed(items, len(lines), foreign)


@dataclass(frozen=True)
class Slice:
    """A file, or a part of one.

    Attributes:
        path: The file.
        first: First byte (JSON lines) or row group (Parquet).
        after: Position after the last byte or row group; None for a whole file.
        is_last: Whether nothing of the file is behind it.
        is_foreign: Whether :func:`dana.core.lines.is_foreign` is true of the file.
    """

    path: File
    first: int = 0
    after: int | None = None
    is_last: bool = True
    is_foreign: bool = False

    @property
    def is_small(self) -> bool:
        """True if a worker process can return all of its records at once, which fit in memory."""
        if self.after is not None:
            return True
        is_packed = format_of(self.path) in COLUMNAR or codec_of(self.path) is not None
        limit = PACKED_BYTES if is_packed else WHOLE_BYTES
        return file_size(self.path) <= limit


def iterate_slices(source: Source, size: int = SLICE_BYTES) -> Iterator[Slice]:
    """Stream the slices of a source, in order.

    Args:
        source: A file, folder or glob, local or at a URL, see :func:`dana.corpus.sources.expand`.
        size: Most bytes of a slice, if the format can be split.
    """
    for path in expand(source):
        yield from _slices(path, size)


def _slices(path: File, size: int = SLICE_BYTES) -> Iterator[Slice]:
    length = file_size(path)
    kind = format_of(path)
    if length <= size:
        yield Slice(path)
        return
    if kind == ".parquet":
        yield from _row_groups(path, size)
        return
    head = b""
    if kind in JSON and codec_of(path) is None:
        head = read_head(path)
    # JSON can be cut at line feeds, if its first bytes are such lines.
    if head and is_sliceable(head) and is_json_lines(head):
        is_foreign_file = is_foreign(head)
        for first in range(0, length, size):
            after = min(first + size, length)
            yield Slice(path, first, after, after == length, is_foreign_file)
    else:
        yield Slice(path)


def _row_groups(path: File, size: int) -> Iterator[Slice]:
    """Split a Parquet file into runs of row groups of at most `size` bytes uncompressed.

    A file with a group that is too large for a worker is one slice.
    """
    import pyarrow as pa

    try:
        metadata = read_metadata(path)
        groups = range(metadata.num_row_groups)
        sizes = [metadata.row_group(group).total_byte_size for group in groups]
    except (pa.ArrowException, OSError):  # reported with the row when the file is read
        sizes = []
    if len(sizes) < 2 or max(sizes) > WHOLE_BYTES:
        yield Slice(path)
        return
    first = 0
    total = 0
    for group, group_size in enumerate(sizes):
        if group > first and total + group_size > size:
            yield Slice(path, first, group)
            first = group
            total = 0
        total += group_size
    yield Slice(path, first, len(sizes))


def _lines(part: Slice, after: int, foreign: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that begin in a byte range, which ends at `after`, numbered from 1.

    Those that are no UTF-8 go to `foreign`, too.
    """
    path = part.path
    first = part.first
    position = max(0, first - 1)
    number = 0
    try:
        with open_until(path, after + BEHIND) as stream:  # the last line may end after the slice
            stream.seek(position)
            if first:  # a line that begins earlier belongs to the slice before
                position += len(stream.readline(after - position))
            while position < after:
                line = stream.readline(MAX_LINE + 1)
                if not line:
                    return
                position += len(line)
                number += 1
                check_line_length(line, path, number)
                text, is_foreign_line = decode_line(line, part.is_foreign)
                if is_foreign_line:
                    foreign.append(text)
                yield number, text
    except OSError as error:
        raise DataError(f"{path}: cannot be read from byte {position:,} on: {error}") from error


def reading_processes(files: Sequence[File]) -> int:
    """Choose the number of reading processes.

    It is that of the cores, at most eight, from 256 MB and four cores on; else one. Several
    processes take 1.5 times the processor time of one, a quarter of it in the main process, which
    drops repeated texts. Files that the main process must stream, such as large compressed ones, do
    not count.
    """
    count = min(cores(), MAX_READERS)
    if any(isinstance(path, RemoteFile) and path.is_of_this_process for path in files):
        return 1
    if count < PARALLEL_CORES or sum(file_size(path) for path in files) < PARALLEL_BYTES:
        return 1
    total = 0
    for path in files:  # stops early, because to split a file may mean to open it
        if next(_slices(path)).is_small:
            total += file_size(path)
        if total >= PARALLEL_BYTES:
            return count
    return 1
