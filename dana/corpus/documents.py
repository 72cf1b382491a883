"""Turn records into documents: normalise, de-duplicate and name them, and count every record."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.files import file_digest
from dana.core.logging import get_logger
from dana.core.schemas import DOCUMENTS, Document
from dana.core.storage import RemoteFile, check_unchanged
from dana.corpus.bad_records import BadRecords
from dana.corpus.digests import DuplicateFilter
from dana.corpus.hub import is_hub
from dana.corpus.inputs import Inputs, Record
from dana.corpus.parse import ParsedRecord
from dana.corpus.slices import parse_sources
from dana.corpus.sources import Source, expand, path_keys
from dana.corpus.text import REPLACEMENT

log = get_logger(__name__)

SKIPPING = " (--on-bad-record skip counts such records and continues)"
ROWS_AT_ONCE = 4096
LAYOUTS = {
    "line": "one per line",
    "paragraph": "one per paragraph (between blank lines)",
    "file": "the whole file",
}
MAX_LOGGED_FILES = 10


@dataclass
class Tally:
    """Counts of records by outcome: every record becomes a document, is dropped or is rejected.

    Attributes:
        record_count: Records read.
        document_count: Documents made of them.
        drop_counts: Good records left out, by reason: ``duplicate``, ``empty``, and those of
            decontamination, near duplicates and sampling.
        rejection_counts: Bad records, by reason: ``unreadable``, ``damaged file`` (one for all that
            is lost of a file), ``no text``, ``no id``, ``no source``, ``repeated id``.
        documents_by_source: Documents of each source.
        characters_by_source: Characters of those documents.
        said_files: Files of plain text whose layout is logged; after
            :data:`MAX_LOGGED_FILES` no other is.
    """

    record_count: int = 0
    document_count: int = 0
    drop_counts: Counter[str] = field(default_factory=Counter)
    rejection_counts: Counter[str] = field(default_factory=Counter)
    documents_by_source: Counter[str] = field(default_factory=Counter)
    characters_by_source: Counter[str] = field(default_factory=Counter)
    said_files: int = field(default=0, compare=False)

    def add(self, document: Document) -> None:
        """Count a document."""
        self.document_count += 1
        self.documents_by_source[document.source] += 1
        self.characters_by_source[document.source] += len(document.text)

    def reject(self, record: Record, reason: str, problem: str) -> None:
        """Count a bad record, and log the first of each reason."""
        self.rejection_counts[reason] += 1
        if record.rest_lost:
            log.warning("%s: %s; the rest of the file is not read", record.location, problem)
        elif self.rejection_counts[reason] == 1:
            log.warning("%s: %s; left out, the first such record", record.location, problem)

    def drop(self, document: Document, reason: str) -> None:
        """Move a document from the kept to the dropped ones."""
        self.document_count -= 1
        self.drop_counts[reason] += 1
        self.documents_by_source[document.source] -= 1
        self.characters_by_source[document.source] -= len(document.text)
        if not self.documents_by_source[document.source]:
            del self.documents_by_source[document.source]
            del self.characters_by_source[document.source]

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as plain values for a manifest."""
        by_source = {}
        for name, count in sorted(self.documents_by_source.items()):
            characters = self.characters_by_source[name]
            by_source[name] = {"documents": count, "characters": characters}
        return {
            "in": self.record_count,
            "kept": self.document_count,
            "dropped": dict(self.drop_counts),
            "rejected": dict(self.rejection_counts),
            "by_source": by_source,
        }

    def __str__(self) -> str:
        kept = f"{self.record_count:,} records in = {self.document_count:,} kept"
        dropped = f"{self.drop_counts.total():,} dropped"
        rejected = f"{self.rejection_counts.total():,} rejected"
        summary = f"{kept} + {dropped} + {rejected}"
        by_reason = sorted((self.drop_counts + self.rejection_counts).items())
        if not by_reason:
            return summary
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in by_reason)
        return f"{summary} ({reasons})"


