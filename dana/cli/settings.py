"""Collect settings from the recipe of a run's folder, --config, flags and --set.

Later ones override earlier ones.
"""

import argparse
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.errors import ConfigError

if TYPE_CHECKING:
    from dana.stages.settings import RunSettings


def settings_from(args: argparse.Namespace, base: str | None = None) -> "RunSettings":
    """Build the settings of a command.

    They come from the recipe of its folder, then --config, then flags, then --set.
    ``args.explicit`` gets the full names of the settings that this call gives.

    Args:
        args: The parsed command line.
        base: Recipe by file or name, for commands that run a whole one; it takes the place of that
            of the folder.

    Raises:
        ConfigError: If a setting is unknown, its value is not allowed, or the command does not use
            its section.
    """
    from dana.core.config import flatten, merge_sections
    from dana.core.settings import load
    from dana.stages.recipe import read_recipe, read_run_recipe, remove_rivals
    from dana.stages.settings import NO_ARMS, RunSettings, load_settings

    recipes = [read_recipe(name) for name in (base, getattr(args, "config", None)) if name]
    origin = " and ".join(str(path) for _, path in recipes) or "command line"
    values: dict[str, Any] = {}
    for recipe, _ in recipes:
        values = merge_sections(values, recipe)
    overrides = [f"{key}={_as_text(value)}" for key, value in _flags(args).items()]
    overrides += args.overrides
    args.explicit = {override.partition("=")[0] for override in overrides}
    remove_rivals(values, args.explicit)
    args.explicit |= {key for key, _ in flatten(values)}
    if args.command == "adapt":
        values["arms"] = NO_ARMS
    if base is None:
        folder = settings_folder(args, load(RunSettings, values, overrides, origin=origin))
        of_folder = read_run_recipe(folder, args.explicit)
        if args.command == "finetune":
            of_folder.pop("model", None)  # it was adapted; the arm to fine-tune is another
        values = merge_sections(of_folder, values)
    settings = load_settings(values, overrides, origin)
    for override in args.overrides:
        key, _, _ = override.partition("=")
        if not _reads(args, key):
            sections = ", ".join(args.reads)
            raise ConfigError(
                f"{key} has no effect with dana {args.command}; remove it. Its sections: {sections}"
            )
    return settings


def _flags(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that flags give, by full name."""
    flags = {key: getattr(args, key) for key in args.flags if getattr(args, key) is not None}
    if getattr(args, "size", None) is not None:
        # adapt --from-scratch: the same flags, for a new model
        flags = {re.sub("^adapt\\b", "pretrain", key): value for key, value in flags.items()}
    if hasattr(args, "folder"):
        flags["out"] = str(args.folder)
    return flags


def _reads(args: argparse.Namespace, key: str) -> bool:
    """Return True if the command uses a setting."""
    return not args.reads or key.partition(".")[0] in args.reads


def _as_text(value: Any) -> str:
    """Format a value for key=value, which is parsed as YAML."""
    if isinstance(value, str) and value:
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def settings_folder(args: argparse.Namespace, settings: "RunSettings") -> Path:
    """Return the run's folder: DIR or --out; for ``DIR/finetune/TASK/ARM`` it is DIR."""
    out = Path(settings.out)
    is_arm = args.command == "finetune" and out.parent.parent.name == "finetune"
    return out.parent.parent.parent if is_arm else out


def next_command(*words: object, note: str = "") -> str:
    """Format the line with the next command, which can be pasted.

    The run's recipe has all other settings.

    Args:
        words: Words of the command, without ``dana``.
        note: Comment behind a ``#``.
    """
    command = shlex.join(["dana", *map(str, words)])
    comment = f"   # {note}" if note else ""
    return f"next:    {command}{comment}"
