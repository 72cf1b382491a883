"""Write files and folders atomically under a lock, and detect later changes to them.

A file or folder is written under the temporary name ``.NAME.tmp-HOST-PID-START`` in the same
parent, synced to disk and renamed. Host, process and start time in the name tell leftovers of dead
processes from the work of live ones.

The lock of a folder is a POSIX record lock, which NFS and most cluster file systems support. The
kernel frees it when its owner dies; the content of the lock file is for messages only.

A seal records size, digest and, for Parquet, row count of each file. Opening a folder compares
sizes and row counts; ``dana files verify`` compares digests, too.
"""

import errno
import fcntl
import gzip
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any

from dana.core.errors import ArtifactError
from dana.core.logging import get_logger

log = get_logger(__name__)

PATIENCE = 10.0  # seconds to wait for another command
POLL = 0.05
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def slug(text: str) -> str:
    """Convert a spec or path to a folder name."""
    return re.sub(r"[^\w.-]+", "-", text, flags=re.ASCII).strip("-.") or "-"


def file_digest(path: Any) -> str:
    """Compute the hex digest of the bytes of a file, local or remote."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def check_sha256(file: Path, sha256: str, remedy: str = "") -> None:
    """Check that a file is the published one.

    Raises:
        ArtifactError: If its sha256 is another; the message ends with the remedy.
    """
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != sha256:
        raise ArtifactError(f"{file}: expected sha256 {sha256}, got {digest}{remedy}")


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk, so that they survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def temp_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; rename it to `path` on success, remove it on an error.

    Temporary files that dead processes of this machine left for `path` are removed first.

    Args:
        path: The final file; its folder must exist.
    """
    for leftover in _leftovers(path):
        leftover.unlink(missing_ok=True)
    temporary = path.with_name(_begins(path) + _this_process())
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_errno(error: BaseException) -> int | None:
    """Return the number of a failed system call, also from errors of safetensors, tokenizers and pyarrow."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    match = re.search(r"\b(?:os error|errno) (\d+)", str(error), re.IGNORECASE)
    return int(match[1]) if match else None


@contextmanager
def make_parent(path: Path) -> Iterator[None]:
    """Create the parent folder of `path`; remove it again if it stays empty.

    Raises:
        ArtifactError: If the disk is full, the parent cannot be created, or `path` is the working
            directory or one of its parents, which cannot be replaced.
    """
    if Path.cwd().is_relative_to(path.resolve()):
        raise ArtifactError(
            f"{path}: is the working directory or one of its parents; name a new folder"
        )
    is_new = not path.parent.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        yield
    except Exception as error:
        code = write_errno(error)
        if code not in FULL:
            raise
        raise ArtifactError(
            f"{path}: cannot be written: {os.strerror(code)}; nothing is left"
        ) from error
    finally:
        if is_new:
            with suppress(OSError):  # not empty
                path.parent.rmdir()


@contextmanager
def temp_dir(path: Path) -> Iterator[Path]:
    """Create a temporary folder in the same parent, to be filled and renamed to `path`; remove it if it was not.

    Temporary folders that dead processes of this machine left for `path` are removed first; those
    of live processes and of other machines stay.

    Args:
        path: The final folder; its parent must exist.
    """
    for leftover in _leftovers(path):
        shutil.rmtree(leftover, ignore_errors=True)
    folder = path.with_name(_begins(path) + _this_process())
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start_ticks(pid: int) -> str | None:
    """Return the start time of a process of this machine, in clock ticks since boot.

    Returns:
        None if there is no such process; "0" if the system does not report start times (macOS).
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
    return f"{os.uname().nodename}-{os.getpid()}-{start_ticks(os.getpid())}"


def _leftovers(path: Path) -> Iterator[Path]:
    """Yield temporary files and folders that dead processes left for a path; warn of those that may be in use."""
    for leftover in path.parent.glob(f"{escape(_begins(path))}*"):
        if _is_abandoned(leftover.name.removeprefix(_begins(path))):
            yield leftover
        else:
            log.warning(
                "%s: not removed, its process may be alive; if it is not, remove it", leftover
            )


def _is_abandoned(tag: str) -> bool:
    match = re.fullmatch(rf"{re.escape(os.uname().nodename)}-(\d+)-(\d+)", tag)
    if match is None:
        return False
    return tag == _this_process() or start_ticks(int(match[1])) not in (match[2], "0")


def text_digest(text: str) -> bytes:
    """Compute a 16-byte digest of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def text_key(text: str) -> int:
    """Compute an unsigned 64-bit key of a text: the first half of its digest."""
    return int.from_bytes(text_digest(text)[:8], "little")


def to_json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Format rows as JSON Lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_gzip_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows as gzipped JSON Lines and return their number; the header holds no name or time, so bytes repeat."""
    count = 0
    with (
        path.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as stream,
    ):
        for row in rows:
            stream.write(to_json_lines([row]).encode())
            count += 1
    return count


