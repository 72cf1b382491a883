"""Settings a run's folder was made with: written to ``settings.yaml`` by a command, read by those after it.

``DIR/settings.yaml`` holds what differs from the defaults, in the form of a recipe. Commands take it up; --config,
flags and key=value override it.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from dana.core.artifacts import canonical, write_text
from dana.core.config import SETTINGS, load, read_yaml
from dana.core.errors import ConfigError
from dana.core.logging import is_main_process
from dana.core.studies import missing_studies
from dana.stages.settings import RunSettings

HEAD = """\
# Settings of this run that differ from the defaults. Later commands take them up; --config and flags override them.
"""
# Of one command, not of the run: where it is, how many cells run side by side, whether a training begins afresh.
MOMENTARY = ("out", "jobs", "pilot", "adapt.execution.resume", "pretrain.execution.resume")

RIVALS = (  # of each set one may be given
    {"adapt.steps", "adapt.tokens", "adapt.epochs"},
    {"adapt.batch_size", "adapt.batch_tokens"},
    {"pretrain.steps", "pretrain.tokens", "pretrain.epochs"},
    {"pretrain.batch_size", "pretrain.batch_tokens"},
    {"weigh.beta", "weigh.budget", "weigh.below"},
)


def remembered(folder: Path) -> dict[str, Any]:
    """The settings a run's folder remembers, but for those of missing studies; empty if there are none.

    Raises:
        ConfigError: If the file is not what :func:`remember` writes.
    """
    path = folder / SETTINGS
    if not path.exists():
        return {}
    values = {key: value for key, value in read_yaml(path).items() if key not in missing_studies()}
    try:
        load(RunSettings, values, origin=str(path))
    except ConfigError as error:
        raise ConfigError(f"{error} (mend or remove this file: it only saves repeating flags)") from error
    return values


def recalled(folder: Path, given: Collection[str]) -> dict[str, Any]:
    """The settings a run's folder remembers, but for those that a setting given now takes the place of.

    Args:
        folder: The run's.
        given: Full names of what is given now.
    """
    memory = remembered(folder)
    for rivals in RIVALS:
        if not rivals.isdisjoint(given):
            for section, _, key in (rival.partition(".") for rival in rivals):
                memory.get(section, {}).pop(key, None)
    return memory


def remember(settings: RunSettings, folder: Path, except_for: Sequence[str] = ()) -> None:
    """Write what differs from the defaults into a run's folder: whole or not at all, by the first process.

    Args:
        settings: Of the command that has just ended well.
        folder: The run's.
        except_for: Keys of which the folder goes on remembering what it did.
    """
    if not is_main_process():
        return
    before = remembered(folder)
    store = settings.selection.store
    asked = "none" if store is None else None if store == settings.usual_store else store
    values = differences(replace(settings, selection=replace(settings.selection, store=asked)), RunSettings())
    for key in except_for:
        values.pop(key, None)
        if key in before:
            values[key] = before[key]
    if values != before:
        file = read_yaml(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
        values |= {key: value for key, value in file.items() if key in missing_studies()}
        text = yaml.safe_dump(json.loads(canonical(values)), sort_keys=False, allow_unicode=True)
        write_text(folder / SETTINGS, HEAD + text)


def differences(value: Any, usual: Any, where: str = "") -> dict[str, Any]:
    """The fields of a settings object that differ from those of another, section by section."""
    found: dict[str, Any] = {}
    for item in fields(value):
        mine, default, key = getattr(value, item.name), getattr(usual, item.name), f"{where}{item.name}"
        if key in MOMENTARY or mine == default:
            continue
        if is_dataclass(mine) and is_dataclass(default):
            if section := differences(mine, default, f"{key}."):
                found[item.name] = section
        else:
            found[item.name] = mine
    return found


def dotted(values: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Nested settings by their full names, such as ``weigh.beta``."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= dotted(value, f"{where}{key}.") if isinstance(value, dict) else {f"{where}{key}": value}
    return found
