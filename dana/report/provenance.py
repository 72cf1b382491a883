"""Tabulate the steps, settings and costs of a run, and write the commands that reproduce it.

All of it is from the manifests in the run's folder.
"""

import json
import shlex
from typing import Any

import pandas as pd

from dana.core.artifacts import GIVEN
from dana.core.config import RECIPE, flatten
from dana.core.schemas import NESTED
from dana.report.page import (
    Column,
    Table,
    decimals,
    number,
    percent,
    plain_value,
    shares,
    text_columns,
)
from dana.report.run import RunFrames

MOST_SETTINGS = 80
# Kinds of artifacts in the order of the steps; other kinds come last.
KINDS = (
    "target",
    "pool",
    "ranking",
    "scores",
    "held_out",
    "weights",
    "tokens",
    "model",
    "finetune",
)
# Kinds named in the finding.
WORK = {"scores": "scoring", "model": "training", "finetune": "fine-tuning"}
AGAIN = "again"  # folder that the commands write
BY_HAND = {
    "ranking": f"dana score --rank-only --config {RECIPE} --out {AGAIN}",
    "scores": f"dana score --config {RECIPE} --out {AGAIN}",
    "weights": f"dana weigh {AGAIN} --config {RECIPE}",
    "base": f"dana adapt {AGAIN} --config {RECIPE} --from-scratch {{size}}",
    "adapted": f"dana adapt {AGAIN} --config {RECIPE}",
}


def steps(run: RunFrames) -> dict[str, dict[str, Any]]:
    """Return the manifests of all committed steps by their path, in the order of the steps.

    The fine-tuning of single nested seeds is left out: the joined result holds all of it.
    """

    def rank(path: str) -> tuple[int, bool]:
        kind = shown[path].get("kind")
        place = KINDS.index(kind) if kind in KINDS else len(KINDS)
        # Models trained from scratch come before models that start from another one.
        starts_from_model = "model" in shown[path].get("depends_on", {})
        return place, starts_from_model

    shown = {}
    for path, manifest in run.stages.items():
        is_single_seed = path.startswith(f"{NESTED}/") and manifest.get("kind") == "finetune"
        if not is_single_seed:
            shown[path] = manifest
    return {path: shown[path] for path in sorted(shown, key=rank)}


def step_table(run: RunFrames) -> Table | None:
    """Tabulate the steps: seconds, their share, counts and fingerprint; None without a step."""
    rows: list[dict[str, Any]] = []
    for step, manifest in steps(run).items():
        counts = dict(manifest.get("counts", {}))
        counts.pop("by_source", None)
        words = [f"{key} {plain_value(value)}" for key, value in flatten(counts)]
        rows.append(
            {
                "step": step,
                "kind": str(manifest.get("kind", "")),
                "seconds": max(float(manifest.get("seconds", 0)), run.step_seconds.get(step, 0.0)),
                "counts": "; ".join(words),
                "fingerprint": str(manifest.get("fingerprint", "")),
            }
        )
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    frame.insert(3, "share", frame["seconds"] / max(frame["seconds"].sum(), 1e-300))
    columns = (
        *text_columns("step"),
        *decimals(1, "seconds"),
        *shares("share"),
        *text_columns("counts"),
        Column("fingerprint", lambda row: row.fingerprint[:8], numeric=False),
    )
    caption = (
        "Seconds of wall-clock time, restarts included; scoring is summed over processes, "
        "fine-tuning over seeds. A reused step costs nothing again. The fingerprint identifies "
        "settings and inputs: equal fingerprints, equal results."
    )
    return Table("steps", caption, frame, columns, folded=True)


def setting_table(run: RunFrames) -> Table:
    """Tabulate the settings: one row per step and setting."""
    rows = []
    for step, manifest in steps(run).items():
        for key, value in flatten(manifest.get("depends_on", {})):
            rows.append((step, key, plain_value(value)))
    frame = pd.DataFrame(rows, columns=["step", "setting", "value"])
    caption = (
        "Settings and inputs of each step; of files, the digests (BLAKE2b). The same digests, "
        "settings and versions give the same run."
    )
    columns = text_columns(*frame.columns)
    return Table("settings", caption, frame, columns, max_rows=MOST_SETTINGS, folded=True)


def versions(run: RunFrames) -> dict[str, str]:
    """Return the versions of packages by name; if steps used several versions, all of them."""
    by_package: dict[str, set[str]] = {}
    for manifest in run.stages.values():
        for package, version in manifest.get("versions", {}).items():
            by_package.setdefault(package, set()).add(version)
    return {package: " and ".join(sorted(names)) for package, names in sorted(by_package.items())}


def cost_finding(table: Table) -> str:
    """Summarise the time of all steps and its shares."""
    seconds = table.frame.groupby("kind")["seconds"].sum()
    total = seconds.sum()
    parts = []
    for kind, words in WORK.items():
        if seconds.get(kind, 0):
            parts.append(f"{words} {percent(seconds[kind] / total)}")
    if not parts:
        return f"{duration(total)} of computing."
    return f"{duration(total)} of computing: {', '.join(parts)}."


def duration(seconds: float) -> str:
    """Format seconds as seconds, minutes or hours."""
    if seconds < 120:
        return f"{number(seconds, 1)} seconds"
    if seconds < 7200:
        return f"{number(seconds / 60, 1)} minutes"
    return f"{number(seconds / 3600, 1)} hours"


def reproduction(run: RunFrames) -> str:
    """Write the shell lines that reproduce a run: versions, recipe and commands.

    They are empty without ``recipe.yaml``.
    """
    if not run.recipe:
        return ""
    packages = [f"{package} {version}" for package, version in versions(run).items()]
    lines = [
        f"# {', '.join(packages)}",
        f"cat > {RECIPE} <<'RECIPE'",
        *run.recipe.splitlines(),
        "RECIPE",
    ]
    if run.is_run:
        lines.append(f"dana run {RECIPE} --out {AGAIN}")
        return "\n".join(lines)
    size = run.stages.get("base", {}).get("depends_on", {}).get("size")
    for step, command in BY_HAND.items():
        if step not in run.stages:
            continue
        line = command.format(size=size)
        settings = run.stages[step].get(GIVEN, {})
        given = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        if given:
            line += f" --set {shlex.join(given)}"
        lines.append(line)
    lines.append("# The settings of each fine-tuning are in tables/settings.csv.")
    return "\n".join(lines)
