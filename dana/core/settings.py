"""Define settings as typed models.

Type, range, choices, default and help of a setting stand once, in its field. A group of settings is
a class under :func:`settings_model`, a frozen dataclass that pydantic checks. The string below a
field is its help, for ``--help`` and the reference page. YAML, flags and keywords of Python all go
through :func:`load` or the class itself, so that a wrong value gives the same message everywhere.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import pydantic.dataclasses
from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import (
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, core_schema

from dana.core.config import assign, parse_yaml
from dana.core.errors import ConfigError, SettingError, suggestion

S = TypeVar("S")

Int = StrictInt  # without Strict, pydantic takes "3", 3.0 and true for 3
Float = StrictFloat
Bool = StrictBool
Count = Annotated[Int, Field(ge=1)]
CountOrZero = Annotated[Int, Field(ge=0)]
Positive = Annotated[Float, Field(gt=0)]
Share = Annotated[Float, Field(gt=0, le=1)]
Rate = Annotated[Float, Field(ge=0, lt=1)]

CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
UNIONS = (UnionType, Union)
KINDS = {
    int: "a whole number",
    float: "a finite number",
    str: "text",
    bool: "true or false",
    NoneType: "null",
    Any: "any value",
}
UNWRITABLE = re.compile("[\0\ud800-\udfff]")  # in no path and no file
PLAIN = (int, float, str, bool, NoneType)
# Kinds of pydantic's errors that range_of explains.
OUT_OF_RANGE = re.compile("greater_than|less_than|too_short|too_long|literal_error")


@dataclass(frozen=True)
class OneOf:
    """Restrict a field of text to some values: ``Annotated[str, OneOf(NAMES)]``."""

    names: Sequence[str]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        """Return the schema; pydantic calls this."""
        return core_schema.literal_schema(list(self.names))


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def settings_model(cls: type[S]) -> type[S]:
    """Make a class a group of settings: a frozen dataclass whose values are checked.

    Its ``__post_init__`` checks what concerns several fields, and raises
    :class:`~dana.core.errors.SettingError`. A wrong value is a ConfigError with the field's full
    name, the value, and what is allowed.
    """
    parameters = getattr(cls, "__dataclass_params__", None)  # of a plug-in's plain dataclass
    frozen = parameters is None or parameters.frozen
    model: Any = pydantic.dataclasses.dataclass(cls, frozen=frozen, config=CONFIG)
    validate = model.__init__

    names = [item.name for item in dataclasses.fields(model) if item.init]

    @functools.wraps(validate)
    def check(self: Any, *arguments: Any, **keywords: Any) -> None:
        positional = dict(zip(names, arguments, strict=False))  # by key, which errors name
        if len(arguments) > len(names):
            count = f"takes {len(names)} positional arguments but {len(arguments)} were given"
            raise TypeError(f"{model.__name__}() {count}")
        for name in positional:
            if name in keywords:
                raise TypeError(f"{model.__name__}() got multiple values for argument {name!r}")
        values = {**positional, **keywords}
        try:
            validate(self, **values)
        except ValidationError as error:
            raise ConfigError(explain(error, model, values)) from error

    model.__init__ = check
    return cast(type[S], model)


def load(
    cls: type[S], values: Mapping[str, Any], overrides: Sequence[str] = (), origin: str = "settings"
) -> S:
    """Build settings, nested ones included, from plain values.

    Args:
        cls: The class of the settings.
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
        path = key.split(".")
        is_text = _is_text(cls, path)
        # As YAML, * begins an alias, and of single characters only ~ is a value. As text, *.txt is a
        # glob, and a comma a separator.
        is_no_yaml = text.startswith("*") or (len(text) == 1 and text != "~")
        if is_text and is_no_yaml:
            assign(result, path, text, override)
            continue
        value = parse_yaml(text, repr(override[:60]))
        is_other = value is not None and not isinstance(value, str)
        if is_text and is_other:
            value = text  # 2024 is a folder's name, too
        assign(result, path, value, override)
    try:
        return build(cls, result)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error