def read_documents(
    sources: Sequence[Source],
    on_bad_record: str,
    tally: Tally,
    processes: int = 1,
    inputs: Inputs | None = None,
) -> Iterator[Document]:
    """Stream the documents of all sources.

    A record needs ``text``. Its name is ``id`` (or ``doc_id``), else a hash of source and text; its
    source is ``source``, else the name of its file: see :class:`dana.corpus.inputs.Inputs`.
    Repeated texts are dropped. Sources may use the same ids: an id that another source has used
    becomes ``source/id``.

    Args:
        sources: See :func:`dana.corpus.readers.read_records`.
        on_bad_record: ``fail`` or ``skip``.
        tally: Updated while the documents are read.
        processes: Number of processes that read and parse; it does not change the documents.
        inputs: Fields of the records and layout of plain text.

    Raises:
        ConfigError: If `on_bad_record` is neither.
        DataError: If a record is bad and `on_bad_record` is ``fail``; names file, line and problem
            of the first five, and their number.
    """
    require(on_bad_record in ("fail", "skip"), "on_bad_record", on_bad_record, "fail or skip")
    layouts: Counter[tuple[str, str]] = Counter()
    undecodable: Counter[str] = Counter()  # records with U+FFFD, by file
    items = iter(parse_sources(sources, processes, inputs or Inputs()))
    with closing(DuplicateFilter()) as distinct:
        for item in items:
            tally.record_count += 1
            record = item.record
            reason = item.reason
            problem = item.problem
            document = item.document
            if record.is_plain:
                layouts[record.origin, record.kind] += 1
            if document is not None:
                undecodable[record.origin] += REPLACEMENT in document.text
                reason, problem, document = distinct.admit(document)
            if document is not None:
                tally.add(document)
                yield document
            elif not problem:
                tally.drop_counts[reason] += 1
            elif on_bad_record == "skip":
                tally.reject(record, reason, problem)
            else:
                bad = BadRecords()
                bad.add(record.location, problem)
                _add_others(bad, items, distinct)
                raise bad.error(SKIPPING)
    check_unchanged(source for source in sources if isinstance(source, RemoteFile))
    _say_layouts(layouts, tally)
    _say_undecodable(undecodable)


def _add_others(bad: BadRecords, items: Iterator[ParsedRecord], distinct: DuplicateFilter) -> None:
    """Count the bad records behind the first one, up to a file that cannot be read."""
    with suppress(DataError):  # what is wrong first is said
        for item in items:
            if bad.is_enough():
                return
            problem = item.problem
            if item.document is not None:
                _, problem, _ = distinct.admit(item.document)
            if problem:
                bad.add(item.record.location, problem)


def _say_layouts(layouts: Counter[tuple[str, str]], tally: Tally) -> None:
    """Log what a document of plain text was, of the first files of a tally.

    Args:
        layouts: Documents by file and layout.
        tally: That of the files, perhaps of others that were read before.
    """
    for (origin, layout), count in layouts.items():
        if tally.said_files == MAX_LOGGED_FILES:
            log.info("input     %s and other files of plain text: not listed", origin)
        elif tally.said_files < MAX_LOGGED_FILES:
            log.info("input     %s: %s documents, %s", origin, f"{count:,}", LAYOUTS[layout])
        tally.said_files += 1


def _say_undecodable(undecodable: Counter[str]) -> None:
    """Log which files have bytes that are no text.

    Args:
        undecodable: Records with U+FFFD by file.
    """
    remedy = "convert the file to keep those characters, for example: iconv -f LATIN1 -t UTF-8"
    for origin, count in list((+undecodable).items())[:MAX_LOGGED_FILES]:
        log.warning(
            "%s: %d records hold U+FFFD in place of bytes that are not UTF-8; %s",
            origin,
            count,
            remedy,
        )


def source_digests(
    sources: Sequence[Source], digest: Callable[[Path], str] | None = None
) -> dict[str, str]:
    """Identify the content of sources by a digest of each file.

    Files of the same name are numbered. A file at a URL is identified by what its file system
    reports, a data set of the Hub by its commit.

    Args:
        sources: Files, folders, globs, ``hf:`` names.
        digest: Computes the digest of a local file, such as
            :meth:`dana.core.raw_files.RawFiles.digest`; None hashes its content.

    Returns:
        The name of each file, without its folder, to its digest, in the order of the files.
    """
    digests: dict[str, str] = {}
    numbers: Counter[str] = Counter()
    for source in sources:
        if is_hub(source):
            digests[str(source)] = getattr(source, "commit", "") or "by name"
            continue
        for path in expand(source):
            keys = [f"{name}={value}" for name, value in path_keys(path).items()]
            name = "/".join([*keys, path.name])
            key = name
            while key in digests:  # the next number, also where many files share the name
                numbers[name] += 1
                key = f"{name} ({numbers[name] + 1})"
            try:
                if isinstance(path, RemoteFile):
                    digests[key] = path.identity
                else:
                    digests[key] = (digest or file_digest)(path)
            except OSError as error:
                raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    return digests


def document_tables(documents: Iterable[Document]) -> Iterator[pa.Table]:
    """Stream documents as tables of at most 4,096 rows; at least one table.

    Their schema is :data:`dana.core.schemas.DOCUMENTS`.
    """
    stream = iter(documents)
    is_first = True
    while True:
        rows = list(islice(stream, ROWS_AT_ONCE))
        if not rows and not is_first:
            return
        is_first = False
        columns = {}
        for name in DOCUMENTS.names:
            columns[name] = [getattr(row, name) for row in rows]
        yield pa.Table.from_pydict(columns, DOCUMENTS)
