"""Drop documents with a repeated text and rename those with a repeated id, in constant memory, by digests on disk.

The latest digests are in a dictionary, the others in sorted runs on disk, a log-structured merge
tree (O'Neil et al. 1996): four runs of one size are merged into one, so there are few runs and each
digest is written O(log n) times. A bit table of digest prefixes rules most missing digests out
without a read; for the others one block per run is read.
"""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from heapq import merge
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile

from dana.core.files import text_digest
from dana.core.schemas import Document

KEY, VALUE = 16, 8  # bytes
RECORD = KEY + VALUE
NO_VALUE = bytes(VALUE)
IN_MEMORY = 1 << 18  # digests in the dictionary, some 100 bytes each
BLOCK = (
    512  # records read at once; the first digest of each block is in memory, 0.1 bytes per record
)
FAN_IN = 4  # runs of one size that are merged into one
FILTER_BITS = (
    29  # prefix of a digest: a table of 64 MB; with 10^8 digests a fifth of the missing ones pass
)


class DigestStore:
    """A dictionary from digests to values that grows on disk. Close it after use.

    It takes 25 MB of memory, 65 MB more once some digests are on disk, and 24 bytes of disk per
    digest, up to twice that while runs are merged. The files have no names, so they vanish when the
    process dies.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Create an empty store.

        Args:
            folder: Folder of the runs; None for the folder of temporary files.
        """
        self._folder = folder
        self._recent: dict[bytes, bytes] = {}
        self._runs: list[_Run] = []  # the larger ones first
        self._filter = bytearray()

    def close(self) -> None:
        """Close the files, which deletes them."""
        for run in self._runs:
            run.close()

    def get(self, digest: bytes) -> bytes | None:
        """Look up the value of a digest; return None if it was not added.

        Args:
            digest: 16 uniformly distributed bytes, as from :func:`dana.core.files.text_digest`.
        """
        value = self._recent.get(digest)
        if value is None and self._runs and self._may_hold(digest):
            return next(
                (value for run in self._runs if (value := run.get(digest)) is not None), None
            )
        return value

    def add(self, digest: bytes, value: bytes = NO_VALUE) -> None:
        """Add a digest that the store does not hold yet.

        Args:
            digest: See :meth:`get`.
            value: 8 bytes.
        """
        self._recent[digest] = value
        if len(self._recent) == IN_MEMORY:
            self._spill()

    def _may_hold(self, digest: bytes) -> bool:
        byte, bit = _filter_position(digest)
        return bool(self._filter[byte] & bit)

    def _spill(self) -> None:
        """Write the digests in memory as a run, and merge runs while :data:`FAN_IN` are of one size."""
        self._filter = self._filter or bytearray(1 << FILTER_BITS - 3)
        for digest in (order := sorted(self._recent)):
            byte, bit = _filter_position(digest)
            self._filter[byte] |= bit
        self._runs.append(_Run((digest + self._recent[digest] for digest in order), self._folder))
        self._recent = {}
        while len({run.level for run in self._runs[-FAN_IN:]}) == 1 and len(self._runs) >= FAN_IN:
            parts = self._runs[-FAN_IN:]
            self._runs[-FAN_IN:] = [_Run(merge(*parts), self._folder, parts[0].level + 1)]
            for part in parts:
                part.close()


class _Run:
    """Records of digest and value, sorted by digest, in a file without a name."""

    def __init__(self, records: Iterable[bytes], folder: Path | None, level: int = 0) -> None:
        """Write a run.

        Args:
            records: Digests, each followed by its value, sorted.
            folder: Folder of the file.
            level: Number of merges behind it.
        """
        self.level = level
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 - close() closes it
        self._first: list[bytes] = []
        rest = iter(records)
        while block := b"".join(islice(rest, BLOCK)):
            self._first.append(block[:KEY])
            self._file.write(block)
        self._file.flush()

    def __iter__(self) -> Iterator[bytes]:
        for number in range(len(self._first)):
            block = self._block(number)
            yield from (block[start : start + RECORD] for start in range(0, len(block), RECORD))

    def get(self, digest: bytes) -> bytes | None:
        number = bisect_right(self._first, digest) - 1
        if number < 0:
            return None
        block = self._block(number)
        at = block.find(digest)
        while at > 0 and at % RECORD:  # a match across two records
            at = block.find(digest, at + 1)
        return block[at + KEY : at + RECORD] if at >= 0 else None

    def close(self) -> None:
        self._file.close()

    def _block(self, number: int) -> bytes:
        return os.pread(self._file.fileno(), BLOCK * RECORD, number * BLOCK * RECORD)


def _filter_position(digest: bytes) -> tuple[int, int]:
    """Compute the byte and the bit of a digest in the bit table."""
    prefix = int.from_bytes(digest[:4], "big") >> 32 - FILTER_BITS
    return prefix >> 3, 1 << (prefix & 7)


class DuplicateFilter:
    """Filter of repeated texts and ids over a stream of documents, in constant memory. Close it after use."""

    def __init__(self, folder: Path | None = None) -> None:
        """Create a filter that has seen no document.

        Args:
            folder: See :class:`DigestStore`.
        """
        self._texts, self._names = DigestStore(folder), DigestStore(folder)

    def close(self) -> None:
        """Close the files, which deletes them."""
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
        if self._texts.get(text) is not None:
            return "duplicate", "", None
        owner, name = _owner(document.source), text_digest(document.doc_id)
        first_owner = self._names.get(name)
        if first_owner not in (None, owner):
            document = replace(document, doc_id=f"{document.source}/{document.doc_id}")
            name = text_digest(document.doc_id)
            first_owner = self._names.get(name)
        if first_owner is not None:
            return (
                "repeated id",
                f"id {document.doc_id!r} is repeated with another text; ids must be unique",
                None,
            )
        self._texts.add(text)
        self._names.add(name, owner)
        return "", "", document


@lru_cache(maxsize=1)
def _owner(source: str) -> bytes:
    return text_digest(source)[:VALUE]