def build(cls: type[S], values: Any, prefix: str = "") -> S:
    """Build settings from plain values; `prefix` goes before their keys in messages.

    Raises:
        ConfigError: If a key is unknown or a value is not allowed.
    """
    try:
        texts = list(_texts(values, prefix.rstrip(".")))
    except RecursionError as error:
        raise ConfigError(
            "a value holds itself: remove the alias in YAML (*) that names it"
        ) from error
    for key, value in texts:
        if UNWRITABLE.search(value):
            raise SettingError(key, value, "text that a file can hold")
    try:
        return cast(S, _adapter(cast(Any, cls)).validate_python(values))
    except ValidationError as error:
        raise ConfigError(explain(error, cls, values, prefix)) from error


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what checks values of a type; a group of settings has its own configuration."""
    if isinstance(kind, type) and is_dataclass(kind):
        return TypeAdapter(kind)
    return TypeAdapter(kind, config=CONFIG)


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield every text in plain values with its key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, key)


def is_plain(hint: Any) -> bool:
    """Return True for a number, a text, a truth value, null, or a choice of these."""
    return all(part in PLAIN for part in _alternatives(hint))


def check_value(hint: Any, value: Any, key: str) -> None:
    """Refuse a value that is not of the type hint, without conversion.

    Raises:
        ConfigError: Names key, value and the allowed types.
    """
    try:
        _adapter(hint).validate_python(value, strict=True)
    except ValidationError as error:
        raise ConfigError(f"{key}={_in_yaml(value)}: must be {kind_of(hint)}") from error


def _in_yaml(value: Any) -> str:
    """Write a value for a message."""
    return "null" if value is None else repr(value)


def hints_of(cls: type) -> dict[str, Any]:
    """Return the types of a group's keys, with their ranges.

    A class adds sections by ``more_sections``.
    """
    hints = get_type_hints(cls, include_extras=True)
    keys = {item.name: hints[item.name] for item in dataclasses.fields(cls) if item.repr}
    more_sections = getattr(cls, "more_sections", dict)
    return keys | more_sections()


def section_in(hint: Any) -> type | None:
    """Return the group of settings that a type is, or is a list of, or may be None instead of."""
    if get_origin(hint) is Annotated:
        return section_in(get_args(hint)[0])
    if get_origin(hint) in (*UNIONS, list):
        return next(filter(None, map(section_in, get_args(hint))), None)
    if isinstance(hint, type) and is_dataclass(hint):
        return hint
    return None


def takes_list(hint: Any) -> bool:
    """Return True if a setting is a list, and nothing else."""
    return get_origin(_plain(hint)) is list


@dataclass(frozen=True)
class Setting:
    """A field of a group of settings.

    Attributes:
        hint: Its type, with the range.
        help: What it is, in one line.
        default: Its default; MISSING of dataclasses if it has none.
    """

    hint: Any
    help: str
    default: Any


def setting_of(cls: type, name: str) -> Setting:
    """Look up a field of a group of settings.

    Raises:
        KeyError: If it has no such field.
    """
    hint = hints_of(cls)[name]
    own = {item.name: item for item in dataclasses.fields(cls)}
    if name not in own:  # a further section
        return Setting(hint, "", None)
    default = own[name].default
    factory = own[name].default_factory
    if factory is not dataclasses.MISSING:
        default = factory()
    return Setting(hint, _help_of(cls, name), default)


def _help_of(cls: type, name: str) -> str:
    """Return the string below a field in one line.

    It is that of the nearest class with one: a subclass may change only the default.
    """
    for model in cls.__mro__:
        fields = getattr(model, "__pydantic_fields__", {})
        if name in fields and fields[name].description:
            return " ".join(fields[name].description.split()).rstrip(".")
    return ""


def find_setting(cls: type, key: str) -> Setting:
    """Look up a setting by its full name, for example ``adapt.execution.layout``.

    Raises:
        KeyError: If it does not exist.
    """
    *sections, name = key.split(".")
    model = cls
    for section in sections:
        inner = section_in(hints_of(model)[section])
        if inner is None:
            raise KeyError(key)
        model = inner
    return setting_of(model, name)


def _is_text(cls: type, path: Sequence[str]) -> bool:
    """Return True if a setting is text, or null, whatever YAML makes of it."""
    try:
        hint = find_setting(cls, ".".join(path)).hint
    except KeyError:
        return False
    kinds = {_plain(part) for part in _alternatives(hint)}
    return str in kinds <= {str, NoneType}


def _alternatives(hint: Any) -> list[Any]:
    """Return the types of a union; of another type itself."""
    return list(get_args(hint)) if get_origin(hint) in UNIONS else [hint]


def _plain(hint: Any) -> Any:
    """Return a type without its range."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def kind_of(hint: Any) -> str:
    """Describe a type in words, without its range: ``a whole number or null``."""
    names = []
    for part in map(_plain, _alternatives(hint)):
        if get_origin(part) is Literal:
            names.append(", ".join(map(str, get_args(part))))
        elif get_origin(part) is list:
            names.append(f"a list, each {kind_of(get_args(part)[0])}")
        elif get_origin(part) is dict:
            names.append(f"a mapping to {kind_of(get_args(part)[1])}")
        elif is_dataclass(part):
            names.append("a mapping of settings")
        else:
            names.append(str(KINDS.get(part) or getattr(part, "__name__", part)))
    return " or ".join(names)


def range_of(hint: Any) -> str:
    """Describe the range or the choices of a type: ``from 1 to 9``, ``in (0, 1], or null``.

    The description is empty if all values are allowed.
    """
    parts = _alternatives(hint)
    if not any(map(_range, parts)):
        return ""
    return ", or ".join(_range(part) or kind_of(part) for part in parts)


def _range(hint: Any) -> str:
    """Describe the range of a type that is no union."""
    plain = _plain(hint)
    if get_origin(plain) is Literal:
        return kind_of(plain)
    limits: dict[type, Any] = {}
    for item in _restrictions(hint):
        if isinstance(item, OneOf):
            return f"one of {', '.join(item.names)}"
        limits[type(item)] = item
    if get_origin(plain) is list:
        return _range_of_list(limits, get_args(plain)[0])
    if plain is str:
        return "not empty" if MinLen in limits else ""
    if limits.keys() & {Ge, Gt, Le, Lt}:
        return _interval(limits, plain)
    return ""


