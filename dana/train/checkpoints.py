"""Save the state of a training run every few steps, and resume a stopped run from it.

A checkpoint is one safetensors file: the tensors of :mod:`dana.train.state`, the records so far as
a tensor of bytes, and the rest as JSON in the file's metadata. It is written under a temporary
name, flushed to disk and renamed, so a file of its name is whole, whatever ends the process.

A run resumes with the settings, inputs and launch that it began with. A checkpoint that was made
with others is refused.
"""

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dana.core.artifacts import canonical, list_differences
from dana.core.errors import ArtifactError, Preemption
from dana.core.files import explain_write_errors, temp_file
from dana.core.launch import PRECISION_VARIABLE, on_rank_0
from dana.core.logging import get_logger
from dana.train.records import EvaluationRecord, Record, from_line, to_line
from dana.train.settings import TrainSettings
from dana.train.state import read_state, restore_state
from dana.train.training_state import TrainingState

log = get_logger(__name__)

LAST = "last"
BEST = "best"
SUFFIX = ".safetensors"
HEADER = "checkpoint"  # key of the metadata
RECORDS = "records"  # name of the tensor
AGAIN = "start again with execution.resume=never"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint file that can be resumed, without its tensors.

    Attributes:
        path: The file.
        records: All records up to its step.
        notes: Facts from before the first step that a resumed run needs.
        loss_scale: State of the gradient scaler under fp16; None without one.
    """

    path: Path
    records: list[Record]
    notes: dict[str, Any]
    loss_scale: dict[str, Any] | None

    @property
    def step(self) -> int:
        """Number of optimizer steps taken."""
        return self.records[-1].step

    def restore(self, state: TrainingState) -> None:
        """Restore model and optimizer. Every rank must call it."""
        restore_state(state, self.path)
        if self.loss_scale is not None:
            state.accelerator.scaler.load_state_dict(self.loss_scale)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run: ``last.safetensors``, under ``final=best`` also ``best.safetensors``.

    Attributes:
        folder: Their folder.
        depends_on: Settings, inputs and launch (:func:`dana.train.execution.describe_launch`) of the
            run.
    """

    folder: Path
    depends_on: dict[str, Any]

    def write(
        self,
        name: str,
        tensors: dict[str, Tensor],
        records: Iterable[Record],
        notes: dict[str, Any],
        loss_scale: dict[str, Any] | None = None,
    ) -> None:
        """Write a checkpoint in place of the one of its name.

        Args:
            name: :data:`LAST` or :data:`BEST`.
            tensors: From :func:`dana.train.state.read_state`.
            records: All records so far.
            notes: See :class:`Checkpoint`.
            loss_scale: See :class:`Checkpoint`.

        Raises:
            ArtifactError: If it cannot be written; the older one stays.
        """
        from safetensors.torch import save_file

        path = self._path(name)
        lines = bytearray("".join(map(to_line, records)), "utf-8")
        contents = {**tensors, RECORDS: torch.frombuffer(lines, dtype=torch.uint8)}
        header = {
            "depends_on": json.loads(canonical(self.depends_on)),
            "notes": notes,
            "loss_scale": loss_scale,
        }
        with explain_write_errors(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            with temp_file(path) as temporary:
                save_file(contents, temporary, {HEADER: json.dumps(header)})

    def open(self, name: str) -> Checkpoint | None:
        """Open the checkpoint of a name, or return None if there is none.

        Raises:
            ArtifactError: If it cannot be read, or was made with other settings, other inputs or
                another launch.
        """
        from safetensors import SafetensorError, safe_open

        path = self._path(name)
        if not path.is_file():
            return None
        try:
            with safe_open(path, "pt") as file:
                header = json.loads(file.metadata()[HEADER])
                lines = bytes(file.get_tensor(RECORDS).numpy()).decode()
            self._refuse_other_run(path, header["depends_on"])
            records = [from_line(line) for line in lines.splitlines()]
            return Checkpoint(path, records, header["notes"], header["loss_scale"])
        except (SafetensorError, OSError, TypeError, KeyError, ValueError) as error:
            raise ArtifactError(f"{path}: is no checkpoint ({error}); {AGAIN}") from error

    def _refuse_other_run(self, path: Path, depends_on: dict[str, Any]) -> None:
        """Refuse the checkpoint of another run.

        Raises:
            ArtifactError: If it was made with other settings, other inputs or another launch.
        """
        differences = "; ".join(list_differences(depends_on, self.depends_on))
        if differences:
            raise ArtifactError(
                f"{path}: belongs to another run ({differences}). Restore settings, inputs and "
                f"launch ({PRECISION_VARIABLE} sets the precision), or {AGAIN}"
            )

    def newest(self) -> Checkpoint | None:
        """Return the checkpoint of the latest step, or None for a new run; see :meth:`open`."""
        found = [self.open(name) for name in (LAST, BEST)]
        return max(filter(None, found), key=lambda checkpoint: checkpoint.step, default=None)

    def remove(self) -> None:
        """Delete the checkpoints and what killed processes left, and the folder if it is empty."""
        for path in [*self.folder.glob(f"*{SUFFIX}"), *self.folder.glob(f".*{SUFFIX}.*")]:
            path.unlink()
        with suppress(OSError):  # missing, or not empty
            self.folder.rmdir()

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"


def find_checkpoint(checkpoints: Checkpoints, resume: str) -> Checkpoint | None:
    """Find the checkpoint to resume, the same on every rank; None for a new run. Collective.

    Args:
        checkpoints: Those of the run.
        resume: ``auto``, or ``never``, which deletes them.

    Raises:
        ArtifactError: See :meth:`Checkpoints.open`.
    """

    def find() -> Checkpoint | None:
        if resume == "never":
            checkpoints.remove()
        return checkpoints.newest()

    return on_rank_0(find)


@dataclass
class CheckpointPolicy:
    """Save checkpoints of a run when they are due. Every rank needs one; the main process writes.

    Attributes:
        checkpoints: Those of the run.
        settings: Settings of the run.
        notes: See :class:`Checkpoint`.
        records: All records so far.
    """

    checkpoints: Checkpoints
    settings: TrainSettings
    notes: dict[str, Any]
    records: list[Record] = field(default_factory=list)

    def resume(self, state: TrainingState, checkpoint: Checkpoint) -> None:
        """Restore the training state and the records of a checkpoint."""
        checkpoint.restore(state)
        self.records = list(checkpoint.records)
        log.info("resumed at step %d, from %s", checkpoint.step, checkpoint.path)

    def watch(self, state: TrainingState, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records, and save a checkpoint after each at which one is due.

        Raises:
            Preemption: After saving, if a signal asked the run to stop.
        """
        every = self.settings.execution.save_every
        try:
            for record in records:
                self.records.append(record)
                yield record
                if isinstance(record, EvaluationRecord):
                    if self.settings.final == "best" and self._is_best(record):
                        self.save(state, BEST)
                elif every and record.step % every == 0:
                    self.save(state)
        except Preemption as stop:
            if not self.records or self.records[-1].step == 0:
                raise Preemption(
                    f"{stop}; nothing is saved yet, the same command begins again"
                ) from stop
            self.save(state)
            raise Preemption(f"{stop}; saved, the same command resumes from there") from stop

    def finish(self, state: TrainingState) -> None:
        """Restore the best weights under ``final=best``."""
        best = self.checkpoints.open(BEST) if self.settings.final == "best" else None
        if best is not None:
            log.info("best weights: those of step %d", best.step)
            best.restore(state)

    def save(self, state: TrainingState, name: str = LAST) -> None:
        """Save the training state and all records as a checkpoint; every rank must call it."""
        tensors = read_state(state)
        if state.accelerator.is_main_process:
            scaler = state.accelerator.scaler
            loss_scale = scaler.state_dict() if scaler is not None else None
            self.checkpoints.write(name, tensors, self.records, self.notes, loss_scale)
        state.accelerator.wait_for_everyone()

    def _is_best(self, evaluation: EvaluationRecord) -> bool:
        evaluations = [record for record in self.records if isinstance(record, EvaluationRecord)]
        return _loss(evaluation) <= min(map(_loss, evaluations))


def _loss(evaluation: EvaluationRecord) -> float:
    return math.inf if evaluation.target_loss is None else evaluation.target_loss
