"""Find the files of a source: a file, folder, glob, URL, ``hf:`` name or ``-``.

Skipped files are counted. Folders are read recursively, through links, each real folder once.
Skipped are hidden files and folders, files of unknown format, and output of dana: the run's folder,
and folders with a ``__dana__`` in them (or in their ``pool/``), unless the source itself is one. In
a folder of ``Dataset.save_to_disk`` only its Arrow files are read. Standard input, ``-``, and pipes
are stored in a file first.
"""

import atexit
import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from glob import glob, has_magic
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import unquote

from dana.core.artifacts import META_DIR
from dana.core.config import require
from dana.core.errors import ConfigError, DataError, nearest_path
from dana.core.lines import COMPRESSIONS
from dana.core.logging import get_logger
from dana.core.storage import File, RemoteFile, is_url, list_url
from dana.corpus.hub import HubSet, is_hub, pin, pin_url

log = get_logger(__name__)

F = TypeVar("F", Path, RemoteFile)

FORMATS = (
    *(".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt"),
    *(".ndjson", ".arrow", ".xlsx", ".xls", ".ods"),
)
NAMELESS = (".dat", ".data", ".tab", ".psv", ".lst")  # read by content, as without a suffix
TEXT_FORMATS = (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".txt", "")  # may be packed
AVAILABLE = f"{' '.join(FORMATS)}; text also with {', '.join(COMPRESSIONS)}"
STDIN = "-"
SAVED = ("state.json", "dataset_info.json", "dataset_dict.json")  # of Dataset.save_to_disk
KEY = re.compile(r"([^=/]+)=([^/]*)")  # name=value in a path
OUTPUT = "folder that dana wrote"

Source = str | RemoteFile | HubSet  # a name; a file found at a URL; a pinned data set


