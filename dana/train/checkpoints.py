"""Checkpoints of a run: written aside, hashed and renamed; which are kept, and from which a run goes on or is extended.

A run that is extended ends with the bits that it would have had without the shorter one, or is refused. Order, masks
and dropout of a step do not depend on how long a run is. Its learning rate does, but under ``constant`` not at all, and
under ``wsd`` only in the steps that fall. So a run that is to be extended keeps its state from the last step that every
longer run shares with it, and whoever extends it starts there.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from dana.core.artifacts import differing, write_json
from dana.core.errors import ArtifactError, Preempted
from dana.core.files import aside, flaws, seal, sync
from dana.core.launch import first
from dana.core.logging import get_logger
from dana.train.execution import Precision, refuse_precision
from dana.train.loop import Prepared
from dana.train.records import EvaluationRecord, Record, from_line, to_line
from dana.train.settings import Execution, TrainSettings
from dana.train.state import load_state, save_model, save_state, written_whole

log = get_logger(__name__)

MANIFEST = "manifest.json"
STATE = "state.safetensors"
RECORDS = "training.jsonl"
NEWEST, BEST = "step", "best"
KEPT = {NEWEST: 2, BEST: 1}  # of each kind


@dataclass(frozen=True)
class Saved:
    """A checkpoint whose files have the digests that were written.

    Attributes:
        path: Its folder.
        manifest: ``step``, ``files`` (bytes and digest of each), what it ``depends_on``, and the caller's notes.
    """

    path: Path
    manifest: dict[str, Any]


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run.

    Attributes:
        folder: Where they lie, a folder each: ``step-00000500``, and ``best-00000400``.
        depends_on: What the run is made from; a checkpoint of another run is refused.
        otherwise: What to do with those of another run, beside taking back its settings and inputs.
    """

    folder: Path
    depends_on: dict[str, Any]
    otherwise: str = "start anew with execution.resume=never, or choose another folder"

    def save(self, step: int, write: Callable[[Path], None], notes: dict[str, Any], kind: str = NEWEST) -> None:
        """Commit a checkpoint, then remove older ones of its kind.

        Args:
            step: Optimizer steps taken.
            write: Fills a folder.
            notes: What to find in the manifest again.
            kind: One of :data:`KEPT`.

        Raises:
            ArtifactError: If the disk does not take it; the older ones stay.
        """
        self.commit(f"{kind}-{step:08d}", write, {"step": step, **notes})
        for old in self._newest_first(kind)[KEPT[kind] :]:
            shutil.rmtree(old)

    def commit(self, name: str, write: Callable[[Path], None], notes: dict[str, Any]) -> None:
        """Write a folder aside, seal it, and put it in the place of one of its name; see :meth:`save`."""
        final = self.folder / name
        with written_whole(final):
            self.folder.mkdir(parents=True, exist_ok=True)
            with aside(self.folder / "saving") as draft:
                write(draft)
                write_json(draft / MANIFEST, {"depends_on": self.depends_on, **notes, "files": seal(draft)})
                shutil.rmtree(final, ignore_errors=True)
                draft.rename(final)
                sync(self.folder)

    def newest(self, *kinds: str) -> Saved | None:
        """The sound checkpoint of the latest step, of any kind or of some; broken ones are passed over with a warning.

        Raises:
            ArtifactError: If it is of another run; the difference is named.
        """
        newest_first = self._newest_first(*(kinds or KEPT))
        return next((saved for path in newest_first if (saved := self.open(path.name)) is not None), None)

    def remove(self) -> None:
        """Forget them all."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _newest_first(self, *kinds: str) -> list[Path]:
        paths = [path for kind in kinds for path in self.folder.glob(f"{kind}-*")]
        return sorted(paths, key=lambda path: path.name.split("-")[::-1], reverse=True)

    def open(self, name: str) -> Saved | None:
        """What was committed under a name, if it is there and every byte is right; a broken one is warned of.

        Raises:
            ArtifactError: If it is of another run.
        """
        path = self.folder / name
        if not path.is_dir():
            return None
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            for flaw in flaws(path, manifest["files"], digests=True):
                raise OSError(flaw)
            made_from = manifest["depends_on"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            why = f"its manifest has no {error}" if isinstance(error, KeyError) else error
            log.warning("checkpoint %s is broken (%s) and passed over", path, why)
            return None
        if differences := "; ".join(differing(made_from, self.depends_on)):
            self.refuse(path, made_from, differences)
        return Saved(path, manifest)

    def refuse(self, path: Path, made_from: dict[str, Any], differences: str) -> NoReturn:
        """Refuse what another run left.

        Raises:
            ArtifactError: Naming the difference.
        """
        raise ArtifactError(
            f"{path} belongs to another run ({differences}). Take the settings and inputs back, {self.otherwise}"
        )


@dataclass
class CheckpointPolicy:
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

    def resume(self, prepared: Prepared, saved: Saved) -> None:
        """Put a checkpoint and its records back."""
        load_state(prepared, saved.path / STATE)
        self.records = [from_line(line) for line in (saved.path / RECORDS).read_text(encoding="utf-8").splitlines()]
        log.info("resumed at step %d, from %s", self.records[-1].step, saved.path)

    def watch(self, prepared: Prepared, records: Iterable[Record]) -> Iterator[Record]:
        """Pass records on, saving when it is time.

        Raises:
            Preempted: After saving, if the run was told to stop.
        """
        every = self.settings.execution.save_every
        try:
            for record in records:
                self.records.append(record)
                yield record
                if isinstance(record, EvaluationRecord):
                    if self.settings.final == "best" and _loss(record) <= min(map(_loss, self.records)):
                        self.save(prepared, self.checkpoints, BEST)
                elif every and record.step % every == 0:
                    self.save(prepared, self.checkpoints)
        except Preempted as stop:
            if self.records and self.records[-1].step > 0:
                self.save(prepared, self.checkpoints)
            raise Preempted(f"{stop}; saved, the same command goes on from there") from stop

    def finish(self, prepared: Prepared) -> None:
        """Put the best weights back, where those are what the run is for."""
        if self.settings.final == "best" and (best := self.checkpoints.newest(BEST)) is not None:
            log.info("the best weights are those of step %d", best.manifest["step"])
            load_state(prepared, best.path / STATE)

    def keep_to_extend(self, prepared: Prepared, checkpoints: Checkpoints) -> None:
        """Save the state once more, at a place where it stays when the run is over, in the place of any other."""
        if prepared.accelerator.is_main_process:
            checkpoints.remove()
        self.save(prepared, checkpoints)

    def save(self, prepared: Prepared, checkpoints: Checkpoints, kind: str = NEWEST) -> None:
        """Save the state of the run after its last record."""

        def write(folder: Path) -> None:
            save_state(prepared, folder / STATE)
            (folder / RECORDS).write_text("".join(map(to_line, self.records)), encoding="utf-8")

        if prepared.accelerator.is_main_process:
            checkpoints.save(self.records[-1].step, write, {"notes": self.notes}, kind)
        else:
            save_state(prepared, None)
        prepared.accelerator.wait_for_everyone()

    def export(self, prepared: Prepared, tokenizer: Any, exports: Checkpoints) -> None:
        """Write the model after the last record as a Hugging Face folder that is whole or not there."""
        if prepared.accelerator.is_main_process:
            name = f"{NEWEST}-{self.records[-1].step:08d}"
            exports.commit(name, lambda folder: save_model(prepared, tokenizer, folder), {})
        else:
            save_model(prepared, tokenizer, None)
        prepared.accelerator.wait_for_everyone()


def _loss(record: Record) -> float:
    """The loss that decides which weights are the best; infinite where none was measured."""
    loss = record.task_loss if isinstance(record, EvaluationRecord) else None
    return math.inf if loss is None else loss


# What may differ: the steps up to there are the same whatever these say.
FREE = {"steps", "tokens", "epochs", "schedule", "cooldown", "floor"}
FREE |= {"evaluations", "eval_every", "evaluation_tokens", "final"}


def to_extend(out: Path, depends_on: dict[str, Any]) -> Checkpoints:
    """Where a run keeps the state from which it can be extended: ``OUT-extend``."""
    settings = {name: value for name, value in depends_on["settings"].items() if name not in FREE}
    folder = out.with_name(f"{out.name}-extend")
    return Checkpoints(folder, {**depends_on, "settings": settings}, "or do without execution.extend")


def saved_to_resume(checkpoints: Checkpoints, execution: Execution, accelerator: Any) -> Saved | None:
    """The same on every rank; collective. None where a run begins.

    Raises:
        ConfigError: If it was trained in another precision.
        ArtifactError: If it is of another run, or if the run to extend kept no state.
    """

    def newest() -> Saved | None:
        if execution.resume == "never":
            checkpoints.remove()
        saved = checkpoints.newest()
        if saved or not execution.extend:
            return saved
        extended = to_extend(Path(execution.extend), checkpoints.depends_on)
        if (saved := extended.newest()) is None:
            raise ArtifactError(
                f"{extended.folder}: no such state; a run that is to be extended needs execution.extendable=true"
            )
        return replace(saved, manifest={**saved.manifest, "extends": True})

    saved = first(newest)
    if saved is not None:
        refuse_precision(saved.path, saved.manifest["notes"]["execution"]["precision"], Precision.of(accelerator).name)
    return saved
