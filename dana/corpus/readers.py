"""Records from files, folders, globs and the Hub, streamed, each knowing the file and line it came from.

==================  ==========================================================
``.jsonl .json``    one object a line
``.csv .tsv``       a header line, then a record a line
``.parquet``        a record a row
``.txt``            a document a paragraph where the file has blank lines, else a document a line
``hf:name``         ``hf:org/name[:config][:split]``, streamed
==================  ==========================================================

The text formats may end in ``.gz`` or ``.zst``. In folders, hidden files and dana's own records are passed over.
"""

import csv
import io
import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from glob import glob, has_magic
from itertools import islice
from pathlib import Path

from dana.artifacts import MANIFEST
from dana.corpus.parquet import read_parquet
from dana.corpus.records import Damage, Record
from dana.errors import DataError

FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # suffix to codec
HUB = "hf:"
FIRST_LOOK = 1 << 24  # characters
REMOVED = "removed.jsonl"  # beside a manifest: what hygiene left out of dana's own text


def read_records(sources: Sequence[str]) -> Iterator[Record]:
    """Stream the records of all sources, in order; folders and globs in the order of their names.

    A file that is empty, damaged or ends early is a bad record, too: the last one of the file.

    Raises:
        DataError: If a source is missing, has an unknown format, or the machine cannot read it.
    """
    for source in sources:
        if source.startswith(HUB):
            yield from _read_hub(source)
        else:
            for path in expand(source):
                yield from read_file(path)


def expand(source: str) -> list[Path]:
    """The files of a source: itself, a folder's or a glob's, sorted by name.

    Raises:
        DataError: If there is none.
    """
    path = Path(source)
    if path.is_file():
        files = [path]
        format_of(path)
    elif path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and _is_meant(file, path))
    elif has_magic(source):
        files = sorted(Path(file) for file in glob(source, recursive=True) if Path(file).is_file())  # noqa: PTH207
    else:
        raise DataError(f"{source}: no such file or folder")
    if not files:
        raise DataError(f"{source}: no file of a known format there ({' '.join(FORMATS)}, also with .gz or .zst)")
    return files


def _is_meant(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    own = file.name == MANIFEST or (file.name == REMOVED and (file.parent / MANIFEST).is_file())
    return _format(file) in FORMATS and not hidden and not own


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


def read_file(path: Path, groups: range | None = None) -> Iterator[Record]:
    """The records of one file; of a Parquet file, those of some row groups, if they are given."""
    try:
        if path.stat().st_size == 0:
            raise Damage(1, "the file is empty")
        yield from _read_format(path, groups)
    except Damage as damage:
        yield Record(str(path), damage.line, {}, str(damage), rest_lost=True)


def _read_format(path: Path, groups: range | None) -> Iterator[Record]:
    match format_of(path):
        case ".parquet":
            yield from read_parquet(path, groups)
        case ".txt":
            yield from _read_text(path)
        case ".csv":
            yield from _read_csv(path, ",")
        case ".tsv":
            yield from _read_csv(path, "\t")
        case _:
            yield from parse_json_lines(path, _lines(path))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Unpacked lines with their numbers, from 1. Bytes that are not UTF-8 become U+FFFD: text is data.

    Raises:
        DataError: Naming file and line, if the machine cannot read the file.
        Damage: If a compressed file cannot be unpacked to its end.
    """
    import pyarrow as pa

    packed = COMPRESSIONS.get(path.suffix.lower())
    number = 0
    try:
        with pa.input_stream(str(path), compression=packed) as stream:
            for number, line in enumerate(io.BufferedReader(stream), 1):  # type: ignore[arg-type]
                yield number, (line.removeprefix(BOM_UTF8) if number == 1 else line).decode("utf-8", "replace")
    except OSError as error:
        if packed and error.errno is None:  # pyarrow's own errors have no number
            raise Damage(number + 1, f"the compressed file is damaged or ends early: {error}") from error
        raise DataError(f"{path}:{number + 1}: cannot be read: {error}") from error


def parse_json_lines(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Record]:
    """A record a line.

    Args:
        path: Where they come from.
        lines: With their numbers.
    """
    for number, line in lines:
        if not line.strip():
            continue
        try:
            value = json.loads(line.lstrip("\ufeff"))  # joined files have marks within
        except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a plain ValueError
            yield Record(str(path), number, {}, f"not JSON: {error}")
            continue
        if isinstance(value, dict):
            yield Record(str(path), number, value)
        else:
            yield Record(str(path), number, {}, f"not a JSON object but {type(value).__name__}")


def _read_csv(path: Path, delimiter: str) -> Iterator[Record]:
    csv.field_size_limit(1 << 30)
    text = (line.replace("\x00", "") for _, line in _lines(path))
    reader = csv.reader(text, delimiter=delimiter, strict=True)  # else an open quote swallows the file in silence
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield Record(str(path), line, {}, f"not CSV: {error}")
            continue
        if row is None:
            return
        if header is None:
            header = [name.strip() for name in row]
        elif len(row) == len(header):
            yield Record(str(path), line, dict(zip(header, row, strict=True)))
        elif row:
            yield Record(str(path), line, {}, f"{len(row)} columns where the header has {len(header)}")


def _read_text(path: Path) -> Iterator[Record]:
    """Paragraphs where the first stretch of the file has a blank line between text, else lines."""
    lines = _lines(path)
    head, damage = _first_look(lines)
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
    if damage:
        raise damage
    if waiting:
        yield Record(str(path), started, {"text": "".join(waiting)})


def _first_look(lines: Iterator[tuple[int, str]]) -> tuple[list[tuple[int, str]], Damage | None]:
    """The first thousand lines, fewer where they are long (a line may have 10 MB) or where the file is damaged."""
    head = []
    characters = 0
    try:
        for number, line in islice(lines, 1000):
            head.append((number, line))
            characters += len(line)
            if characters > FIRST_LOOK:
                break
    except Damage as damage:
        return head, damage
    return head, None


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
