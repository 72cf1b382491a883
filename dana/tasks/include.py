"""Task cards that build on others: a YAML file, and what it includes, to the keys of one card."""

from pathlib import Path
from typing import Any

from dana.core.config import read_yaml
from dana.core.errors import ConfigError, nearest_path, suggestion
from dana.tasks.finder import YAML, card_files

MERGED = ("presets", "splits", "data")
OWN = ("name", "aliases")  # they name one card, so they are never taken over
DEEPEST = 5


def card_values(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """A card's keys, those of what it includes among them, and the files they are from, its own first.

    The including card's keys win; ``presets``, ``splits`` and ``data`` are merged by their first level of keys.

    Args:
        path: Its YAML file. ``include`` in it, and in what it includes, is a card's name, or a YAML file beside it.

    Raises:
        ConfigError: If an included file is missing or includes what includes it, or more than five are nested; names
            both files.
    """
    values, files = read_yaml(path), [path]
    while "include" in values:
        included = _included(files[-1], values.pop("include"))
        if included.resolve() in [file.resolve() for file in files]:
            raise ConfigError(f"{files[-1]}: include: {included} includes this file, so they go in a circle")
        if len(files) > DEEPEST:
            raise ConfigError(
                f"{files[-1]}: include: {included} would be {len(files)} deep; at most {DEEPEST} are allowed"
            )
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
