"""Say what a pilot of objectives chose, and why."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from dana.core.schemas import FINAL, NESTED
from dana.report.page import Section, Table, decimals, number, text_columns
from dana.report.run import RunFrames

NONE = "none"


def pilot_text(manifest: Mapping[str, Any]) -> str:
    """Say in a sentence which objective a pilot chose.

    Args:
        manifest: Manifest of the pilot.
    """
    trials = {row["objective"]: row for row in manifest["trials"]}
    choice = manifest["choice"]
    steps = manifest["steps"]
    measure = f"{manifest['metric']} of the probe on training texts of {manifest['task']}"
    base = number(trials[NONE]["score"])
    if choice != NONE:
        gain = number(trials[choice]["gain"], sign=True)
        bar = number(trials[choice]["bar"])
        return (
            f"Objective {choice}: the {measure}, {base} without, is {gain} better after {steps} "
            f"steps; {bar} counts."
        )
    others = [row for name, row in trials.items() if name != NONE and row["gain"] is not None]
    if not others:
        return "No objective can train this model on this text, so the arm is the base."
    best = max(others, key=lambda row: row["gain"])
    gain = number(best["gain"], sign=True)
    bar = number(best["bar"])
    return (
        f"No objective was worth it, so the arm is the base: the best, {best['objective']}, "
        f"changed the {measure} ({base}) by {gain} in {steps} steps; {bar} counts."
    )


def pilot_section(run: RunFrames) -> Section | None:
    """Build the section on the pilots of a run; None if it has none."""
    pilots = _pilots(run)
    if not pilots:
        return None
    rows = []
    for index, manifest in sorted(pilots.items()):
        for trial in manifest["trials"]:
            outcome = ""
            if trial["left_out"]:
                outcome = f"left out: {trial['left_out']}"
            elif trial["objective"] == manifest["choice"]:
                outcome = "chosen"
            rows.append({"adaptation": index, **trial, "outcome": outcome})
    first = pilots[min(pilots)]
    answer = [pilot_text(manifest) for _, manifest in sorted(pilots.items())]
    if len(pilots) == 1:
        answer.append(
            "Other folds or adaptations take this choice; of folds, texts that they test had a "
            "part in it."
        )
    caption = (
        f"Pilot: {first['steps']} steps by each objective, then probes of the training texts by "
        "folds; score in the task's metric, gain over none, its standard error over texts, and the "
        "gain that counts."
    )
    columns = (
        *text_columns("objective"),
        *decimals(4, "score", "gain", "error", "bar"),
        *text_columns("outcome"),
    )
    table = Table("pilot", caption, pd.DataFrame(rows), columns)
    return Section("Which objective suits the task?", "\n".join(answer), tables=(table,))


def is_base_kept(run: RunFrames) -> bool:
    """Return whether pilots found no objective that pays, so that the arms are the base."""
    choices = {manifest["choice"] for manifest in _pilots(run).values()}
    return choices == {NONE}


def _pilots(run: RunFrames) -> dict[int, dict[str, Any]]:
    """Return the manifests of a run's pilots by adaptation or fold."""
    pilots = {}
    for step, manifest in run.stages.items():
        if manifest.get("kind") != "pilot":
            continue
        parents = step.split("/")
        if parents[0] == FINAL:  # of the model at the end, which no fold tests
            continue
        index = int(parents[1]) if parents[0] == NESTED else 0
        pilots[index] = manifest
    return pilots