def find_files(sources: Sequence[str], run: Path) -> list[Source]:
    """List the files of all sources, in order, and pin ``hf:`` names.

    The number of files skipped is logged.

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
        for path in expand(pin_url(source, run), run, skips):
            if isinstance(path, RemoteFile):
                files.append(path)
            else:
                files.append(str(path))
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
    if skips is None:
        skips = Counter()
    try:
        files = _files(source, run, skips)
    except OSError as error:
        raise DataError(f"{error.filename or source}: cannot be read: {error.strerror}") from error
    skips += Counter()  # drops counts of zero
    for file in files:
        _check_name(file, is_alone=len(files) == 1)
    if not files:
        raise DataError(f"{source}: no file of a known format ({AVAILABLE})")
    return files


def _check_name(file: File, is_alone: bool) -> None:
    """Check that a file's name is text, and that it has a suffix if it is one of several.

    Raises:
        DataError: If it is not so, or its format is unknown.
    """
    try:
        str(file).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{os.fsencode(str(file))!r}: the name is not UTF-8; rename the file"
        ) from error
    if not format_of(file) and not is_alone:
        raise DataError(
            f"{file}: unknown format 'without a suffix'; available: {AVAILABLE}; name it alone"
        )


def _files(source: str, run: Path | None, skips: Counter[str]) -> list[File]:
    """List the files of a source, whose names and number :func:`expand` checks."""
    if is_url(source):
        return [*_at_url(source, skips)]
    if run is not None:
        run = run.resolve()
    path = Path(source)
    if source == STDIN or path.is_fifo():
        return [_stored(source)]
    if path.is_char_device() or path.is_block_device() or path.is_socket():
        raise DataError(f"{source}: is a device, no file; name a file, or - for standard input")
    if path.is_file():
        return [path]
    if path.is_dir():
        if path.resolve() == run:
            raise ConfigError(f"{source}: is the output folder of this run; choose another --out")
        return sorted(_filter_formats(_walk(path, run, skips), skips))
    if has_magic(source):
        return sorted(_match_glob(source, run, skips))
    raise DataError(f"{source}: no such file or folder{nearest_path(source)}")


@lru_cache
def _stored(source: str) -> Path:
    """Store standard input or a pipe, which can be read once, in a temporary file of this process.

    Raises:
        DataError: If nothing comes.
    """
    folder = Path(tempfile.mkdtemp(prefix="dana-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "stdin"
    if source == STDIN and sys.stdin is None:
        raise DataError("-: there is no standard input")
    log.info("input     %s: standard input or a pipe; reading it to its end", source)
    with path.open("wb") as stored:
        if source == STDIN:
            shutil.copyfileobj(sys.stdin.buffer, stored)
        else:
            with Path(source).open("rb") as stream:
                shutil.copyfileobj(stream, stored)
    if not path.stat().st_size:
        raise DataError(f"{source}: nothing came from it; pipe a file into the command")
    return path


def path_keys(path: File) -> dict[str, str]:
    """Return the keys in a path, which are columns of its rows.

    They are the folders directly above the file that have the form ``name=value``. Folders above
    the first other one belong to the place where the data lie.
    """
    folders = PurePosixPath(str(path)).parts[:-1]
    matches = [KEY.fullmatch(folder) for folder in folders]
    above = list(takewhile(bool, reversed(matches)))
    return {match[1]: unquote(match[2]) for match in reversed(above) if match}


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
        inputs = [name for name in below if name not in outputs and not name.startswith(".")]
        below[:] = sorted(inputs)  # os.walk goes on with these
        if {*SAVED} & {*names}:
            names = _saved_files(Path(folder), names)
        for name in names:
            if not name.startswith("."):
                yield Path(folder, name)


def is_saved(folder: Path) -> bool:
    """Return whether a folder is one of ``Dataset.save_to_disk``."""
    return (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()


def _saved_files(folder: Path, names: list[str]) -> list[str]:
    """Return the names of the files to read of a folder of ``Dataset.save_to_disk``.

    Of any other folder all are returned.

    Raises:
        DataError: If rows are left out or in another order than in the files.
    """
    arrow = [name for name in names if name.endswith(".arrow")]
    if "dataset_dict.json" in names:
        return [name for name in names if name not in SAVED]
    if not arrow or "state.json" not in names:
        return names
    try:
        state = json.loads((folder / "state.json").read_bytes())
        files = [str(part["filename"]) for part in state["_data_files"]]
        has_order = bool(state.get("_indices_data_files"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{folder / 'state.json'}: not as Dataset.save_to_disk writes it; save the data set "
            "again, or by Dataset.to_parquet"
        ) from error
    if has_order:
        raise DataError(
            f"{folder}: its rows have an order of their own; load_from_disk(...).to_parquet(FILE) "
            "writes them as they are meant"
        )
    missing = [name for name in files if name not in names]
    if missing:
        raise DataError(f"{folder / missing[0]}: is missing; copy the folder again, whole")
    return files


def _raise(error: OSError) -> None:
    raise error


def _is_output(folder: Path, run: Path | None) -> bool:
    """Return True for output of dana: the run's folder, an artifact, or another run's folder."""
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
    parts: dict[RemoteFile, tuple[str, ...]] = {}
    for file in listing.files:
        path_inside = PurePosixPath(file.url.removeprefix(f"{listing.root}/"))
        parts[file] = path_inside.parts
    outputs = _outputs_of(parts.values())
    skips[OUTPUT] += sum(not _is_below(path, outputs) for path in outputs)
    visible = []
    for file, path in parts.items():
        is_hidden = any(part.startswith(".") for part in path)
        if META_DIR not in path and not _is_below(path, outputs) and not is_hidden:
            visible.append(file)
    if any(file.suffix == ".arrow" for file in visible):
        visible = [file for file in visible if file.name not in SAVED]
    return list(_filter_formats(visible, skips))


def _outputs_of(paths: Collection[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Return the folders that dana wrote: those of artifacts, and of runs with a ``pool/``.

    Args:
        paths: The parts of all paths below a source, which itself is never returned.
    """
    artifacts = {path[: path.index(META_DIR)] for path in paths if META_DIR in path}
    runs = {path[:-1] for path in artifacts if path[-1:] == ("pool",)}
    return {path for path in artifacts | runs if path}


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
    """List the matches of a pattern, each real file once.

    Files of the run match only patterns that begin in it.
    """
    parts = Path(pattern).parts
    plain_parts = takewhile(lambda part: not has_magic(part), parts)
    root = Path(*plain_parts)
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

    It is empty for a name without a suffix.

    Raises:
        DataError: If the format is unknown.
    """
    suffix = _format(path)
    if suffix and suffix not in FORMATS:
        raise DataError(
            f"{path}: unknown format {suffix!r}; available: {AVAILABLE}; "
            "a table or text of another name: rename it, or pipe it in as -"
        )
    is_packed = path.suffix.lower() in COMPRESSIONS
    if is_packed and suffix not in TEXT_FORMATS:
        raise DataError(f"{path}: {suffix} files are packed already; unpack it first")
    return suffix


def _format(path: File) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    if not suffixes or suffixes[-1] in NAMELESS:
        return ""
    return suffixes[-1]


def is_table_name(path: Path) -> bool:
    """Return whether a file's name is that of a table or records, and not of plain text."""
    return _format(path) in FORMATS and _format(path) != ".txt"


def stem(path: File) -> str:
    """Return a file's name without format and compression, the default source of its documents."""
    name = path.name
    for suffix in (*COMPRESSIONS, *FORMATS):
        name = name.removesuffix(suffix)
    return name
