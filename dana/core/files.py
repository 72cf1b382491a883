"""Write files and folders whole or not at all, by one process at a time, and check later that nothing has changed.

A file or folder is filled beside its place, put on the disk and renamed. What is being filled is called
``.NAME.tmp-HOST-PID-BEGAN``, so that whoever comes next can tell what a process that died has left from what a live one
is writing. One process writes a folder: it holds a lock of the kernel (POSIX record locks, which NFS and most cluster
file systems pass on), which is freed when its owner dies, however it dies; what the lock's file says is only for the
message. Seals (size, digest and, of tables, rows of each file) are compared when a folder is opened, digests by
``dana verify``.
"""

import errno
import fcntl
import gzip
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from hashlib import blake2b
from pathlib import Path
from typing import Any

from dana.core.errors import ArtifactError
from dana.core.logging import get_logger

log = get_logger(__name__)

PATIENCE = 10.0  # seconds to wait for another command
POLL = 0.05
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def slug(text: str) -> str:
    """A spec or path as a word that names a folder."""
    return re.sub(r"[^\w.-]+", "-", text, flags=re.ASCII).strip("-.") or "-"


def file_digest(path: Path) -> str:
    """Hex digest of a file's bytes; a moved file keeps its digest."""
    digest = blake2b(digest_size=16)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sync(path: Path) -> None:
    """Put a file, or the names in a folder, on the disk: only then do they survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` for a file to write; it replaces `path` at the end, and is removed if anything was raised.

    Those that dead processes of this machine left for the same `path` are removed first, as by :func:`aside`.

    Args:
        path: The file; its folder must be there.
    """
    for leftover in _abandoned(path):
        leftover.unlink(missing_ok=True)
    temporary = path.with_name(_begins(path) + _this_process())
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def room_for(path: Path) -> Iterator[None]:
    """Make the folder that will hold `path`, empty ones go again; turn a full disk into one line.

    Raises:
        ArtifactError: If there is no room, or `path` is the working directory, whose place nothing else can take.
    """
    if Path.cwd().is_relative_to(path.resolve()):
        raise ArtifactError(f"{path}: is the working directory or around it; name a folder that is not there yet")
    made = not path.parent.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise ArtifactError(f"{path}: cannot be written: {os.strerror(error.errno)}; nothing is left of it") from error
    finally:
        if made:
            with suppress(OSError):  # something is in it
                path.parent.rmdir()


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A fresh folder beside `path` to fill and rename; removed if it is still there afterwards.

    Those that dead processes of this machine left for the same `path` are removed first. One of a live process, or of
    another machine, stays.

    Args:
        path: The folder's final place; its parent must be there.
    """
    for leftover in _abandoned(path):
        shutil.rmtree(leftover, ignore_errors=True)
    folder = path.with_name(_begins(path) + _this_process())
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def began(pid: int) -> str | None:
    """When a process of this machine began, in clock ticks since the machine did.

    Returns:
        None if there is no such process; "0" where the system does not say, as on a Mac.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except (PermissionError, OverflowError):
        pass
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"


def _begins(path: Path) -> str:
    return f".{path.name}.tmp-"


def _this_process() -> str:
    return f"{os.uname().nodename}-{os.getpid()}-{began(os.getpid())}"


def _abandoned(path: Path) -> Iterator[Path]:
    """What dead processes left half-written for a path; of what may be a live one's a warning tells."""
    for leftover in path.parent.glob(f"{escape(_begins(path))}*"):
        if _is_abandoned(leftover.name.removeprefix(_begins(path))):
            yield leftover
        else:
            log.warning("%s: left alone, its process may be alive; if it is not, remove it", leftover)


def _is_abandoned(tag: str) -> bool:
    """Whether the process that named a folder so is dead, or is this one, which has done with it."""
    match = re.fullmatch(rf"{re.escape(os.uname().nodename)}-(\d+)-(\d+)", tag)
    if match is None:
        return False
    return tag == _this_process() or began(int(match[1])) not in (match[2], "0")


