"""Make documents of records and of texts.

Here, and nowhere else, a text that is empty becomes no document.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

from dana.core.schemas import Document
from dana.corpus.hub import is_hub
from dana.corpus.inputs import MISSING, Inputs, Record, field_at
from dana.corpus.sources import stem
from dana.corpus.text import document_id, normalise

_PLAIN = Inputs()  # plain text has no fields to name


def make_document(text: str, doc_id: str, source: str) -> Document | None:
    """Normalise a text, its id and its source; return None if nothing is left of the text.

    Args:
        text: The text.
        doc_id: Its id; empty takes a hash of source and text.
        source: Its origin.
    """
    text = normalise(text)
    if not text:
        return None
    source = normalise(source)
    return Document(normalise(doc_id) or document_id(source, text), source, text)


@dataclass(frozen=True)
class ParsedRecord:
    """A record with its document, or the reason why it has none.

    Attributes:
        record: The record; from a worker process, without its fields.
        reason: Category of the reason, for counting.
        problem: What is wrong with the record; empty if it is only left out.
        document: The document, or None.
    """

    record: Record
    reason: str
    problem: str = ""
    document: Document | None = None


def parse_records(records: Iterable[Record], inputs: Inputs) -> Iterator[ParsedRecord]:
    """Make a document of each record that has one."""
    return (_parse(record, inputs) for record in records)


def _parse(record: Record, inputs: Inputs) -> ParsedRecord:
    if record.problem:
        reason = "damaged file" if record.rest_lost else "unreadable"
        return ParsedRecord(record, reason, record.problem)
    if record.is_plain:
        inputs = _PLAIN
    text, problem = _find_text(record.fields, inputs)
    if problem:
        return ParsedRecord(record, "no text", problem)
    doc_id, problem = _find_id(record.fields, inputs)
    if problem:
        return ParsedRecord(record, "no id", problem)
    source = record.fields.get("source") or ""
    if not isinstance(source, str | int | float):
        problem = f"the source must be text or a number, got {str(source)[:40]!r}"
        return ParsedRecord(record, "no source", problem)
    own_source = ""
    if source == source:  # NaN is a missing number
        own_source = normalise(str(source))
    document = make_document(text, doc_id, own_source or _source_of(record.origin))
    reason = "empty" if document is None else ""
    return ParsedRecord(record, reason, "", document)


def _find_text(fields: dict[str, Any], inputs: Inputs) -> tuple[str, str]:
    """Return the text of the first field that there is, and the problem if it is none."""
    for name in inputs.text_field:
        text = field_at(fields, name)
        if text is MISSING:
            continue
        if isinstance(text, str):
            return text, ""
        return "", f"the field {name!r} must be text, got {type(text).__name__}"
    names = " or ".join(inputs.text_field)
    remedy = "name it by --text-field (init: --text), or rename it to text"
    return "", f"the field {names!r} is missing; available: {_names(fields)}; {remedy}"


def _find_id(fields: dict[str, Any], inputs: Inputs) -> tuple[str, str]:
    """Return the id, empty if the record has none and needs none, and the problem with it."""
    if inputs.id_field:
        value = field_at(fields, inputs.id_field)
        if value is MISSING or value in (None, ""):
            problem = f"the field {inputs.id_field!r} is missing or empty"
            return "", f"{problem}; available: {_names(fields)}; set --id-field"
    else:
        value = fields.get("id", fields.get("doc_id"))
    if value is None:
        return "", ""
    is_number = isinstance(value, int) or (isinstance(value, float) and isfinite(value))
    if not isinstance(value, str) and not is_number:
        return "", f"the id must be text or a number, got {str(value)[:40]!r}"
    return str(value), ""


@lru_cache(maxsize=1)
def _source_of(origin: str) -> str:
    """Return the source of records that name none: their data set, or the stem of their file."""
    if is_hub(origin):
        return origin
    return normalise(stem(Path(origin)))


def _names(fields: dict[str, Any]) -> str:
    # JSON may hold lone surrogates.
    return ", ".join(map(str, fields)).encode("utf-8", "backslashreplace").decode()
