"""The checkpoint that a run goes on from: its own newest, or the state that a finished run kept to be extended."""

from pathlib import Path
from typing import Any

from dana.core.launch import first
from dana.train.checkpoints.extension import state_to_extend
from dana.train.checkpoints.folders import Checkpoints, Saved
from dana.train.execution.precision import Precision, refuse_precision
from dana.train.settings import Execution


def saved_to_resume(checkpoints: Checkpoints, execution: Execution, accelerator: Any) -> Saved | None:
    """The same on every rank; collective. None where a run begins.

    Raises:
        ConfigError: If it was trained in another precision.
        ArtifactError: If it is of another run.
    """
    saved = first(lambda: _newest(checkpoints, execution))
    if saved is not None:
        refuse_precision(saved.path, saved.manifest["notes"]["execution"]["precision"], Precision.of(accelerator).name)
    return saved


def _newest(checkpoints: Checkpoints, execution: Execution) -> Saved | None:
    if execution.resume == "never":
        checkpoints.remove()
    newest = checkpoints.newest()
    if newest is None and execution.extend:
        return state_to_extend(Path(execution.extend), checkpoints.depends_on)
    return newest
