"""Records to documents: text is normalised and de-duplicated, documents are named, every record is counted."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.files import file_digest
from dana.core.logging import get_logger
from dana.core.schemas import Document
from dana.core.storage import RemoteFile, check_unchanged
from dana.core.workers import workers
from dana.corpus.hub import is_hub
from dana.corpus.inputs import Inputs
from dana.corpus.notices import Notices
from dana.corpus.places import Source, expand, stem
from dana.corpus.readers import read_records
from dana.corpus.records import MISSING, Record, field_at
from dana.corpus.seen import Distinct
from dana.corpus.slices import Passed, Slice, read_slice, slices_of
from dana.corpus.text import document_id, normalise

log = get_logger(__name__)

SKIPPING = " (--on-bad-record skip counts such records and goes on)"

_PLAIN = Inputs()  # plain text has no fields, so that neither their names nor a parser says anything of it


@dataclass
class Tally:
    """What became of every record: read = kept + dropped + rejected, always.

    Attributes:
        read: Records seen.
        kept: Documents made of them.
        dropped: Good records left out, by reason: ``duplicate``, ``empty``, ``left out by the record parser``; and
            what hygiene takes back.
        rejected: Bad records, by reason: ``unreadable``, ``damaged file`` (one for all that is lost of it),
            ``no text``, ``no id``, ``repeated id``, ``record parser failed``.
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
        kind: See :class:`dana.corpus.records.Record`.
    """

    origin: str
    line: int
    reason: str
    problem: str
    document: Document | None
    rest_lost: bool
    kind: str

    @classmethod
    def of(cls, record: Record, inputs: Inputs) -> "Parsed":
        """Parse a record."""
        return cls(record.origin, record.line, *_document(record, inputs), record.rest_lost, record.kind)


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
            :class:`dana.corpus.seen.Seen`.

    Raises:
        ConfigError: If `on_bad_record` is neither.
        DataError: Naming file, line and problem of a bad record, unless they are skipped.
    """
    require(on_bad_record in ("fail", "skip"), "on_bad_record", on_bad_record, "fail or skip")
    notices = Notices()
    with Distinct(folder) as distinct:
        for parsed in parse_sources(sources, processes, inputs or Inputs()):
            tally.read += 1
            reason, problem, document = parsed.reason, parsed.problem, parsed.document
            notices.add(parsed.origin, parsed.line, parsed.kind, document.text if document else "")
            if document is not None:
                reason, problem, document = distinct.admit(document)
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
                raise DataError(f"{place}: {problem}{SKIPPING}")
    check_unchanged(source for source in sources if isinstance(source, RemoteFile))
    notices.close()


def parse_sources(sources: Sequence[Source], processes: int, inputs: Inputs) -> Iterator[Parsed]:
    """Every record of all sources, parsed, in order, by one process or several."""
    if processes == 1:
        yield from _all_parsed(read_records(sources, inputs.text_documents), inputs)
        return
    with workers(processes) as pool:
        for of_hub, some in groupby(sources, is_hub):
            if of_hub:
                yield from _all_parsed(read_records(list(some)), inputs)
            else:  # across files: each may be too small for more than one process
                parts = chain.from_iterable(slices_of(source) for source in some)
                yield from _joined(_in_order(pool, parts, processes + 2, inputs), inputs)


def _joined(read: Iterable[tuple[Slice, Future[tuple[list[Parsed], int]] | None]], inputs: Inputs) -> Iterator[Parsed]:
    """Records of all slices as those of whole files: lines count on, and where the rest of a file is lost it ends."""
    lines, lost = 0, False
    for part, future in read:
        if part.first == 0:  # a file begins, perhaps the one before once more
            lines, lost = 0, False
        if lost:
            continue
        found, many = _outcome(part, future, inputs)
        for parsed in found:
            lost = parsed.rest_lost
            yield replace(parsed, line=parsed.line + lines) if lines else parsed
        lines += many


def _in_order(
    pool: Executor, parts: Iterable[Slice], most: int, inputs: Inputs
) -> Iterator[tuple[Slice, Future[tuple[list[Parsed], int]] | None]]:
    """All slices, in order, with no more than `most` of them in memory; None for a large file, which is streamed."""
    waiting: deque[tuple[Slice, Future[tuple[list[Parsed], int]] | None]] = deque()
    failed: Exception | None = None
    try:
        for part in parts:
            waiting.append((part, pool.submit(parse_slice, part, inputs) if part.is_small else None))
            if len(waiting) == most:
                yield waiting.popleft()
    except (DataError, OSError) as error:  # of a file behind those that wait: theirs come first
        failed = error
    while waiting:
        yield waiting.popleft()
    if failed:
        raise failed


def _outcome(
    part: Slice, future: Future[tuple[list[Parsed], int]] | None, inputs: Inputs
) -> tuple[Iterable[Parsed], int]:
    return future.result() if future else (_all_parsed(read_slice(part, inputs.text_documents), inputs), 0)


def parse_slice(part: Slice, inputs: Inputs) -> tuple[list[Parsed], int]:
    """A slice's records, parsed, and by how much the numbers of the next slice's lines are behind."""
    passed = Passed()
    return list(_all_parsed(read_slice(part, inputs.text_documents, passed), inputs)), passed.lines


def _all_parsed(records: Iterable[Record], inputs: Inputs) -> Iterator[Parsed]:
    return (Parsed.of(record, inputs) for record in records)


def _document(record: Record, inputs: Inputs) -> tuple[str, str, Document | None]:
    """A record's document; or why it has none, and what is wrong if anything is."""
    if record.problem:
        return "damaged file" if record.rest_lost else "unreadable", record.problem, None
    fields = record.fields
    inputs = _PLAIN if record.is_plain else inputs
    if inputs.parser:
        made, problem = inputs.parser.parse(fields)
        if made is None:
            return ("record parser failed" if problem else "left out by the record parser"), problem, None
        fields = made
    found = ((name, field_at(fields, name)) for name in inputs.text_field)
    name, text = next((pair for pair in found if pair[1] is not MISSING), (" or ".join(inputs.text_field), MISSING))
    if not isinstance(text, str):
        held = f"is {type(text).__name__}"
        if text is MISSING:
            held = f"is missing; found {', '.join(map(str, fields))}; --text-field names another"
        return "no text", f"the field {name!r} {held}", None
    given = field_at(fields, inputs.id_field) if inputs.id_field else fields.get("id", fields.get("doc_id"))
    if given is MISSING:
        return "no id", f"the field {inputs.id_field!r} is missing; found {', '.join(map(str, fields))}", None
    text = normalise(text)
    if not text:
        return "empty", "", None
    origin = record.origin if is_hub(record.origin) else normalise(stem(Path(record.origin)))
    source = normalise(str(fields.get("source") or "")) or origin
    doc_id = "" if given is None else normalise(str(given))
    return "", "", Document(doc_id or document_id(source, text), source, text)


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