def text_digest(text: str) -> bytes:
    """16 bytes that stand for a text; equal texts have equal digests."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as JSON, a line a row."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_packed_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows as gzipped JSON lines, without name and time in them; says how many."""
    count = 0
    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as stream:
        for row in rows:
            stream.write(json_lines([row]).encode())
            count += 1
    return count


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Be the only process that writes `path`; its parent must be there.

    Args:
        path: What is written; the lock is ``.NAME.lock`` beside it, and gone afterwards.

    Raises:
        ArtifactError: If another process still holds it after :data:`PATIENCE`; says which, where and since when.
    """
    file = path.with_name(f".{path.name}.lock")
    handle = _acquire(file, path)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            file.unlink()  # before it is freed, so that nobody locks a file without a name
        os.close(handle)


def _acquire(file: Path, path: Path) -> int:
    """A handle that holds the lock."""
    deadline, waits = time.monotonic() + PATIENCE, False
    while True:
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be written: {error.strerror}") from error
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            owner = os.pread(handle, 4096, 0).decode("utf-8", "replace") or "another process"
            os.close(handle)
        except OSError as error:
            log.warning("%s: no locks on this file system (%s); run one command at a time", path, error.strerror)
            return handle
        else:
            if _is_named(file, handle):
                os.truncate(handle, 0)
                command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]])
                about = f"process {os.getpid()} on {os.uname().nodename} (since {time.strftime('%F %T')}: {command})"
                os.write(handle, about.encode())
                return handle
            os.close(handle)  # its last owner removed it between our two steps
            continue
        if time.monotonic() >= deadline:
            raise ArtifactError(f"{path}: {owner} is writing it; wait until it is done, or stop it")
        if not waits:
            log.info("waiting   for %s, which is writing %s", owner, path)
            waits = True
        time.sleep(POLL)


def _is_named(file: Path, handle: int) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(file.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


Seals = Mapping[str, Mapping[str, Any]]


def seal(folder: Path) -> dict[str, dict[str, Any]]:
    """Put all of a folder on the disk and say what it is: ``bytes``, ``digest`` and, of Parquet, ``rows`` of each file.

    Keys are places in the folder, with slashes, sorted.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        sync(path)
        if path.is_file():
            about: dict[str, Any] = {"bytes": path.stat().st_size, "digest": file_digest(path)}
            if path.suffix == ".parquet":
                about["rows"] = _rows(path)
            found[path.relative_to(folder).as_posix()] = about
    sync(folder)
    return found


def flaws(folder: Path, seals: Seals, digests: bool) -> Iterator[str]:
    """What is wrong with a folder, a line each, naming the file; nothing if it is whole.

    Args:
        folder: Where the files are.
        seals: From :func:`seal`.
        digests: Whether to read every byte.
    """
    for name, expected in seals.items():
        path = folder / name
        if not path.is_file():
            yield f"{path}: is missing"
        elif (size := path.stat().st_size) != expected["bytes"]:
            yield f"{path}: {size:,} bytes, {expected['bytes']:,} were written"
        elif "rows" in expected and (rows := _rows(path)) != expected["rows"]:
            found = "damaged" if rows is None else f"{rows:,} rows, {expected['rows']:,} were written"
            yield f"{path}: {found}"
        elif digests and file_digest(path) != expected["digest"]:
            yield f"{path}: its bytes are not those that were written"


def refuse_damage(folder: Path, seals: Seals, then: str) -> None:
    """Read every byte of files that decide others, or are copied into a folder that will be sealed anew.

    Args:
        folder: Where the files are.
        seals: Of those files.
        then: For the message: what to do.

    Raises:
        ArtifactError: Naming the first file that is not what was written.
    """
    if flaw := next(flaws(folder, seals, digests=True), None):
        raise ArtifactError(f"{flaw}; {then}")


def strangers(folder: Path, seals: Seals) -> Iterator[str]:
    """Each part of a table that was not written with the others, a line each."""
    for path in sorted(folder.rglob("part-*.parquet")):
        if path.relative_to(folder).as_posix() not in seals:
            yield f"{path}: does not belong there"


def _rows(path: Path) -> int | None:
    """Rows by the footer of a Parquet file; None if that cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path).num_rows
    except (OSError, pa.ArrowException):
        return None
