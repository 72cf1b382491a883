"""Settings a run's folder was made with: written to ``settings.yaml`` by a command, read by those after it.

``DIR/settings.yaml`` holds what differs from the defaults, in the form of a recipe. Commands take it up; --config,
flags and key=value override it.
"""

import json
from collections.abc import Collection, Iterator
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
MOMENTARY = ("out", "jobs", "adapt.execution.resume", "pretrain.execution.resume")

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


def remember(settings: RunSettings, folder: Path) -> None:
    """Write what differs from the defaults into a run's folder: whole or not at all, by the first process.

    Args:
        settings: Of the command that has just ended well.
        folder: The run's.
    """
    if not is_main_process():
        return
    store = settings.selection.store
    asked = "none" if store is None else None if store == settings.usual_store else store
    settings = replace(settings, selection=replace(settings.selection, store=asked))
    values: dict[str, Any] = {}
    for name, value in differences(settings, RunSettings()).items():
        *sections, key = name.split(".")
        inner = values
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[key] = value
    if values != remembered(folder):
        file = read_yaml(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
        values |= {key: value for key, value in file.items() if key in missing_studies()}
        text = yaml.safe_dump(json.loads(canonical(values)), sort_keys=False, allow_unicode=True)
        write_text(folder / SETTINGS, HEAD + text)


def differences(settings: Any, others: Any) -> dict[str, Any]:
    """The settings, by their full names, that differ from others'; without those of one command alone."""
    usual = dict(leaves(others))
    return {
        key: value
        for key, value in leaves(settings)
        if key not in MOMENTARY and (key not in usual or usual[key] != value)
    }


def leaves(settings: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting of a settings object by its full name, such as ``weigh.beta``, and its value."""
    for item in fields(settings):
        value, key = getattr(settings, item.name), f"{where}{item.name}"
        if is_dataclass(value):
            yield from leaves(value, f"{key}.")
        else:
            yield key, value


def dotted(values: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Nested settings by their full names."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= dotted(value, f"{where}{key}.") if isinstance(value, dict) else {f"{where}{key}": value}
    return flat
