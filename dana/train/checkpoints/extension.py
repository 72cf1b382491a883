"""Extension of a finished run: its state before the learning rate falls is kept, and a longer run starts there.

The longer run ends with the bits that it would have had without the shorter one, or is refused.

Order, masks and dropout of a step do not depend on how long a run is. Its learning rate does, but under ``constant``
not at all, and under ``wsd`` only in the steps that fall. So a run that is to be extended keeps its state from the last
step that every longer run shares with it, and whoever extends it starts there.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from dana.core.config import require
from dana.core.errors import ArtifactError
from dana.train.checkpoints.folders import Checkpoints, Saved
from dana.train.plan import Plan
from dana.train.settings import TrainSettings

# What may differ: the steps up to there are the same whatever these say.
FREE = (
    *("steps", "tokens", "epochs", "schedule", "cooldown", "floor"),
    *("evaluations", "eval_every", "evaluation_tokens", "final"),
)


def to_extend(out: Path, depends_on: dict[str, Any]) -> Checkpoints:
    """Where a run keeps the state from which it can be extended: ``OUT-extend``."""
    settings = {name: value for name, value in depends_on["settings"].items() if name not in FREE}
    return Checkpoints(out.with_name(f"{out.name}-extend"), {**depends_on, "settings": settings}, keep=1)


def state_to_extend(out: Path, depends_on: dict[str, Any]) -> Saved:
    """What a finished run kept for the run that goes on from it.

    Args:
        out: The finished model's folder.
        depends_on: Of the run that goes on.

    Raises:
        ArtifactError: If it kept nothing, or its settings, text or base are not those of the run that goes on.
    """
    kept = replace(to_extend(out, depends_on), otherwise="or do without execution.extend")
    saved = kept.newest()
    if saved is None:
        raise ArtifactError(
            f"{kept.folder}: no such state; a run that is to be extended needs execution.extendable=true"
        )
    return replace(saved, manifest={**saved.manifest, "extends": True})


def check_shares(plan: Plan, settings: TrainSettings) -> int:
    """How many steps of a run are the same in every longer one.

    Raises:
        ConfigError: If it is to be extended and there is none.
    """
    shared = settings.shared_steps(len(plan))
    allowed = f"false: the run has {len(plan)} step(s), and a longer one would share none of them"
    require(shared > 0 or not settings.execution.extendable, "extendable", True, allowed)
    return shared


def check_reaches(saved: Saved, plan: Plan, settings: TrainSettings) -> None:
    """Refuse a run whose own steps differ from those it is to go on from.

    Raises:
        ConfigError: If its rate would have begun to fall before, or it would have ended.
    """
    shared, came = settings.shared_steps(len(plan)), saved.manifest["step"]
    allowed = f"more: its rate is constant for {shared} steps, and what it extends had come to step {came}"
    require(shared >= came, "steps", len(plan), allowed)
