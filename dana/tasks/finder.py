"""Task cards by name: the shipped ones and those in the folders of the task path, to their YAML files."""

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from dana.core.config import read_yaml
from dana.core.errors import ConfigError, nearest_path
from dana.core.resources import resource

TASK_PATH = "DANA_TASK_PATH"
YAML = (".yaml", ".yml")


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
