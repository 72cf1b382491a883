"""Checkpoint policy: saves every so many steps or minutes, at the best evaluation, and when told to stop."""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from dana.core.errors import Preempted
from dana.core.logging import get_logger
from dana.train.checkpoints.folders import RECORDS, STATE, Checkpoints, Saved
from dana.train.checkpoints.state import load_state, save_state
from dana.train.execution.accelerator import total
from dana.train.loop import Prepared
from dana.train.records import EvaluationRecord, Progress, Record, from_line, to_line
from dana.train.settings import TrainSettings

log = get_logger(__name__)


@dataclass
class CheckpointPolicy:
    """Watches a run's records go by and saves; every rank needs one, the main process writes.

    Attributes:
        checkpoints: Where to.
        settings: The run.
        notes: What the run found out before its first step and a resumed one must know: kept in each manifest.
        records: All records so far.
        saved_at: When it last saved, or began, on this process's clock.
    """

    checkpoints: Checkpoints
    settings: TrainSettings
    notes: dict[str, Any]
    records: list[Record] = field(default_factory=list)
    saved_at: float = field(default_factory=lambda: time.monotonic())

    def resume(self, prepared: Prepared, saved: Saved) -> Progress:
        """Put a checkpoint back; returns how far it had come."""
        load_state(prepared, saved.path / STATE)
        lines = (saved.path / RECORDS).read_text(encoding="utf-8").splitlines()
        self.records = [from_line(line) for line in lines]
        done = Progress.of(self.records)
        log.info("resumed at step %d, from %s", done.step, saved.path)
        return done

    def watch(self, prepared: Prepared, records: Iterable[Record]) -> Iterator[Record]:
        """Pass records on, saving when it is time.

        Raises:
            Preempted: After saving, if the run was told to stop.
        """
        execution = self.settings.execution
        every = execution.save_every if execution.keep else 0
        try:
            for record in records:
                self.records.append(record)
                yield record
                if isinstance(record, EvaluationRecord):
                    if self.settings.final == "best" and _loss(record) <= min(map(_loss, self.records)):
                        self._save(prepared, best=True)
                elif (every and record.step % every == 0) or self._is_time(prepared):
                    self._save(prepared)
        except Preempted as stop:
            if Progress.of(self.records).step > 0:
                self._save(prepared)
            raise Preempted(f"{stop}; saved, the same command goes on from there") from stop

    def finish(self, prepared: Prepared) -> None:
        """Put the best weights back, where those are what the run is for."""
        if self.settings.final == "best" and (best := self.checkpoints.best()) is not None:
            log.info("the best weights are those of step %d", best.manifest["step"])
            load_state(prepared, best.path / STATE)

    def _is_time(self, prepared: Prepared) -> bool:
        """Whether so many minutes have passed on the first rank's clock; every rank must ask together."""
        execution = self.settings.execution
        if not (execution.save_minutes and execution.keep):
            return False
        passed = (
            prepared.accelerator.is_main_process and time.monotonic() - self.saved_at >= 60 * execution.save_minutes
        )
        return bool(total(prepared.accelerator, torch.tensor([float(passed)])).item())

    def keep_to_extend(self, prepared: Prepared, kept: Checkpoints) -> None:
        """Save the state once more, at a place where it stays when the run is over."""
        if prepared.accelerator.is_main_process:
            kept.remove()
        self._save(prepared, into=kept)

    def _save(self, prepared: Prepared, best: bool = False, into: Checkpoints | None = None) -> None:
        step = Progress.of(self.records).step
        if into is None:  # from elsewhere this run does not go on
            self.saved_at = time.monotonic()
        if not prepared.accelerator.is_main_process:
            save_state(prepared, None)
        else:

            def write(folder: Path) -> None:
                save_state(prepared, folder / STATE)
                (folder / RECORDS).write_text("".join(map(to_line, self.records)), encoding="utf-8")

            (into or self.checkpoints).save(step, write, {"notes": self.notes}, best)
        prepared.accelerator.wait_for_everyone()


def _loss(record: Record) -> float:
    """The loss that decides which weights are the best; infinite where none was measured."""
    found = record.task_loss if isinstance(record, EvaluationRecord) else None
    return math.inf if found is None else found
