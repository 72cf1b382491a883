"""Training with checkpoints: model, examples and collator in; the trained model, its records and notes out."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dana.core.logging import get_logger
from dana.models.language_model import LanguageModel
from dana.train.checkpoints import CheckpointPolicy, Checkpoints, Saved, check_reaches, check_shares, to_extend
from dana.train.evaluation import HeldOut
from dana.train.examples import Examples
from dana.train.execution import Precision
from dana.train.head_warmup import warm_up_head
from dana.train.loop import Prepared, prepare, train
from dana.train.objectives.base import Collator
from dana.train.plan import Plan
from dana.train.planner import choose_execution
from dana.train.records import Progress, Record, StepRecord
from dana.train.settings import HeadWarmup, TrainSettings
from dana.train.state import export_model
from dana.train.texts import about_examples
from dana.train.trackers import start_trackers, stop_trackers, track

log = get_logger(__name__)


@dataclass(frozen=True)
class Trained:
    """What a run made.

    Attributes:
        prepared: The trained model.
        records: All records, those before a resume included.
        notes: What the manifest says of the run.
    """

    prepared: Prepared
    records: list[Record]
    notes: dict[str, Any]


@dataclass(frozen=True)
class TrainingRun:
    """One run, the same on every rank.

    Attributes:
        settings: The run's.
        head_warmup: For a model without the heads of the objective.
        accelerator: Device, precision and ranks.
        checkpoints: Where its state is saved.
        saved: What it goes on from, from :func:`dana.train.checkpoints.saved_to_resume`; None where it begins.
        out: The folder that its model will have; exports and the state to extend lie beside it.
    """

    settings: TrainSettings
    head_warmup: HeadWarmup
    accelerator: Any
    checkpoints: Checkpoints
    saved: Saved | None
    out: Path

    def train(self, loaded: LanguageModel, examples: Examples, collator: Collator, heldout: HeldOut) -> Trained:
        """Train a loaded model in place, saving on the way; every rank must call it.

        Raises:
            Preempted: If a signal asked to stop; what was done is saved.
        """
        settings, saved, plan = self.settings, self.saved, Plan.of(examples, self.settings)
        shared = check_shares(plan, settings)
        if saved and saved.manifest.get("extends"):
            check_reaches(saved, plan, settings)
            saved.manifest["notes"]["extended"] = {"from": settings.execution.extend, "at": saved.manifest["step"]}
        notes = dict(saved.manifest["notes"]) if saved else self._begin(loaded, examples, collator)
        notes |= about_examples(examples, plan)
        choice = choose_execution(loaded.model, examples, collator, settings, self.accelerator)
        notes["execution"] = {
            **asdict(choice),
            "processes": self.accelerator.num_processes,
            "kind": self.accelerator.distributed_type.value,
            "precision": Precision.of(self.accelerator).name,
        }
        prepared = prepare(loaded.model, settings, self.accelerator, choice.shape)
        policy = CheckpointPolicy(self.checkpoints, settings, notes)
        done = policy.resume(prepared, saved) if saved else Progress()
        if settings.execution.extendable and done.step == shared:  # it begins, or goes on, where it can be extended
            self._keep_to_extend(prepared, policy)
        start_trackers(self.accelerator, settings.execution.trackers, self.out.name, asdict(settings))
        for record in policy.watch(prepared, train(prepared, examples, collator, settings, heldout, done)):
            track(self.accelerator, record)
            if isinstance(record, StepRecord):
                self._after(record.step, prepared, loaded.tokenizer, policy, shared)
        policy.finish(prepared)
        stop_trackers(self.accelerator)
        return Trained(prepared, policy.records, notes)

    def _begin(self, loaded: LanguageModel, examples: Examples, collator: Collator) -> dict[str, Any]:
        """Warm up a new head; what a resumed run must know of the beginning, for the manifest."""
        if not loaded.new:
            return {}
        log.info("the model has no language-model head: a new one, tied to its embeddings, is warmed up")
        loss = warm_up_head(loaded, examples, collator, self.settings, self.head_warmup)
        return {"new_head": {"parameters": sorted(loaded.new), **asdict(self.head_warmup), "loss": loss}}

    def _after(self, step: int, prepared: Prepared, tokenizer: Any, policy: CheckpointPolicy, shared: int) -> None:
        """When it is time, write what stays beside the result: the model as it is, the state from which to go on."""
        execution = self.settings.execution
        if execution.extendable and step == shared:
            self._keep_to_extend(prepared, policy)
        if execution.export_every and step % execution.export_every == 0:
            export_model(prepared, tokenizer, self.out.with_name(f"{self.out.name}-exports") / f"step-{step:08d}")

    def _keep_to_extend(self, prepared: Prepared, policy: CheckpointPolicy) -> None:
        policy.keep_to_extend(prepared, to_extend(self.out, self.checkpoints.depends_on))
