"""Run a training: build examples from corpus and weights, train with checkpoints, and log to experiment trackers.

Trackers are off unless the settings name them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.logging import get_logger
from dana.core.schemas import iterate_documents
from dana.core.statistics import effective_sample_size
from dana.models.language_model import LanguageModel
from dana.train.checkpoints import (
    CheckpointPolicy,
    Checkpoints,
    RunCheckpoint,
    extension_checkpoints,
)
from dana.train.evaluation import HeldOut, heldout_sample, measure_loss
from dana.train.examples import Examples, build_examples
from dana.train.execution import Precision
from dana.train.head_warmup import warm_up_head
from dana.train.loop import TrainingState, prepare, train
from dana.train.objectives.base import Collator, Objective
from dana.train.plan import Plan
from dana.train.planner import choose_execution, explain_out_of_memory
from dana.train.records import Record, StepRecord, values_of
from dana.train.settings import HeadWarmup, TrainSettings
from dana.train.tokens import Tokens

log = get_logger(__name__)

OVERFIT_FROM = 20  # epochs over the same text after which the model memorises it
MANY_EPOCHS = (
    "the run has {epochs:,.0f} epochs over {examples:,} examples of selected text: the model will memorise them. "
    "Select more text (a larger beta), train shorter (epochs=3), or mix in general text "
    "(mix={{selected: 0.5, general: 0.5}})"
)


def heldout_examples(
    folders: Mapping[str, Path], objective: Objective, tokenizer: Any, settings: TrainSettings
) -> HeldOut:
    """Sample at most ``evaluation_tokens`` tokens of each folder of documents, the same for every run."""
    collator, texts = objective.heldout_collator(tokenizer), {}
    for name, folder in folders.items():
        tokens = Tokens.of(iterate_documents(folder), tokenizer)
        examples, _ = build_examples(tokens, None, collator.special_tokens, settings.max_tokens)
        texts[name] = heldout_sample(examples, settings.evaluation_tokens)
    return HeldOut(texts, collator)


def base_losses(state: TrainingState, heldout: HeldOut) -> dict[str, Any]:
    """Measure the loss of an untrained state on selected and random text, in nats per token, for the manifest."""
    if "selected" not in heldout.texts:
        return {}
    how = heldout.collator, state.shape, state.accelerator
    with explain_out_of_memory("evaluation before training", state.shape.budget):
        selection, random = (
            measure_loss(state.module, heldout.texts[name], *how) for name in ("selected", "random")
        )
    log.info("base      its loss on the selected text: %s; on random text: %s", selection, random)
    names = ("selected", "selected_se", "random", "random_se")
    return {"base_losses": dict(zip(names, (*selection, *random), strict=True))}


def describe_examples(examples: Examples, plan: Plan) -> dict[str, Any]:
    """Describe examples and epochs for the manifest; warn if the run has so many epochs that it would overfit."""
    weights, epochs = examples.first_part.weights, plan.epochs
    size = effective_sample_size(weights)
    log.info("weights   %d examples count as %.0f", weights.size, size)
    warnings = (
        [MANY_EPOCHS.format(epochs=epochs, examples=weights.size)] if epochs >= OVERFIT_FROM else []
    )
    for warning in warnings:
        log.warning("%s", warning)
    return {"effective_sample_size": size, "epochs": round(epochs, 3), "warnings": warnings}


def check_trackers(names: list[str]) -> None:
    """Refuse trackers that are unknown, or whose package is missing.

    Raises:
        ConfigError: Names the tracker and those that are available.
    """
    from accelerate.tracking import get_available_trackers

    available = [str(kind.value) for kind in get_available_trackers()]
    for name in names:
        require(
            name in available,
            "trackers",
            name,
            f"an installed tracker: {', '.join(available) or 'none'}",
        )


def start_trackers(accelerator: Any, project: str, settings: Any, run: str | None = None) -> None:
    """Start a run in every tracker of the accelerator, with a dataclass of settings as its configuration."""
    values = asdict(settings)
    for group in ("execution", "head_warmup"):
        values |= {f"{group}.{name}": value for name, value in values.pop(group, {}).items()}
    for index, phase in enumerate(values.pop("phases", [])):
        values |= {f"phases.{index}.{name}": value for name, value in phase.items()}
    plain = {
        name: value for name, value in values.items() if isinstance(value, bool | int | float | str)
    }
    accelerator.init_trackers(
        project, config=plain, init_kwargs={"wandb": {"name": run}} if run else {}
    )


def finish_trackers(accelerator: Any) -> None:
    """End the run in every tracker; Accelerate's end_training would also end the process group."""
    for tracker in accelerator.trackers:
        tracker.finish()
    accelerator.trackers.clear()


@contextmanager
def tracker_run(
    accelerator: Any, project: str, settings: Any, run: str
) -> Iterator[Callable[..., None] | None]:
    """Log one of several runs to the trackers, each in a folder of its own.

    Yields:
        Function that logs numbers by name, and a step; None without trackers.
    """
    if not accelerator.log_with:
        yield None
        return
    accelerator.project_configuration.logging_dir = str(Path(accelerator.project_dir) / run)
    start_trackers(accelerator, project, settings, run)
    try:
        yield accelerator.log
    finally:
        finish_trackers(accelerator)


