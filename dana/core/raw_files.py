"""Hash the raw files that a step reads, and remember the digests in the step's manifest.

The manifest lists path, size, time of modification and digest of each file. A later command on the
same folder hashes a file again only if one of the first three differs. Fingerprints count the
digests alone, so moved and copied files change none.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from dana.core.artifacts import read_manifest
from dana.core.errors import ArtifactError, DataError
from dana.core.files import file_digest

RAW_FILES = "raw_files"  # key in the manifest


class RawFiles:
    """The raw files of one step."""

    def __init__(self, folder: Path | None) -> None:
        """Read what an earlier command on the folder knew.

        Args:
            folder: Folder of the step, which may be missing; None knows nothing.
        """
        self._known: dict[str, dict[str, Any]] = {}
        self._records: dict[str, dict[str, Any]] = {}
        if folder is None:
            return
        with suppress(ArtifactError):  # opening the folder tells
            for record in read_manifest(folder).get(RAW_FILES, []):
                self._known[record["path"]] = record

    def digest(self, path: Path) -> str:
        """Return :func:`dana.core.files.file_digest` of a file, hashing it only if it is not known.

        Raises:
            OSError: If it cannot be read.
        """
        record = _describe(path)
        known = self._known.get(record["path"], {})
        if all(known.get(key) == value for key, value in record.items()):
            digest: str = known["digest"]
        else:
            digest = file_digest(path)
        record["digest"] = digest
        self._records[record["path"]] = record
        return digest

    def records(self) -> list[dict[str, Any]]:
        """List the files whose digests were asked for, as they stand in the manifest."""
        return [self._records[path] for path in sorted(self._records)]

    def check_unchanged(self) -> None:
        """Check, after the files were read, that they are those that were hashed.

        Raises:
            DataError: If a file changed or was removed since; names it.
        """
        for path, record in self._records.items():
            try:
                now = _describe(Path(path))
            except FileNotFoundError:
                now = {}
            if now != {key: value for key, value in record.items() if key != "digest"}:
                raise DataError(f"{path}: changed while it was read; run it again")


def _describe(path: Path) -> dict[str, Any]:
    """Return path, size and time of modification of a file."""
    status = path.stat()
    return {
        "path": str(path.absolute()),
        "bytes": status.st_size,
        "mtime_ns": status.st_mtime_ns,
    }
