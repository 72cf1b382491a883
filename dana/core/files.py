"""Write files and folders whole or not at all, and let one process at a time write a folder.

A file or folder is written under the temporary name ``.NAME.tmp-HOST-PID`` in the same parent,
flushed to disk and renamed. Host and process in the name tell leftovers of dead processes from the
work of live ones.
"""

import errno
import gzip
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape, glob
from pathlib import Path
from typing import Any, TypeVar

from dana.core.errors import ArtifactError
from dana.core.logging import get_logger

log = get_logger(__name__)

T = TypeVar("T")

PATIENCE = 10.0  # seconds to wait for another command
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


def paths_below(folder: Path, pattern: str) -> list[Path]:
    """List the files and folders below a folder whose relative paths fit a pattern, in order.

    Unlike ``Path.glob``, it passes over hidden ones and what is in hidden folders, such as folders
    that are being written. A folder that another process renames or removes meanwhile is no error.

    Args:
        folder: Where the paths begin; none is found in one that is missing.
        pattern: With ``*`` and ``**``, for example ``finetune/**/metrics.json``.
    """
    names = glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207
    return sorted(folder / name for name in names)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk, so that they survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Flush a folder and all that is in it to disk, before it is renamed."""
    for path in folder.rglob("*"):
        sync(path)
        if path.suffix == ".safetensors":  # its library lets nobody else read it
            path.chmod(folder.stat().st_mode & 0o666)
    sync(folder)


@contextmanager
def temp_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder.

    It is renamed to `path` on success, and removed on an error. Temporary files that dead processes
    of this machine left for `path` are removed first.

    Args:
        path: The final file; its folder must exist.
    """
    temporary = _temporary_name(path)
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def temp_dir(path: Path) -> Iterator[Path]:
    """Create a temporary folder in the same parent, to be filled and renamed to `path`.

    It is removed if it was not renamed. Temporary folders that dead processes of this machine left
    for `path` are removed first.

    Args:
        path: The final folder; its parent must exist.
    """
    folder = _temporary_name(path)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _temporary_name(path: Path) -> Path:
    """Return this process's temporary name for a path.

    What dead processes of this machine left under such names is removed first.
    """
    _remove_temporary(path)
    return path.with_name(f"{_temporary_prefix(path)}{os.getpid()}")


def _temporary_prefix(path: Path) -> str:
    """Return what the temporary names of a path begin with on this machine."""
    return f".{path.name}.tmp-{os.uname().nodename}-"


def _remove_temporary(path: Path) -> None:
    """Remove the temporary files and folders that dead processes of this machine left for a path."""
    prefix = _temporary_prefix(path)
    for leftover in path.parent.glob(f"{escape(prefix)}*"):
        process = leftover.name.removeprefix(prefix)
        if not process.isdecimal() or _is_alive(int(process)):
            continue
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    """Return True if another process of this machine has this id."""
    if process == os.getpid():  # this one begins: the name is left by a dead process of the same id
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def write_errno(error: BaseException) -> int | None:
    """Return the number of a failed system call.

    It is read from errors of safetensors, tokenizers and pyarrow, too.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    match = re.search(r"\b(?:os error|errno) (\d+)", str(error), re.IGNORECASE)
    if match is None:
        return None
    return int(match[1])


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn the error of a full disk or a read-only folder into one line.

    Raises:
        ArtifactError: Names the path and the reason.
    """
    try:
        yield
    except Exception as error:
        code = write_errno(error)
        if code is None and not isinstance(error, OSError):
            raise
        if code is not None:
            reason = os.strerror(code)
        else:
            reason, _, _ = str(error).partition("\n")
        remedy = "free some space and run the same command again, which goes on from what is saved"
        raise ArtifactError(f"{path}: cannot be written ({reason}); {remedy}") from error


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
def folder_lock(path: Path, patience: float | None = None) -> Iterator[None]:
    """Hold the lock ``.NAME.lock`` of `path`, so that no other process writes it.

    The kernel frees the lock when its owner dies. The content of the lock file is for messages
    only.

    Args:
        path: The file or folder to write; its parent must exist.
        patience: Seconds to wait for another process; None for :data:`PATIENCE`.

    Raises:
        ArtifactError: If another process still holds the lock after that time; names its id, host
            and start.
    """
    from filelock import FileLock, Timeout  # a fiftieth of a second, which --help does not need

    file = _lock_file(path)
    lock = FileLock(file)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log.info("waiting   for %s, which is writing %s", _owner(file), path)
            lock.acquire(timeout=PATIENCE if patience is None else patience)
    except Timeout as error:
        message = f"{path}: {_owner(file)} is writing it; wait for it or stop it"
        raise ArtifactError(message) from error
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be written: {error.strerror}") from error
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]])
    since = time.strftime("%F %T")
    owner = f"process {os.getpid()} on {os.uname().nodename} (since {since}: {command})"
    with suppress(OSError):  # a full disk, which what follows reports
        file.write_text(owner, encoding="utf-8")
    try:
        yield
    finally:
        # Removed while it is held: a process that waits for the removed file begins again.
        file.unlink(missing_ok=True)
        lock.release()


