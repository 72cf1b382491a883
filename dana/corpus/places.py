"""Sources to files: a file, folder, glob or ``hf:`` name to the paths that are read; skipped files are counted.

Folders are read with all that is below them, links to folders too, each real folder once. Passed over are hidden files
and folders, files of no known format, and what dana wrote: the run's own folder, and folders with a ``__dana__`` in
them (or in their ``corpus/``), unless the source itself is one.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from dana.core.artifacts import OWN
from dana.core.config import require
from dana.core.errors import ConfigError, DataError, nearest_path
from dana.core.logging import get_logger

log = get_logger(__name__)

FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # suffix to codec
HUB = "hf:"
WRITTEN = "folder that dana wrote"


def find_files(sources: Sequence[str], own: Path) -> list[str]:
    """The files of all sources by name, and the ``hf:`` names, in order; logs what is skipped.

    Args:
        sources: Files, folders, globs, ``hf:`` names.
        own: Folder of the run; of sources around it, nothing in it is read.

    Raises:
        ConfigError: If a source is empty, or is the run's own folder.
        DataError: See :func:`expand`.
    """
    found: list[str] = []
    for source in sources:
        if source.startswith(HUB):
            found.append(source)
            continue
        passed: Counter[str] = Counter()
        found += [str(path) for path in expand(source, own, passed)]
        if passed:
            counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(passed.items()))
            log.info("input     %s: passed over: %s", source, counted)
    return found


def expand(source: str, own: Path | None = None, passed: Counter[str] | None = None) -> list[Path]:
    """The files of a source, sorted by name.

    Args:
        source: A file, folder or glob.
        own: A folder whose files are left out where a folder or glob holds it.
        passed: Counts what is passed over, by suffix or reason.

    Raises:
        ConfigError: If the source is empty, or is `own`.
        DataError: If there is no file, one has an unknown format or is a link to nothing, or a folder cannot be read.
    """
    require(bool(source.strip()), "source", source, "a file, folder, glob or hf: name")
    try:
        files = _files(source, own.resolve() if own else None, Counter() if passed is None else passed)
    except OSError as error:
        raise DataError(f"{error.filename or source}: cannot be read: {error.strerror}") from error
    for file in files:
        format_of(file)
    if not files:
        raise DataError(f"{source}: no file of a known format there ({' '.join(FORMATS)}, also with .gz or .zst)")
    return files


def _files(source: str, avoided: Path | None, passed: Counter[str]) -> list[Path]:
    path = Path(source)
    if path.is_file():
        return [path]
    if path.is_dir():
        if path.resolve() == avoided:
            raise ConfigError(f"{source}: is the run's own folder, whose files would be read; choose another --out")
        return sorted(_known(_walk(path, avoided, passed), passed))
    if has_magic(source):
        return sorted(_globbed(source, avoided, passed))
    raise DataError(f"{source}: no such file or folder{nearest_path(source)}")


def _walk(root: Path, avoided: Path | None, passed: Counter[str]) -> Iterator[Path]:
    """Files in a folder and below it, without hidden and own folders; each real folder once (links may be cyclic)."""
    seen: set[str] = set()
    for folder, below, names in os.walk(root, followlinks=True, onerror=_unreadable):
        real = os.path.realpath(folder)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        own = {name for name in below if _is_own(Path(folder, name), avoided)}
        passed[WRITTEN] += len(own - {OWN})
        below[:] = sorted(name for name in below if name not in own and not name.startswith("."))
        yield from (Path(folder, name) for name in names if not name.startswith("."))
    passed += Counter()  # drops what is zero


def _unreadable(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _is_own(folder: Path, avoided: Path | None) -> bool:
    """Whether dana wrote a folder: the run's, one with a manifest, or the folder of another run."""
    if folder.name == OWN or (avoided and folder.resolve() == avoided):
        return True
    return any((folder / part / OWN).is_dir() for part in ("", "corpus"))


def _known(files: Iterable[Path], passed: Counter[str]) -> Iterator[Path]:
    """Files of a known format."""
    for file in files:
        if _format(file) not in FORMATS:
            passed[file.suffix.lower() or "without suffix"] += 1
        elif file.is_file():
            yield file
        elif file.is_symlink():
            raise DataError(f"{file}: a link to nothing")


def _globbed(pattern: str, avoided: Path | None, passed: Counter[str]) -> list[Path]:
    """Files of a pattern, each real one once. A pattern that begins within the run's folder means what is there."""
    fixed = Path(*(part for part in Path(pattern).parts[: _first_magic(pattern)]))
    within = avoided is not None and fixed.resolve().is_relative_to(avoided)
    files: dict[Path, Path] = {}
    for name in sorted(glob(pattern, recursive=True)):  # noqa: PTH207
        real = Path(name).resolve()
        if avoided and not within and real.is_relative_to(avoided):
            passed["of the run's own folder"] += real.is_file()
        elif real.is_file() and OWN not in Path(name).parts:
            files.setdefault(real, Path(name))
    return list(files.values())


def _first_magic(pattern: str) -> int:
    return next(place for place, part in enumerate(Path(pattern).parts) if has_magic(part))


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
