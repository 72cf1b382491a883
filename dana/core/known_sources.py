"""Source files to digests of their bytes, each hashed once: one that looks as it did keeps the digest it had.

What a file looks like is size, times, inode and a digest of three samples of its bytes. It lies in the corpus that was
made of the files, ``__dana__/sources.json``, which no manifest seals: whoever finds it missing or damaged hashes anew.
"""

import json
import os
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from dana.core.artifacts import OWN, is_sealed, sealed, write_json
from dana.core.files import file_digest, text_digest
from dana.core.logging import get_logger

log = get_logger(__name__)

KEPT = f"{OWN}/sources.json"
WHOLE = 1 << 20  # bytes up to which a file is hashed every time
SAMPLE = 1 << 16  # bytes of each sample: the first, those in the middle, the last
SETTLED = 2 * 10**9  # nanoseconds since a file was changed, in which a clock may stand still for its file system


class KnownSources:
    """Digests of files, by what a corpus remembers of those that it was made of."""

    def __init__(self, folder: Path) -> None:
        """Read what is remembered.

        Args:
            folder: Of the corpus artifact, which need not be there.
        """
        self._path = folder / KEPT
        self._before = _read(self._path)
        self._now: dict[str, Any] = {}
        self._trusted = 0

    def digest(self, path: Path) -> str:
        """:func:`dana.core.files.file_digest` of a file, or what that was when the file looked the same.

        Raises:
            OSError: If it cannot be read.
        """
        if path.stat().st_size <= WHOLE:
            return file_digest(path)
        name, looks = text_digest(str(path.absolute())).hex(), _looks(path)  # no path of this machine is written
        held = self._before.get(name)
        if isinstance(held, dict) and held.get("looks") == looks and isinstance(held.get("digest"), str):
            self._now[name] = held
            self._trusted += 1
            return held["digest"]
        digest = file_digest(path)
        if _looks(path) == looks and time.time_ns() - max(looks["mtime"], looks["ctime"]) > SETTLED:
            self._now[name] = {"looks": looks, "digest": digest}
        return digest

    def tell(self) -> None:
        """Log how many files were not hashed, if any."""
        if self._trusted:
            log.info("input     %d large files look as they did and were not hashed (--verify does)", self._trusted)

    def keep(self) -> None:
        """Remember the files asked for, whole or not at all; a folder that cannot be written is left as it is."""
        if self._now != self._before:
            with suppress(OSError):
                write_json(self._path, sealed({"files": self._now}))


def forget_sources(corpus: Path) -> None:
    """Let the next command hash every source of a corpus."""
    (corpus / KEPT).unlink(missing_ok=True)


def _looks(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        about = os.fstat(stream.fileno())
        digest = blake2b(digest_size=16)
        for start in (0, (about.st_size - SAMPLE) // 2, about.st_size - SAMPLE):
            stream.seek(max(0, start))
            digest.update(stream.read(SAMPLE))
    times = {"mtime": about.st_mtime_ns, "ctime": about.st_ctime_ns}
    return {"size": about.st_size, **times, "inode": about.st_ino, "sample": digest.hexdigest()}


def _read(path: Path) -> dict[str, Any]:
    """What :meth:`KnownSources.keep` wrote; empty if it is not there, or not that."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    whole = isinstance(content, dict) and "digest" in content and is_sealed(content)
    files = content.get("files") if whole else None
    return files if isinstance(files, dict) else {}
