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
    measure = f"{manifest['metric']} of the probe on training texts of {manifest['task']}"
    steps = f"{manifest['steps']} steps"
    base = number(trials[NONE]["score"])
    chosen = trials[manifest["choice"]]
    if manifest["choice"] != NONE:
        gain = number(chosen["gain"], sign=True)
        bar = number(chosen["bar"])
        words = f"{measure}, {base} without, is {gain} better after {steps}; {bar} counts"
        return f"Objective {manifest['choice']}: the {words}."
    others = [row for name, row in trials.items() if name != NONE and row["gain"] is not None]
    if not others:
        return "No objective can train this model on this text, so the arm is the base."
    best = max(others, key=lambda row: row["gain"])
    gain = number(best["gain"], sign=True)
    words = f"the best, {best['objective']}, changed the {measure} ({base}) by {gain}"
    return f"No objective was worth it, so the arm is the base: {words} in {steps}; {number(best['bar'])} counts."


def pilot_section(run: RunFrames) -> Section | None:
    """Build the section on the pilots of a run; None if it has none."""
    pilots = {}
    for step, manifest in run.stages.items():
        if manifest.get("kind") != "pilot":
            continue
        parents = step.split("/")
        if parents[0] == FINAL:  # of the model at the end, which no fold tests
            continue
        pilots[int(parents[1]) if parents[0] == NESTED else 0] = manifest
    if not pilots:
        return None
    rows = []
    for index, manifest in sorted(pilots.items()):
        for trial in manifest["trials"]:
            chosen = "chosen" if trial["objective"] == manifest["choice"] else ""
            outcome = f"left out: {trial['left_out']}" if trial["left_out"] else chosen
            rows.append({"adaptation": index, **trial, "outcome": outcome})
    first = pilots[min(pilots)]
    answer = [pilot_text(manifest) for _, manifest in sorted(pilots.items())]
    if len(pilots) == 1:
        answer.append(
            "Other folds or adaptations take this choice; of folds, texts that they test had a part in it."
        )
    caption = (
        f"Pilot: {first['steps']} steps by each objective, then probes of the training texts by folds; "
        "score in the task's metric, gain over none, its standard error over texts, and the gain that counts."
    )
    columns = text_columns("objective") + decimals(4, "score", "gain", "error", "bar")
    table = Table("pilot", caption, pd.DataFrame(rows), columns + text_columns("outcome"))
    return Section("Which objective suits the task?", "\n".join(answer), (), (table,))
