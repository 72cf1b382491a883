"""One writer for each folder: a lock file beside it, which the kernel frees when its owner dies, however it dies.

The lock is the kernel's (POSIX record locks, which NFS and most cluster file systems pass on); what the file says is
only for the message. A process that was killed leaves the file, and whoever comes next takes it over.
"""

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dana.core.errors import ArtifactError
from dana.core.logging import get_logger

log = get_logger(__name__)

PATIENCE = 10.0  # seconds to wait for another command
POLL = 0.05


@contextmanager
def locked(path: Path, patience: float | None = None) -> Iterator[None]:
    """Be the only process that writes `path`; its parent must be there.

    Args:
        path: What is written; the lock is ``.NAME.lock`` beside it, and gone afterwards.
        patience: Seconds to wait for another process that holds it; None: ten.

    Raises:
        ArtifactError: If another process still holds it; says which, where and since when.
    """
    file = path.with_name(f".{path.name}.lock")
    handle = _acquire(file, path, patience)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            file.unlink()  # before it is freed, so that nobody locks a file without a name
        os.close(handle)


def _acquire(file: Path, path: Path, patience: float | None) -> int:
    """A handle that holds the lock."""
    begun, told = time.monotonic(), False
    while True:
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be written: {error.strerror}") from error
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            owner = _owner(handle)
            os.close(handle)
        except OSError as error:
            log.warning("%s: no locks on this file system (%s); run one command at a time", path, error.strerror)
            return handle
        else:
            if _is_there(file, handle):
                os.truncate(handle, 0)
                about = {"pid": os.getpid(), "host": os.uname().nodename, "started": time.strftime("%F %T")}
                os.write(handle, json.dumps({**about, "command": " ".join([_program(), *sys.argv[1:2]])}).encode())
                return handle
            os.close(handle)  # its last owner removed it between our two steps
            continue
        if time.monotonic() - begun >= (PATIENCE if patience is None else patience):
            raise ArtifactError(f"{path}: {owner} is writing it; wait until it is done, or stop it")
        if not told:
            log.info("waiting   for %s, which is writing %s", owner, path)
            told = True
        time.sleep(POLL)


def _program() -> str:
    path = Path(sys.argv[0])
    return path.parent.name if path.stem == "__main__" else path.name


def _is_there(file: Path, handle: int) -> bool:
    """Whether the locked file is still the one of that name."""
    try:
        return os.stat(file).st_ino == os.fstat(handle).st_ino  # noqa: PTH116 - one name, one inode
    except FileNotFoundError:
        return False


def _owner(handle: int) -> str:
    try:
        about = json.loads(os.pread(handle, 4096, 0))
        return f"process {about['pid']} on {about['host']} (since {about['started']}: {about['command']})"
    except (ValueError, KeyError, TypeError):
        return "another process"
