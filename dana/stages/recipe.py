"""Read and write recipes: YAML of settings. That of a run stands in its folder as ``recipe.yaml``.

``dana score`` and ``dana run`` write the recipe that they ran, in the settings that differ from the
defaults. A recipe in the folder of its run has ``out: .``, and its paths start from there.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields, is_dataclass, replace
from glob import has_magic
from pathlib import Path
from typing import Any

import yaml

from dana.core.artifacts import canonical, write_text
from dana.core.config import RECIPE, assign, read_yaml, require
from dana.core.logging import is_main_process
from dana.core.settings import load
from dana.core.shipped import find_recipe, find_shipped, package_folder
from dana.core.storage import is_url
from dana.core.studies import missing_studies
from dana.stages.settings import RunSettings
from dana.tasks.finder import card_files

HERE = "."  # as `out`: the folder of the recipe
WRITTEN = "# Written by dana:"
HEAD = f"""\
{WRITTEN} the settings of this run that differ from the defaults. Paths start from this folder.
# dana score and dana run write it again; without these two lines they leave it as it is.
"""
# Settings that are paths, which may start from the folder of the recipe.
PATHS = (
    "task",
    "pool",
    "unlabelled",
    "cards",
    "data",
    "task_path",
    "model",
    "hygiene.decontaminate",
    "selection.store",
)
# Settings of one call, which no recipe keeps: parallel steps, permission, trackers, resuming.
MOMENTARY = [
    "out",
    "jobs",
    "allow_below_chance",
    "finetune.save",
    "finetune.trackers",
    "adapt.execution.resume",
    "adapt.execution.trackers",
    "pretrain.execution.resume",
    "pretrain.execution.trackers",
]
# Settings that exclude each other: one that is given takes the place of those in the recipe.
RIVALS = [
    {"adapt.steps", "adapt.tokens", "adapt.epochs"},
    {"adapt.batch_size", "adapt.batch_tokens"},
    {"pretrain.steps", "pretrain.tokens", "pretrain.epochs"},
    {"pretrain.batch_size", "pretrain.batch_tokens"},
    {"weigh.beta", "weigh.budget", "weigh.below"},
]


def read_recipe(name: str | Path) -> tuple[dict[str, Any], Path]:
    """Read the recipe of a name, a file or a run's folder.

    With ``out: .`` its paths start from its folder; those of a recipe that ships with dana from the
    package, if they are there.

    Args:
        name: A YAML file, the name of a recipe that ships with dana, or a folder with
            ``recipe.yaml``.

    Returns:
        The recipe's values and its file.

    Raises:
        ConfigError: If there is no such recipe.
    """
    folder = Path(name)
    path = folder / RECIPE if folder.is_dir() else find_recipe(name)
    form = f"a folder with {RECIPE}, which dana init and dana score write, or a recipe's file"
    require(path.is_file(), "recipe", str(name), form)
    values = read_yaml(path)
    if values.get("out") == HERE:
        values["out"] = str(path.parent)
        _change_paths(values, lambda text: _below(path.parent, text))
    elif path.resolve().is_relative_to(find_shipped("recipes").resolve()):
        _change_paths(values, _in_package)
    return values, path


def read_run_recipe(folder: Path, overrides: Collection[str] = ()) -> dict[str, Any]:
    """Read the recipe of a run for one of its steps; empty if the folder has none.

    Settings of missing studies are left out.

    Args:
        folder: Folder of the run.
        overrides: Full names of settings that are given otherwise; what excludes them is left out.

    Raises:
        ConfigError: If the recipe has unknown keys or wrong values; names its file.
    """
    if not (folder / RECIPE).is_file():
        return {}
    values, path = read_recipe(folder)
    values = {key: value for key, value in values.items() if key not in missing_studies()}
    load(RunSettings, values, origin=str(path))
    remove_rivals(values, overrides)
    return values


def remove_rivals(values: dict[str, Any], overrides: Collection[str]) -> None:
    """Remove, in place, the settings of a recipe that exclude one that is given otherwise.

    Args:
        values: Values of the recipe.
        overrides: Full names of the settings that are given otherwise.
    """
    for rivals in RIVALS:
        if rivals.isdisjoint(overrides):
            continue
        for rival in rivals:
            section, _, key = rival.partition(".")
            if isinstance(values.get(section), dict):
                values[section].pop(key, None)


def write_recipe(settings: RunSettings, folder: Path) -> None:
    """Write a run's settings that differ from the defaults as its recipe, on the first process.

    A recipe that a person or ``dana init`` wrote stays as it is.

    Args:
        settings: Settings of a command that succeeded.
        folder: Folder of the run.
    """
    if not is_main_process():
        return
    path = folder / RECIPE
    former = path.read_text(encoding="utf-8") if path.is_file() else ""
    if former and not former.startswith(WRITTEN):
        return
    values = recipe_values(settings, folder)
    if former:
        known = read_yaml(path)
        values |= {key: known[key] for key in missing_studies() if key in known}
    text = HEAD + yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    if text != former:
        write_text(path, text)


def begin_recipe(settings: RunSettings, folder: Path) -> None:
    """Write the recipe of a run that a study began; one that is there stays as it is."""
    if not (folder / RECIPE).exists():
        write_recipe(settings, folder)


def recipe_values(settings: RunSettings, folder: Path) -> dict[str, Any]:
    """Return the recipe of settings: what differs from the defaults, with paths from the run's folder."""
    store = settings.selection.store
    if store is None:
        store = "none"
    elif store == settings.usual_store:
        store = None
    settings = replace(settings, selection=replace(settings.selection, store=store))
    values: dict[str, Any] = {"out": HERE}
    for name, value in differences(settings, RunSettings()).items():
        assign(values, name.split("."), value, name)
    values = json.loads(canonical(values))
    _change_paths(values, lambda text: _from(folder, text))
    return values