def track(accelerator: Any, record: Record) -> None:
    """Log a record's numbers to the trackers, under ``train/`` or ``held_out/``."""
    values = values_of(record)
    step, group = values.pop("step"), "train" if values.pop("kind") == "step" else "held_out"
    accelerator.log({f"{group}/{name}": value for name, value in values.items()}, step=step)


@dataclass(frozen=True)
class TrainingRun:
    """One training run, the same on every rank.

    Attributes:
        settings: Settings of the run.
        head_warmup: Training of new heads, for a model without those of the objective.
        accelerator: Device, precision and ranks.
        checkpoints: Folder of the checkpoints.
        checkpoint: Checkpoint to resume, from :func:`dana.train.checkpoints.find_checkpoint`; None
            for a new run.
        out: Folder of the model; exports and the state for an extension are beside it.
    """

    settings: TrainSettings
    head_warmup: HeadWarmup
    accelerator: Any
    checkpoints: Checkpoints
    checkpoint: RunCheckpoint | None
    out: Path

    def train(
        self,
        language_model: LanguageModel,
        examples: Examples,
        collators: Sequence[Collator],
        heldout: HeldOut,
    ) -> tuple[TrainingState, list[Record], dict[str, Any]]:
        """Train a model in place, saving checkpoints on the way; every rank must call it.

        Returns:
            The trained model; all records, those before a resume included; and notes for the
            manifest.

        Raises:
            DataError: If no step had a token to predict.
            Preemption: If a signal asked to stop; the state is saved.
        """
        settings, checkpoint, execution = self.settings, self.checkpoint, self.settings.execution
        plan = Plan.of(examples, settings)
        shared_steps = self._shared_steps(len(plan))
        notes = (
            dict(checkpoint.manifest["notes"])
            if checkpoint
            else self._begin(language_model, examples, collators[0])
        )
        if checkpoint and checkpoint.manifest.get("extends"):
            notes["extended"] = {"from": execution.extend, "at": checkpoint.manifest["step"]}
        notes |= describe_examples(examples, plan)
        shape, reasons = choose_execution(
            language_model.model, examples, settings, self.accelerator
        )
        launch = {
            "processes": self.accelerator.num_processes,
            "kind": self.accelerator.distributed_type.value,
        }
        launch |= {"precision": Precision.of(self.accelerator).name}
        notes["execution"] = {"shape": asdict(shape), "reasons": reasons, **launch}
        state = prepare(language_model.model, settings, self.accelerator, shape)
        notes |= {} if checkpoint else base_losses(state, heldout)
        policy = CheckpointPolicy(self.checkpoints, settings, notes)
        if checkpoint:
            policy.resume(state, checkpoint)
        exports = Checkpoints(
            self.out.with_name(f"{self.out.name}-exports"), self.checkpoints.depends_on
        )
        extendable = (
            extension_checkpoints(self.out, self.checkpoints.depends_on)
            if execution.extendable
            else None
        )
        # a run may resume at the very step from which it can be extended
        if extendable and policy.records and policy.records[-1].step == shared_steps:
            policy.save_for_extension(state, extendable)
        start_trackers(self.accelerator, self.out.name, settings)
        # closed also when a checkpoint cannot be written, or its signal handlers would outlive it
        with closing(
            train(state, examples, collators, settings, heldout, policy.records)
        ) as records:
            for record in policy.watch(state, records):
                track(self.accelerator, record)
                if not isinstance(record, StepRecord):
                    continue
                if extendable and record.step == shared_steps:
                    policy.save_for_extension(state, extendable)
                if (every := execution.export_every) and record.step % every == 0:
                    policy.export(state, language_model.tokenizer, exports)
        if not any(record.loss for record in policy.records if isinstance(record, StepRecord)):
            raise DataError(
                "no step had a token to predict: the tokenizer knows no word of the text; take another one"
            )
        policy.finish(state)
        finish_trackers(self.accelerator)
        return state, policy.records, notes

    def _shared_steps(self, steps: int) -> int:
        """Count the steps that the run shares with every longer one.

        Raises:
            ConfigError: If an extendable run shares none, or if the run that it extends has more
                steps than it shares.
        """
        shared_steps = self.settings.shared_steps(steps)
        allowed_values = (
            f"false: the run has {steps} step(s), and a longer one would share none of them"
        )
        require(
            shared_steps > 0 or not self.settings.execution.extendable,
            "extendable",
            True,
            allowed_values,
        )
        if self.checkpoint and self.checkpoint.manifest.get("extends"):
            start = self.checkpoint.manifest["step"]
            rates = f"its rate is constant for {shared_steps} steps, but the run to extend ends at step {start}"
            require(shared_steps >= start, "steps", steps, f"more: {rates}")
        return shared_steps

    def _begin(
        self, language_model: LanguageModel, examples: Examples, collator: Collator
    ) -> dict[str, Any]:
        """Warm up a new head, and return notes on it for the manifest."""
        if not language_model.new:
            return {}
        log.info(
            "the model has no language-model head: a new one, tied to its embeddings, is warmed up"
        )
        loss = warm_up_head(language_model, examples, collator, self.settings, self.head_warmup)
        return {
            "new_head": {
                "parameters": sorted(language_model.new),
                **asdict(self.head_warmup),
                "loss": loss,
            }
        }
