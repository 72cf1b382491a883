"""A run's manifests to tables of steps, settings and costs, and to the commands that make the run again."""

from typing import Any

import pandas as pd

from dana.core.schemas import NESTED
from dana.report.files import flatten
from dana.report.page import Column, Table, decimals, number, percent, shares, text_columns
from dana.report.run import RunFrames

MOST_SETTINGS = 80
# The order in which steps are taken; whatever else there is comes last.
KINDS = ("harvest", "task", "corpus", "ranking", "scores", "held_out", "weights", "tokens", "model", "finetune")
WORK = {"scores": "scoring", "model": "training", "finetune": "fine-tuning"}  # named in the sentence
AGAIN, RECIPE = "again", "recipe.yaml"  # the folder and the file that the commands write
BY_HAND = {
    "ranking": f"dana rank --config {RECIPE} --out {AGAIN}",
    "scores": f"dana score --config {RECIPE} --out {AGAIN}",
    "weights": f"dana weigh {AGAIN}",
    "base": f"dana pretrain {AGAIN}",
    "adapted": f"dana adapt {AGAIN}",
}


def steps(run: RunFrames) -> dict[str, dict[str, Any]]:
    """Every committed step's manifest by its place in the folder, in the order of work.

    The fine-tuning of each nested seed is left out: the result that joins the seeds holds all of it.
    """

    def place(step: tuple[str, dict[str, Any]]) -> tuple[int, bool]:
        """By its kind; of models, those that start from none come first."""
        kind = step[1].get("kind")
        return KINDS.index(kind) if kind in KINDS else len(KINDS), "model" in step[1].get("depends_on", {})

    nested = {
        place
        for place, manifest in run.stages.items()
        if place.startswith(f"{NESTED}/") and manifest.get("kind") == "finetune"
    }
    return dict(sorted(((name, about) for name, about in run.stages.items() if name not in nested), key=place))


def step_table(run: RunFrames) -> Table | None:
    """A row a step: seconds, their share, counts, and the fingerprint of all it was made from; None without a step."""
    rows: list[dict[str, Any]] = []
    for place, manifest in steps(run).items():
        counts = flatten({key: count for key, count in manifest.get("counts", {}).items() if key != "by_source"})
        rows.append(
            {
                "step": place,
                "kind": str(manifest.get("kind", "")),
                "seconds": max(float(manifest.get("seconds", 0)), run.recorded.get(place, 0.0)),
                "counts": "; ".join(f"{key} {_plain(value)}" for key, value in counts),
                "fingerprint": str(manifest.get("fingerprint", "")),
            }
        )
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    frame.insert(3, "share", frame["seconds"] / max(frame["seconds"].sum(), 1e-300))
    columns = (*text_columns("step"), *decimals(1, "seconds"), *shares("share"), *text_columns("counts"))
    columns += (Column("fingerprint", lambda row: row.fingerprint[:8], numeric=False),)
    caption = (
        "Seconds by the clock, over every time that a step was begun again; of scoring summed over processes, of "
        "fine-tuning over seeds. What was reused cost nothing again. The fingerprint is of the settings and inputs: "
        "the same fingerprint, the same outcome."
    )
    return Table("steps", caption, frame, columns)


def setting_table(run: RunFrames) -> Table:
    """A row a step and setting."""
    rows = [
        (place, key, _plain(value))
        for place, manifest in steps(run).items()
        for key, value in flatten(manifest.get("depends_on", {}))
    ]
    frame = pd.DataFrame(rows, columns=["step", "setting", "value"])
    caption = (
        "What each step was made from; of files the digests (BLAKE2b). The same digests, settings and versions "
        "give the same run."
    )
    return Table("settings", caption, frame, text_columns(*frame.columns), most=MOST_SETTINGS, folded=True)


def _plain(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def versions(run: RunFrames) -> dict[str, str]:
    """Package to version; several versions, where steps differ, are all named."""
    found: dict[str, set[str]] = {}
    for manifest in run.stages.values():
        for package, version in manifest.get("versions", {}).items():
            found.setdefault(package, set()).add(version)
    return {package: " and ".join(sorted(used)) for package, used in sorted(found.items())}


def cost_finding(table: Table) -> str:
    """The time of all steps, and where it went."""
    seconds = table.frame.groupby("kind")["seconds"].sum()
    total = seconds.sum()
    parts = [f"{words} {percent(seconds[kind] / total)}" for kind, words in WORK.items() if seconds.get(kind, 0)]
    return f"{_duration(total)} in all{': ' if parts else ''}{', '.join(parts)}."


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{number(seconds, 1)} seconds"
    return f"{number(seconds / 60, 1)} minutes" if seconds < 7200 else f"{number(seconds / 3600, 1)} hours"


def reproduction(run: RunFrames) -> str:
    """Versions as a comment, the settings as a recipe, and the commands; empty where no settings are kept."""
    if not run.settings:
        return ""
    lines = [f"# {', '.join(f'{package} {version}' for package, version in versions(run).items())}"]
    lines += [f"cat > {RECIPE} <<'RECIPE'", *run.settings.splitlines(), "RECIPE"]
    if run.is_grid:
        return "\n".join([*lines, f"dana run {RECIPE} out={AGAIN}"])
    lines += [command for place, command in BY_HAND.items() if place in run.stages]
    return "\n".join([*lines, "# What each model was fine-tuned with is in tables/settings.csv."])