def differences(settings: Any, others: Any) -> dict[str, Any]:
    """Return the settings by full name that differ from others, without those of one call."""
    usual = dict(leaves(others))
    return {
        key: value
        for key, value in leaves(settings)
        if key not in MOMENTARY and usual.get(key, ...) != value
    }


def leaves(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting's full name, such as ``weigh.beta``, and its value."""
    sections = {item.name: getattr(settings, item.name) for item in fields(settings)}
    if isinstance(settings, RunSettings):  # their sections stand beside the others
        sections |= sections.pop("studies")
    for name, value in sections.items():
        key = f"{prefix}{name}"
        if is_dataclass(value):
            yield from leaves(value, f"{key}.")
        else:
            yield key, value


def settings_of_call(
    settings: RunSettings, names: Collection[str], sections: Collection[str]
) -> dict[str, Any]:
    """Return the settings that a call gave beside the recipe, for the manifest of its step.

    Args:
        settings: All settings.
        names: Full names of those that were given.
        sections: The sections and keys that the step uses.
    """
    return {
        key: value
        for key, value in leaves(settings)
        if key in names and key not in MOMENTARY and key.partition(".")[0] in sections
    }


def _change_paths(values: dict[str, Any], change: Callable[[str], str]) -> None:
    """Change every path in the values of a recipe, in place."""
    for name in PATHS:
        *sections, key = name.split(".")
        section: Any = values
        for part in sections:
            section = section.get(part)
            if not isinstance(section, dict):
                break
        if not isinstance(section, dict):
            continue
        value = section.get(key)
        if isinstance(value, str):
            section[key] = change(value)
        elif isinstance(value, list):
            section[key] = [change(item) if isinstance(item, str) else item for item in value]


def _in_package(text: str) -> str:
    """Return the path of a file of the package; other paths and names stay."""
    path = package_folder() / text
    return str(path) if path.is_file() else text


def _below(folder: Path, text: str) -> str:
    """Join a folder and a relative path or pattern in it; names, URLs and absolute paths stay."""
    joined = folder / text
    if is_url(text) or Path(text).is_absolute() or not (joined.exists() or has_magic(text)):
        return text
    short = Path(os.path.normpath(joined))
    if os.path.realpath(short) != os.path.realpath(joined):  # a link is on the way
        return str(joined)
    is_elsewhere = short.is_absolute() and not short.is_relative_to(folder)
    return os.path.relpath(short) if is_elsewhere else str(short)


def _from(folder: Path, text: str) -> str:
    """Express a path from a folder, unless it is absolute and leads elsewhere; names and URLs stay."""
    is_path = not is_url(text) and (Path(text).exists() or has_magic(text))
    if not is_path or text in card_files():
        return text
    root = folder.resolve()
    if not Path(text).is_absolute():
        return os.path.relpath(text, root)
    target = Path(text).resolve()
    return str(target.relative_to(root)) if target.is_relative_to(root) else text
