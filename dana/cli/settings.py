"""Command line to settings: the folder's settings.yaml, then --config, then flags, then --set; the later one counts."""

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.errors import ConfigError
from dana.core.logging import get_logger

if TYPE_CHECKING:
    from dana.stages.settings import RunSettings

log = get_logger(__name__)


def settings_from(parsed: argparse.Namespace, base: str | None = None) -> "RunSettings":
    """Settings that the run's folder remembers, then those of --config, then the flags, then key=value.

    Args:
        parsed: The command line.
        base: A recipe by file or name, for the commands that run a whole one; it alone decides, nothing is remembered.

    Raises:
        ConfigError: If a setting is unknown, wrong, or not looked at by the command.
    """
    from dana.core.config import SETTINGS, find_recipe, load, merge_sections, read_yaml
    from dana.stages.remember import dotted, recalled
    from dana.stages.settings import RunSettings, with_store
    from dana.stages.unused import refuse_unused
    from dana.tasks.finder import add_to_task_path

    paths = [find_recipe(named) for named in (base, getattr(parsed, "config", None)) if named]
    origin = " and ".join(map(str, paths)) or "command line"
    values: dict[str, Any] = {}
    for path in paths:
        values = merge_sections(values, read_yaml(path))
    flags = {key: getattr(parsed, key) for key in parsed.flags if getattr(parsed, key) is not None}
    if hasattr(parsed, "folder"):
        flags["out"] = str(parsed.folder)
    overrides = [f"{key}={_as_text(value)}" for key, value in flags.items()] + parsed.overrides
    named = {override.partition("=")[0] for override in overrides}
    if base is None:
        folder = settings_folder(parsed, load(RunSettings, values, overrides, origin=origin))
        given = parsed.given = named | {*dotted(values)}
        memory = recalled(folder, given)
        if parsed.command == "finetune":  # the run remembers what was adapted, not which arm is next
            memory.pop("model", None)
        shown = [f"{key}={value}" for key, value in dotted(memory).items() if key not in given and _reads(parsed, key)]
        if shown:
            log.info("settings  from %s: %s", folder / SETTINGS, "  ".join(shown))
        values = merge_sections(memory, values)
    settings = with_store(load(RunSettings, values, overrides, origin=origin))
    add_to_task_path(settings.task_path)
    for key in [override.partition("=")[0] for override in parsed.overrides]:
        if not _reads(parsed, key):
            allowed = ", ".join(parsed.reads)
            raise ConfigError(f"{key} is not looked at by dana {parsed.command}, whose settings are: {allowed}")
    refuse_unused(parsed.command, {key: parsed.flags.get(key, key) for key in named}, settings)
    return settings


def _reads(parsed: argparse.Namespace, key: str) -> bool:
    """Whether the command looks at a setting."""
    return not parsed.reads or key.partition(".")[0] in parsed.reads


def _as_text(value: Any) -> str:
    """A value as key=value has it, which is read as YAML."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)


def settings_folder(parsed: argparse.Namespace, settings: "RunSettings") -> Path:
    """The run's folder: DIR, or --out; of ``DIR/finetune/TASK/ARM`` it is DIR."""
    out = Path(settings.out)
    is_arm = parsed.command == "finetune" and out.parent.parent.name == "finetune"
    return out.parent.parent.parent if is_arm else out


def keep(settings: "RunSettings", folder: Path) -> None:
    """Let the run's folder remember the settings of a command that ended well."""
    from dana.stages.remember import remember

    remember(settings, folder)


def next_command(*words: object, note: str = "") -> str:
    """The line that names the next command: a whole one to paste, the run's folder holds all other settings.

    Args:
        words: Of the command, without ``dana``.
        note: What else to know, behind a ``#``, so that the whole line can be pasted.
    """
    return f"next:    {shlex.join(['dana', *map(str, words)])}{f'   # {note}' if note else ''}"
