"""From records to documents: cleaned, named, each text once, and every record accounted for."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from sys import intern
from typing import Any

from dana.artifacts import file_digest
from dana.config import require
from dana.corpus.readers import HUB, expand, read_records, stem
from dana.corpus.records import Record
from dana.corpus.slices import Slice, lines_in, read_slice, slices_of
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


@dataclass(frozen=True)
class Parsed:
    """A record on its own: the document it makes, or why it makes none.

    Attributes:
        origin: File or dataset it came from.
        line: Line or row, from 1.
        reason: Why it is left out, in a word or two.
        problem: What is wrong with it; empty where nothing is.
        document: What it makes.
        rest_lost: Whether nothing after it in the file can be read either.
    """

    origin: str
    line: int
    reason: str
    problem: str
    document: Document | None
    rest_lost: bool

    @classmethod
    def of(cls, record: Record) -> "Parsed":
        """Parse a record."""
        return cls(record.origin, record.line, *_document(record), record.rest_lost)


def read_documents(sources: Sequence[str], on_bad_record: str, tally: Tally, processes: int = 1) -> Iterator[Document]:
    """Stream the documents of all sources.

    A record needs ``text``. ``id`` (or ``doc_id``) names it, else a hash of source and text; ``source`` groups
    it, else its file's name does. A text that was there before is dropped. Sources may number their records alike: a
    name that another source has taken becomes ``source/id``.

    Args:
        sources: See :func:`dana.corpus.readers.read_records`.
        on_bad_record: ``fail`` or ``skip``.
        tally: Filled while the documents are read.
        processes: How many read and parse side by side; the outcome is the same.

    Raises:
        ConfigError: If `on_bad_record` is neither.
        DataError: Naming file, line and problem of a bad record, unless they are skipped.
    """
    require(on_bad_record in ("fail", "skip"), "on_bad_record", on_bad_record, "fail or skip")
    texts: set[bytes] = set()
    names: dict[bytes, str] = {}
    for parsed in parse_sources(sources, processes):
        tally.read += 1
        reason, problem, document = parsed.reason, parsed.problem, parsed.document
        if document is not None:
            reason, problem, document = _admitted(document, texts, names)
        if document is not None:
            tally.keep(document)
            yield document
        elif not problem:
            tally.dropped[reason] += 1
        elif on_bad_record == "skip":
            tally.rejected[reason] += 1
            if parsed.rest_lost:
                log.warning("%s:%d: %s; nothing from here on is read", parsed.origin, parsed.line, problem)
        else:
            place = f"{parsed.origin}:{parsed.line}"
            raise DataError(f"{place}: {problem} (--on-bad-record skip counts such records and goes on)")


def parse_sources(sources: Sequence[str], processes: int) -> Iterator[Parsed]:
    """Every record of all sources, parsed, in order, by one process or several."""
    if processes == 1:
        yield from map(Parsed.of, read_records(sources))
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for source in sources:
            if source.startswith(HUB):
                yield from map(Parsed.of, read_records([source]))
                continue
            lines, path = 0, None
            for part, (found, many) in _in_order(pool, slices_of(source), processes + 2):
                lines, path = (lines if part.path == path else 0), part.path
                yield from (replace(parsed, line=parsed.line + lines) if lines else parsed for parsed in found)
                lines += many


def _in_order(pool: Executor, parts: Iterable[Slice], most: int) -> Iterator[tuple[Slice, tuple[list[Parsed], int]]]:
    """Results of all slices, in order, with no more than `most` of them in memory."""
    waiting: deque[tuple[Slice, Future[tuple[list[Parsed], int]]]] = deque()
    for part in parts:
        waiting.append((part, pool.submit(parse_slice, part)))
        if len(waiting) == most:
            part, future = waiting.popleft()
            yield part, future.result()
    for part, future in waiting:
        yield part, future.result()


def parse_slice(part: Slice) -> tuple[list[Parsed], int]:
    """A slice's records, parsed, and by how much the numbers of the next slice's lines are behind."""
    return list(map(Parsed.of, read_slice(part))), lines_in(part)


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