def _range_of_list(limits: dict[type, Any], item: Any) -> str:
    """Describe the lengths of a list and the range of its items; empty if all are allowed."""
    least = limits[MinLen].min_length if MinLen in limits else 0
    item_range = range_of(item)
    if not item_range and not least:
        return ""
    length = ""
    if MaxLen in limits:
        length = f" of {least}"
    elif least:
        length = f" of at least {least}"
    return f"a list{length}, each {item_range or kind_of(item)}"


def _restrictions(hint: Any) -> Iterator[Any]:
    """Yield the restrictions of a type: limits and choices."""
    if get_origin(hint) is not Annotated:
        return
    for item in get_args(hint)[1:]:
        if isinstance(item, FieldInfo):
            yield from item.metadata
        else:
            yield item


def _interval(limits: dict[type, Any], kind: Any) -> str:
    """Describe an interval of numbers, of which at least one end is limited."""
    low = None
    high = None
    if Ge in limits:
        low = limits[Ge].ge
    elif Gt in limits:
        low = limits[Gt].gt
    if Le in limits:
        high = limits[Le].le
    elif Lt in limits:
        high = limits[Lt].lt
    if high is None:
        return f"above {low}" if Gt in limits else f"at least {low}"
    if low is None:
        return f"below {high}" if Lt in limits else f"at most {high}"
    if kind is int:
        largest = high - 1 if Lt in limits else high
        return f"from {low} to {_short(largest)}"
    left = "(" if Gt in limits else "["
    right = ")" if Lt in limits else "]"
    return f"in {left}{low}, {high}{right}"


def _short(number: int) -> str:
    """Write a large power of ten as 1e15."""
    zeros = len(str(number)) - 1
    if number == 10**zeros and zeros > 6:
        return f"1e{zeros}"
    return str(number)


def explain(error: ValidationError, cls: type, values: Any, prefix: str = "") -> str:
    """Describe the first problem of a validation in one line.

    It has the full key, the value, and what is allowed.

    Args:
        error: The error of pydantic.
        cls: Class of the settings.
        values: What it was given.
        prefix: Section in which the settings stand, with a dot.
    """
    problems = error.errors(include_url=False, include_input=False)
    unknown = [detail for detail in problems if detail["type"] == "unexpected_keyword_argument"]
    problem = (unknown or problems)[0]
    # Of the innermost setting on the way:
    key = prefix
    model = cls
    hint: Any = Any
    depth = 0
    for part in problem["loc"]:
        if isinstance(part, int) and section_in(hint) and isinstance(values, list | tuple):
            key = f"{key.rstrip('.')}[{part}]."
            values = values[part]
            hint = model  # that of one element
        elif isinstance(part, str) and part in hints_of(model) and not _is_leaf(hint):
            hint = hints_of(model)[part]
            model = section_in(hint) or model
            key = f"{key}{part}."
            values = _value_at(values, part)
        else:
            break
        depth += 1
    place = problem["loc"][:depth]
    kinds = [detail["type"] for detail in problems if detail["loc"][:depth] == place]
    allowed = ""
    if any(map(OUT_OF_RANGE.search, kinds)):
        allowed = range_of(hint)
    return _message(problem, key, model, allowed or kind_of(hint), values)


def _value_at(values: Any, name: str) -> Any:
    """Return a value of a mapping or an object; None if it has none of this name."""
    if isinstance(values, Mapping):
        return values.get(name)
    return getattr(values, name, None)


def _is_leaf(hint: Any) -> bool:
    """Return whether a type is known and no group of settings."""
    return hint is not Any and section_in(hint) is None


def _message(problem: ErrorDetails, key: str, model: type, allowed: str, value: Any) -> str:
    """Describe a problem.

    Args:
        problem: The problem, as pydantic has it.
        key: Full key of the setting, with a dot at its end.
        model: The innermost group of settings on the way to it.
        allowed: What is allowed.
        value: What it was given.
    """
    cause = problem.get("ctx", {}).get("error")
    if problem["type"] == "unexpected_keyword_argument":
        last = str(problem["loc"][-1]) if problem["loc"] else ""
        return unknown_key(f"{key}{last}", last, hints_of(model))
    if problem["type"] == "missing":
        return f"the key {key.rstrip('.')!r} is missing; add it"
    if isinstance(cause, SettingError):  # names a key without its section
        is_own = re.split(r"[.\[]", cause.key)[0] in hints_of(model)
        return f"{key}{cause}" if is_own else str(cause)
    if cause is not None:  # a ValueError of a class's own check, which names no key
        return f"{key.rstrip('.')}: {cause}".removeprefix(": ")
    return f"{key.rstrip('.')}={_in_yaml(value)}: must be {allowed}"


def unknown_key(key: str, name: str, available: Mapping[str, Any]) -> str:
    """Describe an unknown key with the nearest name; `name` is the key without its section."""
    return f"unknown key {key!r}{suggestion(name, available)}"
