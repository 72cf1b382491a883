"""Records from files, folders, globs and the Hub, streamed, each knowing the file and line it came from.

==================  ==========================================================
``.jsonl .json``    one object a line
``.csv .tsv``       a header line, then a record a line
``.parquet``        a record a row
``.txt``            a document a paragraph where the file has blank lines, else a document a line
``hf:name``         ``hf:org/name[:config][:split]``, streamed
==================  ==========================================================

The text formats may end in ``.gz`` or ``.zst``.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob, has_magic
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from dana.errors import DataError

FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt")
COMPRESSIONS = (".gz", ".zst")
HUB = "hf:"


@dataclass(frozen=True)
class Record:
    """One record, good or bad.

    Attributes:
        origin: File or dataset it came from.
        line: Line or row, from 1.
        fields: What it holds; empty for a bad record.
        problem: Why it cannot be read; empty for a good one.
    """

    origin: str
    line: int
    fields: dict[str, Any]
    problem: str = ""

    @property
    def place(self) -> str:
        """``file:line``."""
        return f"{self.origin}:{self.line}"


def read_records(sources: Sequence[str]) -> Iterator[Record]:
    """Stream the records of all sources, in order; folders and globs in the order of their names.

    Raises:
        DataError: If a source is missing or empty, has an unknown format, or ends in the middle.
    """
    for source in sources:
        if source.startswith(HUB):
            yield from _read_hub(source)
        else:
            for path in expand(source):
                yield from _read_file(path)


def expand(source: str) -> list[Path]:
    """The files of a source: itself, a folder's or a glob's, sorted by name.

    Raises:
        DataError: If there is none, or one is empty.
    """
    path = Path(source)
    if path.is_file():
        files = [path]
        format_of(path)
    elif path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and _format(file) in FORMATS)
    elif has_magic(source):
        files = sorted(Path(file) for file in glob(source, recursive=True) if Path(file).is_file())  # noqa: PTH207
    else:
        raise DataError(f"{source}: no such file or folder")
    if not files:
        raise DataError(f"{source}: no file of a known format there ({' '.join(FORMATS)}, also with .gz or .zst)")
    for file in files:
        if file.stat().st_size == 0:
            raise DataError(f"{file}: the file is empty")
    return files


def format_of(path: Path) -> str:
    """A file's format by its name, compression aside.

    Raises:
        DataError: If it is not one of the known ones.
    """
    found = _format(path)
    if found not in FORMATS:
        raise DataError(
            f"{path}: unknown format {found or 'without a suffix'!r}; known: {' '.join(FORMATS)}, also .gz .zst"
        )
    return found


def _format(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def stem(path: Path) -> str:
    """The file's name without format and compression: what a document's source is called by default."""
    name = path.name
    for suffix in (*COMPRESSIONS, *FORMATS):
        name = name.removesuffix(suffix)
    return name


def _read_file(path: Path) -> Iterator[Record]:
    kind = format_of(path)
    if kind == ".parquet":
        yield from _read_parquet(path)
        return
    with _opened(path) as stream:
        if kind in (".jsonl", ".json"):
            yield from _read_jsonl(path, stream)
        elif kind == ".txt":
            yield from _read_text(path, stream)
        else:
            yield from _read_csv(path, stream, "\t" if kind == ".tsv" else ",")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A decompressed byte stream whose failures name the file."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as stream:
                yield stream  # type: ignore[misc]
        elif path.suffix == ".zst":
            import pyarrow as pa

            with pa.input_stream(path, compression="zstd") as stream:  # raises where a file ends early
                yield io.BufferedReader(stream)  # type: ignore[arg-type]
        else:
            with path.open("rb") as stream:
                yield stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: the compressed file is damaged or ends early: {error}") from error
    except OSError as error:
        damaged = path.suffix == ".zst" and error.errno is None  # pyarrow's own errors have no number
        problem = "the compressed file is damaged or ends early" if damaged else "cannot be read"
        raise DataError(f"{path}: {problem}: {error}") from error


def _decoded(path: Path, stream: BinaryIO) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1. Bytes that are not UTF-8 become U+FFFD: text is data, not a reason to stop."""
    for number, line in enumerate(stream, 1):
        yield number, line.decode("utf-8", "replace")


def _read_jsonl(path: Path, stream: BinaryIO) -> Iterator[Record]:
    for number, line in _decoded(path, stream):
        if not line.strip():
            continue
        try:
            value = json.loads(line.lstrip("\ufeff"))
        except (json.JSONDecodeError, RecursionError) as error:
            yield Record(str(path), number, {}, f"not JSON: {error}")
            continue
        if isinstance(value, dict):
            yield Record(str(path), number, value)
        else:
            yield Record(str(path), number, {}, f"not a JSON object but {type(value).__name__}")


def _read_csv(path: Path, stream: BinaryIO, delimiter: str) -> Iterator[Record]:
    csv.field_size_limit(1 << 30)
    text = (line.replace("\x00", "") for _, line in _decoded(path, stream))
    reader = csv.reader(text, delimiter=delimiter)
    header = [name.lstrip("\ufeff").strip() for name in next(reader, [])]
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield Record(str(path), reader.line_num, {}, f"not CSV: {error}")
            continue
        if row is None:
            return
        if len(row) == len(header):
            yield Record(str(path), reader.line_num, dict(zip(header, row, strict=True)))
        elif row:
            yield Record(str(path), reader.line_num, {}, f"{len(row)} columns where the header has {len(header)}")


def _read_text(path: Path, stream: BinaryIO) -> Iterator[Record]:
    """Paragraphs where the first stretch of the file has a blank line between text, else lines."""
    lines = _decoded(path, stream)
    head = list(islice(lines, 1000))
    filled = [bool(line.strip()) for _, line in head]
    last = max((at for at, full in enumerate(filled) if full), default=0)
    first = next((at for at, full in enumerate(filled) if full), 0)
    by_paragraph = not all(filled[first : last + 1])
    waiting: list[str] = []
    started = 1
    for pairs in (head, lines):
        for number, line in pairs:
            if not line.strip():
                if waiting:
                    yield Record(str(path), started, {"text": "".join(waiting)})
                waiting = []
            elif by_paragraph:
                started = started if waiting else number
                waiting.append(line)
            else:
                yield Record(str(path), number, {"text": line})
    if waiting:
        yield Record(str(path), started, {"text": "".join(waiting)})


def _read_parquet(path: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not a Parquet file: {error}") from error
    row = 0
    for batch in file.iter_batches(batch_size=1024):
        for fields in batch.to_pylist():
            row += 1
            yield Record(str(path), row, fields)


def _read_hub(source: str) -> Iterator[Record]:
    """``hf:org/name[:config][:split]``, streamed; no code of the dataset's is ever run."""
    from datasets import load_dataset

    name, *rest = source.removeprefix(HUB).split(":")
    config, split = (rest[0] or None if rest else None), (rest[1] if len(rest) > 1 else "train")
    try:
        rows = load_dataset(name, config, split=split, streaming=True)
        for number, fields in enumerate(rows, 1):
            yield Record(source, number, dict(fields))
    except (OSError, ValueError) as error:
        raise DataError(f"{source}: cannot be read: {str(error).splitlines()[0]}") from error
