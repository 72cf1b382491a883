"""Error text for an artifact made from other settings: which flag differs, and which values go on with it."""

import argparse
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dana.core.errors import Contradiction
from dana.core.studies import study_table

SELECTING = ("ranking", "scores", "selector")
MOST = 4  # settings that are named


def explain(error: Contradiction, parsed: argparse.Namespace) -> str:
    """Which flag differs, which value goes on with what is there, and which flag names another folder."""
    from dana.cli.given import settings_folder
    from dana.core.config import load
    from dana.stages.remember import dotted, remembered
    from dana.stages.settings import RunSettings

    settings = getattr(parsed, "settings", None)
    table = study_table(error.kind)
    if settings is None or (table is not None and table.setting_of is None):
        return str(error)
    folder = settings_folder(parsed, settings)
    kept = remembered(folder)
    memory, there, now = dotted(kept), dotted(error.there), dotted(error.now)
    selectors = load(RunSettings, kept).selector_spec, settings.selector_spec
    said: dict[str, str] = {}
    alike: dict[str, str] = {}
    give: list[str] = []
    for key in sorted(key for key in there.keys() | now.keys() if there.get(key) != now.get(key)):
        setting = setting_of(error.kind, key, error.now)
        if key.partition(".")[0] == "selector" and selectors[0] != selectors[1]:
            setting = "selector"  # whatever else another selector has follows from it
        if setting is None:
            number = isinstance(now.get(key), float) and isinstance(there.get(key), float)  # no step's fingerprint
            values = f"{there.get(key)} there, {now.get(key)} now"
            said[key if number else key.partition(".")[0]] = values if number else "was made again since"
        elif setting not in said | alike:
            old, new = _before(setting, memory, there, key, now.get(key), settings), _get(settings, setting)
            if setting == "selector":
                old, new = selectors
            if setting == "selection.store":
                own = memory.get(setting, str(Path(memory.get("share", folder)) / "embeddings"))
                old, new = "none" if there.get(key) is None else own, new or "none"
            if old == new:
                alike[setting] = "is named alike, but is not the same"
            else:
                said[setting] = f"{_short(old)} there, {_short(new)} now"
                give.append(_as_given(parsed, setting, old))
    said = said if give else said | alike  # another selector has no such part: that says nothing of the part
    named = "; ".join(f"{parsed.flags.get(setting, setting)}: {text}" for setting, text in [*said.items()][:MOST])
    go_on = f"Give {' '.join(give)} to go on with it" if give else "Remove it to make it again"
    return f"{error.path} was made from something else ({named}). {go_on}, or {_elsewhere(parsed)} for another folder"


def _before(setting: str, memory: dict[str, Any], there: dict[str, Any], key: str, now: Any, settings: Any) -> Any:
    """The setting's value when what is there was made: as its manifest says, or as the folder remembers."""
    from dana.stages.settings import RunSettings

    if key in there and now == _get(settings, setting):  # the manifest holds the setting itself
        return there[key]
    return memory.get(setting, _get(RunSettings(), setting))


def setting_of(kind: str, key: str, now: dict[str, Any]) -> str | None:
    """The setting behind what an artifact depends on; None for what another step made.

    Args:
        kind: Of the artifact.
        key: Full name in its manifest, for example ``selection.encoder.dims``.
        now: What is asked for.
    """
    section, _, rest = key.partition(".")
    if kind in SELECTING:
        if section == "selection" or rest.partition(".")[0] in ("encoder", "geometry", "general_share"):
            name = rest.partition(".")[0]
            if rest in ("encoder.stored", "store_dtype"):
                return "selection.store"
            return f"selection.{name}"
        known = {"detectors": "ranking.detectors", "budget": "weigh.beta", "task": "task", "general": "general"}
        if section == "selector":
            return "detector" if rest.startswith("detector") else "selector"
        if section == "code":  # of the detectors that were ranked
            return "ranking.detectors"
        return known.get(section, f"ranking.{section}" if kind == "ranking" else None)
    if kind in ("corpus", "task"):
        if section in ("inputs", "hygiene"):
            name = rest.partition(".")[0]
            return f"{section}.{'decontaminate' if name == 'tasks' else name}"
        other = {"on_bad_record": "on_bad_record"} if kind == "corpus" else {"seed": "selection.seed"}
        return other.get(section, "general" if kind == "corpus" else "task")
    if named := _of_finetune if kind == "finetune" else _of_study(kind):
        return named(section, rest)
    if section == "settings":
        of = "weigh" if kind == "weights" else "pretrain" if "size" in now else "adapt"
        return f"{of}.objective" if rest.startswith("objective.") else f"{of}.{rest}"
    return section if section in ("model", "size") else None


def _of_finetune(section: str, rest: str) -> str:
    names = {"model": "model", "task": "cards", "max_train": "finetune.max_train"}
    return names.get(section, f"finetune.{rest}")


def _of_study(kind: str) -> Callable[[str, str], str | None] | None:
    table = study_table(kind)
    return None if table is None else table.setting_of


def _get(settings: Any, key: str) -> Any:
    for name in key.split("."):
        settings = getattr(settings, name, None)
    return settings


def _short(value: Any, limit: int = 60) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _as_given(parsed: argparse.Namespace, setting: str, value: Any) -> str:
    """The flag, or key=value, that gives a setting this value."""
    flag = parsed.flags.get(setting)
    plain = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)
    if flag is None or value is None:
        return f"{'--set ' if hasattr(parsed, 'config') else ''}{shlex.quote(f'{setting}={plain}')}"
    if isinstance(value, list):
        return f"{flag} {','.join(value) if setting == 'ranking.detectors' else shlex.join(map(str, value))}"
    return f"{flag} {shlex.quote(plain)}"


def _elsewhere(parsed: argparse.Namespace) -> str:
    """How this command is told of another folder."""
    if hasattr(parsed, "to"):
        return "--to PLACE"
    return "--out PLACE" if "out" in parsed.flags else "out=PLACE" if hasattr(parsed, "recipe") else "another DIR"
