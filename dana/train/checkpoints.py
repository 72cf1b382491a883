"""Save, prune, resume and extend the checkpoints of a run; each is written aside, hashed and renamed.

An extended run ends with exactly the weights of the longer run, or it is refused. Order, masks and
dropout of a step do not depend on the number of steps. The learning rate does: never under
``constant`` and ``inverse-sqrt``, under ``wsd`` only in the final decay, from the start under other
schedules. So an extendable run also saves its state after the last step that it shares with every
longer run, and an extension starts from that state.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from dana.core.artifacts import list_differences, write_json
from dana.core.errors import ArtifactError, Preemption
from dana.core.files import find_damage, seal, sync, temp_dir
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger
from dana.train.execution import Precision, refuse_precision
from dana.train.loop import TrainingState
from dana.train.records import EvaluationRecord, Record, from_line, to_line
from dana.train.settings import Execution, TrainSettings
from dana.train.state import explain_write_errors, load_state, save_model, save_state

log = get_logger(__name__)

MANIFEST = "manifest.json"
STATE = "state.safetensors"
RECORDS = "training.jsonl"
NEWEST, BEST = "step", "best"
COPIES = {NEWEST: 2, BEST: 1}  # of each kind


@dataclass(frozen=True)
class RunCheckpoint:
    """A checkpoint whose files match the digests in its manifest.

    Attributes:
        path: Its folder.
        manifest: ``step``, ``files`` (size and digest of each), the inputs it ``depends_on``, and
            the caller's notes.
    """

    path: Path
    manifest: dict[str, Any]


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run.

    Attributes:
        folder: Holds one folder per checkpoint: ``step-00000500``, ``best-00000400``.
        depends_on: Settings and inputs of the run; a checkpoint of another run is refused.
        remedy: Alternative to restoring the settings and inputs, for the error about a checkpoint
            of another run.
    """

    folder: Path
    depends_on: dict[str, Any]
    remedy: str = "start again with execution.resume=never, or choose another folder"

    def save(
        self, step: int, write: Callable[[Path], None], notes: dict[str, Any], kind: str = NEWEST
    ) -> None:
        """Commit a checkpoint, then remove older ones of its kind.

        Args:
            step: Optimizer steps taken.
            write: Writes the files into a given folder.
            notes: Further entries of the manifest.
            kind: One of :data:`COPIES`.

        Raises:
            ArtifactError: If it cannot be written; older checkpoints stay.
        """
        self.commit(f"{kind}-{step:08d}", write, {"step": step, **notes})
        for path in self._newest_first(kind)[COPIES[kind] :]:
            shutil.rmtree(path)

    def commit(self, name: str, write: Callable[[Path], None], notes: dict[str, Any]) -> None:
        """Write a folder aside, hash its files and rename it to `name`, replacing an older folder; see :meth:`save`."""
        final = self.folder / name
        with explain_write_errors(final):
            self.folder.mkdir(parents=True, exist_ok=True)
            with temp_dir(self.folder / "saving") as draft:
                write(draft)
                write_json(
                    draft / MANIFEST, {"depends_on": self.depends_on, **notes, "files": seal(draft)}
                )
                shutil.rmtree(final, ignore_errors=True)
                draft.rename(final)
                sync(self.folder)

    def newest(self, *kinds: str) -> RunCheckpoint | None:
        """Return the intact checkpoint of the latest step, of the given kinds or of any; warn of damaged ones.

        Raises:
            ArtifactError: If it belongs to another run; names the difference.
        """
        newest_first = self._newest_first(*(kinds or COPIES))
        return next(
            (
                checkpoint
                for path in newest_first
                if (checkpoint := self.open(path.name)) is not None
            ),
            None,
        )

    def remove(self) -> None:
        """Delete all checkpoints and hidden leftovers, and the folder unless it holds files of somebody else."""
        for path in self.folder.glob("*"):
            if path.name.startswith(".") or (path / MANIFEST).is_file():
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        with suppress(OSError):
            self.folder.rmdir()

    def _newest_first(self, *kinds: str) -> list[Path]:
        paths = [path for kind in kinds for path in self.folder.glob(f"{kind}-*")]
        return sorted(paths, key=lambda path: path.name.split("-")[::-1], reverse=True)

    def open(self, name: str) -> RunCheckpoint | None:
        """Open the checkpoint of a name; None if there is none, or, with a warning, if a byte of it is damaged.

        Raises:
            ArtifactError: If it belongs to another run.
        """
        path = self.folder / name
        if not path.is_dir():
            return None
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            for flaw in find_damage(path, manifest["files"], digests=True):
                raise OSError(flaw)
            inputs = manifest["depends_on"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            why = f"its manifest has no {error}" if isinstance(error, KeyError) else error
            log.warning("checkpoint %s is damaged (%s) and is not used", path, why)
            return None
        if differences := "; ".join(list_differences(inputs, self.depends_on)):
            self.refuse(path, inputs, differences)
        return RunCheckpoint(path, manifest)

    def refuse(self, path: Path, inputs: dict[str, Any], differences: str) -> NoReturn:
        """Refuse a checkpoint of another run.

        Raises:
            ArtifactError: Names the differences.
        """
        remedy = f"Restore the settings and inputs, {self.remedy}"
        raise ArtifactError(f"{path} belongs to another run ({differences}). {remedy}")


@dataclass
class CheckpointPolicy:
    """Decide from a run's records when to save a checkpoint. Every rank needs one; the main process writes.

    Attributes:
        checkpoints: Folder of the checkpoints.
        settings: Settings of the run.
        notes: Facts from before the first step that a resumed run needs; part of each manifest.
        records: All records so far.
    """

    checkpoints: Checkpoints
    settings: TrainSettings
    notes: dict[str, Any]
    records: list[Record] = field(default_factory=list)

    def resume(self, state: TrainingState, checkpoint: RunCheckpoint) -> None:
        """Restore the training state and the records of a checkpoint."""
        load_state(state, checkpoint.path / STATE)
        self.records = list(
            map(from_line, (checkpoint.path / RECORDS).read_text(encoding="utf-8").splitlines())
        )
        log.info("resumed at step %d, from %s", self.records[-1].step, checkpoint.path)

    def watch(self, state: TrainingState, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records, and save a checkpoint whenever one is due.

        Raises:
            Preemption: After saving, if a signal asked the run to stop.
        """
        every = self.settings.execution.save_every
        try:
            for record in records:
                self.records.append(record)
                yield record
                if isinstance(record, EvaluationRecord):
                    if self.settings.final == "best" and _loss(record) <= min(
                        map(_loss, self.records)
                    ):
                        self.save(state, self.checkpoints, BEST)
                elif every and record.step % every == 0:
                    self.save(state, self.checkpoints)
        except Preemption as stop:
            if not self.records or self.records[-1].step == 0:
                raise Preemption(
                    f"{stop}; nothing is saved yet, the same command begins again"
                ) from stop
            self.save(state, self.checkpoints)
            raise Preemption(f"{stop}; saved, the same command resumes from there") from stop

    def finish(self, state: TrainingState) -> None:
        """Restore the best weights under ``final=best``."""
        if self.settings.final == "best" and (best := self.checkpoints.newest(BEST)) is not None:
            log.info("best weights: those of step %d", best.manifest["step"])
            load_state(state, best.path / STATE)

    def save_for_extension(self, state: TrainingState, checkpoints: Checkpoints) -> None:
        """Save the state a second time, into the folder that stays after the run; replaces an earlier one."""
        if state.accelerator.is_main_process:
            checkpoints.remove()
        self.save(state, checkpoints)

    def save(self, state: TrainingState, checkpoints: Checkpoints, kind: str = NEWEST) -> None:
        """Save the training state and all records as a checkpoint."""

        def write(folder: Path) -> None:
            save_state(state, folder / STATE)
            (folder / RECORDS).write_text("".join(map(to_line, self.records)), encoding="utf-8")

        if state.accelerator.is_main_process:
            checkpoints.save(self.records[-1].step, write, {"notes": self.notes}, kind)
        else:
            save_state(state, None)
        state.accelerator.wait_for_everyone()

    def export(self, state: TrainingState, tokenizer: Any, exports: Checkpoints) -> None:
        """Write the current model as a Hugging Face folder, by one rename."""
        if state.accelerator.is_main_process:
            name = f"{NEWEST}-{self.records[-1].step:08d}"
            exports.commit(name, lambda folder: save_model(state, tokenizer, folder), {})
        else:
            save_model(state, tokenizer, None)
        state.accelerator.wait_for_everyone()


def _loss(record: Record) -> float:
    loss = record.task_loss if isinstance(record, EvaluationRecord) else None
    return math.inf if loss is None else loss


# Settings in which a run and its extension may differ: the shared steps do not depend on them.
MAY_DIFFER = {"steps", "tokens", "epochs", "schedule", "cooldown", "floor"}
MAY_DIFFER |= {"evaluations", "eval_every", "evaluation_tokens", "final"}


def extension_checkpoints(out: Path, depends_on: dict[str, Any]) -> Checkpoints:
    """Return the checkpoints in ``OUT-extend``, which hold the state from which a run can be extended."""
    settings = {
        name: value for name, value in depends_on["settings"].items() if name not in MAY_DIFFER
    }
    folder = out.with_name(f"{out.name}-extend")
    return Checkpoints(
        folder, {**depends_on, "settings": settings}, "or leave out execution.extend"
    )


def find_checkpoint(
    checkpoints: Checkpoints, execution: Execution, accelerator: Any
) -> RunCheckpoint | None:
    """Find the checkpoint to resume from or to extend, the same on every rank; None for a new run. Collective.

    Raises:
        ConfigError: If it was trained in another precision.
        ArtifactError: If it belongs to another run, or if the run to extend saved no state for it.
    """

    def newest() -> RunCheckpoint | None:
        if execution.resume == "never":
            checkpoints.remove()
        checkpoint = checkpoints.newest()
        if checkpoint or not execution.extend:
            return checkpoint
        extension = extension_checkpoints(Path(execution.extend), checkpoints.depends_on)
        if (checkpoint := extension.newest()) is None:
            raise ArtifactError(
                f"{extension.folder}: nothing to extend; the first run needs execution.extendable=true"
            )
        return replace(checkpoint, manifest={**checkpoint.manifest, "extends": True})

    checkpoint = on_rank_0(newest)
    if checkpoint is not None:
        precision = checkpoint.manifest["notes"]["execution"]["precision"]
        refuse_precision(checkpoint.path, precision, Precision.of(accelerator).name)
    return checkpoint
