"""Fill frozen settings dataclasses from YAML and ``key=value`` overrides, and check every value before any work.

A settings class checks its fields in ``__post_init__`` with :func:`check_fields` and
:func:`require`, so a wrong value gives the same message from YAML, the command line and Python.
"""

import re
from ast import literal_eval
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from math import inf, isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from dana.core.errors import ConfigError, nearest_path, suggestion

S = TypeVar("S")
MERGE = "tag:yaml.org,2002:merge"
UNWRITABLE = re.compile("[\0\ud800-\udfff]")  # in no path and no file
UNIONS = (UnionType, Union)
KINDS = {
    int: "a whole number",
    float: "a finite number",
    str: "text",
    bool: "true or false",
    NoneType: "null",
}
SETTINGS = (
    "settings.yaml"  # in a run's folder: the settings of its commands that differ from the defaults
)


def require(condition: bool, key: str, value: Any, requirement: str) -> None:
    """Raise a ConfigError that names the key, its value and the allowed values, unless the condition holds."""
    if not condition:
        raise ConfigError(f"{key}={value!r}: must be {requirement}")


def check_fields(settings: Any, **ranges: str | Collection[str]) -> None:
    """Refuse values outside the range or the choices of their fields.

    Args:
        settings: Object with the fields.
        ranges: For each field the names to choose from, or a range in words: ``at least 1``,
            ``above 0``, ``from 1 to 9``, ``in [0, 1)``; with ``, or null`` it may be None.

    Raises:
        ConfigError: Names the first wrong field, its value and the allowed values.
    """
    for key, values in ranges.items():
        value = getattr(settings, key)
        if not isinstance(values, str):
            require(value in values, key, value, f"one of {', '.join(values)}")
        elif value is not None or not values.endswith("or null"):
            low, high = [*map(literal_eval, re.findall(r"\d[\d.]*", values)), inf][:2]
            is_above = value > low if re.search(r"above|\(", values) else value >= low
            is_below = value < high if ")" in values else value <= high
            require(is_above and is_below, key, value, values)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping.

    Raises:
        ConfigError: If the file is missing, is not YAML (names the line), or holds no mapping.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file{nearest_path(path)}")
    try:
        value = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(
            f"{path}: must hold a mapping of keys to values, got {type(value).__name__}"
        )
    return value


def parse_yaml(text: str, origin: str) -> Any:
    """Parse YAML of plain values.

    Raises:
        ConfigError: Names the origin, the line where the parser knows it, and the problem.
    """
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except Exception as error:  # dates, numbers, depth and tags raise errors of their own
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark and "\n" in text else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ConfigError(f"{origin}{line}: not YAML: {problem}") from error


class _Loader(yaml.SafeLoader):
    """Refuse a key that comes twice, of which YAML takes the last; read ``1:30`` as text, not as 90."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        tag = super().resolve(kind, value, implicit)
        return (
            "tag:yaml.org,2002:str"
            if str(tag).endswith((":int", ":float")) and ":" in value
            else tag
        )

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = (self.construct_object(key, deep=True) for key, _ in node.value if key.tag != MERGE)
        counts = Counter(
            key for key in keys if isinstance(key, Hashable)
        )  # YAML itself refuses the others
        if twice := [key for key, count in counts.items() if count > 1]:
            raise yaml.MarkedYAMLError(
                problem=f"the key {twice[0]!r} comes twice", problem_mark=node.start_mark
            )
        return super().construct_mapping(node, deep)


def merge_sections(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge two mappings, section by section; values of `over` take precedence."""
    result = dict(under)
    for key, value in over.items():
        section = result.get(key)
        is_nested = isinstance(section, dict) and isinstance(value, dict)
        result[key] = merge_sections(section or {}, value) if is_nested else value
    return result


def load(
    cls: type[S], values: dict[str, Any], overrides: Sequence[str] = (), origin: str = "settings"
) -> S:
    """Build a settings dataclass, nested ones included, from plain values.

    Args:
        cls: The dataclass.
        values: Plain values, as YAML gives them.
        overrides: ``key=value`` with dots for nesting; values are parsed as YAML.
        origin: Source of the values, for messages.

    Raises:
        ConfigError: If a key is unknown or a value is not allowed; names origin, key, value and the
            allowed values.
    """
    result = dict(values)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"{override!r}: must be key=value")
        value, path = parse_yaml(text, repr(override[:60])), key.split(".")
        is_text = value is None or isinstance(value, str) or not _takes_text_alone(cls, path)
        assign(result, path, value if is_text else text, override)  # 2024 is a folder's name, too
    try:
        return _build(cls, result, "")
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error


