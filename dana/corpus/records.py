"""Records of input files: fields or a problem, with file and line."""

from dataclasses import dataclass
from typing import Any

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
    def place(self) -> str:
        """``file:line``."""
        return f"{self.origin}:{self.line}"
