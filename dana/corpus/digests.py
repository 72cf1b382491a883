"""Drop documents with a repeated text and rename those with a repeated id.

Both are recognised by digests, which are kept in memory and then in SQLite.
"""

import sqlite3
from dataclasses import replace
from errno import ENOSPC
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from dana.core.files import text_digest
from dana.core.schemas import Document

IN_MEMORY = 1 << 20  # digests in a dictionary, some 130 bytes each; more of them go to SQLite
# The file is temporary, so it needs neither a journal nor a sync. The cache takes 64 MB.
OPEN = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA cache_size = -65536;
CREATE TABLE seen (digest BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
BEGIN;
"""


class DigestStore:
    """A dictionary from digests to values that moves to a temporary SQLite file when it grows.

    It takes some 170 MB of memory at most, and 30 bytes of disk a digest. Close it after use.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Create an empty store.

        Args:
            folder: Folder of the file; None for the folder of temporary files.
        """
        self._folder = folder
        self._first: dict[bytes, bytes] = {}
        self._database: sqlite3.Connection | None = None

    def close(self) -> None:
        """Delete the file."""
        if self._database is not None:
            self._database.close()
            self._file.close()

    def add(self, digest: bytes, value: bytes = b"") -> bytes | None:
        """Add a digest, unless the store holds it: then return its value. Return None if it is new.

        Raises:
            OSError: If the disk is full.
        """
        if self._database is None:
            known = self._first.get(digest)
            if known is None:
                self._first[digest] = value
                if len(self._first) == IN_MEMORY:
                    self._move_to_disk()
            return known
        try:
            insert = "INSERT OR IGNORE INTO seen VALUES (?, ?)"
            if self._database.execute(insert, (digest, value)).rowcount == 1:
                return None
            select = "SELECT value FROM seen WHERE digest = ?"
            return bytes(self._database.execute(select, (digest,)).fetchone()[0])
        except sqlite3.OperationalError as error:
            raise OSError(ENOSPC, str(error)) from error

    def remove(self, digest: bytes) -> None:
        """Remove a digest that the store holds."""
        if self._database is None:
            del self._first[digest]
        else:
            self._database.execute("DELETE FROM seen WHERE digest = ?", (digest,))

    def _move_to_disk(self) -> None:
        self._file = NamedTemporaryFile(dir=self._folder, prefix=".digests-")  # noqa: SIM115
        try:
            # isolation_level=None: one transaction lasts until the file is deleted.
            database = sqlite3.connect(self._file.name, isolation_level=None)
            database.executescript(OPEN)
            rows = sorted(self._first.items())
            database.executemany("INSERT INTO seen VALUES (?, ?)", rows)
        except sqlite3.OperationalError as error:
            raise OSError(ENOSPC, str(error)) from error
        self._database = database
        self._first = {}


class DuplicateFilter:
    """Filter of repeated texts and ids over a stream of documents, in constant memory.

    Close it after use.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Create a filter that has seen no document.

        Args:
            folder: See :class:`DigestStore`.
        """
        self._texts = DigestStore(folder)
        self._names = DigestStore(folder)

    def close(self) -> None:
        """Delete the files."""
        self._texts.close()
        self._names.close()

    def admit(self, document: Document) -> tuple[str, str, Document | None]:
        """Check the next document.

        Returns:
            The reason for leaving it out, the problem if it is a bad record, and the document, None
            if it is left out. An id that another source has used becomes ``source/id``. A document
            left out does not count as seen.
        """
        text = text_digest(document.text)
        if self._texts.add(text) is not None:
            return "duplicate", "", None
        owner = _owner(document.source)
        first_owner = self._names.add(text_digest(document.doc_id), owner)
        if first_owner not in (None, owner):
            document = replace(document, doc_id=f"{document.source}/{document.doc_id}")
            first_owner = self._names.add(text_digest(document.doc_id), owner)
        if first_owner is not None:
            self._texts.remove(text)
            problem = f"id {document.doc_id!r} is repeated with another text; ids must be unique"
            return "repeated id", problem, None
        return "", "", document


@lru_cache(maxsize=1)
def _owner(source: str) -> bytes:
    return text_digest(source)[:8]
