"""Records to documents: text is normalised and de-duplicated, documents are named, every record is counted."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from dana.corpus.digests import DuplicateFilter
from dana.corpus.hub import is_hub
from dana.corpus.inputs import Inputs
from dana.corpus.slices import parse_sources
from dana.corpus.sources import Source, expand

log = get_logger(__name__)

SKIPPING = " (--on-bad-record skip counts such records and goes on)"
ROWS_AT_ONCE = 4096
LAYOUTS = {"line": "one a line", "paragraph": "one a paragraph (blank lines part them)", "file": "the whole file"}
REPLACED = "\ufffd"  # in place of bytes that are not UTF-8
NAMED = 10  # files that are named one by one


@dataclass
class Tally:
    """Counts of records by outcome: every record becomes a document, is dropped or is rejected.

    Attributes:
        record_count: Records read.
        document_count: Documents made of them.
        drop_counts: Good records left out, by reason: ``duplicate``, ``empty``, and those of decontamination, near
            duplicates and sampling.
        rejection_counts: Bad records, by reason: ``unreadable``, ``damaged file`` (one for all that is lost of a file),
            ``no text``, ``no id``, ``repeated id``.
        documents_by_source: Documents of each source.
        characters_by_source: Characters of those documents.
    """

    record_count: int = 0
    document_count: int = 0
    drop_counts: Counter[str] = field(default_factory=Counter)
    rejection_counts: Counter[str] = field(default_factory=Counter)
    documents_by_source: Counter[str] = field(default_factory=Counter)
    characters_by_source: Counter[str] = field(default_factory=Counter)

    def add(self, document: Document) -> None:
        """Count a document."""
        self.document_count += 1
        self.documents_by_source[document.source] += 1
        self.characters_by_source[document.source] += len(document.text)

    def drop(self, document: Document, reason: str) -> None:
        """Count a document that was added as dropped instead."""
        self.document_count -= 1
        self.drop_counts[reason] += 1
        self.documents_by_source[document.source] -= 1
        self.characters_by_source[document.source] -= len(document.text)
        if not self.documents_by_source[document.source]:
            del self.documents_by_source[document.source], self.characters_by_source[document.source]

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as plain values for a manifest."""
        by_source = {
            source: {"documents": count, "characters": self.characters_by_source[source]}
            for source, count in sorted(self.documents_by_source.items())
        }
        return {
            "in": self.record_count,
            "kept": self.document_count,
            "dropped": dict(self.drop_counts),
            "rejected": dict(self.rejection_counts),
            "by_source": by_source,
        }

    def __str__(self) -> str:
        by_reason = sorted((self.drop_counts + self.rejection_counts).items())
        reasons = f" ({', '.join(f'{count:,} {reason}' for reason, count in by_reason)})" if by_reason else ""
        return (
            f"{self.record_count:,} records in = {self.document_count:,} kept + {self.drop_counts.total():,} dropped"
            f" + {self.rejection_counts.total():,} rejected{reasons}"
        )


def read_documents(
    sources: Sequence[Source],
    on_bad_record: str,
    tally: Tally,
    processes: int = 1,
    inputs: Inputs | None = None,
    folder: Path | None = None,
) -> Iterator[Document]:
    """Stream the documents of all sources.

    A record needs ``text``. ``id`` (or ``doc_id``) names it, else a hash of source and text; ``source`` groups it, else
    its file's name does: see :class:`dana.corpus.inputs.Inputs`. A text that was there before is dropped. Sources may
    number their records alike: a name that another source has taken becomes ``source/id``.

    Args:
        sources: See :func:`dana.corpus.readers.read_records`.
        on_bad_record: ``fail`` or ``skip``.
        tally: Filled while the documents are read.
        processes: How many read and parse side by side; the outcome is the same.
        inputs: How records become documents.
        folder: Where digests of texts and names go that are too many for the memory: see
            :class:`dana.corpus.digests.DigestStore`.

    Raises:
        ConfigError: If `on_bad_record` is neither.
        DataError: Naming file, line and problem of a bad record, unless they are skipped.
    """
    require(on_bad_record in ("fail", "skip"), "on_bad_record", on_bad_record, "fail or skip")
    layouts: Counter[tuple[str, str]] = Counter()
    replaced: Counter[str] = Counter()
    with DuplicateFilter(folder) as distinct:
        for parsed in parse_sources(sources, processes, inputs or Inputs()):
            tally.record_count += 1
            record, reason, problem, document = parsed.record, parsed.reason, parsed.problem, parsed.document
            if record.is_plain:
                layouts[record.origin, record.kind] += 1
            if document is not None:
                replaced[record.origin] += REPLACED in document.text
                reason, problem, document = distinct.admit(document)
            if document is not None:
                tally.add(document)
                yield document
            elif not problem:
                tally.drop_counts[reason] += 1
            elif on_bad_record == "skip":
                tally.rejection_counts[reason] += 1
                if record.rest_lost:
                    log.warning("%s: %s; nothing from here on is read", record.location, problem)
            else:
                raise DataError(f"{record.location}: {problem}{SKIPPING}")
    check_unchanged(source for source in sources if isinstance(source, RemoteFile))
    for (origin, layout), count in list(layouts.items())[:NAMED]:
        log.info("input     %s: %s documents, %s", origin, f"{count:,}", LAYOUTS[layout])
    for origin, count in list((+replaced).items())[:NAMED]:
        remedy = "to keep those characters convert the file first, for example: iconv -f LATIN1 -t UTF-8"
        log.warning("%s: %d records hold U+FFFD, where bytes are not UTF-8; %s", origin, count, remedy)


def source_digests(sources: Sequence[Source], digest: Callable[[Path], str] | None = None) -> dict[str, str]:
    """What the content of the sources depends on, in order: each file's digest by its name, wherever it lies.

    Files of one name are numbered. Of one at a URL it is what its file system tells, of a Hub dataset its commit.

    Args:
        sources: Files, folders, globs, ``hf:`` names.
        digest: Of a file of this machine; None hashes it.
    """
    digests: dict[str, str] = {}
    numbers: Counter[str] = Counter()
    for source in sources:
        if is_hub(source):
            digests[str(source)] = getattr(source, "commit", "") or "by name"
            continue
        for path in expand(source):
            key = path.name
            while key in digests:  # the count goes on where the last file of this name left it
                numbers[path.name] += 1
                key = f"{path.name} ({numbers[path.name] + 1})"
            try:
                digests[key] = path.identity if isinstance(path, RemoteFile) else (digest or file_digest)(path)
            except OSError as error:
                raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    return digests


def document_tables(documents: Iterable[Document]) -> Iterator[pa.Table]:
    """Stream documents as tables of :data:`dana.core.schemas.DOCUMENTS`, at most 4,096 rows each; at least one."""
    stream = iter(documents)
    rows = list(islice(stream, ROWS_AT_ONCE))
    yield _table(rows)
    while rows := list(islice(stream, ROWS_AT_ONCE)):
        yield _table(rows)


def _table(rows: Sequence[Document]) -> pa.Table:
    return pa.Table.from_pydict({name: [getattr(row, name) for row in rows] for name in DOCUMENTS.names}, DOCUMENTS)