def _lock_file(path: Path) -> Path:
    """Return the file whose lock :func:`folder_lock` holds."""
    return path.with_name(f".{path.name}.lock")


def _owner(file: Path) -> str:
    """Read who holds a lock."""
    try:
        return file.read_text(encoding="utf-8", errors="replace") or "another process"
    except OSError:  # it was freed at this moment
        return "another process"


def remove_leftovers(path: Path, is_replaced: bool = False) -> None:
    """Remove what a process left that was killed after it had put a whole folder at `path`.

    Nothing is done while a process writes the folder, or where nothing may be written.

    Args:
        path: A folder that is there.
        is_replaced: Whether :func:`replace_folder` writes it, which may leave the former one, too.
    """
    if not path.name:
        return
    file = _lock_file(path)
    if not file.exists():  # it is removed last
        return
    from filelock import FileLock, Timeout

    try:
        with FileLock(file, timeout=0):
            _remove_temporary(path)
            if is_replaced and path.exists():
                shutil.rmtree(_former(path), ignore_errors=True)
            file.unlink(missing_ok=True)
    except (Timeout, OSError):
        return


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
    """Write rows as gzipped JSON Lines and return their number.

    The header holds no name or time, so that equal rows give equal bytes.
    """
    count = 0
    with (
        path.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as stream,
    ):
        for row in rows:
            stream.write(to_json_lines([row]).encode())
            count += 1
    return count


def read_unmixed(folder: Path, read: Callable[[], T]) -> T:
    """Read a folder, and read it again if :func:`replace_folder` replaced it meanwhile.

    What was read may then be of the old folder and of the new one, or an error, because the rest of
    the old one is gone.

    Args:
        folder: The folder. Nothing needs to be there.
        read: Reads all of it that is needed.
    """
    while True:
        before = _identify(folder)
        try:
            result = read()
        except Exception:
            if _identify(folder) == before:
                raise
        else:
            if _identify(folder) == before:
                return result
        log.info("%s was replaced while it was read; it is read again", folder)
        restore_folder(folder)  # waits where the new one is not there yet


def _identify(folder: Path) -> tuple[int, int, int] | None:
    """Return what tells a folder from another one in its place; None if there is none."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _former(path: Path) -> Path:
    """Return the name under which the folder at `path` waits while it is replaced."""
    return path.with_name(f".{path.name}.old")


def replace_folder(new: Path, path: Path) -> None:
    """Put a complete folder in the place of another one, which stays until the new one is there.

    The old folder is renamed to ``.NAME.old``, the new one to `path`, and then the old one is
    removed. A process that is killed in between leaves one of the two whole:
    :func:`restore_folder` brings back the old one where the new one is missing.

    Args:
        new: The complete folder, on the same file system as `path`.
        path: Its final place, which may hold a folder. The caller holds its :func:`folder_lock`.
    """
    former = _former(path)
    sync_folder(new)
    if path.exists():
        shutil.rmtree(former, ignore_errors=True)
        path.rename(former)
    new.rename(path)
    sync(path.parent)
    shutil.rmtree(former, ignore_errors=True)


@contextmanager
def set_aside(path: Path) -> Iterator[Path]:
    """Rename the folder at `path` to ``.NAME.old`` while another one is made in its place.

    The lock of that name is held until the block ends, so that :func:`settle_remake` can tell an old
    folder whose remaking goes on from one that a killed process left.

    Yields:
        The path of the old folder. What becomes of it, the caller decides within the block.

    Raises:
        ArtifactError: If another process is remaking the folder.
    """
    former = _former(path)
    with folder_lock(former):
        shutil.rmtree(former, ignore_errors=True)
        path.rename(former)
        yield former


def settle_remake(path: Path) -> None:
    """End what a process began by :func:`set_aside` and was killed in.

    The old folder is renamed back where the new one is missing, else it is removed. Nothing is done
    while the process that set it aside is at work, or where nothing may be written.

    Args:
        path: The folder that was to be made again.
    """
    if not path.name:
        return
    former = _former(path)
    file = _lock_file(former)
    if not former.is_dir() and not file.exists():  # the lock is removed last
        return
    from filelock import FileLock, Timeout

    try:
        with FileLock(file, timeout=0):
            if path.exists():
                shutil.rmtree(former, ignore_errors=True)
            elif former.is_dir():
                former.rename(path)
                log.info("restored  %s: the command that was to replace it was killed", path)
            file.unlink(missing_ok=True)
    except (Timeout, OSError):
        return


def restore_folder(path: Path) -> Path:
    """Rename ``.NAME.old`` back to `path` if that is missing, because its replacement was killed.

    Args:
        path: A folder that :func:`replace_folder` writes.

    Returns:
        The folder to read: `path`, or the old one where it cannot be renamed (on a disk that is
        only read, for example). It is missing if neither is there.
    """
    if path.exists() or not path.name:
        return path
    former = _former(path)
    if not former.exists():
        return path
    try:
        with folder_lock(path):  # who is replacing it at this moment has it done when we continue
            if not path.exists() and former.exists():
                former.rename(path)
    except (ArtifactError, OSError) as error:
        log.info("%s is used: %s", former, error)
    return path if path.exists() else former