def lock_file(path: Path) -> Path:
    """Return the file that :func:`folder_lock` locks."""
    return path.with_name(f".{path.name}.lock")


@contextmanager
def folder_lock(path: Path) -> Iterator[None]:
    """Hold the lock ``.NAME.lock`` of `path`, so that no other process writes it.

    Args:
        path: The file or folder to write; its parent must exist.

    Raises:
        ArtifactError: If another process still holds the lock after :data:`PATIENCE`; names its id,
            host and start.
    """
    file = lock_file(path)
    handle = _acquire(file, path)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            file.unlink()  # before the lock is freed, so that no process locks a file without a name
        os.close(handle)


def _acquire(file: Path, path: Path) -> int:
    deadline, is_waiting = time.monotonic() + PATIENCE, False
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
            log.warning(
                "%s: this file system has no locks (%s); run one command at a time",
                path,
                error.strerror,
            )
            return handle
        else:
            if _is_named(file, handle):
                os.truncate(handle, 0)
                command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]])
                owner = f"process {os.getpid()} on {os.uname().nodename} (since {time.strftime('%F %T')}: {command})"
                os.write(handle, owner.encode())
                return handle
            os.close(handle)  # its last owner removed it between open and lock
            continue
        if time.monotonic() >= deadline:
            raise ArtifactError(f"{path}: {owner} is writing it; wait for it or stop it")
        if not is_waiting:
            log.info("waiting   for %s, which is writing %s", owner, path)
            is_waiting = True
        time.sleep(POLL)


def _is_named(file: Path, handle: int) -> bool:
    """Return True if an open file still exists under its name."""
    try:
        return os.path.samestat(file.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


Seals = Mapping[str, Mapping[str, Any]]


def seal(folder: Path) -> dict[str, dict[str, Any]]:
    """Flush a folder to disk and return ``bytes``, ``digest`` and, for Parquet, ``rows`` of each file.

    Keys are sorted paths within the folder, with slashes.
    """
    seals = {}
    for path in sorted(folder.rglob("*")):
        sync(path)
        if path.is_file():
            if path.suffix == ".safetensors":  # its library lets nobody else read it
                path.chmod(folder.stat().st_mode & 0o666)
            entry: dict[str, Any] = {"bytes": path.stat().st_size, "digest": file_digest(path)}
            if path.suffix == ".parquet":
                entry["rows"] = _rows(path)
            seals[path.relative_to(folder).as_posix()] = entry
    sync(folder)
    return seals


def check_seals(path: Path, seals: Any) -> None:
    """Check that the seals that a file holds have the form of :func:`seal`.

    Raises:
        ArtifactError: Names the file and the first entry that has not.
    """
    for name, entry in seals.items() if isinstance(seals, dict) else [("files", seals)]:
        values = (
            [entry.get(key) for key in ("bytes", "digest", "rows")]
            if isinstance(entry, dict)
            else []
        )
        if list(map(type, values[:2])) != [int, str] or not isinstance(values[2], int | None):
            raise ArtifactError(
                f"{path}: {name!r} is {str(entry)[:60]!r}, not bytes and digest of a file"
            )


def find_damage(folder: Path, seals: Seals, digests: bool) -> Iterator[str]:
    """Yield one message per missing or changed file of a folder.

    Args:
        folder: Folder of the files.
        seals: From :func:`seal`.
        digests: Whether to read every byte and compare digests.
    """
    for name, entry in seals.items():
        path = folder / name
        try:
            if not path.is_file():
                yield f"{path}: is missing"
            elif (size := path.stat().st_size) != entry["bytes"]:
                yield f"{path}: {size:,} bytes, {entry['bytes']:,} were written"
            elif "rows" in entry and (rows := _rows(path)) != entry["rows"]:
                problem = (
                    "damaged" if rows is None else f"{rows:,} rows, {entry['rows']:,} were written"
                )
                yield f"{path}: {problem}"
            elif digests and file_digest(path) != entry["digest"]:
                yield f"{path}: its bytes are not those that were written"
        except OSError as error:
            yield f"{path}: cannot be read: {error.strerror}"


def check_digests(folder: Path, seals: Seals, then: str) -> None:
    """Compare the digests of files, before others are computed from them or they are copied and sealed again.

    Args:
        folder: Folder of the files.
        seals: Seals of those files.
        then: Advice for the message.

    Raises:
        ArtifactError: If a file is missing or changed; names the first one.
    """
    if flaw := next(find_damage(folder, seals, digests=True), None):
        raise ArtifactError(f"{flaw}; {then}")


def find_strays(folder: Path, seals: Seals) -> Iterator[str]:
    """Yield one message per Parquet part that has no seal."""
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
