"""Define the records of input files and the settings that turn them into documents."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from dana.core.errors import SettingError
from dana.core.settings import OneOf, settings_model

LAYOUTS = ("auto", "line", "paragraph", "file")
MISSING = object()
SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}  # character to name


def field_at(fields: dict[str, Any], name: str) -> Any:
    """Look up a field by name, or by the path through nested ones (``meta.title``).

    Returns:
        Its value; MISSING if there is no such field.
    """
    if name in fields:
        return fields[name]
    first, dot, path_inside = name.partition(".")
    if not dot or not isinstance(fields.get(first), dict):
        return MISSING
    return field_at(fields[first], path_inside)


@dataclass(frozen=True)
class Record:
    """One record, good or bad.

    Attributes:
        origin: File or data set that it is from.
        line: Line or row, from 1.
        fields: Its values by name; empty for a bad record.
        problem: Why it cannot be read; empty for a good record.
        rest_lost: Whether the rest of the file cannot be read either.
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
        """True if it is plain text, which has no fields to choose from."""
        return self.kind in ("line", "paragraph", "file")

    def get(self, name: str) -> Any:
        """Return a field's value (see :func:`field_at`), or None if there is none."""
        value = field_at(self.fields, name)
        return None if value is MISSING else value

    @property
    def location(self) -> str:
        """Position in its file, ``file:line``."""
        return f"{self.origin}:{self.line}"


@settings_model
class Inputs:
    """How files are read: fields of records, what a text of a ``.txt`` file is, form of tables.

    Names of fields may have dots for nested ones: ``meta.title``.
    """

    text_field: list[str] = field(default_factory=lambda: ["text"])
    """Fields that may hold the text; the first that a record has is used."""
    id_field: str | None = None
    """Field with the document's id, which every record must have; null uses id or doc_id where
    there is one."""
    text_documents: Annotated[str, OneOf(LAYOUTS)] = "auto"
    """Document of a .txt file: line, paragraph, file, or auto: paragraphs where blank lines divide
    the text at least every 20 lines or so, else lines."""
    encoding: str | None = None
    """Encoding of the text; null is UTF-8 or what the byte-order mark says, and cp1252 for lines
    that are neither."""
    separator: str | None = None
    """Character between the cells of a table, or its name: comma, tab, semicolon, bar; null finds
    one of these."""
    quotes: bool | None = None
    """Whether quotation marks enclose cells of a table; null looks."""
    header: bool | None = None
    """Whether the first row of a table names its columns, which else are 1, 2 and so on; null
    looks."""
    skip_lines: int | None = None
    """Lines before the header of a table that are no rows; null looks."""

    def __post_init__(self) -> None:
        if not self.text_field or not all(name.strip() for name in self.text_field):
            raise SettingError("text_field", self.text_field, "one or more field names")
        if self.id_field is not None and not self.id_field.strip():
            raise SettingError("id_field", self.id_field, "a field name")
        if self.encoding is not None and not _is_encoding(self.encoding):
            raise SettingError("encoding", self.encoding, "an encoding, such as utf-8 or cp1251")
        if self.separator is not None and not _is_separator(self.separator):
            raise SettingError(
                "separator", self.separator, "comma, tab, semicolon, bar or a character"
            )
        if self.skip_lines is not None and self.skip_lines < 0:
            raise SettingError("skip_lines", self.skip_lines, "at least 0")

    @property
    def mark(self) -> str | None:
        """The character between the cells of a table, if it is said."""
        if self.separator is None:
            return None
        mark_of_name = {name: mark for mark, name in SEPARATORS.items()}
        return mark_of_name.get(self.separator, self.separator)

    def identity(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, for a fingerprint."""
        defaults = asdict(Inputs())
        changes = {key: value for key, value in asdict(self).items() if value != defaults[key]}
        return {"inputs": changes} if changes else {}


def _is_encoding(name: str) -> bool:
    """Return whether Python decodes text of this name."""
    try:
        return isinstance(b"a\n".decode(name, "replace"), str)
    except (LookupError, ValueError):
        return False


def _is_separator(mark: str) -> bool:
    return mark in SEPARATORS.values() or (len(mark) == 1 and mark not in '"\r\n')
