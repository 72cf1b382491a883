"""Say what is known of selected text before a model is adapted on it; that it predicts the outcome is not shown."""

import math
from collections.abc import Mapping
from typing import Any

from dana.core.schemas import NESTED
from dana.report.page import number, percent
from dana.report.run import RunFrames

MEASURES = ("base_losses", "known_to_base", "in_domain", "vocabulary")


def gates(run: RunFrames) -> dict[str, list[dict[str, Any]]]:
    """Collect what was measured of each arm's text, one entry an adaptation or fold."""
    folders = {
        step.removesuffix("/gate"): manifest
        for step, manifest in run.stages.items()
        if step.endswith("/gate")
    }
    rows: dict[str, list[dict[str, Any]]] = {}
    for folder, manifest in folders.items():
        *parents, _, arm = folder.split("/")
        index = int(parents[1]) if parents[:1] == [NESTED] else 0
        rows.setdefault(arm, []).append(
            {"adaptation": index, **{name: manifest.get(name) for name in MEASURES}}
        )
    return {
        arm: sorted(entries, key=lambda entry: entry["adaptation"]) for arm, entries in rows.items()
    }


def gate_text(gate: Mapping[str, Any]) -> str:
    """Say how well the base predicts and knows the selected text, and how near the pool and its words are to the task.

    Args:
        gate: Manifest of a gate, or of a model that was adapted on selected text; what it lacks is
            left out.
    """
    losses, share, pool = (gate.get(name) for name in MEASURES[:3])
    parts = []
    if losses and None not in (selection := losses["selected"], random := losses["random"]):
        error = math.hypot(losses["selected_se"] or 0.0, losses["random_se"] or 0.0)
        comparison = "better than" if selection < random else "worse than"
        comparison = comparison if abs(selection - random) > 2 * error else "as well as"
        numbers = (
            f"{number(selection, 2)} against {number(random, 2)} nats a token, lower is better"
        )
        parts.append(f"the base predicts the selected text {comparison} random text ({numbers})")
    parts += [f"it was trained on {percent(share)} of it"] if share is not None and parts else []
    parts += [f"{percent(pool, 2)} of the pool scores like the task"] if pool is not None else []
    if "vocabulary" in gate:
        parts.append(
            f"the words of target and pool text are {number(gate['vocabulary'], 2)} apart, of 1"
        )
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if parts else ""
