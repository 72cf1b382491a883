"""Settings: frozen dataclasses filled from typed YAML and ``key=value`` overrides, checked before any work.

A settings class checks its own fields in ``__post_init__`` with :func:`require`, so a bad value fails in the
same words from YAML, the command line and Python.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from dana.core.errors import ArtifactError, ConfigError, nearest, nearest_path, suggestion

S = TypeVar("S")
UNIONS = (UnionType, Union)
KINDS = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false", NoneType: "null"}
SETTINGS = "settings.yaml"  # in a run's folder: what its commands were told that differs from the defaults


def require(holds: bool, key: str, value: Any, allowed: str) -> None:
    """Raise a ConfigError that names the key, its value and what is allowed, unless the claim holds."""
    if not holds:
        raise ConfigError(f"{key}={value!r}: must be {allowed}")


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping.

    Raises:
        ConfigError: If the file is missing, is not YAML (with line), or holds no mapping.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file{nearest_path(path)}")
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: not YAML: {getattr(error, 'problem', error)}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: must hold a mapping of keys to values, found {type(value).__name__}")
    return value


def merge_sections(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Two mappings in one, section by section; where both have a value, `over`'s."""
    both = dict(under)
    for key, value in over.items():
        into = both.get(key)
        both[key] = merge_sections(into, value) if isinstance(into, dict) and isinstance(value, dict) else value
    return both


def load(cls: type[S], values: dict[str, Any], overrides: Sequence[str] = (), origin: str = "settings") -> S:
    """Build a settings dataclass, nested ones included, from plain values.

    Args:
        cls: The dataclass.
        values: What the YAML says.
        overrides: ``key=value`` with dots for nesting; values are read as YAML.
        origin: Where the values came from, for error messages.

    Raises:
        ConfigError: Naming the origin, the key, what was found and what is allowed.
    """
    merged = dict(values)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"{override!r}: an override is written key=value")
        _assign(merged, key.split("."), _value(text, override), override)
    try:
        return _filled(cls, merged, "")
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error


def _value(text: str, override: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{override!r}: the value is not YAML: {getattr(error, 'problem', error)}") from error


def _assign(target: dict[str, Any], path: list[str], value: Any, override: str) -> None:
    for key in path[:-1]:
        if not isinstance(target.get(key) or {}, dict):
            raise ConfigError(f"{override!r}: {key!r} holds {target[key]!r}, not a mapping of settings")
        target[key] = dict(target.get(key) or {})
        target = target[key]
    target[path[-1]] = value


def _filled(cls: type[S], values: dict[str, Any], where: str) -> S:
    """A settings dataclass of plain values; `where` stands before the names of its keys."""
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise ConfigError(f"unknown key {where + str(key)!r}{suggestion(str(key), known)}")
    for key, field in known.items():
        if key not in values and field.default is field.default_factory:  # neither is there
            raise ConfigError(f"the key {where + key!r} is missing")
    hints = get_type_hints(cls)
    return cls(**{key: typed(hints[key], value, where + key) for key, value in values.items()})


def typed(hint: Any, value: Any, key: str) -> Any:
    """A plain value as a field with this type hint holds it: of a section its dataclass, of a whole number a float.

    Raises:
        ConfigError: Naming the key, the value and what is allowed.
    """
    try:
        return _converted(hint, value, key)
    except (TypeError, ValueError) as error:
        hints = get_args(hint) if get_origin(hint) in UNIONS else (hint,)
        kinds = [get_origin(kind) or kind for kind in hints]
        names = ["a mapping of settings" if is_dataclass(kind) else KINDS.get(kind, kind.__name__) for kind in kinds]
        shown = "null" if value is None else repr(value)
        raise ConfigError(f"{key}={shown}: must be {' or '.join(names)}") from error


def _converted(hint: Any, value: Any, key: str) -> Any:
    """As :func:`typed`; a TypeError or ValueError where the value is of another kind."""
    if get_origin(hint) in UNIONS:
        for kind in get_args(hint):
            with suppress(TypeError, ValueError):
                return _converted(kind, value, key)
        raise TypeError
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if is_dataclass(kind) and isinstance(value, dict):
        return _filled(kind, value, f"{key}.")  # type: ignore[arg-type]
    if kind is list and isinstance(value, list | tuple):
        return [_converted(inner[0], one, key) for one in value]
    if kind is dict and isinstance(value, dict):
        return {_converted(inner[0], name, key): _converted(inner[1], one, key) for name, one in value.items()}
    if kind in (int, float) and isinstance(value, str):  # of a list of the command line; and YAML 1.1 reads 1e-4 so
        value = kind(value)
    if kind is float and not isinstance(value, bool):
        number = float(value)
        if not isfinite(number):  # it would pass every comparison that does not expect it
            raise ValueError
        return number
    if kind is Any or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return value
    raise TypeError


def resource(name: str) -> Path:
    """Where a shipped file or folder lies: the source checkout, or ``share/dana`` of the installation.

    Args:
        name: For example ``tasks`` or ``recipes/quickstart.yaml``.

    Raises:
        ArtifactError: If neither place has it.
    """
    roots = [Path(__file__).parent.parent.parent, Path(sys.prefix) / "share" / "dana"]
    for root in roots:
        if (root / name).exists():
            return root / name
    raise ArtifactError(f"{name}: not shipped with this installation (looked in {', '.join(map(str, roots))})")


def recipe(named: str | Path) -> Path:
    """The YAML of a recipe: a file, or the name of one that ships with dana: ``quickstart``, ``papers/dana/table4``.

    Raises:
        ConfigError: If it is neither; the nearest name is suggested.
    """
    if Path(named).is_file():
        return Path(named)
    root = resource("recipes")
    shipped = {path.relative_to(root).with_suffix("").as_posix(): path for path in sorted(root.rglob("*.yaml"))}
    name = Path(named).as_posix().removeprefix("recipes/").removesuffix(".yaml")
    if name in shipped:
        return shipped[name]
    near = nearest(name, shipped) or nearest_path(named) or "."
    raise ConfigError(f"{named}: no such file, nor a recipe that ships with dana{near} Known: {', '.join(shipped)}.")
