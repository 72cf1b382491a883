"""Find the files of a source: a file, folder, glob, URL or ``hf:`` name. Skipped files are counted.

Folders are read recursively, through links, each real folder once. Skipped are hidden files and
folders, files of unknown format, and output of dana: the run's folder, and folders with a
``__dana__`` in them (or in their ``pool/``), unless the source itself is one.
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
OUTPUT = "folder that dana wrote"

Source = str | RemoteFile | HubSet  # a name; a file found at a URL; a pinned data set


def find_files(sources: Sequence[str], run: Path) -> list[Source]:
    """List the files of all sources, in order, and pin ``hf:`` names. Log the number of files skipped.

    Args:
        sources: Files, folders, globs, URLs, ``hf:`` names.
        run: Folder of the run; files in it are skipped where a source contains it.

    Raises:
        ConfigError: If a source is empty, or is the run's own folder.
        DataError: See :func:`expand`.
    """
    files: list[Source] = []
    for source in sources:
        if is_hub(source):
            files.append(pin(str(source), run))
            continue
        skips: Counter[str] = Counter()
        paths = expand(pin_url(source, run), run, skips)
        files += [path if isinstance(path, RemoteFile) else str(path) for path in paths]
        if skips:
            counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(skips.items()))
            log.info("input     %s: skipped: %s", source, counts)
    return files


def expand(
    source: Source, run: Path | None = None, skips: Counter[str] | None = None
) -> list[File]:
    """List the files of a source, sorted by name.

    Args:
        source: A file, folder or glob, local or at a URL.
        run: A folder whose files are skipped where a folder or glob contains it.
        skips: Updated with the number of files skipped, by suffix or reason.

    Raises:
        ConfigError: If the source is empty, or is `run`.
        DataError: If there is no file, a file has an unknown format or is a broken link, or a
            folder cannot be read.
    """
    if isinstance(source, RemoteFile):
        return [source]
    if isinstance(source, HubSet):
        raise ConfigError(f"{source}: expected a file, got a data set of the Hub")
    require(bool(source.strip()), "source", source, "a file, folder, glob, URL or hf: name")
    skips = Counter() if skips is None else skips
    files: Sequence[File]
    try:
        files = (
            _at_url(source, skips)
            if is_url(source)
            else _files(source, run.resolve() if run else None, skips)
        )
    except OSError as error:
        raise DataError(f"{error.filename or source}: cannot be read: {error.strerror}") from error
    skips += Counter()  # drops counts of zero
    for file in files:
        try:
            str(file).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{os.fsencode(str(file))!r}: the name is not UTF-8; rename the file"
            ) from error
        format_of(file)
    if not files:
        raise DataError(
            f"{source}: no file of a known format ({' '.join(FORMATS)}, also with .gz or .zst)"
        )
    return list(files)


def _files(source: str, run: Path | None, skips: Counter[str]) -> list[Path]:
    path = Path(source)
    if path.is_file():
        return [path]
    if path.is_dir():
        if path.resolve() == run:
            raise ConfigError(f"{source}: is the output folder of this run; choose another --out")
        return sorted(_filter_formats(_walk(path, run, skips), skips))
    if has_magic(source):
        return sorted(_match_glob(source, run, skips))
    raise DataError(f"{source}: no such file or folder{nearest_path(source)}")


def _walk(root: Path, run: Path | None, skips: Counter[str]) -> Iterator[Path]:
    visits: set[str] = set()  # real folders: links may form a circle
    for folder, below, names in os.walk(root, followlinks=True, onerror=_raise):
        real = os.path.realpath(folder)
        if real in visits:
            below.clear()
            continue
        visits.add(real)
        outputs = {name for name in below if _is_output(Path(folder, name), run)}
        skips[OUTPUT] += len(outputs - {META_DIR})
        below[:] = sorted(
            name for name in below if name not in outputs and not name.startswith(".")
        )
        yield from (Path(folder, name) for name in names if not name.startswith("."))


def _raise(error: OSError) -> None:
    raise error


def _is_output(folder: Path, run: Path | None) -> bool:
    """Return True for output of dana: the run's folder, an artifact, or the folder of another run."""
    if folder.name == META_DIR or (run and folder.resolve() == run):
        return True
    return any((folder / part / META_DIR).is_dir() for part in ("", "pool"))


def _at_url(url: str, skips: Counter[str]) -> list[RemoteFile]:
    listing = list_url(url)
    if listing.kind == "file":
        return listing.files
    if listing.kind == "glob":
        visible = [file for file in listing.files if "/." not in file.url or "/." in url]
        return [file for file in visible if f"/{META_DIR}/" not in file.url]
    parts = {
        file: PurePosixPath(file.url.removeprefix(f"{listing.root}/")).parts
        for file in listing.files
    }
    manifests = {path[: path.index(META_DIR)] for path in parts.values() if META_DIR in path}
    runs = {path[:-1] for path in manifests if path[-1:] == ("pool",)}
    outputs = {path for path in manifests | runs if path}  # without the source itself
    skips[OUTPUT] += sum(not _is_below(path, outputs) for path in outputs)
    inputs = (
        file
        for file, path in parts.items()
        if META_DIR not in path and not _is_below(path, outputs)
    )
    visible = [file for file in inputs if not any(part.startswith(".") for part in parts[file])]
    return list(_filter_formats(visible, skips))


def _is_below(path: tuple[str, ...], folders: set[tuple[str, ...]]) -> bool:
    return any(path[:size] in folders for size in range(1, len(path)))


def _filter_formats(files: Iterable[F], skips: Counter[str]) -> Iterator[F]:
    for file in files:
        if _format(file) not in FORMATS:
            skips[file.suffix.lower() or "without suffix"] += 1
        elif isinstance(file, RemoteFile) or file.is_file():
            yield file
        elif file.is_symlink():
            raise DataError(f"{file}: broken link; remove it or restore its target")


def _match_glob(pattern: str, run: Path | None, skips: Counter[str]) -> list[Path]:
    """List the matches of a pattern, each real file once. Files of the run match only patterns that begin in it."""
    parts = Path(pattern).parts
    root = Path(*parts[: next(size for size, part in enumerate(parts) if has_magic(part))])
    within = run is not None and root.resolve().is_relative_to(run)
    files: dict[Path, Path] = {}
    for name in sorted(glob(pattern, recursive=True)):  # noqa: PTH207
        real = Path(name).resolve()
        if run and not within and real.is_relative_to(run):
            skips["in the output folder of this run"] += real.is_file()
        elif real.is_file() and META_DIR not in Path(name).parts:
            files.setdefault(real, Path(name))
    return list(files.values())


def format_of(path: File) -> str:
    """Return the format of a file by its name, without the suffix of a compression.

    Raises:
        DataError: If the format is unknown.
    """
    suffix = _format(path)
    if suffix not in FORMATS:
        available = f"{' '.join(FORMATS)}, also with .gz or .zst"
        raise DataError(
            f"{path}: unknown format {suffix or 'without a suffix'!r}; available: {available}"
        )
    return suffix


def _format(path: File) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def stem(path: File) -> str:
    """Return a file's name without format and compression, the default source of its documents."""
    name = path.name
    for suffix in (*COMPRESSIONS, *FORMATS):
        name = name.removesuffix(suffix)
    return name
