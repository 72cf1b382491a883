"""Say what is known of selected text before a model is adapted on it.

That it predicts the outcome is not shown.
"""

import math
from collections.abc import Mapping
from typing import Any

from dana.core.schemas import NESTED
from dana.report.page import number, percent
from dana.report.run import RunFrames

MOST_NATS = 50.0  # beyond it, a perplexity is only large
MEASURES = ("base_losses", "known_to_base", "in_domain", "vocabulary")


def gates(run: RunFrames) -> dict[str, list[dict[str, Any]]]:
    """Collect what was measured of each arm's text, one entry per adaptation or fold."""
    by_arm: dict[str, list[dict[str, Any]]] = {}
    for step, manifest in run.stages.items():
        if not step.endswith("/gate"):
            continue
        *parents, _, arm, _ = step.split("/")
        index = int(parents[1]) if parents[:1] == [NESTED] else 0
        measures = {name: manifest.get(name) for name in MEASURES}
        by_arm.setdefault(arm, []).append({"adaptation": index, **measures})
    for entries in by_arm.values():
        entries.sort(key=lambda entry: entry["adaptation"])
    return by_arm


def gate_text(gate: Mapping[str, Any]) -> str:
    """Say how hard the base finds the selected text before it is adapted, and how much it knows.

    Args:
        gate: Manifest of a gate, or of a model that was adapted on selected text; what it lacks is
            left out.
    """
    losses = gate.get("base_losses")
    if not losses or losses["selected"] is None or losses["random"] is None:
        return ""
    selected = losses["selected"]
    random = losses["random"]
    error = math.hypot(losses["selected_se"] or 0.0, losses["random_se"] or 0.0)
    if abs(selected - random) <= 2 * error:
        comparison = "as hard as"
    elif selected < random:
        comparison = "easier than"
    else:
        comparison = "harder than"
    text = (
        f"Before adaptation the model finds the selected text {comparison} random text of the pool "
        f"(perplexity {_perplexity(selected)} against {_perplexity(random)})"
    )
    share = gate.get("known_to_base")
    if share is not None:
        text += f", and was trained on {percent(share)} of it"
    return f"{text}. This does not predict what adaptation will do."


def _perplexity(loss: float) -> str:
    """Format the perplexity of a loss per token."""
    return number(math.exp(min(loss, MOST_NATS)), 1)
