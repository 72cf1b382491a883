"""Read parallel text: two aligned files, records with a field per side, or a folder of splits."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from dana.core.config import require
from dana.core.errors import Damage, DataError, nearest_path
from dana.core.lines import COMPRESSIONS, read_lines
from dana.corpus.inputs import MISSING, Inputs, field_at
from dana.corpus.readers import read_file
from dana.corpus.sources import FORMATS
from dana.corpus.text import one_line

PAIR = ("source", "target")
RESERVED = ("line", "either")  # names of other columns
SPLIT_FILE = re.compile(r"(train|dev|valid|validation|val|test)\.(.+)")
SPLIT_OF = {"valid": "dev", "validation": "dev", "val": "dev"}
EXPECTED = (
    "train, dev (or valid, validation, val) and test files,"
    " for example train.de and train.en, or train.parquet"
)
Row = tuple[int, tuple[str, ...]]  # line number, from 1; the text of each side


@dataclass(frozen=True)
class AlignedText:
    """Files of sentences and their translations.

    Attributes:
        files: One plain-text file per side, or one file of records.
        sides: Names of the sides; in records, the fields.
    """

    files: tuple[Path, ...]
    sides: tuple[str, ...]

    def rows(self) -> Iterator[Row]:
        """Yield every row: its line number, and each side as :func:`dana.corpus.text.one_line`.

        Raises:
            DataError: If a line cannot be read or decoded (names file and line), the files have
                different numbers of lines, or there is no line.
        """
        first = self.files[0]
        rows = _records(first, self.sides) if _holds_records(first) else _lines(self.files)
        number = 0
        for number, texts in rows:
            yield number, tuple(map(one_line, texts))
        if number == 0:
            raise DataError(f"{first}: the file is empty")


def open_aligned(files: Sequence[Path], sides: Sequence[str] | None = None) -> AlignedText:
    """Check the names of one or two files and their sides, without reading them.

    Args:
        files: Two plain-text files (``.txt``, ``.de``, or any suffix but those of records), or one
            file of records in a format of :mod:`dana.corpus.readers`; text may be packed.
        sides: Names of both sides; by default ``source`` and ``target``.

    Raises:
        ConfigError: If there are not two names that are valid columns.
        DataError: If a file is missing or a folder, or if there are not two files of plain text or
            one of records.
    """
    for file in files:
        if not file.is_file():
            problem = "is a folder" if file.is_dir() else f"no such file{nearest_path(file)}"
            raise DataError(f"{file}: {problem}; give one file per side, or one file with both")
        if _holds_records(file) == (len(files) > 1):
            kind = "records with both sides" if len(files) > 1 else "plain text with one side"
            raise DataError(
                f"{file}: has {kind}; give two plain-text files, or one file of records"
            )
    names = tuple(sides or PAIR)
    are_two = len(names) == 2 and names[0] != names[1]
    are_free = not set(names) & {"", *RESERVED}
    remedy = f"two names, different and none of {', '.join(RESERVED)}"
    require(are_two and are_free, "sides", list(names), remedy)
    return AlignedText(tuple(files), names)


def find_splits(
    folder: Path, sides: Sequence[str] | None = None
) -> dict[str, dict[str, AlignedText]]:
    """Find the splits in a domain's folder, or in each of its subfolders.

    A split is one file of records, or one plain-text file per side, for example ``train.de`` and
    ``train.en``.

    Args:
        folder: Folder with the files, or with one subfolder per domain.
        sides: Fields of records, or endings of plain-text files; by default ``source`` and
            ``target`` for records, and the endings in alphabetical order for plain text.

    Returns:
        Splits by name of the domain, sorted, then by name of the split.

    Raises:
        DataError: If there are no splits, train is missing, dev and test are both missing, or a
            split has too many files.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder{nearest_path(folder)}")
    domains = {}
    subfolders = sorted(path for path in folder.iterdir() if path.is_dir())
    for path in [folder, *subfolders]:
        files = _split_files(path)
        if not files:
            continue
        if "train" not in files or len(files) < 2:
            names = ", ".join(sorted(files))
            raise DataError(
                f"{path}: has only {names} files; an audit needs train, and dev or test"
            )
        domains[path.resolve().name] = {
            split: _open_split(split, paths, sides) for split, paths in files.items()
        }
    if not domains:
        raise DataError(f"{folder}: expected {EXPECTED}, or folders with them")
    return domains


def _split_files(folder: Path) -> dict[str, list[Path]]:
    """Return the files in a folder that are named after a split, by split."""
    files: dict[str, list[Path]] = {}
    for file in sorted(folder.iterdir()):
        match = SPLIT_FILE.fullmatch(file.name)
        if match and file.is_file():
            split = SPLIT_OF.get(match[1], match[1])
            files.setdefault(split, []).append(file)
    return files


def _open_split(split: str, paths: list[Path], sides: Sequence[str] | None) -> AlignedText:
    if len(paths) == 1 and _holds_records(paths[0]):
        return open_aligned(paths, sides)
    by_ending = {_ending(path): path for path in paths}
    side_names = list(sides or by_ending)
    are_distinct = len(by_ending) == len(paths)
    if not are_distinct or len(side_names) != 2 or not set(side_names) <= by_ending.keys():
        names = ", ".join(path.name for path in paths)
        remedy = "expected one per side; name the endings by --sides, for example de en"
        raise DataError(f"{paths[0].parent}: {split} files: {names}; {remedy}")
    return open_aligned([by_ending[side] for side in side_names], side_names)


def _ending(path: Path) -> str:
    """Return the side that a plain-text file's name tells: ``de`` for ``train.de.txt.gz``."""
    name = path.name.partition(".")[2]
    for suffix in (*COMPRESSIONS, ".txt"):
        name = name.removesuffix(suffix)
    return name


def _holds_records(path: Path) -> bool:
    """Tell records from plain text by a file's name."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return name.suffix.lower() in FORMATS and name.suffix.lower() != ".txt"


def _lines(files: Sequence[Path]) -> Iterator[Row]:
    """Read line-aligned files together."""
    streams = [_strict(file) for file in files]
    for number, lines in enumerate(zip_longest(*streams), 1):
        if None in lines:
            lengths = []
            for file, stream, line in zip(files, streams, lines, strict=True):
                lines_read = number - 1 if line is None else number
                lines_left = sum(1 for _ in stream)
                lengths.append(f"{file}: {lines_read + lines_left:,} lines")
            raise DataError(
                f"{', '.join(lengths)}: must be equal;"
                " line N of one is the translation of line N of the other"
            )
        yield number, lines


def _strict(path: Path) -> Iterator[str]:
    """Yield the lines of a file; a damaged one is an error."""
    try:
        for _, line in read_lines(path, "strict"):
            yield line
    except Damage as damage:
        raise DataError(f"{path}:{damage.line}: {damage}") from damage


def _records(path: Path, sides: Sequence[str]) -> Iterator[Row]:
    """Read the fields of both sides from records."""
    for record in read_file(path, Inputs([*sides]), errors="strict"):
        if record.problem:
            raise DataError(f"{record.location}: {record.problem}")
        texts = [field_at(record.fields, side) for side in sides]
        for side, text in zip(sides, texts, strict=True):
            if text is MISSING:
                present = ", ".join(record.fields)
                raise DataError(
                    f"{record.location}: no field {side!r}; available: {present}; use --sides"
                )
            if not isinstance(text, str):
                raise DataError(
                    f"{record.location}: {side!r} must be text, is {type(text).__name__}"
                )
        yield record.line, tuple(texts)
