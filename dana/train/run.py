"""Run a training: measure held-out text, train with checkpoints, log to experiment trackers.

Trackers are off unless the settings name them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.extras import install_command
from dana.core.logging import get_logger
from dana.core.statistics import effective_sample_size
from dana.models.language_model import LanguageModel
from dana.train.checkpoints import Checkpoint, CheckpointPolicy, Checkpoints
from dana.train.evaluation import HeldOut, heldout_sample, measure_loss
from dana.train.examples import ExampleSet, TrainingText
from dana.train.execution import Precision, describe_launch
from dana.train.loop import prepare, train
from dana.train.objectives.base import Collator, Objective
from dana.train.plan import Plan
from dana.train.planner import choose_execution, explain_out_of_memory
from dana.train.records import Record, StepRecord, values_of
from dana.train.settings import TrainSettings
from dana.train.state import export_model
from dana.train.training_state import TrainingState

log = get_logger(__name__)

OVERFIT_FROM = 20  # epochs over the same text after which the model memorises it
MANY_EPOCHS = (
    "the run has {epochs:,.0f} epochs over {examples:,} examples of selected text: the model will "
    "memorise them. Select more text (a larger beta), train shorter (epochs=3), or mix in general "
    "text (mix={{selected: 0.5, pool: 0.5}})"
)


def heldout_examples(
    texts: Mapping[str, TrainingText],
    objective: Objective,
    tokenizer: Any,
    settings: TrainSettings,
) -> HeldOut:
    """Sample at most ``evaluation_tokens`` tokens of each text, the same for every run.

    A text without an example, such as one of single sentences for an objective that needs
    documents, is left out, and it is said.
    """
    samples = {}
    for name, text in texts.items():
        try:
            examples, _ = objective.examples(text, tokenizer, settings.max_tokens)
        except DataError as error:
            if not objective.cuts_sentences:
                raise
            log.warning("held-out %s text is not measured: %s", name, error)
            continue
        samples[name] = heldout_sample(examples, settings.evaluation_tokens)
    return HeldOut(samples, objective.heldout_collator(tokenizer))


def base_losses(state: TrainingState, heldout: HeldOut) -> dict[str, Any]:
    """Measure the loss before training on selected and random text, in nats per token."""
    if "selected" not in heldout.texts:
        return {}
    losses = {}
    with explain_out_of_memory("evaluation before training", state.shape.budget):
        for name in ("selected", "random"):
            losses[name] = measure_loss(
                state.module, heldout.texts[name], heldout.collator, state.shape, state.accelerator
            )
    log.info(
        "base      its loss on the selected text: %s; on random text: %s",
        losses["selected"],
        losses["random"],
    )
    means_and_errors = {}
    for name, loss in losses.items():
        means_and_errors[name] = loss.mean
        means_and_errors[f"{name}_se"] = loss.standard_error
    return {"base_losses": means_and_errors}


def describe_examples(
    examples: ExampleSet, plan: Plan, collators: Sequence[Collator] = ()
) -> dict[str, Any]:
    """Describe examples and epochs for the manifest; warn of so many epochs that it would overfit.

    Args:
        examples: Examples of the run.
        plan: Its steps and epochs.
        collators: What makes the batches of each phase, which may have warnings of their own.
    """
    weights = examples.first_part.weights
    size = effective_sample_size(weights)
    if round(size) < weights.size:
        log.info(
            "weights   %s examples of unequal weights say as much as %s of equal ones",
            f"{weights.size:,}",
            f"{size:,.0f}",
        )
    warnings = []
    if plan.epochs >= OVERFIT_FROM:
        warnings.append(MANY_EPOCHS.format(epochs=plan.epochs, examples=weights.size))
    for collator in collators:
        warnings += collator.warnings(examples)
    warnings = list(dict.fromkeys(warnings))  # of several phases
    for warning in warnings:
        log.warning("%s", warning)
    return {"effective_sample_size": size, "epochs": round(plan.epochs, 3), "warnings": warnings}


def check_trackers(names: list[str]) -> None:
    """Refuse trackers that are unknown, or whose package is missing.

    Raises:
        ConfigError: Names the tracker and those that are available.
    """
    from accelerate.tracking import get_available_trackers

    available = [str(kind.value) for kind in get_available_trackers()]
    allowed = f"an installed tracker: {', '.join(available) or 'none'}"
    for name in names:
        remedy = f"; {install_command(name)}" if name == "tensorboard" else ""
        require(name in available, "trackers", name, f"{allowed}{remedy}")


def start_trackers(accelerator: Any, project: str, settings: Any, run: str | None = None) -> None:
    """Start a run in every tracker of the accelerator, with its settings as the configuration."""
    values = asdict(settings)
    for group in ("execution", "head_warmup"):
        values |= {f"{group}.{name}": value for name, value in values.pop(group, {}).items()}
    for index, phase in enumerate(values.pop("phases", [])):
        values |= {f"phases.{index}.{name}": value for name, value in phase.items()}
    config = {}
    for name, value in values.items():
        if isinstance(value, bool | int | float | str):
            config[name] = value
    options = {"wandb": {"name": run}} if run else {}
    accelerator.init_trackers(project, config=config, init_kwargs=options)


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
    step = values.pop("step")
    group = "train" if values.pop("kind") == "step" else "held_out"
    accelerator.log({f"{group}/{name}": value for name, value in values.items()}, step=step)


# What is called after each evaluation with the model and all records so far; True ends the run.
AfterEvaluation = Callable[[TrainingState, Sequence[Record]], bool]


def go_on(state: TrainingState, records: Sequence[Record]) -> bool:
    """Never end a run before its last step."""
    return False


def _no_loss(settings: TrainSettings) -> DataError:
    """Return the error of a run in which no step had a loss."""
    if settings.make_objective().has_own_head:
        return DataError(
            f"objective={settings.objective} had nothing to learn from: each step has one document, "
            "or documents that repeat each other; select more text, or raise batch_size"
        )
    return DataError(
        "no step had a token to predict: the tokenizer knows no word of the text; take another one"
    )


@dataclass(frozen=True)
class TrainingRun:
    """One training run, the same on every rank.

    Attributes:
        settings: Settings of the run.
        accelerator: Device, precision and ranks.
        checkpoints: Its checkpoints.
        checkpoint: Checkpoint to resume, from :func:`dana.train.checkpoints.find_checkpoint`; None
            for a new run.
        out: Folder of the model; exports are beside it.
        after_evaluation: See :data:`AfterEvaluation`. A resumed run may call it a second time.
    """

    settings: TrainSettings
    accelerator: Any
    checkpoints: Checkpoints
    checkpoint: Checkpoint | None
    out: Path
    after_evaluation: AfterEvaluation = go_on

    def train(
        self,
        language_model: LanguageModel,
        examples: ExampleSet,
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
        settings = self.settings
        checkpoint = self.checkpoint
        notes: dict[str, Any] = {}
        known = None
        if checkpoint is not None:
            notes |= checkpoint.notes
            known = notes["execution"]["shape"]["budget"]
        shape, reasons = choose_execution(
            language_model.model, examples, settings, self.accelerator, collators[0], known
        )
        notes |= describe_examples(examples, Plan.from_settings(examples, settings), collators)
        launch = describe_launch(self.accelerator)
        if not Precision.from_accelerator(self.accelerator).from_launcher:
            launch["precision"] = "bf16" if shape.bf16 else "no"
        notes["execution"] = {"shape": asdict(shape), "reasons": reasons, **launch}
        state = prepare(language_model.model, settings, self.accelerator, shape)
        if checkpoint is None:
            notes |= base_losses(state, heldout)
        policy = CheckpointPolicy(self.checkpoints, settings, notes)
        if checkpoint is not None:
            policy.resume(state, checkpoint)
        start_trackers(self.accelerator, self.out.name, settings)
        steps = train(state, examples, collators, settings, heldout, policy.records)
        # closed also when a checkpoint cannot be written, or its signal handlers would outlive it
        with closing(steps) as records:
            for record in policy.watch(state, records):
                track(self.accelerator, record)
                if isinstance(record, StepRecord):
                    self._export(state, language_model.tokenizer, record.step)
                elif self.after_evaluation(state, policy.records):
                    break
        losses = [record.loss for record in policy.records if isinstance(record, StepRecord)]
        if not any(losses):
            raise _no_loss(settings)
        policy.finish(state)
        finish_trackers(self.accelerator)
        return state, policy.records, notes

    def _export(self, state: TrainingState, tokenizer: Any, step: int) -> None:
        """Write the model as a Hugging Face folder, if the settings ask for it at this step."""
        every = self.settings.execution.export_every
        if every and step % every == 0:
            folder = self.out.with_name(f"{self.out.name}-exports")
            export_model(state, tokenizer, folder / f"step-{step:08d}")
