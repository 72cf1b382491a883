"""Records of input files, and the settings by which they become documents: fields and layout of plain text."""

from dataclasses import asdict, dataclass, field
from typing import Any

from dana.core.config import require

LAYOUTS = ("auto", "line", "paragraph", "file")
MISSING = object()


def field_at(fields: dict[str, Any], name: str) -> Any:
    """A field's value by name, or by the way to it through nested ones (``meta.title``); MISSING if there is none."""
    if name in fields:
        return fields[name]
    first, dot, rest = name.partition(".")
    inner = fields.get(first) if dot else None
    return field_at(inner, rest) if isinstance(inner, dict) else MISSING


@dataclass(frozen=True)
class Record:
    """One record, good or bad.

    Attributes:
        origin: File or dataset it came from.
        line: Line or row, from 1.
        fields: What it holds; empty for a bad record.
        problem: Why it cannot be read; empty for a good one.
        rest_lost: Whether nothing after it in the file can be read either.
        kind: ``line``, ``paragraph`` or ``file`` of plain text, ``row`` of a CSV; empty for others.
    """

    origin: str
    line: int
    fields: dict[str, Any]
    problem: str = ""
    rest_lost: bool = False
    kind: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it is plain text, which has no fields to choose from."""
        return self.kind in ("line", "paragraph", "file")

    def get(self, name: str) -> Any:
        """A field's value, see :func:`field_at`; None if there is none."""
        value = field_at(self.fields, name)
        return None if value is MISSING else value

    @property
    def location(self) -> str:
        """Position in its file, ``file:line``."""
        return f"{self.origin}:{self.line}"


@dataclass(frozen=True)
class Inputs:
    """Fields of records and layout of plain text. Names of fields may have dots for nested ones: ``meta.title``.

    Attributes:
        text_field: Fields that may hold the text: the first of them that a record has.
        id_field: Field that names a document, which every record must have; null takes ``id`` or ``doc_id`` where
            there is one.
        text_documents: What a document of a ``.txt`` file is: ``line``, ``paragraph``, ``file``, or ``auto``:
            paragraphs where blank lines part the text at least every 20 lines or so, else lines.
    """

    text_field: list[str] = field(default_factory=lambda: ["text"])
    id_field: str | None = None
    text_documents: str = "auto"

    def __post_init__(self) -> None:
        named = bool(self.text_field) and all(name.strip() for name in self.text_field)
        require(named, "text_field", self.text_field, "one or more names of fields")
        require(self.id_field is None or bool(self.id_field.strip()), "id_field", self.id_field, "a field's name")
        require(self.text_documents in LAYOUTS, "text_documents", self.text_documents, f"one of {', '.join(LAYOUTS)}")

    def identity(self) -> dict[str, Any]:
        """What a fingerprint depends on: the settings that are not the default; empty without such."""
        usual = asdict(Inputs())
        given = {key: value for key, value in asdict(self).items() if value != usual[key]}
        return {"inputs": given} if given else {}
