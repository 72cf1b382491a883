"""Tabulate the steps, settings and costs of a run from its manifests, and write the commands that reproduce it."""

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
    "harvest",
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
WORK = {
    "scores": "scoring",
    "model": "training",
    "finetune": "fine-tuning",
}  # kinds named in the finding
AGAIN = "again"  # folder that the commands write
BY_HAND = {
    "ranking": f"dana score --rank-only --config {RECIPE} --out {AGAIN}",
    "scores": f"dana score --config {RECIPE} --out {AGAIN}",
    "weights": f"dana weigh {AGAIN} --config {RECIPE}",
    "base": f"dana adapt {AGAIN} --config {RECIPE} --from-scratch {{size}}",
    "adapted": f"dana adapt {AGAIN} --config {RECIPE}",
}


def steps(run: RunFrames) -> dict[str, dict[str, Any]]:
    """Return the manifests of all committed steps by their path in the run's folder, in the order of the steps.

    The fine-tuning of single nested seeds is left out: the joined result holds all of it.
    """

    def rank(step: tuple[str, dict[str, Any]]) -> tuple[int, bool]:
        # Models trained from scratch come before models that start from another one.
        kind = step[1].get("kind")
        return KINDS.index(kind) if kind in KINDS else len(KINDS), "model" in step[1].get(
            "depends_on", {}
        )

    def is_single_seed(path: str, manifest: dict[str, Any]) -> bool:
        return path.startswith(f"{NESTED}/") and manifest.get("kind") == "finetune"

    return dict(
        sorted((step for step in run.stages.items() if not is_single_seed(*step)), key=rank)
    )


def step_table(run: RunFrames) -> Table | None:
    """Tabulate the steps: seconds, their share, counts and fingerprint; None without a step."""
    rows: list[dict[str, Any]] = []
    for step, manifest in steps(run).items():
        counts = flatten(
            {key: count for key, count in manifest.get("counts", {}).items() if key != "by_source"}
        )
        seconds = max(float(manifest.get("seconds", 0)), run.step_seconds.get(step, 0.0))
        identity = {name: str(manifest.get(name, "")) for name in ("kind", "fingerprint")}
        words = "; ".join(f"{key} {plain_value(value)}" for key, value in counts)
        rows.append(
            {
                "step": step,
                "kind": identity["kind"],
                "seconds": seconds,
                "counts": words,
                **identity,
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
    )
    columns += (Column("fingerprint", lambda row: row.fingerprint[:8], numeric=False),)
    caption = (
        "Seconds of wall-clock time, restarts included; scoring is summed over processes, fine-tuning over seeds. A "
        "reused step costs nothing again. The fingerprint identifies settings and inputs: equal fingerprints, equal "
        "results."
    )
    return Table("steps", caption, frame, columns, folded=True)


def setting_table(run: RunFrames) -> Table:
    """Tabulate the settings: one row per step and setting."""
    settings = (
        (step, flatten(manifest.get("depends_on", {}))) for step, manifest in steps(run).items()
    )
    rows = [(step, key, plain_value(value)) for step, pairs in settings for key, value in pairs]
    frame = pd.DataFrame(rows, columns=["step", "setting", "value"])
    caption = (
        "Settings and inputs of each step; of files, the digests (BLAKE2b). The same digests, settings and versions "
        "give the same run."
    )
    return Table(
        "settings",
        caption,
        frame,
        text_columns(*frame.columns),
        max_rows=MOST_SETTINGS,
        folded=True,
    )


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
    parts = [
        f"{words} {percent(seconds[kind] / total)}"
        for kind, words in WORK.items()
        if seconds.get(kind, 0)
    ]
    return f"{duration(total)} of computing{': ' if parts else ''}{', '.join(parts)}."


def duration(seconds: float) -> str:
    """Format seconds as seconds, minutes or hours."""
    if seconds < 120:
        return f"{number(seconds, 1)} seconds"
    return (
        f"{number(seconds / 60, 1)} minutes"
        if seconds < 7200
        else f"{number(seconds / 3600, 1)} hours"
    )


def reproduction(run: RunFrames) -> str:
    """Write the shell lines that reproduce a run: versions, recipe and commands; empty without ``recipe.yaml``."""
    if not run.recipe:
        return ""
    lines = [f"# {', '.join(f'{package} {version}' for package, version in versions(run).items())}"]
    lines += [f"cat > {RECIPE} <<'RECIPE'", *run.recipe.splitlines(), "RECIPE"]
    if run.is_run:
        return "\n".join([*lines, f"dana run {RECIPE} --out {AGAIN}"])
    size = run.stages.get("base", {}).get("depends_on", {}).get("size")
    for step, command in BY_HAND.items():
        if step in run.stages:
            given = run.stages[step].get(GIVEN, {})
            words = [f"{key}={json.dumps(value)}" for key, value in given.items()]
            flags = f" --set {shlex.join(words)}" if words else ""
            lines.append(command.format(size=size) + flags)
    return "\n".join([*lines, "# The settings of each fine-tuning are in tables/settings.csv."])
