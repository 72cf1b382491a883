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

from dana.core.artifacts import META_DIR
from dana.core.config import require
from dana.core.errors import ConfigError, DataError, nearest_path
from dana.core.lines import COMPRESSIONS
from dana.core.logging import get_logger
from dana.core.storage import File, RemoteFile, is_url, list_url
from dana.corpus.hub import HubSet, is_hub, pin, pin_url

log = get_logger(__name__)

F = TypeVar("F", Path, RemoteFile)

FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt")
WRITTEN = "folder that dana wrote"

Source = str | RemoteFile | HubSet  # as it was named; or a file found at a URL; or a pinned data set


def find_files(sources: Sequence[str], run: Path) -> list[Source]:
    """The files of all sources by name, or as found at a URL, and pinned ``hf:`` names, in order; logs what is skipped.

    Args:
        sources: Files, folders, globs, URLs, ``hf:`` names.
        run: Folder of the run; of sources around it, nothing in it is read.

    Raises:
        ConfigError: If a source is empty, or is the run's own folder.
        DataError: See :func:`expand`.
    """
    found: list[Source] = []
    for source in sources:
        if is_hub(source):
            found.append(pin(str(source), run))
            continue
        passed: Counter[str] = Counter()
        files = expand(pin_url(source, run), run, passed)
        found += [path if isinstance(path, RemoteFile) else str(path) for path in files]
        if passed:
            counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(passed.items()))
            log.info("input     %s: passed over: %s", source, counted)
    return found


def expand(source: Source, run: Path | None = None, passed: Counter[str] | None = None) -> list[File]:
    """The files of a source, sorted by name.

    Args:
        source: A file, folder or glob, here or at a URL.
        run: A folder whose files are left out where a folder or glob holds it.
        passed: Counts what is passed over, by suffix or reason.

    Raises:
        ConfigError: If the source is empty, or is `run`.
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
        files = _at_url(source, passed) if is_url(source) else _files(source, run.resolve() if run else None, passed)
    except OSError as error:
        raise DataError(f"{error.filename or source}: cannot be read: {error.strerror}") from error
    passed += Counter()  # drops what is zero
    for file in files:
        try:
            str(file).encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{os.fsencode(str(file))!r}: the name is not UTF-8; rename the file") from error
        format_of(file)
    if not files:
        raise DataError(f"{source}: no file of a known format there ({' '.join(FORMATS)}, also with .gz or .zst)")
    return list(files)


def _files(source: str, run: Path | None, passed: Counter[str]) -> list[Path]:
    path = Path(source)
    if path.is_file():
        return [path]
    if path.is_dir():
        if path.resolve() == run:
            raise ConfigError(f"{source}: is the run's own folder, whose files would be read; choose another --out")
        return sorted(_known(_walk(path, run, passed), passed))
    if has_magic(source):
        return sorted(_globbed(source, run, passed))
    raise DataError(f"{source}: no such file or folder{nearest_path(source)}")


def _walk(root: Path, run: Path | None, passed: Counter[str]) -> Iterator[Path]:
    """Files in a folder and below it, without hidden folders and those of dana; each real one once: links may go round.

    Raises:
        OSError: If a folder cannot be read.
    """
    seen: set[str] = set()
    for folder, below, names in os.walk(root, followlinks=True, onerror=_raise):
        real = os.path.realpath(folder)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        written = {name for name in below if _is_written(Path(folder, name), run)}
        passed[WRITTEN] += len(written - {META_DIR})
        below[:] = sorted(name for name in below if name not in written and not name.startswith("."))
        yield from (Path(folder, name) for name in names if not name.startswith("."))


def _raise(error: OSError) -> None:
    raise error


def _is_written(folder: Path, run: Path | None) -> bool:
    """Whether dana wrote a folder: the run's, one with a manifest, or the folder of another run."""
    if folder.name == META_DIR or (run and folder.resolve() == run):
        return True
    return any((folder / part / META_DIR).is_dir() for part in ("", "corpus"))


def _at_url(url: str, passed: Counter[str]) -> list[RemoteFile]:
    """Files at a URL: what it names, the matches of a glob, or all below a folder but hidden ones and those of dana."""
    found = list_url(url)
    if found.kind == "file":
        return found.files
    if found.kind == "glob":
        shown = [file for file in found.files if "/." not in file.url or "/." in url]
        return [file for file in shown if f"/{META_DIR}/" not in file.url]
    ways = {file: PurePosixPath(file.url.removeprefix(f"{found.root}/")).parts for file in found.files}
    manifests = {way[: way.index(META_DIR)] for way in ways.values() if META_DIR in way}
    runs = {way[:-1] for way in manifests if way[-1:] == ("corpus",)}
    written = {way for way in manifests | runs if way}  # but the source itself
    passed[WRITTEN] += sum(not _is_below(way, written) for way in written)
    read = (file for file, way in ways.items() if META_DIR not in way and not _is_below(way, written))
    return list(_known((file for file in read if not any(part.startswith(".") for part in ways[file])), passed))


def _is_below(way: tuple[str, ...], folders: set[tuple[str, ...]]) -> bool:
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


def _globbed(pattern: str, run: Path | None, passed: Counter[str]) -> list[Path]:
    """Files of a pattern, each real one once. A pattern that begins within the run's folder means what is there."""
    parts = Path(pattern).parts
    fixed = Path(*parts[: next(place for place, part in enumerate(parts) if has_magic(part))])
    within = run is not None and fixed.resolve().is_relative_to(run)
    files: dict[Path, Path] = {}
    for name in sorted(glob(pattern, recursive=True)):  # noqa: PTH207
        real = Path(name).resolve()
        if run and not within and real.is_relative_to(run):
            passed["of the run's own folder"] += real.is_file()
        elif real.is_file() and META_DIR not in Path(name).parts:
            files.setdefault(real, Path(name))
    return list(files.values())


def format_of(path: File) -> str:
    """A file's format by its name, compression aside.

    Raises:
        DataError: If it is not one of the known ones.
    """
    found = _format(path)
    known = f"{' '.join(FORMATS)}, also .gz .zst"
    if found not in FORMATS:
        raise DataError(f"{path}: unknown format {found or 'without a suffix'!r}; known: {known}")
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
