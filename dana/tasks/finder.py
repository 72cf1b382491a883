"""Find the YAML file of a task card by name, and resolve its includes.

Cards are those that the package ships, and those on the task path.
"""

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dana.core.config import read_yaml
from dana.core.errors import ConfigError, nearest_path, suggestion
from dana.core.shipped import find_shipped

TASK_PATH = "DANA_TASK_PATH"
YAML = (".yaml", ".yml")
WORDS = ("labels",)  # keys of lists whose items are words as they are written
MERGED = ("presets", "splits", "data")
NOT_INHERITED = ("name", "aliases")  # they identify one card


def add_to_task_path(folders: Sequence[str]) -> None:
    """Add folders to the task path, for this process and its child processes.

    Args:
        folders: Folders of task cards.
    """
    absolute = [str(Path(folder).resolve()) for folder in folders]
    if absolute:
        os.environ[TASK_PATH] = os.pathsep.join(dict.fromkeys([*_task_path(), *absolute]))


def _task_path() -> list[str]:
    """Return the folders of the task path."""
    return [folder for folder in os.environ.get(TASK_PATH, "").split(os.pathsep) if folder]


def card_files() -> dict[str, Path]:
    """Map the names of all cards to their YAML files.

    Names of a card are its name, its file name without suffix, and its aliases. Files whose name
    begins with ``_`` are not cards; cards include them.

    Raises:
        ConfigError: If a folder of the task path is missing, a file is not YAML, or two cards share
            a name.
    """
    files: dict[str, Path] = {}
    for path, names in _cards():
        for name in names:
            other = files.setdefault(name, path)
            if other != path:
                raise ConfigError(
                    f"{path}: the task {name!r} is also defined by {other}; rename one of them"
                )
    return files


def card_names() -> list[str]:
    """Return the names of all cards, sorted, without aliases."""
    return sorted({names[0] for _, names in _cards()})


def _cards() -> Iterator[tuple[Path, list[str]]]:
    """Yield the file and the names of every card, those of the package first."""
    yield from _cards_of_package()
    visited_folders = {find_shipped("tasks").resolve()}
    for folder in map(Path, _task_path()):
        if not folder.is_dir():
            raise ConfigError(
                f"{folder}: no such folder of task cards (task path){nearest_path(folder)}"
            )
        if folder.resolve() not in visited_folders:
            visited_folders.add(folder.resolve())
            yield from _cards_in(folder)


@cache
def _cards_of_package() -> list[tuple[Path, list[str]]]:
    return list(_cards_in(find_shipped("tasks")))


def _cards_in(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the file and the names of every card in a folder, sorted by file name."""
    for path in sorted(folder.iterdir()):
        if path.suffix not in YAML or path.name.startswith(("_", ".")):
            continue
        values = read_yaml(path)
        aliases = values.get("aliases") or []
        if not isinstance(aliases, list):
            raise ConfigError(f"{path}: aliases={aliases!r}: must be a list of names")
        names = map(str, [values.get("name", path.stem), path.stem, *aliases])
        yield path, list(dict.fromkeys(names))


def card_values(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """Read a card's keys, with those of the files it includes.

    Keys of the including card override included ones; ``presets``, ``splits`` and ``data`` are
    merged one level deep.

    Args:
        path: YAML file of the card. ``include`` is a card's name, or a YAML file beside the file
            with that key.

    Returns:
        The keys with their values, and the files, the card's own first.

    Raises:
        ConfigError: If an included file is missing, or includes are circular; names both files.
    """
    values = read_yaml(path, WORDS)
    files = [path]
    while "include" in values:
        path = _find_include(files[-1], values.pop("include"))
        if path.resolve() in [file.resolve() for file in files]:
            raise ConfigError(
                f"{files[-1]}: include: circular, {path} includes this file; remove one include"
            )
        values = _merge(read_yaml(path, WORDS), values)
        files.append(path)
    return values, files


def _find_include(by: Path, name: Any) -> Path:
    """Find the file that the file `by` includes."""
    if not isinstance(name, str):
        raise ConfigError(f"{by}: include={name!r}: must be a card's name or a YAML file")
    if not name.endswith(YAML):
        cards = card_files()
        if name not in cards:
            raise ConfigError(
                f"{by}: include={name!r}: no task card has this name{suggestion(name, cards)}"
            )
        return cards[name]
    path = by.parent / name
    if not path.is_file():
        raise ConfigError(f"{by}: include={name!r}: {path}: no such file{nearest_path(path)}")
    return path


def _merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of an included file, overridden by those of the including one."""
    inherited = {key: value for key, value in under.items() if key not in NOT_INHERITED}
    values = inherited | over
    for key in MERGED:
        if isinstance(under.get(key), dict) and isinstance(over.get(key), dict):
            values[key] = under[key] | over[key]
    return values
