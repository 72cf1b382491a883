"""Command line to settings: the folder's settings.yaml, then --config, then flags, then --set; the later one counts."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.errors import ConfigError
from dana.core.logging import get_logger, is_main_process

if TYPE_CHECKING:
    from dana.stages.settings import RunSettings

log = get_logger(__name__)


def settings_from(parsed: argparse.Namespace, base: str | None = None) -> "RunSettings":
    """Settings that the run's folder remembers, then those of --config, then the flags, then key=value.

    Args:
        parsed: The command line.
        base: A recipe by file or name, for the commands that run a whole one; it alone decides, nothing is remembered.
    """
    from dana.core.config import load, merge_sections, read_yaml, recipe
    from dana.stages.settings import RunSettings, with_store
    from dana.tasks.finder import search_in

    paths = [recipe(named) for named in (base, getattr(parsed, "config", None)) if named]
    values: dict[str, Any] = {}
    for path in paths:
        values = merge_sections(values, read_yaml(path))
    overrides = [*_flags(parsed), *parsed.overrides]
    if hasattr(parsed, "folder"):
        overrides.append(f"out={json.dumps(str(parsed.folder))}")
    memory: dict[str, Any] = {}
    if base is None:
        folder = settings_folder(parsed, load(RunSettings, values, overrides, origin=_origin(paths)))
        sections = {key.partition(".")[0] for key in parsed.flags}
        if "cards" in parsed.flags:  # fine-tuning: the run remembers what was adapted, not which arm is next
            sections.discard("model")
        memory = _remembered(folder, values, overrides, sections)
        if "cards" in parsed.flags:
            memory.pop("model", None)
    parsed.settings = with_store(load(RunSettings, merge_sections(memory, values), overrides, origin=_origin(paths)))
    search_in(parsed.settings.task_path)
    check_used(parsed, parsed.settings)
    return parsed.settings


def check_used(parsed: argparse.Namespace, settings: "RunSettings") -> None:
    """Refuse what was given as a flag or as key=value and would be ignored.

    Raises:
        ConfigError: Naming the flag or key, and what it does not go with.
    """
    from dana.stages.unused import first_unused

    given = {setting: flag for setting, flag in parsed.flags.items() if getattr(parsed, setting) is not None}
    for key in [override.partition("=")[0] for override in parsed.overrides]:
        if parsed.reads and key.partition(".")[0] not in parsed.reads:
            allowed = ", ".join(parsed.reads)
            raise ConfigError(f"{key} is not looked at by dana {parsed.command}, whose settings are: {allowed}")
        given.setdefault(key, key)
    if said := first_unused(parsed.command, given, settings):
        raise ConfigError(said)


def _origin(paths: list[Path]) -> str:
    return " and ".join(map(str, paths)) or "command line"


def add_verify(command: argparse.ArgumentParser) -> None:
    """Add ``--verify`` to a command that reads sources; :func:`heed_verify` does what it says."""
    said = "hash every source file again, also large ones that look as they did (size, times, inode, samples)"
    command.add_argument("--verify", action="store_true", help=said)


def heed_verify(parsed: argparse.Namespace, settings: "RunSettings", looks: bool = True) -> None:
    """With ``--verify``, forget the digests of the sources that the run's corpus remembers.

    Args:
        parsed: The command line.
        settings: Of the run.
        looks: Whether the command looks at the sources.

    Raises:
        ConfigError: If it does not.
    """
    from dana.core.known_sources import forget_sources

    if parsed.verify and not looks:
        raise ConfigError("--verify hashes the sources, and this command does not look at them: leave it out")
    if parsed.verify and is_main_process():
        forget_sources(Path(settings.out) / "corpus")


def settings_folder(parsed: argparse.Namespace, settings: "RunSettings") -> Path:
    """The run's folder: DIR, or --out; of ``DIR/finetune/TASK/ARM`` it is DIR."""
    out = Path(settings.out)
    is_arm = "cards" in parsed.flags and out.parent.parent.name == "finetune"
    return out.parent.parent.parent if is_arm else out


def _remembered(folder: Path, values: dict[str, Any], overrides: list[str], sections: set[str]) -> dict[str, Any]:
    """What the folder remembers; what of it this command looks at and nobody says otherwise is shown."""
    from dana.core.config import SETTINGS
    from dana.stages.remember import dotted, recalled

    given = {*dotted(values), *(override.partition("=")[0] for override in overrides)}
    memory = recalled(folder, given)
    decides = {key: value for key, value in dotted(memory).items() if key not in given}
    shown = [f"{key}={value}" for key, value in decides.items() if key.partition(".")[0] in sections]
    if shown:
        log.info("settings  from %s: %s", folder / SETTINGS, "  ".join(shown))
    return memory


def keep(settings: "RunSettings", folder: Path, except_for: Sequence[str] = ()) -> None:
    """Let the run's folder remember the settings of a command that ended well."""
    from dana.stages.remember import remember

    remember(settings, folder, except_for)


def kept_model(folder: Path) -> str | None:
    """The checkpoint that the run's folder remembers to have adapted."""
    from dana.stages.remember import remembered

    return remembered(folder).get("model")


def _flags(parsed: argparse.Namespace) -> list[str]:
    """The given flags as key=value."""
    overrides = []
    for setting in parsed.flags:
        given = getattr(parsed, setting)
        if given is not None:
            as_json = isinstance(given, list) or given == ""  # nothing would be read as null
            overrides.append(f"{setting}={json.dumps(given) if as_json else given}")
    return overrides
