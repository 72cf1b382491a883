"""Large files to slices that several processes read in parallel: byte ranges of JSON lines, row groups of Parquet.

Other files, compressed ones among them, are one slice each: they can only be read from their beginning. The records of
a slice come back from another process in one piece, so only small slices go to one; a large file that cannot be cut is
streamed by the process that asks, in constant memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dana.core.errors import DataError
from dana.core.launch import cores
from dana.core.lines import COMPRESSIONS, may_be_cut
from dana.core.storage import BEHIND, File, RemoteFile, open_until, size_of
from dana.corpus.parquet import metadata_of
from dana.corpus.places import Source, expand, format_of
from dana.corpus.readers import parse_json_lines, read_file
from dana.corpus.records import Record

SLICE_BYTES = 1 << 20  # of a file that can be cut; as records they take some ten times as much
WHOLE_BYTES = 1 << 24  # of a file that cannot
PACKED_BYTES = WHOLE_BYTES // 8  # of a whole compressed file (or Parquet): unpacked some four times as much
SHARED_FROM = 1 << 28  # bytes of text from which on several processes read
SHARED_CORES = 4
MOST_READERS = 8  # the process that asks has no more to do than so many can


@dataclass(frozen=True)
class Slice:
    """A file, or a part of one.

    Attributes:
        path: The file.
        first: Byte (JSON lines) or row group (Parquet) where it begins.
        after: The one behind its last; None for a whole file.
    """

    path: File
    first: int = 0
    after: int | None = None

    @property
    def is_small(self) -> bool:
        """Whether all of its records may be in memory at once, so that another process can read it."""
        packed = self.path.suffix.lower() in COMPRESSIONS or format_of(self.path) == ".parquet"
        return self.after is not None or size_of(self.path) <= (PACKED_BYTES if packed else WHOLE_BYTES)


def slices_of(source: Source, size: int = SLICE_BYTES) -> Iterator[Slice]:
    """The slices of a source, in order; see :func:`dana.corpus.readers.expand` for what a source is.

    Args:
        source: A file, folder or glob, here or at a URL.
        size: Bytes that a slice has at most, where the format can be cut.
    """
    for path in expand(source):
        yield from slices_of_file(path, size)


def slices_of_file(path: File, size: int = SLICE_BYTES) -> Iterator[Slice]:
    """The slices of one file, in order."""
    length = size_of(path)
    kind = format_of(path)
    if length <= size or path.suffix.lower() in COMPRESSIONS or kind not in (".jsonl", ".json", ".parquet"):
        yield Slice(path)
    elif kind == ".parquet":
        yield from _row_groups(path, size)
    elif not may_be_cut(path):
        yield Slice(path)
    else:
        yield from (Slice(path, first, min(first + size, length)) for first in range(0, length, size))


def _row_groups(path: File, size: int) -> Iterator[Slice]:
    """Runs of row groups of so many bytes, unpacked; the whole file where a group is too large for one process."""
    import pyarrow as pa

    try:
        about = metadata_of(path)
        sizes = [about.row_group(group).total_byte_size for group in range(about.num_row_groups)]
    except (pa.ArrowException, OSError):  # reading it says what is wrong, with the place
        sizes = []
    if len(sizes) < 2 or max(sizes) > WHOLE_BYTES:
        yield Slice(path)
        return
    first = held = 0
    for group, more in enumerate(sizes):
        if group > first and held + more > size:
            yield Slice(path, first, group)
            first, held = group, 0
        held += more
    yield Slice(path, first, len(sizes))


class Passed:
    """How many lines of a byte range were read: by so much the next range's numbers are behind; 0 of other slices."""

    def __init__(self) -> None:
        self.lines = 0


def read_slice(part: Slice, text_documents: str = "auto", passed: Passed | None = None) -> Iterator[Record]:
    """The records that begin in a slice. Lines of a byte range count from 1 at its own beginning.

    Args:
        part: It.
        text_documents: See :class:`dana.corpus.inputs.Inputs`.
        passed: Counts the lines as they are read, those without a record among them.

    Raises:
        DataError: If the machine cannot read the file.
    """
    if part.after is None:
        yield from read_file(part.path, None, text_documents)
    elif format_of(part.path) == ".parquet":
        yield from read_file(part.path, range(part.first, part.after))
    else:
        yield from parse_json_lines(part.path, _lines(part, part.after, passed or Passed()))


def _lines(part: Slice, after: int, passed: Passed) -> Iterator[tuple[int, str]]:
    at = max(0, part.first - 1)
    try:
        with open_until(part.path, after + BEHIND) as stream:  # with what the last line has behind the slice
            stream.seek(at)
            if part.first:  # the slice before has the line that was begun there
                at += len(stream.readline(after - at))
            while at < after and (line := stream.readline()):
                at += len(line)
                passed.lines += 1
                yield passed.lines, line.decode("utf-8", "replace")
    except OSError as error:
        raise DataError(f"{part.path}: cannot be read from byte {at:,} on: {error}") from error


def reading_processes(files: Sequence[File]) -> int:
    """Number of processes that read files: all cores, eight at most, from 256 MB and four cores on, else one.

    Several processes take 1.5 times the processor time of one, a quarter of it in the process that drops repeated
    texts. Files that this process must stream by itself, such as large compressed ones, do not count.
    """
    count = min(cores(), MOST_READERS)
    if any(isinstance(path, RemoteFile) and path.is_of_this_process for path in files):
        return 1
    if count < SHARED_CORES or sum(size_of(path) for path in files) < SHARED_FROM:
        return 1
    shared = 0
    for path in files:  # no more of them are looked into than it takes
        shared += size_of(path) if next(slices_of_file(path)).is_small else 0
        if shared >= SHARED_FROM:
            return count
    return 1
