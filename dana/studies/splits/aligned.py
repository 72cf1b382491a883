"""Aligned text, two line-aligned files or a file of records with a field a side, to a stream of cleaned lines."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from dana.core.config import require
from dana.core.errors import Damage, DataError, nearest_path
from dana.core.lines import COMPRESSIONS, read_lines
from dana.corpus.places import FORMATS
from dana.corpus.readers import read_file
from dana.corpus.records import MISSING, field_at
from dana.corpus.text import one_line

PAIR, PLAIN = ("source", "target"), ("text",)
TAKEN = ("line", "either")  # names of columns beside those of the sides
Row = tuple[int, tuple[str, ...]]  # line in its file, from 1; the text of each side


@dataclass(frozen=True)
class AlignedText:
    """Where text with one or two sides is: a sentence and its translation, or a sentence alone.

    Attributes:
        files: A plain-text file for each side, or one file of records.
        sides: What the sides are called; of records, the fields that hold them.
    """

    files: tuple[Path, ...]
    sides: tuple[str, ...]

    def rows(self) -> Iterator[Row]:
        """Every line with its number, each side as :func:`dana.corpus.text.one_line` makes it; a side may be empty.

        Raises:
            DataError: Naming file and line, if one cannot be read or decoded; naming both numbers of lines, if two
                files have not as many; if there is no line at all.
        """
        row = 0
        for row, texts in _records(self.files[0], self.sides) if holds_records(self.files[0]) else _lines(self.files):
            yield row, tuple(map(one_line, texts))
        if not row:
            raise DataError(f"{self.files[0]}: the file is empty")


def open_aligned(files: Sequence[Path], sides: Sequence[str] | None = None) -> AlignedText:
    """Look at one or two files without reading them.

    Args:
        files: One or two of plain text (``.txt``, ``.de``, any suffix that is no format's), or one of records
            (``.jsonl .json .csv .tsv .parquet``); all but Parquet may end in ``.gz`` or ``.zst``.
        sides: Names of the sides: one of plain monolingual text, else two. Default: ``source`` and ``target``, of one
            plain-text file ``text``.

    Raises:
        ConfigError: If the names are not as many as the sides, or there are more than two.
        DataError: If a file is missing, or is a folder; if there are two and one holds records.
    """
    for file in files:
        if not file.is_file():
            said = "is a folder" if file.is_dir() else f"no such file{nearest_path(file)}"
            raise DataError(f"{file}: {said}; name a file a side, or one file with both")
    records = [file for file in files if holds_records(file)]
    if records and len(files) > 1:
        raise DataError(f"{records[0]}: holds records, in which both sides are: name it alone, or two plain-text files")
    found = tuple(sides) if sides else PLAIN if len(files) == 1 and not records else PAIR
    allowed = "one or two names" if records else f"as many as there are plain-text files, {len(files)}"
    fits = len(found) in (1, 2) if records else len(found) == len(files)
    free = len(set(found)) == len(found) and not {*found} & {"", *TAKEN}
    require(fits and free, "sides", list(found), f"{allowed}, different and none of {', '.join(TAKEN)}")
    return AlignedText(tuple(files), found)


def holds_records(path: Path) -> bool:
    """Whether a file's name says that it holds records with fields, not plain text."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return name.suffix.lower() in FORMATS and name.suffix.lower() != ".txt"


def check_sides(texts: Sequence[AlignedText]) -> None:
    """Raise a DataError that names two files, unless all texts have as many sides."""
    first = texts[0]
    for text in texts:
        if len(text.sides) != len(first.sides):
            counts = f"{len(first.sides)} side(s), {text.files[0]} has {len(text.sides)}"
            raise DataError(f"{first.files[0]} has {counts}: all must have as many")


def _lines(files: Sequence[Path]) -> Iterator[Row]:
    """Line by line, all files together."""
    streams = [_strict(file) for file in files]
    for number, lines in enumerate(zip_longest(*streams), 1):
        if None in lines:
            longer = next(side for side, line in enumerate(lines) if line is not None)
            counts = [number - 1, number - 1]
            counts[longer] = number + sum(1 for _ in streams[longer])
            said = ", ".join(f"{file}: {count:,} lines" for file, count in zip(files, counts, strict=True))
            raise DataError(f"{said}: not aligned; line N of one must be the translation of line N of the other")
        yield number, lines


def _strict(path: Path) -> Iterator[str]:
    try:
        for _, line in read_lines(path, "strict"):
            yield line
    except Damage as damage:
        raise DataError(f"{path}:{damage.line}: {damage}") from damage


def _records(path: Path, sides: Sequence[str]) -> Iterator[Row]:
    """Record by record, the fields of the sides."""
    for record in read_file(path, errors="strict"):
        if record.problem:
            raise DataError(f"{record.place}: {record.problem}")
        texts = []
        for side in sides:
            value = field_at(record.fields, side)
            if value is MISSING:
                raise DataError(
                    f"{record.place}: no {side!r}; there is: {', '.join(record.fields)}; name the sides by --sides"
                )
            if not isinstance(value, str):
                raise DataError(f"{record.place}: {side!r} is {type(value).__name__}, not text")
            texts.append(value)
        yield record.line, tuple(texts)
