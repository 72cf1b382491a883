"""Drop documents with a repeated text and rename those with a repeated id.

Both are recognised by digests, which SQLite keeps in memory and then in a temporary file.
"""

import sqlite3
from dataclasses import replace
from functools import lru_cache

from dana.core.errors import ArtifactError
from dana.core.files import text_digest
from dana.core.schemas import Document

# The file is temporary, so it needs neither a journal nor a sync. The cache takes 64 MB.
OPEN = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -65536;
CREATE TABLE seen (digest BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
BEGIN;
"""


class DigestStore:
    """A dictionary from digests to values that moves to the disk when it grows.

    It takes some 30 bytes of disk a digest, in the folder of temporary files. Close it after use.
    """

    def __init__(self) -> None:
        # A database without a name is a temporary file, which SQLite makes when its cache is full.
        # isolation_level=None: one transaction lasts until it is closed.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.executescript(OPEN)

    def close(self) -> None:
        """Delete the digests."""
        self._database.close()

    def add(self, digest: bytes, value: bytes = b"") -> bytes | None:
        """Add a digest, unless the store holds it: then return its value. Return None if it is new.

        Raises:
            ArtifactError: If the disk of temporary files is full.
        """
        try:
            insert = "INSERT OR IGNORE INTO seen VALUES (?, ?)"
            if self._database.execute(insert, (digest, value)).rowcount == 1:
                return None
            select = "SELECT value FROM seen WHERE digest = ?"
            return bytes(self._database.execute(select, (digest,)).fetchone()[0])
        except sqlite3.OperationalError as error:
            raise ArtifactError(
                f"the digests of documents cannot be kept in a temporary file ({error}); free some "
                "space in the folder of temporary files, or set TMPDIR to another folder, and run "
                "the same command again"
            ) from error

    def remove(self, digest: bytes) -> None:
        """Remove a digest that the store holds."""
        self._database.execute("DELETE FROM seen WHERE digest = ?", (digest,))


class DuplicateFilter:
    """Filter of repeated texts and ids over a stream of documents, in constant memory.

    Close it after use.
    """

    def __init__(self) -> None:
        self._texts = DigestStore()
        self._names = DigestStore()

    def close(self) -> None:
        """Delete the digests."""
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
