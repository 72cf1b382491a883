"""Remember the settings of a run: commands write them to ``settings.yaml``, later commands read them.

``DIR/settings.yaml`` holds the settings that differ from the defaults, in the form of a recipe.
``--config``, flags and ``key=value`` override it.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from dana.core.artifacts import canonical, write_text
from dana.core.config import SETTINGS, assign, read_yaml
from dana.core.errors import ConfigError
from dana.core.logging import is_main_process
from dana.core.settings import load
from dana.core.studies import missing_studies
from dana.stages.settings import RunSettings

HEAD = """\
# Settings of this run that differ from the defaults. Later commands take them up; --config and flags override them.
"""
# Settings of one command, which are not remembered: folder, parallel cells, permission, trackers,
# resuming.
MOMENTARY = ["out", "jobs", "allow_below_chance", "finetune.save", "finetune.trackers"]
MOMENTARY += [
    f"{part}.execution.{name}" for part in ("adapt", "pretrain") for name in ("resume", "trackers")
]

AMOUNTS = ("steps tokens epochs", "batch_size batch_tokens")
# Sets of settings that exclude each other.
RIVALS = [
    {f"{part}.{name}" for name in names.split()}
    for part in ("adapt", "pretrain")
    for names in AMOUNTS
]
RIVALS += [{"weigh.beta", "weigh.budget", "weigh.below"}]


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the remembered settings of a run's folder, without those of missing studies; empty without a file.

    Raises:
        ConfigError: If the file has unknown keys or wrong values.
    """
    path = folder / SETTINGS
    if not path.exists():
        return {}
    values = {key: value for key, value in read_yaml(path).items() if key not in missing_studies()}
    try:
        load(RunSettings, values, origin=str(path))
    except ConfigError as error:
        raise ConfigError(
            f"{error} (correct or remove this file: it only saves repeating flags)"
        ) from error
    return values


def recall(folder: Path, overrides: Collection[str]) -> dict[str, Any]:
    """Read the remembered settings, without those that exclude a setting of this command.

    Args:
        folder: Folder of the run.
        overrides: Full names of the settings of this command.
    """
    memory = read_settings(folder)
    for rivals in RIVALS:
        if not rivals.isdisjoint(overrides):
            for section, _, key in (rival.partition(".") for rival in rivals):
                memory.get(section, {}).pop(key, None)
    return memory


def remember(settings: RunSettings, folder: Path) -> None:
    """Write a run's settings that differ from the defaults, on the first process.

    Args:
        settings: Settings of a command that succeeded.
        folder: Folder of the run.
    """
    if not is_main_process():
        return
    store = settings.selection.store
    spec = "none" if store is None else None if store == settings.usual_store else store
    settings = replace(settings, selection=replace(settings.selection, store=spec))
    values: dict[str, Any] = {}
    for name, value in differences(settings, RunSettings()).items():
        assign(values, name.split("."), value, name)
    if values != read_settings(folder):
        file = read_yaml(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
        values |= {key: value for key, value in file.items() if key in missing_studies()}
        text = yaml.safe_dump(json.loads(canonical(values)), sort_keys=False, allow_unicode=True)
        write_text(folder / SETTINGS, HEAD + text)


def differences(settings: Any, others: Any) -> dict[str, Any]:
    """Return the settings by full name that differ from others, without those of one command."""
    usual = dict(leaves(others))
    return {
        key: value
        for key, value in leaves(settings)
        if key not in MOMENTARY and usual.get(key, ...) != value
    }


def leaves(settings: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting's full name, such as ``weigh.beta``, and its value."""
    sections = {item.name: getattr(settings, item.name) for item in fields(settings)}
    if isinstance(settings, RunSettings):  # their sections stand beside the others
        sections |= sections.pop("studies")
    for name, value in sections.items():
        key = f"{where}{name}"
        if is_dataclass(value):
            yield from leaves(value, f"{key}.")
        else:
            yield key, value


def dotted_keys(values: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Flatten nested settings to full names."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= (
            dotted_keys(value, f"{where}{key}.")
            if isinstance(value, dict)
            else {f"{where}{key}": value}
        )
    return flat
