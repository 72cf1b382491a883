"""Read the description and the default of a setting from its dataclass, for its line in ``--help``."""

import inspect
import re
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints


@dataclass(frozen=True)
class SettingDoc:
    """What the dataclass of a setting says of it.

    Attributes:
        text: Its description in plain text, in one line.
        default: Its default value.
    """

    text: str
    default: Any


def setting_doc(key: str) -> SettingDoc:
    """Description and default of a setting.

    Args:
        key: Its full name, for example ``adapt.execution.layout``.

    Raises:
        KeyError: If there is none of this name.
    """
    from dana.stages.settings import RunSettings

    *sections, name = key.split(".")
    settings: Any = RunSettings
    for section in sections:
        kind = get_type_hints(settings)[section]
        settings = next(part for part in (kind, *get_args(kind)) if is_dataclass(part))  # of an optional section, too
    setting = {item.name: item for item in fields(settings)}[name]
    texts = [_attributes(one).get(name, "") for one in settings.__mro__]  # a subclass may change the default alone
    return SettingDoc(next(filter(None, texts), ""), _default(setting))


def _default(setting: Field) -> Any:
    return setting.default if setting.default_factory is MISSING else setting.default_factory()


def _attributes(cls: type) -> dict[str, str]:
    """Name to text of a docstring's ``Attributes`` section, without markup."""
    section = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
    entries = re.split(r"^    (\w+): ", section, flags=re.MULTILINE)[1:]
    return {name: _plain(text) for name, text in zip(entries[::2], entries[1::2], strict=True)}


def _plain(text: str) -> str:
    """Without the markup of docstrings: ``code`` and :roles:."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"\1", " ".join(text.split()))
    return text.replace("``", "").rstrip(".")
