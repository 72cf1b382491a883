"""Record parser: a user's function from the fields of a record to ``text``, ``id`` and ``source``, or None."""

import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from dana.core.config import require
from dana.core.errors import ConfigError, nearest_path
from dana.core.files import file_digest


@dataclass(frozen=True)
class RecordParser:
    """A loaded function and where it is from.

    Attributes:
        function: Takes a record's fields; gives a mapping with ``text`` and perhaps ``id`` and ``source``, or None.
        name: Its name.
        file: Its module's file.
        digest: Of that file's content.
    """

    function: Callable[[dict[str, Any]], Any]
    name: str
    file: Path
    digest: str

    def identity(self) -> dict[str, str]:
        """What a fingerprint depends on: the function's name and its file's content, wherever it lies."""
        return {"function": self.name, "source": self.digest}

    def parse(self, fields: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """The fields it makes of a record, None to leave it out; and what went wrong, if anything did."""
        try:
            made = self.function(dict(fields))
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if frame.filename == str(self.file)] or frames
            return None, f"{self.name} ({self.file}:{own[-1].lineno}) failed: {type(error).__name__}: {error}"
        if made is None:
            return None, ""
        if not isinstance(made, Mapping):
            return None, f"{self.name} ({self.file}) returned {type(made).__name__}, neither a mapping nor None"
        return dict(made), ""


@cache
def load_parser(spec: str) -> RecordParser:
    """Load the function of a spec.

    Args:
        spec: ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``.

    Raises:
        ConfigError: Naming what is missing or does not load.
    """
    place, colon, name = spec.rpartition(":")
    require(
        bool(colon and place.strip() and name.strip()), "record_parser", spec, "FILE.py:FUNCTION or MODULE:FUNCTION"
    )
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
    name = f"_dana_record_parser_{path.stem}"
    spec = spec_from_file_location(name, path.resolve())
    assert spec is not None  # a file that ends in .py has one, and a loader
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
