"""Sources to files: a file, folder, glob, URL or ``hf:`` name to what is read; skipped files are counted.

Folders are read with all that is below them, links to folders too, each real folder once. Passed over are hidden files
and folders, files of no known format, and what dana wrote: the run's own folder, and folders with a ``__dana__`` in
them (or in their ``corpus/``), unless the source itself is one.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path, PurePosixPath
from typing import TypeVar

from dana.core.artifacts import OWN
from dana.core.config import require
from dana.core.errors import ConfigError, DataError, nearest_path
from dana.core.lines import COMPRESSIONS
from dana.core.logging import get_logger
from dana.core.storage import File, RemoteFile, list_url
from dana.core.urls import is_url
from dana.corpus.hub import HubSet, is_hub, pin, pin_url

log = get_logger(__name__)

F = TypeVar("F", Path, RemoteFile)

FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt")
WRITTEN = "folder that dana wrote"

Source = str | RemoteFile | HubSet  # as it was named; or a file found at a URL; or a pinned data set


def find_files(sources: Sequence[str], own: Path) -> list[Source]:
    """The files of all sources by name, or as found at a URL, and pinned ``hf:`` names, in order; logs what is skipped.

    Args:
        sources: Files, folders, globs, URLs, ``hf:`` names.
        own: Folder of the run; of sources around it, nothing in it is read.

    Raises:
        ConfigError: If a source is empty, or is the run's own folder.
        DataError: See :func:`expand`.
    """
    found: list[Source] = []
    for source in sources:
        if is_hub(source):
            found.append(pin(str(source), own))
            continue
        passed: Counter[str] = Counter()
        files = expand(pin_url(source, own), own, passed)
        found += [path if isinstance(path, RemoteFile) else str(path) for path in files]
        if passed:
            counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(passed.items()))
            log.info("input     %s: passed over: %s", source, counted)
    return found


def expand(source: Source, own: Path | None = None, passed: Counter[str] | None = None) -> list[File]:
    """The files of a source, sorted by name.

    Args:
        source: A file, folder or glob, here or at a URL.
        own: A folder whose files are left out where a folder or glob holds it.
        passed: Counts what is passed over, by suffix or reason.

    Raises:
        ConfigError: If the source is empty, or is `own`.
        DataError: If there is no file, one has an unknown format or is a link to nothing, or a folder cannot be read.
    """
    if isinstance(source, RemoteFile):
        return [source]
    if isinstance(source, HubSet):
        raise ConfigError(f"{source}: is a data set, not a file")
    require(bool(source.strip()), "source", source, "a file, folder, glob, URL or hf: name")
    passed = Counter() if passed is None else passed
    files: Sequence[File]
    try:
        files = _at_url(source, passed) if is_url(source) else _files(source, own.resolve() if own else None, passed)
    except OSError as error:
        raise DataError(f"{error.filename or source}: cannot be read: {error.strerror}") from error
    for file in files:
        if isinstance(file, Path):
            _check_name(file)
        format_of(file)
    if not files:
        raise DataError(f"{source}: no file of a known format there ({' '.join(FORMATS)}, also with .gz or .zst)")
    return list(files)


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


def _check_name(file: Path) -> None:
    try:
        str(file).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{os.fsencode(file)!r}: the name is not UTF-8; rename the file") from error


def _unreadable(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _is_own(folder: Path, avoided: Path | None) -> bool:
    """Whether dana wrote a folder: the run's, one with a manifest, or the folder of another run."""
    if folder.name == OWN or (avoided and folder.resolve() == avoided):
        return True
    return any((folder / part / OWN).is_dir() for part in ("", "corpus"))


def _at_url(url: str, passed: Counter[str]) -> list[RemoteFile]:
    """Files at a URL: what it names, the matches of a glob, or all below a folder but hidden and own ones."""
    found = list_url(url)
    if found.kind == "file":
        return found.files
    if found.kind == "glob":
        shown = [file for file in found.files if "/." not in file.url or "/." in url]
        return [file for file in shown if f"/{OWN}/" not in file.url]
    ways = {file: PurePosixPath(file.url.removeprefix(f"{found.root}/")).parts for file in found.files}
    manifests = {way[: way.index(OWN)] for way in ways.values() if OWN in way}
    runs = {way[:-1] for way in manifests if way[-1:] == ("corpus",)}
    written = {way for way in manifests | runs if way}  # but the source itself
    passed[WRITTEN] += sum(not _below(way, written) for way in written)
    hidden = {file for file, way in ways.items() if any(part.startswith(".") for part in way)}
    files = [file for file, way in ways.items() if OWN not in way and not _below(way, written)]
    passed += Counter()  # drops what is zero
    return list(_known((file for file in files if file not in hidden), passed))


def _below(way: tuple[str, ...], folders: set[tuple[str, ...]]) -> bool:
    return any(way[:size] in folders for size in range(1, len(way)))


def _known(files: Iterable[F], passed: Counter[str]) -> Iterator[F]:
    """Files of a known format."""
    for file in files:
        if _format(file) not in FORMATS:
            passed[file.suffix.lower() or "without suffix"] += 1
        elif isinstance(file, RemoteFile) or file.is_file():
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


def format_of(path: File) -> str:
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


def _format(path: File) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def stem(path: File) -> str:
    """The file's name without format and compression: what a document's source is called by default."""
    name = path.name
    for suffix in (*COMPRESSIONS, *FORMATS):
        name = name.removesuffix(suffix)
    return name
