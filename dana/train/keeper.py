"""When to save: every so many steps, at the best evaluation, and when told to stop; and how to go on from it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dana.logging import get_logger
from dana.train.checkpoints import RECORDS, STATE, Checkpoints, Saved
from dana.train.loop import Prepared
from dana.train.records import EvaluationRecord, Progress, Record, from_line, to_line
from dana.train.settings import TrainSettings
from dana.train.state import load_state, save_state
from dana.train.stop import Preempted

log = get_logger(__name__)


@dataclass
class Keeper:
    """Watches a run's records go by and saves; every rank needs one, the main process writes.

    Attributes:
        checkpoints: Where to.
        settings: The run.
        notes: What the run found out before its first step and a resumed one must know: kept in each manifest.
        records: All records so far.
    """

    checkpoints: Checkpoints
    settings: TrainSettings
    notes: dict[str, Any]
    records: list[Record] = field(default_factory=list)

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
                    if self.settings.final == "best" and record.task_loss <= self._best_loss():
                        self._save(prepared, best=True)
                elif every and record.step % every == 0:
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

    def _best_loss(self) -> float:
        return min(record.task_loss for record in self.records if isinstance(record, EvaluationRecord))

    def _save(self, prepared: Prepared, best: bool = False) -> None:
        step = Progress.of(self.records).step
        if not prepared.accelerator.is_main_process:
            save_state(prepared, None)
        else:

            def write(folder: Path) -> None:
                save_state(prepared, folder / STATE)
                (folder / RECORDS).write_text("".join(map(to_line, self.records)), encoding="utf-8")

            self.checkpoints.save(step, write, {"notes": self.notes}, best)
        prepared.accelerator.wait_for_everyone()
