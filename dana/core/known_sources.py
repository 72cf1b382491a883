"""Source files to digests of their bytes, each hashed once: one that looks as it did keeps the digest it had.

What a file looks like is its size, inode and times of modification and of change, which every write moves. Digests lie
in the corpus that was made of the files, ``__dana__/sources.json``, which no manifest seals: where it is missing or
damaged all is hashed anew.
"""

import time
from contextlib import suppress
from pathlib import Path

from dana.core.artifacts import OWN, is_sealed, read_json, sealed, write_json
from dana.core.errors import ArtifactError
from dana.core.files import file_digest, text_digest

KEPT = f"{OWN}/sources.json"
WHOLE = 1 << 20  # bytes up to which a file is hashed every time
SETTLED = 2 * 10**9  # nanoseconds since a file was changed, in which a clock may stand still for its file system


class KnownSources:
    """Digests of files, by what a corpus remembers of those that it was made of."""

    def __init__(self, folder: Path) -> None:
        """Read what is remembered.

        Args:
            folder: Of the corpus artifact, which need not be there.
        """
        self._path = folder / KEPT
        self._before: dict[str, list[str | int]] = {}
        self._now: dict[str, list[str | int]] = {}
        with suppress(ArtifactError, RecursionError):
            content = read_json(self._path)
            if isinstance(content, dict) and "digest" in content and is_sealed(content):
                self._before = content["files"]

    def digest(self, path: Path) -> str:
        """:func:`dana.core.files.file_digest` of a file, or what that was when the file looked the same.

        Raises:
            OSError: If it cannot be read.
        """
        looks = _looks(path)
        if path.stat().st_size <= WHOLE:
            return file_digest(path)
        name = text_digest(str(path.absolute())).hex()  # no path of this machine is written
        digest, *before = self._before.get(name, [""])
        if before != looks:
            digest = file_digest(path)
            if _looks(path) != looks or time.time_ns() - max(looks[1:3]) < SETTLED:
                return digest
        self._now[name] = [digest, *looks]
        return str(digest)

    def keep(self) -> None:
        """Remember the files asked for, whole or not at all; a folder that cannot be written is left as it is."""
        if self._now != self._before:
            with suppress(OSError):
                write_json(self._path, sealed({"files": self._now}))


def _looks(path: Path) -> list[int]:
    about = path.stat()
    return [about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino]
