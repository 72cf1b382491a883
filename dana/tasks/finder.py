"""Task cards by name, shipped ones and those on the task path, to YAML files; a file and what it includes to keys."""

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dana.core.config import read_yaml, resource
from dana.core.errors import ConfigError, nearest_path, suggestion

TASK_PATH = "DANA_TASK_PATH"
YAML = (".yaml", ".yml")
MERGED = ("presets", "splits", "data")
OWN = ("name", "aliases")  # they name one card, so they are never taken over


def search_in(folders: Sequence[str]) -> None:
    """Add folders to the task path, for the rest of this process and those that it starts.

    Args:
        folders: Folders of task cards.
    """
    absolute = [str(Path(folder).resolve()) for folder in folders]
    if absolute:
        before = os.environ.get(TASK_PATH, "").split(os.pathsep)
        os.environ[TASK_PATH] = os.pathsep.join(dict.fromkeys(filter(None, [*before, *absolute])))


def card_files() -> dict[str, Path]:
    """Every name of every card, which are its file's without suffix, its own and its aliases, and the YAML file.

    Files whose name begins with ``_`` are no cards: they are there to be included.

    Raises:
        ConfigError: If a folder of the task path is missing, a YAML file is none, or two files have one name.
    """
    found: dict[str, Path] = {}
    for path, names in _cards():
        for name in names:
            other = found.setdefault(name, path)
            if other != path:
                raise ConfigError(f"{path}: the task {name!r} is also defined by {other}; rename one of them")
    return found


def card_names() -> list[str]:
    """The name of each card, sorted; aliases are not among them."""
    return sorted({names[0] for _, names in _cards()})


def _cards() -> Iterator[tuple[Path, list[str]]]:
    """Every card's file and names, its own name first; each folder once."""
    yield from _shipped()
    folders = [Path(folder) for folder in os.environ.get(TASK_PATH, "").split(os.pathsep) if folder]
    seen = {resource("tasks").resolve()}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder of task cards (task path){nearest_path(folder)}")
        if folder.resolve() not in seen:
            seen.add(folder.resolve())
            yield from _cards_in(folder)


@cache
def _shipped() -> list[tuple[Path, list[str]]]:
    return list(_cards_in(resource("tasks")))


def _cards_in(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    for path in sorted(folder.iterdir()):
        if path.suffix in YAML and not path.name.startswith(("_", ".")):
            values = read_yaml(path)
            aliases = values.get("aliases") or []
            if not isinstance(aliases, list):
                raise ConfigError(f"{path}: aliases={aliases!r}: must be a list of names")
            yield path, list(dict.fromkeys(map(str, [values.get("name", path.stem), path.stem, *aliases])))


def card_values(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """A card's keys, those of what it includes among them, and the files they are from, its own first.

    The including card's keys win; ``presets``, ``splits`` and ``data`` are merged by their first level of keys.

    Args:
        path: Its YAML file. ``include`` in it, and in what it includes, is a card's name, or a YAML file beside it.

    Raises:
        ConfigError: If an included file is missing or includes what includes it; names both files.
    """
    values, files = read_yaml(path), [path]
    while "include" in values:
        included = _included(files[-1], values.pop("include"))
        if included.resolve() in [file.resolve() for file in files]:
            raise ConfigError(f"{files[-1]}: include: {included} includes this file, so they go in a circle")
        values = _merged(read_yaml(included), values)
        files.append(included)
    return values, files


def _included(by: Path, named: Any) -> Path:
    """The file that a card's ``include`` names."""
    if not isinstance(named, str):
        raise ConfigError(f"{by}: include={named!r}: must be a card's name or a YAML file")
    if not named.endswith(YAML):
        cards = card_files()
        if named not in cards:
            raise ConfigError(f"{by}: include={named!r}: no task card has this name{suggestion(named, cards)}")
        return cards[named]
    path = by.parent / named
    if not path.is_file():
        raise ConfigError(f"{by}: include={named!r}: {path}: no such file{nearest_path(path)}")
    return path


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = {key: value for key, value in under.items() if key not in OWN} | over
    for key in MERGED:
        if isinstance(under.get(key), dict) and isinstance(over.get(key), dict):
            merged[key] = under[key] | over[key]
    return merged
