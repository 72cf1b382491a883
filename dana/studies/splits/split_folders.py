"""Folders with train, dev and test files to aligned text by domain and split."""

import re
from collections.abc import Sequence
from pathlib import Path

from dana.core.errors import DataError, nearest_path
from dana.core.lines import COMPRESSIONS
from dana.studies.splits.aligned import AlignedText, holds_records, open_aligned

FILE = re.compile(r"(train|dev|valid|validation|val|test)\.(.+)")
SPLIT_OF = {"valid": "dev", "validation": "dev", "val": "dev"}
EXPECTED = "train, dev (or valid, validation, val) and test files, for example train.de and train.en, or train.parquet"


def find_splits(folder: Path, sides: Sequence[str] | None = None) -> dict[str, dict[str, AlignedText]]:
    """The splits of a domain's folder, by its name, or those of each folder in it that has some, in order of names.

    A split is one file of records, or a plain-text file a side: ``train.de`` and ``train.en``, or ``train.txt``.

    Args:
        folder: With the files, or with folders of such.
        sides: Fields of records; endings of plain-text files. Default: that of
            :func:`dana.studies.splits.aligned.open_aligned` for records, what endings there are for plain text, in
            order of names.

    Raises:
        DataError: If there are no splits, train is missing, there is neither dev nor test, or a split has too many
            files.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder{nearest_path(folder)}")
    own = _by_split(folder)
    found = {folder.resolve().name: (folder, own)} if own else {}
    if not own:
        below = ((path, _by_split(path)) for path in sorted(folder.iterdir()) if path.is_dir())
        found = {path.name: (path, files) for path, files in below if files}
    if not found:
        raise DataError(f"{folder}: holds neither {EXPECTED}, nor folders with such")
    return {name: _opened(path, files, sides) for name, (path, files) in found.items()}


def _by_split(folder: Path) -> dict[str, list[Path]]:
    """The files of each split, in order of names."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and (match := FILE.fullmatch(path.name)):
            found.setdefault(SPLIT_OF.get(match[1], match[1]), []).append(path)
    return found


def _opened(folder: Path, files: dict[str, list[Path]], sides: Sequence[str] | None) -> dict[str, AlignedText]:
    if "train" not in files or len(files) < 2:
        raise DataError(
            f"{folder}: holds {', '.join(sorted(files))} files only; an audit compares dev or test with train"
        )
    return {split: _open(folder, split, paths, sides) for split, paths in files.items()}


def _open(folder: Path, split: str, paths: list[Path], sides: Sequence[str] | None) -> AlignedText:
    if len(paths) == 1 and holds_records(paths[0]):
        return open_aligned(paths, sides)
    ending = {_ending(path): path for path in paths}
    wanted = list(sides or ending)
    if len(ending) != len(paths) or len(wanted) > 2 or not ending.keys() >= set(wanted):
        names = ", ".join(path.name for path in paths)
        raise DataError(
            f"{folder}: {split} files: {names}; must be one a side; --sides names the endings, for example de en"
        )
    return open_aligned([ending[side] for side in wanted], wanted)


def _ending(path: Path) -> str:
    """What a plain-text file's name says of its language: ``de`` of ``train.de.txt.gz``, ``text`` of ``train.txt``."""
    name = path.name.partition(".")[2]
    for suffix in (*COMPRESSIONS, ".txt"):
        name = name.removesuffix(suffix)
    return "text" if name == "txt" else name
