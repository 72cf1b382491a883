"""Tables of provenance: steps, counts in and out, settings, package versions."""

from typing import Any

import pandas as pd

from dana.core.schemas import NESTED
from dana.report.files import flatten
from dana.report.frames import RunFrames
from dana.report.page import Column, Table

MOST_SETTINGS = 80
# The order in which steps are taken; whatever else there is comes last.
KINDS = ("harvest", "task", "corpus", "ranking", "scores", "held_out", "weights", "tokens", "model", "finetune")
DETAILS = ("by_source",)  # counts that have a table of their own


def steps(run: RunFrames) -> dict[str, dict[str, Any]]:
    """Every committed step's manifest by its place in the folder, in the order of work."""
    return dict(sorted(run.stages.items(), key=lambda step: _place(step[1])))


def is_part(place: str, manifest: dict[str, Any]) -> bool:
    """Whether a step is the fine-tuning of one nested seed: the result that joins the seeds holds all of it."""
    return place.startswith(f"{NESTED}/") and manifest.get("kind") == "finetune"


def _place(manifest: dict[str, Any]) -> tuple[int, bool]:
    """By its kind; of models, those that start from none come first."""
    kind = manifest.get("kind")
    return KINDS.index(kind) if kind in KINDS else len(KINDS), "model" in manifest.get("depends_on", {})


def step_table(run: RunFrames) -> Table:
    """A row a step: counts, and the fingerprint of all it was made from."""
    rows = []
    for place, manifest in steps(run).items():
        counts = "; ".join(
            f"{key} {_plain(value)}"
            for key, value in flatten(manifest.get("counts", {}))
            if key.split(".")[0] not in DETAILS
        )
        row = {"step": place, "kind": manifest.get("kind", "")}
        rows.append({**row, "counts": counts, "fingerprint": str(manifest.get("fingerprint", ""))})
    columns = (
        Column("step", lambda row: row.step, numeric=False),
        Column("counts", lambda row: row.counts, numeric=False),
        Column("fingerprint", lambda row: row.fingerprint[:8], numeric=False),
    )
    caption = "The fingerprint is of the settings and inputs: the same fingerprint, the same outcome."
    names = ["step", "kind", "counts", "fingerprint"]
    return Table("steps", caption, pd.DataFrame(rows, columns=names), columns)


def setting_table(run: RunFrames) -> Table:
    """A row a step and setting."""
    rows = [
        {"step": place, "setting": key, "value": _plain(value)}
        for place, manifest in steps(run).items()
        for key, value in flatten(manifest.get("depends_on", {}))
    ]
    columns = (
        Column("step", lambda row: row.step, numeric=False),
        Column("setting", lambda row: row.setting, numeric=False),
        Column("value", lambda row: row.value, numeric=False),
    )
    frame = pd.DataFrame(rows, columns=["step", "setting", "value"])
    return Table("settings", "What each step was made from.", frame, columns, most=MOST_SETTINGS, folded=True)


def versions(run: RunFrames) -> dict[str, str]:
    """Package to version; several versions, where steps differ, are all named."""
    found: dict[str, set[str]] = {}
    for manifest in steps(run).values():
        for package, version in manifest.get("versions", {}).items():
            found.setdefault(package, set()).add(version)
    return {package: " and ".join(sorted(used)) for package, used in sorted(found.items())}


def _plain(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
