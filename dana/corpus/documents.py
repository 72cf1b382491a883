"""From records to documents: cleaned, named, each text once, and every record accounted for."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from sys import intern
from typing import Any

from dana.artifacts import file_digest
from dana.config import require
from dana.corpus.readers import HUB, expand, read_records, stem
from dana.corpus.records import Record
from dana.errors import DataError
from dana.logging import get_logger
from dana.schemas import Document
from dana.text import digest, document_id, normalise

log = get_logger(__name__)


@dataclass
class Tally:
    """What became of every record: read = kept + dropped + rejected, always.

    Attributes:
        read: Records seen.
        kept: Documents made of them.
        dropped: Good records left out, by reason: ``duplicate``, ``empty``; and what hygiene takes back.
        rejected: Bad records, by reason: ``unreadable``, ``damaged file`` (one for all that is lost of it),
            ``no text``, ``repeated id``.
        documents: Kept documents by source.
        characters: Kept characters by source.
    """

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    documents: Counter[str] = field(default_factory=Counter)
    characters: Counter[str] = field(default_factory=Counter)

    def keep(self, document: Document) -> None:
        """Count a kept document."""
        self.kept += 1
        self.documents[document.source] += 1
        self.characters[document.source] += len(document.text)

    def take_back(self, document: Document, reason: str) -> None:
        """Count a kept document as dropped after all."""
        self.kept -= 1
        self.dropped[reason] += 1
        self.documents[document.source] -= 1
        self.characters[document.source] -= len(document.text)
        if not self.documents[document.source]:
            del self.documents[document.source], self.characters[document.source]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a manifest."""
        by_source = {
            source: {"documents": count, "characters": self.characters[source]}
            for source, count in sorted(self.documents.items())
        }
        return {
            "in": self.read,
            "kept": self.kept,
            "dropped": dict(self.dropped),
            "rejected": dict(self.rejected),
            "by_source": by_source,
        }

    def __str__(self) -> str:
        reasons = [f"{count:,} {reason}" for reason, count in sorted((self.dropped + self.rejected).items())]
        left_out = f" ({', '.join(reasons)})" if reasons else ""
        return (
            f"{self.read:,} records in = {self.kept:,} kept + {self.dropped.total():,} dropped"
            f" + {self.rejected.total():,} rejected{left_out}"
        )


def read_documents(sources: Sequence[str], on_bad_record: str, tally: Tally) -> Iterator[Document]:
    """Stream the documents of all sources.

    A record needs ``text``. ``id`` (or ``doc_id``) names it, else a hash of source and text; ``source`` groups
    it, else its file's name does. A text that was there before is dropped. Sources may number their records alike: a
    name that another source has taken becomes ``source/id``.

    Args:
        sources: See :func:`dana.corpus.readers.read_records`.
        on_bad_record: ``fail`` or ``skip``.
        tally: Filled while the documents are read.

    Raises:
        ConfigError: If `on_bad_record` is neither.
        DataError: Naming file, line and problem of a bad record, unless they are skipped.
    """
    require(on_bad_record in ("fail", "skip"), "on_bad_record", on_bad_record, "fail or skip")
    texts: set[bytes] = set()
    names: dict[bytes, str] = {}
    for record in read_records(sources):
        tally.read += 1
        reason, problem, document = _document(record)
        if document is not None:
            reason, problem, document = _admitted(document, texts, names)
        if document is not None:
            tally.keep(document)
            yield document
        elif not problem:
            tally.dropped[reason] += 1
        elif on_bad_record == "skip":
            tally.rejected[reason] += 1
            if record.rest_lost:
                log.warning("%s: %s; nothing from here on is read", record.place, problem)
        else:
            raise DataError(f"{record.place}: {problem} (--on-bad-record skip counts such records and goes on)")


def _document(record: Record) -> tuple[str, str, Document | None]:
    """A record's document; or why it has none, and what is wrong if anything is."""
    if record.problem:
        return "damaged file" if record.rest_lost else "unreadable", record.problem, None
    text = record.fields.get("text")
    if not isinstance(text, str):
        held = (
            f"is {type(text).__name__}" if "text" in record.fields else f"is missing; found {', '.join(record.fields)}"
        )
        return "no text", f"the field 'text' {held}", None
    text = normalise(text)
    if not text:
        return "empty", "", None
    source = normalise(str(record.fields.get("source") or ""))
    if not source:
        source = record.origin if record.origin.startswith(HUB) else normalise(stem(Path(record.origin)))
    given = record.fields.get("id", record.fields.get("doc_id"))
    name = "" if given is None else normalise(str(given))
    return "", "", Document(name or document_id(source, text), source, text)


def _admitted(document: Document, texts: set[bytes], names: dict[bytes, str]) -> tuple[str, str, Document | None]:
    """The document under a name of its own, its digests taken down; or why it is left out, and what is wrong.

    Args:
        document: The next one.
        texts: Digests of the texts before it.
        names: Digests of the names before it, and whose they are.
    """
    text = digest(document.text)
    if text in texts:
        return "duplicate", "", None
    if names.get(digest(document.doc_id), document.source) != document.source:
        document = replace(document, doc_id=f"{document.source}/{document.doc_id}")
    name = digest(document.doc_id)
    if name in names:
        return "repeated id", f"id {document.doc_id!r} was there before, with another text", None
    texts.add(text)
    names[name] = intern(document.source)
    return "", "", document


def source_digests(sources: Sequence[str]) -> dict[str, str]:
    """What the content of the sources depends on, in order: each file's digest by its name, wherever it lies.

    Files of one name are numbered; of a Hub dataset, its name alone is known.
    """
    digests: dict[str, str] = {}
    for source in sources:
        if source.startswith(HUB):
            digests[source] = "by name"
            continue
        for path in expand(source):
            key, number = path.name, 1
            while key in digests:
                number += 1
                key = f"{path.name} ({number})"
            digests[key] = file_digest(path)
    return digests