def _takes_text_alone(cls: Any, path: Sequence[str]) -> bool:
    """Return True if a setting is text, or null, whatever YAML makes of it."""
    for key in path:
        cls = get_type_hints(cls).get(key) if is_dataclass(cls) else None
    kinds = {*(get_args(cls) if get_origin(cls) in UNIONS else [cls])}
    return str in kinds <= {str, NoneType}


def assign(target: dict[str, Any], path: Sequence[str], value: Any, override: str) -> None:
    """Assign a value in nested sections, whose names come first in `path`; `override` is its text for messages."""
    for key in path[:-1]:
        if not isinstance(target.get(key) or {}, dict):
            raise ConfigError(
                f"{override!r}: {key!r} is {target[key]!r}, not a mapping of settings"
            )
        target[key] = dict(target.get(key) or {})
        target = target[key]
    target[path[-1]] = value


def _build(cls: type[S], values: dict[str, Any], prefix: str) -> S:
    """Build a settings dataclass from plain values; `prefix` goes before its keys in messages."""
    by_name = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in by_name:
            raise ConfigError(f"unknown key {prefix + str(key)!r}{suggestion(str(key), by_name)}")
    for key, field in by_name.items():
        if key not in values and field.default is field.default_factory:  # neither is defined
            raise ConfigError(f"the key {prefix + key!r} is missing; add it")
    hints = get_type_hints(cls)
    arguments = {key: convert(hints[key], value, prefix + key) for key, value in values.items()}
    try:
        return cls(**arguments)
    except ConfigError as error:
        start = re.match(
            r"(\w+)[\w.\[\]]*=", str(error)
        )  # a class names its keys without their section
        raise ConfigError(f"{prefix if start and start[1] in by_name else ''}{error}") from error


def convert(hint: Any, value: Any, key: str) -> Any:
    """Convert a plain value to the type of a field: a mapping to its dataclass, an integer to a float.

    Raises:
        ConfigError: If the value is of another type; names key, value and the allowed types.
    """
    try:
        return _convert(hint, value, key)
    except (TypeError, ValueError) as error:
        hints = get_args(hint) if get_origin(hint) in UNIONS else (hint,)
        kinds = [get_origin(kind) or kind for kind in hints]
        names = [
            "a mapping of settings" if is_dataclass(kind) else KINDS.get(kind, kind.__name__)
            for kind in kinds
        ]
        text = "null" if value is None else repr(value)
        raise ConfigError(f"{key}={text}: must be {' or '.join(names)}") from error


def _convert(hint: Any, value: Any, key: str) -> Any:
    """Convert like :func:`convert`, with a TypeError or ValueError for a value of another type."""
    if get_origin(hint) in UNIONS:
        for kind in get_args(hint):
            with suppress(TypeError, ValueError):
                return _convert(kind, value, key)
        raise TypeError
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if is_dataclass(kind) and isinstance(value, dict):
        return _build(kind, value, f"{key}.")  # type: ignore[arg-type]
    if kind is list and isinstance(value, list | tuple):
        step = convert if is_dataclass(inner[0]) else _convert
        return [step(inner[0], one, f"{key}[{index}]") for index, one in enumerate(value)]
    if kind is dict and isinstance(value, dict):
        return {
            _convert(inner[0], name, key): _convert(inner[1], one, key)
            for name, one in value.items()
        }
    if kind in (int, float) and isinstance(
        value, str
    ):  # from the command line; and YAML 1.1 reads 1e-4 as text
        value = kind(value)
    if kind is float and not isinstance(value, bool):
        number = float(value)
        if not isfinite(number):  # NaN would pass range checks
            raise ValueError
        return number
    is_writable = not isinstance(value, str) or not UNWRITABLE.search(value)
    if kind is Any or (
        isinstance(value, kind) and is_writable and (kind is bool or not isinstance(value, bool))
    ):
        return value
    raise TypeError
