"""Say what a pilot of objectives chose, and why."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from dana.core.schemas import FINAL, NESTED
from dana.report.page import Section, Table, decimals, number, text_columns
from dana.report.run import RunFrames

NONE = "none"
UNLABELLED = "unlabelled"  # the part of a mixture that is the task's texts without labels


class Pilot(NamedTuple):
    """Which pilot of a run it is.

    Attributes:
        adaptation: Index of its adaptation or fold.
        is_unlabelled: Whether it trained on the texts without labels.
    """

    adaptation: int
    is_unlabelled: bool


def pilot_text(manifest: Mapping[str, Any]) -> str:
    """Say in a sentence which objective a pilot chose, and that it read texts without labels if it did.

    Args:
        manifest: Manifest of the pilot.
    """
    words = _choice_words(manifest)
    return f"On texts without labels: {words}" if _is_unlabelled(manifest) else words


def _is_unlabelled(manifest: Mapping[str, Any]) -> bool:
    """Return whether a pilot trained on nothing but the task's texts without labels."""
    mix = manifest.get("depends_on", {}).get("mix", {})
    return set(mix) == {UNLABELLED}


def _choice_words(manifest: Mapping[str, Any]) -> str:
    """Say which objective a pilot chose."""
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
    for pilot, manifest in sorted(pilots.items()):
        for trial in manifest["trials"]:
            outcome = ""
            if trial["left_out"]:
                outcome = f"left out: {trial['left_out']}"
            elif trial["objective"] == manifest["choice"]:
                outcome = "chosen"
            text = "unlabelled" if pilot.is_unlabelled else "selected"
            rows.append({"adaptation": pilot.adaptation, "text": text, **trial, "outcome": outcome})
    first = pilots[min(pilots)]
    answer = [pilot_text(manifest) for _, manifest in sorted(pilots.items())]
    if all(pilot.adaptation == 0 for pilot in pilots):
        answer.append(
            "Other folds or adaptations choose as the first did; of folds, texts that they test had "
            "a part in that."
        )
    caption = (
        f"Pilot: {first['steps']} steps by each objective, then probes of the training texts by "
        "folds; score in the task's metric, gain over none, its standard error over texts, and the "
        "gain that counts."
    )
    has_both = len({pilot.is_unlabelled for pilot in pilots}) > 1
    columns = (
        *text_columns(*(["text"] if has_both else []), "objective"),
        *decimals(4, "score", "gain", "error", "bar"),
        *text_columns("outcome"),
    )
    table = Table("pilot", caption, pd.DataFrame(rows), columns)
    return Section("Which objective suits the task?", "\n".join(answer), tables=(table,))


def is_base_kept(run: RunFrames) -> bool:
    """Return whether pilots found no objective that pays, so that the arms are the base.

    With pilots on selected and on unlabelled text, it is about the arms that select.
    """
    pilots = _pilots(run)
    of_selected = [manifest for pilot, manifest in pilots.items() if not pilot.is_unlabelled]
    choices = {manifest["choice"] for manifest in of_selected or pilots.values()}
    return choices == {NONE}


def _pilots(run: RunFrames) -> dict[Pilot, dict[str, Any]]:
    """Return the manifests of a run's pilots."""
    pilots = {}
    for step, manifest in run.stages.items():
        if manifest.get("kind") != "pilot":
            continue
        parents = step.split("/")
        if parents[0] == FINAL:  # of the model at the end, which no fold tests
            continue
        index = int(parents[1]) if parents[0] == NESTED else 0
        pilots[Pilot(index, _is_unlabelled(manifest))] = manifest
    return pilots
