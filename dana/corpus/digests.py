"""Documents to those whose text and name were not there before, in constant memory, by digests on disk.

Of digests, the latest are in a dictionary, the others in sorted runs on disk.

Runs of one size are merged four at a time, so there are few, and a digest is written some log4 times (a log-structured
merge tree: O'Neil et al. 1996). A table of one bit for each beginning of a digest answers for most digests that are in
no run; for the others a block of each run is read.
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
from typing import Self

from dana.core.files import text_digest
from dana.core.schemas import Document

KEY, VALUE = 16, 8  # bytes
RECORD = KEY + VALUE
NOTHING = bytes(VALUE)
IN_MEMORY = 1 << 18  # digests in the dictionary, some 100 bytes each
BLOCK = 512  # records that are read at once; their first digest is in memory, 0.1 bytes a record
TOGETHER = 4  # runs of one size that become one
FILTER_BITS = 29  # of a digest: 64 MB; with 10^8 digests a fifth of the others pass


class DigestStore:
    """A dictionary of digests that only grows; to be closed at last.

    Memory: 25 MB, and 65 MB more once some are on disk, however many there are; 24 bytes a digest on disk, up to twice
    that while runs are merged. The files have no name, so nothing is left of them when the process dies.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Start empty.

        Args:
            folder: Where the runs go; None is the folder for temporary files.
        """
        self._folder = folder
        self._recent: dict[bytes, bytes] = {}
        self._runs: list[_Run] = []  # the larger ones first
        self._filter = bytearray()

    def close(self) -> None:
        """Let go of the files."""
        for run in self._runs:
            run.close()

    def get(self, digest: bytes) -> bytes | None:
        """The value of a digest; None if it was not added.

        Args:
            digest: 16 bytes that are spread evenly, as those of :func:`dana.core.files.text_digest`.
        """
        found = self._recent.get(digest)
        if found is None and self._runs and self._may_hold(digest):
            return next((found for run in self._runs if (found := run.get(digest)) is not None), None)
        return found

    def add(self, digest: bytes, value: bytes = NOTHING) -> None:
        """Add a digest that is not there yet.

        Args:
            digest: See :meth:`get`.
            value: 8 bytes.
        """
        self._recent[digest] = value
        if len(self._recent) == IN_MEMORY:
            self._spill()

    def _may_hold(self, digest: bytes) -> bool:
        byte, bit = _place(digest)
        return bool(self._filter[byte] & bit)

    def _spill(self) -> None:
        """Move what is in memory to a run, and merge as long as there are enough of one size."""
        self._filter = self._filter or bytearray(1 << FILTER_BITS - 3)
        for digest in (order := sorted(self._recent)):
            byte, bit = _place(digest)
            self._filter[byte] |= bit
        self._runs.append(_Run((digest + self._recent[digest] for digest in order), self._folder))
        self._recent = {}
        while len({run.level for run in self._runs[-TOGETHER:]}) == 1 and len(self._runs) >= TOGETHER:
            parts = self._runs[-TOGETHER:]
            self._runs[-TOGETHER:] = [_Run(merge(*parts), self._folder, parts[0].level + 1)]
            for part in parts:
                part.close()


class _Run:
    """Records in order of their digests, in a file without a name."""

    def __init__(self, records: Iterable[bytes], folder: Path | None, level: int = 0) -> None:
        """Write the records.

        Args:
            records: In order; digest and value.
            folder: Where the file is.
            level: How often they were merged.
        """
        self.level = level
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 - close() closes it
        self._first: list[bytes] = []
        left = iter(records)
        while block := b"".join(islice(left, BLOCK)):
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
        while at > 0 and at % RECORD:  # the end of one record and the beginning of the next
            at = block.find(digest, at + 1)
        return block[at + KEY : at + RECORD] if at >= 0 else None

    def close(self) -> None:
        self._file.close()

    def _block(self, number: int) -> bytes:
        return os.pread(self._file.fileno(), BLOCK * RECORD, number * BLOCK * RECORD)


def _place(digest: bytes) -> tuple[int, int]:
    """Byte and bit of a digest in the table."""
    place = int.from_bytes(digest[:4], "big") >> 32 - FILTER_BITS
    return place >> 3, 1 << (place & 7)


class DuplicateFilter:
    """The texts and names of the documents so far, in constant memory; to be used in a ``with``."""

    def __init__(self, folder: Path | None = None) -> None:
        """Start without any.

        Args:
            folder: See :class:`DigestStore`.
        """
        self._texts, self._names = DigestStore(folder), DigestStore(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._texts.close()
        self._names.close()

    def admit(self, document: Document) -> tuple[str, str, Document | None]:
        """The next document under a name of its own; or why it is left out, and what is wrong if anything is.

        A name that another source has taken becomes ``source/name``. What is left out is forgotten.
        """
        text = text_digest(document.text)
        if self._texts.get(text) is not None:
            return "duplicate", "", None
        owner, name = _owner(document.source), text_digest(document.doc_id)
        held = self._names.get(name)
        if held not in (None, owner):
            document = replace(document, doc_id=f"{document.source}/{document.doc_id}")
            name = text_digest(document.doc_id)
            held = self._names.get(name)
        if held is not None:
            return "repeated id", f"id {document.doc_id!r} was there before, with another text", None
        self._texts.add(text)
        self._names.add(name, owner)
        return "", "", document


@lru_cache(maxsize=1)
def _owner(source: str) -> bytes:
    """What stands for a source beside the names of its documents."""
    return text_digest(source)[:VALUE]
