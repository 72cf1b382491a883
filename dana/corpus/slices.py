"""Sources to parsed records, in order, by one process or several; large files are read in slices.

A slice is a byte range of JSON lines or row groups of Parquet. Other files, compressed ones among them, are one slice
each: they can only be read from their beginning. What is parsed of a slice comes back from another process in one
piece, so only small slices go to one; a large file that cannot be cut is streamed by the process that asks, in
constant memory.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from dana.core.errors import DataError
from dana.core.launch import cores
from dana.core.lines import COMPRESSIONS, is_sliceable
from dana.core.schemas import Document
from dana.core.storage import BEHIND, File, RemoteFile, file_size, open_until
from dana.core.workers import worker_pool
from dana.corpus.hub import is_hub
from dana.corpus.inputs import MISSING, Inputs, Record, field_at
from dana.corpus.readers import metadata_of, parse_json_lines, read_file, read_records
from dana.corpus.sources import Source, expand, format_of, stem
from dana.corpus.text import document_id, normalise

SLICE_BYTES = 1 << 20  # of a file that can be cut; as records they take some ten times as much
WHOLE_BYTES = 1 << 24  # of a file that cannot
PACKED_BYTES = WHOLE_BYTES // 8  # of a whole compressed file (or Parquet): unpacked some four times as much
SHARED_FROM = 1 << 28  # bytes of text from which on several processes read
SHARED_CORES = 4
MOST_READERS = 8  # the process that asks has no more to do than so many can

_PLAIN = Inputs()  # plain text has no fields, so that their names say nothing of it


@dataclass(frozen=True)
class Parsed:
    """A record on its own: the document it makes, or why it makes none.

    Attributes:
        record: It; of another process it comes without its fields.
        reason: Why it is left out, in a word or two.
        problem: What is wrong with it; empty where nothing is.
        document: What it makes.
    """

    record: Record
    reason: str
    problem: str = ""
    document: Document | None = None


def _parsed(record: Record, inputs: Inputs) -> Parsed:
    """A record's document; or why it has none, and what is wrong if anything is."""
    if record.problem:
        return Parsed(record, "damaged file" if record.rest_lost else "unreadable", record.problem)
    fields = record.fields
    inputs = _PLAIN if record.is_plain else inputs
    found = ((name, field_at(fields, name)) for name in inputs.text_field)
    name, text = next((pair for pair in found if pair[1] is not MISSING), (" or ".join(inputs.text_field), MISSING))
    if text is MISSING:
        lacks = f"the field {name!r} is missing; found {_names(fields)}; --text-field names another"
        return Parsed(record, "no text", lacks)
    if not isinstance(text, str):
        return Parsed(record, "no text", f"the field {name!r} is {type(text).__name__}")
    given = field_at(fields, inputs.id_field) if inputs.id_field else fields.get("id", fields.get("doc_id"))
    if given is MISSING:
        return Parsed(record, "no id", f"the field {inputs.id_field!r} is missing; found {_names(fields)}")
    text = normalise(text)
    if not text:
        return Parsed(record, "empty")
    origin = record.origin if is_hub(record.origin) else normalise(stem(Path(record.origin)))
    source = normalise(str(fields.get("source") or "")) or origin
    doc_id = "" if given is None else normalise(str(given))
    return Parsed(record, "", "", Document(doc_id or document_id(source, text), source, text))


def _names(fields: dict[str, Any]) -> str:
    return ", ".join(map(str, fields))


def parse_sources(sources: Sequence[Source], processes: int, inputs: Inputs) -> Iterator[Parsed]:
    """Every record of all sources, parsed, in order, by one process or several."""
    if processes == 1:
        yield from _all_parsed(read_records(sources, inputs.text_documents), inputs)
        return
    with worker_pool(processes) as pool:
        for of_hub, some in groupby(sources, is_hub):
            if of_hub:
                yield from _all_parsed(read_records(list(some)), inputs)
            else:  # across files: each may be too small for more than one process
                yield from _joined(pool, chain.from_iterable(map(iterate_slices, some)), processes + 2, inputs)


def _all_parsed(records: Iterable[Record], inputs: Inputs) -> Iterator[Parsed]:
    return (_parsed(record, inputs) for record in records)


