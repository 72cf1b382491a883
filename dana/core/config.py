"""Settings: frozen dataclasses filled from typed YAML and ``key=value`` overrides, checked before any work.

A settings class checks its own fields in ``__post_init__`` with :func:`require`, so a bad value fails in the
same words from YAML, the command line and Python.
"""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from dana.core.errors import ArtifactError, ConfigError, nearest, nearest_path

S = TypeVar("S")
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
    from jsonargparse import ArgumentError

    parser = _parser(cls)  # type: ignore[arg-type]  # mypy takes classes for unhashable
    merged = {key: value for key, value in values.items()}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"{override!r}: an override is written key=value")
        _assign(merged, key.split("."), _value(text, override), override)
    _reject_unknown(cls, merged, origin)
    instantiate = getattr(parser, "instantiate", None) or parser.instantiate_classes  # its name until 4.49
    try:
        settings = instantiate(parser.parse_object({"settings": merged})).settings
        _reject_not_finite(settings)
        return settings
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error
    except (ArgumentError, ValueError, TypeError) as error:
        raise ConfigError(f"{origin}: {_in_one_line(str(error))}") from error


@cache
def _parser(cls: type) -> Any:
    """What jsonargparse needs to know of a class, which takes it 0.07 s for the settings of a run."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--settings", type=cls)
    return parser


def _reject_not_finite(settings: Any, where: str = "") -> None:
    """No setting is "not a number", which would pass every comparison that does not expect it, or without end."""
    from dataclasses import fields, is_dataclass
    from math import isfinite

    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(value):
            _reject_not_finite(value, f"{where}{field.name}.")
        require(not isinstance(value, float) or isfinite(value), f"{where}{field.name}", value, "a finite number")


def _in_one_line(message: str) -> str:
    """What jsonargparse says of a value of the wrong type, in our words."""
    import re

    text = " ".join(message.replace("settings.", "").split())
    key = re.search(r'Parser key "([^"]+)"', text)
    found = re.search(r"(?:Given value:|Got value:) (.*)$", text)
    types = re.findall(r"Expected a <class '(\w+)'>", text)
    if key and found and types:
        allowed = " or ".join({"NoneType": "null", "str": "text"}.get(name, name) for name in dict.fromkeys(types))
        return f"{key[1]}={found[1]!r}: must be {allowed}"
    return text


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


def _reject_unknown(cls: type, values: dict[str, Any], origin: str, where: str = "") -> None:
    """Unknown keys fail with the nearest known one, before jsonargparse would say less."""
    from dataclasses import fields, is_dataclass
    from types import UnionType
    from typing import get_args, get_origin, get_type_hints

    from dana.core.errors import suggestion

    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    hints = get_type_hints(cls)
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"{origin}: unknown key {where + str(key)!r}{suggestion(str(key), known)}")
        if value is None and not _may_be_null(hints[key]):
            kinds = [kind] if (kind := get_origin(hints[key]) or hints[key]) is not UnionType else get_args(hints[key])
            names = [getattr(get_origin(kind) or kind, "__name__", str(kind)) for kind in kinds]
            allowed = " or ".join("text" if name == "str" else name for name in names)
            raise ConfigError(f"{origin}: {where}{key}=null: must be {allowed}")
        section = next((kind for kind in get_args(hints[key]) if is_dataclass(kind)), None)
        if section is not None and isinstance(value, dict):  # of an optional section jsonargparse would say less
            load(section, value, origin=f"{origin}: {where}{key}")  # type: ignore[arg-type]
        if not is_dataclass(hints[key]):
            continue
        if not isinstance(value, dict):
            raise ConfigError(f"{origin}: {where}{key}={value!r}: must be a mapping of settings")
        _reject_unknown(hints[key], value, origin, f"{where}{key}.")  # type: ignore[arg-type]


def _may_be_null(hint: Any) -> bool:
    """Whether a setting may be null, or is a section, of which more is said elsewhere."""
    from dataclasses import is_dataclass
    from typing import get_args

    return hint is Any or type(None) in get_args(hint) or is_dataclass(hint)


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
