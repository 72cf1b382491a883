"""Settings of how records become documents, shared by the general text and plain task text."""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from dana.core.config import require

if TYPE_CHECKING:
    from dana.corpus.record_parser import RecordParser

LAYOUTS = ("auto", "line", "paragraph", "file")


@dataclass(frozen=True)
class Inputs:
    """Fields of records and layout of plain text. Names of fields may have dots for nested ones: ``meta.title``.

    Attributes:
        text_field: Fields that may hold the text: the first of them that a record has.
        id_field: Field that names a document, which every record must have; null takes ``id`` or ``doc_id`` where
            there is one.
        text_documents: What a document of a ``.txt`` file is: ``line``, ``paragraph``, ``file``, or ``auto``:
            paragraphs where blank lines part the text at least every 20 lines or so, else lines.
        record_parser: ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``: makes ``text``, ``id`` and ``source`` of a record.
    """

    text_field: list[str] = field(default_factory=lambda: ["text"])
    id_field: str | None = None
    text_documents: str = "auto"
    record_parser: str | None = None

    def __post_init__(self) -> None:
        named = bool(self.text_field) and all(name.strip() for name in self.text_field)
        require(named, "text_field", self.text_field, "one or more names of fields")
        require(self.id_field is None or bool(self.id_field.strip()), "id_field", self.id_field, "a field's name")
        require(self.text_documents in LAYOUTS, "text_documents", self.text_documents, f"one of {', '.join(LAYOUTS)}")
        if self.record_parser is not None:
            require(
                ":" in self.record_parser, "record_parser", self.record_parser, "FILE.py:FUNCTION or MODULE:FUNCTION"
            )
            alone = self.text_field == ["text"] and self.id_field is None
            allowed = "null beside text_field or id_field, which the function itself looks at"
            require(alone, "record_parser", self.record_parser, allowed)

    @property
    def parser(self) -> "RecordParser | None":
        """The loaded function.

        Raises:
            ConfigError: See :func:`dana.corpus.record_parser.load_parser`.
        """
        from dana.corpus.record_parser import load_parser

        return load_parser(self.record_parser) if self.record_parser else None

    def identity(self) -> dict[str, Any]:
        """What a fingerprint depends on: the settings that are not the default; empty without such."""
        usual = asdict(Inputs())
        found = {key: value for key, value in asdict(self).items() if value != usual[key]}
        if self.parser:
            found["record_parser"] = self.parser.identity()
        return {"inputs": found} if found else {}
