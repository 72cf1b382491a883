"""Aligned text (two line-aligned files, records with a field a side, a folder of splits) to a stream of lines."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from dana.core.config import require
from dana.core.errors import Damage, DataError, nearest_path
from dana.core.lines import COMPRESSIONS, read_lines
from dana.corpus.inputs import MISSING, field_at
from dana.corpus.readers import read_file
from dana.corpus.sources import FORMATS
from dana.corpus.text import one_line

PAIR = ("source", "target")
RESERVED = ("line", "either")  # names of columns beside those of the sides
SPLIT_FILE = re.compile(r"(train|dev|valid|validation|val|test)\.(.+)")
SPLIT_OF = {"valid": "dev", "validation": "dev", "val": "dev"}
EXPECTED = "train, dev (or valid, validation, val) and test files, for example train.de and train.en, or train.parquet"
Row = tuple[int, tuple[str, ...]]  # line in its file, from 1; the text of each side


@dataclass(frozen=True)
class AlignedText:
    """Where sentences and their translations are.

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
        for row, texts in _records(self.files[0], self.sides) if _holds_records(self.files[0]) else _lines(self.files):
            yield row, tuple(map(one_line, texts))
        if not row:
            raise DataError(f"{self.files[0]}: the file is empty")


def open_aligned(files: Sequence[Path], sides: Sequence[str] | None = None) -> AlignedText:
    """Look at one or two files without reading them.

    Args:
        files: Two of plain text (``.txt``, ``.de``, any suffix that is no format's), or one of records
            (``.jsonl .json .csv .tsv .parquet``); all but Parquet may end in ``.gz`` or ``.zst``.
        sides: Names of both sides. Default: ``source`` and ``target``.

    Raises:
        ConfigError: If there are not two names, or they cannot be those of columns.
        DataError: If a file is missing, or is a folder; if plain text is alone, or a file of records is not.
    """
    for file in files:
        if not file.is_file():
            problem = "is a folder" if file.is_dir() else f"no such file{nearest_path(file)}"
            raise DataError(f"{file}: {problem}; name a file a side, or one file with both")
        if _holds_records(file) == (len(files) > 1):
            holds = "records, in which both sides are" if len(files) > 1 else "plain text, so one side"
            raise DataError(f"{file}: holds {holds}; name two plain-text files, or one of records")
    names = tuple(sides or PAIR)
    fits = len(names) == len(set(names)) == 2 and not {*names} & {"", *RESERVED}
    require(fits, "sides", list(names), f"two names, different and none of {', '.join(RESERVED)}")
    return AlignedText(tuple(files), names)


def find_splits(folder: Path, sides: Sequence[str] | None = None) -> dict[str, dict[str, AlignedText]]:
    """The splits of a domain's folder, by its name, or those of each folder in it that has some, in order of names.

    A split is one file of records, or a plain-text file a side: ``train.de`` and ``train.en``.

    Args:
        folder: With the files, or with folders of such.
        sides: Fields of records; endings of plain-text files. Default: that of :func:`open_aligned` for records, what
            endings there are for plain text, in order of names.

    Raises:
        DataError: If there are no splits, train is missing, there is neither dev nor test, or a split has too many
            files.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder{nearest_path(folder)}")
    domains = {}
    for path in [folder, *sorted(below for below in folder.iterdir() if below.is_dir())]:
        files: dict[str, list[Path]] = {}
        for file in sorted(path.iterdir()):
            if file.is_file() and (match := SPLIT_FILE.fullmatch(file.name)):
                files.setdefault(SPLIT_OF.get(match[1], match[1]), []).append(file)
        if files and ("train" not in files or len(files) < 2):
            held = ", ".join(sorted(files))
            raise DataError(f"{path}: holds {held} files only; an audit compares dev or test with train")
        if files:
            domains[path.resolve().name] = {split: _open_split(split, files[split], sides) for split in files}
    if not domains:
        raise DataError(f"{folder}: holds neither {EXPECTED}, nor folders with such")
    return domains


def _open_split(split: str, paths: list[Path], sides: Sequence[str] | None) -> AlignedText:
    if len(paths) == 1 and _holds_records(paths[0]):
        return open_aligned(paths, sides)
    by_ending = {_ending(path): path for path in paths}
    wanted = list(sides or by_ending)
    if len(by_ending) != len(paths) or len(wanted) != 2 or not by_ending.keys() >= set(wanted):
        names = ", ".join(path.name for path in paths)
        remedy = "must be one a side; --sides names the endings, for example de en"
        raise DataError(f"{paths[0].parent}: {split} files: {names}; {remedy}")
    return open_aligned([by_ending[side] for side in wanted], wanted)


def _ending(path: Path) -> str:
    """What a plain-text file's name says of its language: ``de`` of ``train.de.txt.gz``."""
    name = path.name.partition(".")[2]
    for suffix in (*COMPRESSIONS, ".txt"):
        name = name.removesuffix(suffix)
    return name


def _holds_records(path: Path) -> bool:
    """Whether a file's name says that it holds records with fields, not plain text."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return name.suffix.lower() in FORMATS and name.suffix.lower() != ".txt"


def _lines(files: Sequence[Path]) -> Iterator[Row]:
    """Line by line, all files together."""
    streams = [_strict(file) for file in files]
    for number, lines in enumerate(zip_longest(*streams), 1):
        if None in lines:
            rest = [sum(1 for _ in stream) for stream in streams]
            counts = [number - (line is None) + more for line, more in zip(lines, rest, strict=True)]
            lengths = ", ".join(f"{file}: {count:,} lines" for file, count in zip(files, counts, strict=True))
            raise DataError(f"{lengths}: not aligned; line N of one must be the translation of line N of the other")
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
            raise DataError(f"{record.location}: {record.problem}")
        texts = [field_at(record.fields, side) for side in sides]
        for side, text in zip(sides, texts, strict=True):
            if text is MISSING:
                present = ", ".join(record.fields)
                raise DataError(f"{record.location}: no {side!r}; there is: {present}; name the sides by --sides")
            if not isinstance(text, str):
                raise DataError(f"{record.location}: {side!r} is {type(text).__name__}, not text")
        yield record.line, tuple(texts)