def _joined(pool: Executor, parts: Iterable["Slice"], most: int, inputs: Inputs) -> Iterator[Parsed]:
    """Records of all slices as those of whole files: lines count on, and where the rest of a file is lost it ends."""
    lines, lost, layout = 0, False, inputs.text_documents
    for part, future in _in_order(pool, parts, most, inputs):
        if part.first == 0:  # a file begins, perhaps the one before once more
            lines, lost = 0, False
        if lost:
            continue
        records, many = future.result() if future else (_all_parsed(read_file(part.path, layout), inputs), 0)
        for parsed in records:
            lost = parsed.record.rest_lost
            yield replace(parsed, record=replace(parsed.record, line=parsed.record.line + lines)) if lines else parsed
        lines += many


def _in_order(
    pool: Executor, parts: Iterable["Slice"], most: int, inputs: Inputs
) -> Iterator[tuple["Slice", Future[tuple[list[Parsed], int]] | None]]:
    """All slices, in order, with no more than `most` of them in memory; None for a large file, which is streamed."""
    waiting: deque[tuple[Slice, Future[tuple[list[Parsed], int]] | None]] = deque()
    failed: Exception | None = None
    try:
        for part in parts:
            waiting.append((part, pool.submit(parse_slice, part, inputs) if part.is_small else None))
            if len(waiting) == most:
                yield waiting.popleft()
    except (DataError, OSError) as error:  # of a file behind those that wait: theirs come first
        failed = error
    yield from waiting
    if failed:
        raise failed


def parse_slice(part: "Slice", inputs: Inputs) -> tuple[list[Parsed], int]:
    """The records that begin in a slice, parsed, and by how much the numbers of the next slice's lines are behind.

    Lines of a byte range count from 1 at its own beginning; rows and lines of other slices are the file's.

    Raises:
        DataError: If the machine cannot read the file.
    """
    lines: list[tuple[int, str]] = []
    if part.after is None:
        records = read_file(part.path, inputs.text_documents)
    elif format_of(part.path) == ".parquet":
        records = read_file(part.path, groups=range(part.first, part.after))
    else:
        lines = list(_lines(part.path, part.first, part.after))
        records = parse_json_lines(part.path, lines)
    parsed = list(_all_parsed(records, inputs))
    for one in parsed:
        one.record.fields.clear()
    return parsed, len(lines)


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
        return self.after is not None or file_size(self.path) <= (PACKED_BYTES if packed else WHOLE_BYTES)


def iterate_slices(source: Source, size: int = SLICE_BYTES) -> Iterator[Slice]:
    """The slices of a source, in order; see :func:`dana.corpus.sources.expand` for what a source is.

    Args:
        source: A file, folder or glob, here or at a URL.
        size: Bytes that a slice has at most, where the format can be cut.
    """
    for path in expand(source):
        yield from _slices(path, size)


def _slices(path: File, size: int = SLICE_BYTES) -> Iterator[Slice]:
    length, kind = file_size(path), format_of(path)
    if length <= size or path.suffix.lower() in COMPRESSIONS or kind not in (".jsonl", ".json", ".parquet"):
        yield Slice(path)
    elif kind == ".parquet":
        yield from _row_groups(path, size)
    elif not is_sliceable(path):
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


def _lines(path: File, first: int, after: int) -> Iterator[tuple[int, str]]:
    at = max(0, first - 1)
    number = 0
    try:
        with open_until(path, after + BEHIND) as stream:  # with what the last line has behind the slice
            stream.seek(at)
            if first:  # the slice before has the line that was begun there
                at += len(stream.readline(after - at))
            while at < after and (line := stream.readline()):
                at += len(line)
                number += 1
                yield number, line.decode("utf-8", "replace")
    except OSError as error:
        raise DataError(f"{path}: cannot be read from byte {at:,} on: {error}") from error


def reading_processes(files: Sequence[File]) -> int:
    """Number of processes that read files: all cores, eight at most, from 256 MB and four cores on, else one.

    Several processes take 1.5 times the processor time of one, a quarter of it in the process that drops repeated
    texts. Files that this process must stream by itself, such as large compressed ones, do not count.
    """
    count = min(cores(), MOST_READERS)
    if any(isinstance(path, RemoteFile) and path.is_of_this_process for path in files):
        return 1
    if count < SHARED_CORES or sum(file_size(path) for path in files) < SHARED_FROM:
        return 1
    shared = 0
    for path in files:  # no more of them are looked into than it takes
        shared += file_size(path) if next(_slices(path)).is_small else 0
        if shared >= SHARED_FROM:
            return count
    return 1
