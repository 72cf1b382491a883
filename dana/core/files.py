"""Files and folders written whole or not at all: filled beside their place, put on the disk, renamed.

What is being filled is called ``.NAME.tmp-HOST-PID-BEGAN``, so that whoever comes next can tell what a process that
died has left from what a live one is writing.
"""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from hashlib import blake2b
from pathlib import Path

from dana.core.errors import ArtifactError
from dana.core.logging import get_logger

log = get_logger(__name__)

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

    Args:
        path: The file; its folder must be there.
    """
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
    begins = _begins(path)
    for leftover in path.parent.glob(f"{escape(begins)}*"):
        if _is_abandoned(leftover.name.removeprefix(begins)):
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            log.warning("%s: left alone, its process may be alive; if it is not, remove it", leftover)
    folder = path.with_name(begins + _this_process())
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


def _is_abandoned(tag: str) -> bool:
    """Whether the process that named a folder so is dead, or is this one, which has done with it."""
    match = re.fullmatch(rf"{re.escape(os.uname().nodename)}-(\d+)-(\d+)", tag)
    if match is None:
        return False
    return tag == _this_process() or began(int(match[1])) not in (match[2], "0")


def text_digest(text: str) -> bytes:
    """16 bytes that stand for a text; equal texts have equal digests."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
