"""Cache the digests of source files, so that unchanged files are hashed once.

A file counts as unchanged while its size, inode and times of modification and change are the same.
The cache is ``__dana__/sources.json`` in the corpus made from the files, without a seal: if it is
missing or damaged, all files are hashed again.
"""

import time
from contextlib import suppress
from pathlib import Path

from dana.core.artifacts import META_DIR, add_seal, is_intact, read_json, write_json
from dana.core.errors import ArtifactError
from dana.core.files import file_digest, text_digest

CACHE = f"{META_DIR}/sources.json"
SMALL = 1 << 20  # bytes up to which a file is hashed every time
SETTLED = (
    2 * 10**9
)  # nanoseconds after a change in which another change may get the same time stamp


class KnownSources:
    """The cache of one corpus."""

    def __init__(self, folder: Path) -> None:
        """Read the cache.

        Args:
            folder: The corpus artifact, which may be missing.
        """
        self._path = folder / CACHE
        self._before: dict[str, list[str | int]] = {}
        self._now: dict[str, list[str | int]] = {}
        with suppress(ArtifactError, RecursionError):
            content = read_json(self._path)
            if isinstance(content, dict) and is_intact(content):
                self._before = content["files"]

    def digest(self, path: Path) -> str:
        """Return :func:`dana.core.files.file_digest` of a file, from the cache if the file is unchanged.

        Raises:
            OSError: If it cannot be read.
        """
        state = _state(path)
        if path.stat().st_size <= SMALL:
            return file_digest(path)
        name = text_digest(str(path.absolute())).hex()  # the file holds no path of this machine
        digest, *before = self._before.get(name, [""])
        if before != state:
            digest = file_digest(path)
            if _state(path) != state or time.time_ns() - max(state[1:3]) < SETTLED:
                return digest
        self._now[name] = [digest, *state]
        return str(digest)

    def save(self) -> None:
        """Write the digests of this run atomically; a folder that cannot be written is left unchanged."""
        if self._now != self._before:
            with suppress(OSError):
                write_json(self._path, add_seal({"files": self._now}))


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
