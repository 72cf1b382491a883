"""Collect settings from the folder's settings.yaml, --config, flags and --set; later ones override."""

import argparse
import json
import re
import shlex
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.errors import ConfigError
from dana.core.logging import get_logger

if TYPE_CHECKING:
    from dana.stages.settings import RunSettings

log = get_logger(__name__)


def settings_from(args: argparse.Namespace, base: str | None = None) -> "RunSettings":
    """Build the settings of a command: remembered ones of the folder, then --config, then flags, then --set.

    Args:
        args: The parsed command line.
        base: Recipe by file or name, for commands that run a whole one; then nothing remembered is
            used.

    Raises:
        ConfigError: If a setting is unknown, its value is not allowed, or the command does not use
            it.
    """
    from dana.core.config import SETTINGS, merge_sections
    from dana.core.settings import load
    from dana.stages.remember import dotted_keys, recall
    from dana.stages.settings import RunSettings, load_settings, read_recipe
    from dana.stages.unused import check_unused

    quick = getattr(args, "quick", False)
    recipes = [read_recipe(name, quick) for name in (base, getattr(args, "config", None)) if name]
    origin = " and ".join(str(path) for _, path in recipes) or "command line"
    values: dict[str, Any] = reduce(merge_sections, (recipe for recipe, _ in recipes), {})
    flags = {key: getattr(args, key) for key in args.flags if getattr(args, key) is not None}
    if (
        getattr(args, "size", None) is not None
    ):  # adapt --from-scratch: the same flags, for a new model
        flags = {re.sub("^adapt\\b", "pretrain", key): value for key, value in flags.items()}
    if hasattr(args, "folder"):
        flags["out"] = str(args.folder)
    overrides = [f"{key}={_as_text(value)}" for key, value in flags.items()] + args.overrides
    keys = {override.partition("=")[0] for override in overrides}
    if base is None:
        folder = settings_folder(args, load(RunSettings, values, overrides, origin=origin))
        explicit = args.explicit = keys | {*dotted_keys(values)}
        memory = recall(folder, explicit)
        if (
            args.command == "finetune"
        ):  # the remembered model was adapted; it is not the arm to fine-tune
            memory.pop("model", None)
        rest = {
            key: value
            for key, value in dotted_keys(memory).items()
            if key not in explicit and _reads(args, key)
        }
        if rest:
            parts = (
                f"{args.flags.get(key, key).lstrip('-')} {value}" for key, value in rest.items()
            )
            log.info("from %s: %s", folder / SETTINGS, ", ".join(parts))
        values = merge_sections(memory, values)
    settings = load_settings(values, overrides, origin)
    for key in [override.partition("=")[0] for override in args.overrides]:
        if not _reads(args, key):
            sections = ", ".join(args.reads)
            raise ConfigError(
                f"{key} has no effect with dana {args.command}; remove it. Its sections: {sections}"
            )
    command = "rank" if getattr(args, "rank_only", False) else args.command
    check_unused(command, {key: args.flags.get(key, key) for key in keys}, settings)
    return settings


def _reads(args: argparse.Namespace, key: str) -> bool:
    """Return True if the command uses a setting."""
    return not args.reads or key.partition(".")[0] in args.reads


def _as_text(value: Any) -> str:
    """Format a value for key=value, which is parsed as YAML."""
    return (
        value
        if isinstance(value, str) and value
        else json.dumps(value, ensure_ascii=False, default=str)
    )


def settings_folder(args: argparse.Namespace, settings: "RunSettings") -> Path:
    """Return the run's folder: DIR or --out; for ``DIR/finetune/TASK/ARM`` it is DIR."""
    out = Path(settings.out)
    is_arm = args.command == "finetune" and out.parent.parent.name == "finetune"
    return out.parent.parent.parent if is_arm else out


def save_settings(settings: "RunSettings", folder: Path) -> None:
    """Save the settings of a finished command in the run's folder."""
    from dana.stages.remember import remember

    remember(settings, folder)


def next_command(*words: object, note: str = "") -> str:
    """Format the line with the next command, which can be pasted; the run's folder has all other settings.

    Args:
        words: Words of the command, without ``dana``.
        note: Comment behind a ``#``.
    """
    return f"next:    {shlex.join(['dana', *map(str, words)])}{f'   # {note}' if note else ''}"
