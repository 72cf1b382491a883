"""Records of input files, and the settings by which they become documents: fields, layout of plain text, a parser."""

import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from dana.core.config import require
from dana.core.errors import ConfigError, nearest_path
from dana.core.files import file_digest

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
    def place(self) -> str:
        """``file:line``."""
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
            _check_form(self.record_parser)
            alone = self.text_field == ["text"] and self.id_field is None
            allowed = "null beside text_field or id_field, which the function itself looks at"
            require(alone, "record_parser", self.record_parser, allowed)

    @property
    def parser(self) -> "RecordParser | None":
        """The loaded function.

        Raises:
            ConfigError: See :func:`load_parser`.
        """
        return load_parser(self.record_parser) if self.record_parser else None

    def identity(self) -> dict[str, Any]:
        """What a fingerprint depends on: the settings that are not the default; empty without such."""
        usual = asdict(Inputs())
        found = {key: value for key, value in asdict(self).items() if value != usual[key]}
        if self.parser:
            found["record_parser"] = {"function": self.parser.name, "source": self.parser.digest}
        return {"inputs": found} if found else {}


@dataclass(frozen=True)
class RecordParser:
    """A user's function from the fields of a record to ``text``, ``id`` and ``source``, or None.

    Attributes:
        function: Takes a record's fields; gives a mapping with ``text`` and perhaps ``id`` and ``source``, or None.
        name: Its name.
        file: Its module's file.
        digest: Of that file's content, wherever it lies.
    """

    function: Callable[[dict[str, Any]], Any]
    name: str
    file: Path
    digest: str

    def parse(self, fields: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """The fields it makes of a record, None to leave it out; and what went wrong, if anything did."""
        try:
            made = self.function(dict(fields))
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            inside = [frame for frame in frames if frame.filename == str(self.file)] or frames
            return None, f"{self.name} ({self.file}:{inside[-1].lineno}) failed: {type(error).__name__}: {error}"
        if made is None or isinstance(made, Mapping):
            return None if made is None else dict(made), ""
        return None, f"{self.name} ({self.file}) returned {type(made).__name__}, neither a mapping nor None"


def _check_form(spec: str) -> None:
    place, _, name = spec.rpartition(":")
    require(bool(place.strip() and name.strip()), "record_parser", spec, "FILE.py:FUNCTION or MODULE:FUNCTION")


@cache
def load_parser(spec: str) -> RecordParser:
    """Load the function of a spec, ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``.

    Raises:
        ConfigError: Naming what is missing or does not load.
    """
    _check_form(spec)
    place, _, name = spec.rpartition(":")
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else import_module(place)
    except ConfigError:
        raise
    except Exception as error:  # whatever the user's module raises
        line = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{line.filename}:{line.lineno}: " if line.filename.endswith(place) else ""
        raise ConfigError(f"record_parser={spec!r}: {where}{type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"record_parser={spec!r}: {place} has no function {name!r}")
    if not getattr(module, "__file__", None):
        raise ConfigError(f"record_parser={spec!r}: {place} has no file, so a change of it could not be noticed")
    file = Path(str(module.__file__))
    return RecordParser(function, name, file, file_digest(file))


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"record_parser: {path}: no such file{nearest_path(path)}")
    spec = spec_from_file_location(f"_dana_record_parser_{path.stem}", path.resolve())
    assert spec is not None  # a file that ends in .py has one, and a loader
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
