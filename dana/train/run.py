"""A training run: corpus, weights and held-out text to examples; the trained model, its records and notes out.

Records also go to the experiment trackers that were named, through Accelerate; none is on unless it is asked for.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dana.core.config import require
from dana.core.logging import get_logger
from dana.core.schemas import iterate_documents
from dana.core.statistics import effective_sample_size
from dana.models.language_model import LanguageModel
from dana.train.checkpoints import CheckpointPolicy, Checkpoints, Saved, to_extend
from dana.train.evaluation import HeldOut, heldout_sample
from dana.train.examples import Examples, SpecialTokens, build_examples
from dana.train.execution import Precision
from dana.train.head_warmup import warm_up_head
from dana.train.loop import Prepared, prepare, train
from dana.train.objectives.base import Collator, Objective
from dana.train.plan import Plan
from dana.train.planner import choose_execution
from dana.train.records import Record, StepRecord, values_of
from dana.train.settings import HeadWarmup, TrainSettings
from dana.train.tokens import Tokens

log = get_logger(__name__)

OVERFIT_FROM = 20  # times through the same text, from which on it is learnt by heart rather than learnt from
MANY_EPOCHS = (
    "the run goes {epochs:,.0f} times through the {examples:,} examples that were kept: it will know them by heart. "
    "Keep more text (a larger beta), train shorter (epochs=3), or mix in general text (replay=0.5)"
)


def training_examples(
    tokens: Tokens,
    weights: Path | None,
    exclude: Collection[str],
    special_tokens: SpecialTokens,
    settings: TrainSettings,
) -> tuple[Examples, dict[str, int]]:
    """What the weights keep of a corpus, with what is replayed of the rest.

    Returns:
        The examples, and counts of documents, runs, windows and tokens; see
        :func:`dana.train.examples.build_examples`, which also says what is refused.
    """
    examples, counts = build_examples(tokens, weights, special_tokens, settings.max_tokens, exclude)
    if settings.replay and weights is None:
        log.info("replay    none: without weights the run is on the corpus as it is")
    elif settings.replay:
        general, _ = build_examples(tokens, None, special_tokens, settings.max_tokens, exclude)
        examples, counts = examples.with_replay(general), {**counts, "windows_to_replay": len(general)}
    return examples, counts


def heldout_examples(
    folders: Mapping[str, Path], objective: Objective, tokenizer: Any, settings: TrainSettings
) -> HeldOut:
    """A fixed sample of at most ``evaluation_tokens`` tokens of each folder of documents, for an objective."""
    collator, texts = objective.heldout_collator(tokenizer), {}
    for name, folder in folders.items():
        tokens = Tokens.of(iterate_documents(folder), tokenizer)
        everything, _ = build_examples(tokens, None, collator.special_tokens, settings.max_tokens)
        texts[name] = heldout_sample(everything, settings.evaluation_tokens)
    return HeldOut(texts, collator)


def about_examples(examples: Examples, plan: Plan) -> dict[str, Any]:
    """What the manifest says of a run's examples and of how often it goes through them; warns of very often."""
    kept, epochs = examples.kept_weights, plan.epochs
    size = effective_sample_size(kept)
    log.info("weights   %d examples count as %.0f", kept.size, size)
    warnings = [MANY_EPOCHS.format(epochs=epochs, examples=kept.size)] if epochs >= OVERFIT_FROM else []
    for warning in warnings:
        log.warning("%s", warning)
    return {"effective_sample_size": size, "epochs": round(epochs, 3), "warnings": warnings}


def check_trackers(names: list[str]) -> None:
    """Refuse unknown trackers, and those whose package is missing, before any work.

    Raises:
        ConfigError: Naming the tracker.
    """
    from accelerate.tracking import get_available_trackers

    installed = [str(kind.value) for kind in get_available_trackers()]
    for name in names:
        allowed = f"one of those that are installed: {', '.join(installed) or 'none'}"
        require(name in installed, "trackers", name, allowed)


def start_trackers(accelerator: Any, run: str, settings: TrainSettings) -> None:
    """Begin a run in every tracker that the accelerator was made with; settings go in as its configuration."""
    values = asdict(settings)
    for group in ("execution", "head_warmup"):
        values |= {f"{group}.{name}": value for name, value in values.pop(group, {}).items()}
    plain = {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}
    accelerator.init_trackers(run, config=plain)


def track(accelerator: Any, record: Record) -> None:
    """Pass a record's numbers on, under ``train/`` or ``held_out/``."""
    values = values_of(record)
    step, group = values.pop("step"), "train" if values.pop("kind") == "step" else "held_out"
    accelerator.log({f"{group}/{name}": value for name, value in values.items()}, step=step)


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

    def train(
        self, loaded: LanguageModel, examples: Examples, collator: Collator, heldout: HeldOut
    ) -> tuple[Prepared, list[Record], dict[str, Any]]:
        """Train a loaded model in place, saving on the way; every rank must call it.

        Returns:
            The trained model, all records, those before a resume included, and what the manifest says of the run.

        Raises:
            Preempted: If a signal asked to stop; what was done is saved.
        """
        settings, saved, execution = self.settings, self.saved, self.settings.execution
        plan = Plan.of(examples, settings)
        shared = self._shared_steps(len(plan))
        notes = dict(saved.manifest["notes"]) if saved else self._begin(loaded, examples, collator)
        if saved and saved.manifest.get("extends"):
            notes["extended"] = {"from": execution.extend, "at": saved.manifest["step"]}
        notes |= about_examples(examples, plan)
        shape, reasons = choose_execution(loaded.model, examples, settings, self.accelerator)
        notes["execution"] = {
            "shape": asdict(shape),
            "reasons": reasons,
            "processes": self.accelerator.num_processes,
            "kind": self.accelerator.distributed_type.value,
            "precision": Precision.of(self.accelerator).name,
        }
        prepared = prepare(loaded.model, settings, self.accelerator, shape)
        policy = CheckpointPolicy(self.checkpoints, settings, notes)
        if saved:
            policy.resume(prepared, saved)
        exports = Checkpoints(self.out.with_name(f"{self.out.name}-exports"), self.checkpoints.depends_on)
        extendable = to_extend(self.out, self.checkpoints.depends_on) if execution.extendable else None
        if extendable and policy.records and policy.records[-1].step == shared:  # it goes on where it can be extended
            policy.keep_to_extend(prepared, extendable)
        start_trackers(self.accelerator, self.out.name, settings)
        records = train(prepared, examples, collator, settings, heldout, policy.records)
        for record in policy.watch(prepared, records):
            track(self.accelerator, record)
            if not isinstance(record, StepRecord):
                continue
            if extendable and record.step == shared:
                policy.keep_to_extend(prepared, extendable)
            if (every := execution.export_every) and record.step % every == 0:
                policy.export(prepared, loaded.tokenizer, exports)
        policy.finish(prepared)
        for tracker in self.accelerator.trackers:  # Accelerate's end_training would end the process group as well
            tracker.finish()
        return prepared, policy.records, notes

    def _shared_steps(self, steps: int) -> int:
        """How many steps of the run are the same in every longer one.

        Raises:
            ConfigError: If the run is to be extended and there is none, or if the run that it extends came further.
        """
        shared = self.settings.shared_steps(steps)
        allowed = f"false: the run has {steps} step(s), and a longer one would share none of them"
        require(shared > 0 or not self.settings.execution.extendable, "extendable", True, allowed)
        if self.saved and self.saved.manifest.get("extends"):
            came = self.saved.manifest["step"]
            allowed = f"more: its rate is constant for {shared} steps, and what it extends had come to step {came}"
            require(shared >= came, "steps", steps, allowed)
        return shared

    def _begin(self, loaded: LanguageModel, examples: Examples, collator: Collator) -> dict[str, Any]:
        """Warm up a new head; what a resumed run must know of the beginning, for the manifest."""
        if not loaded.new:
            return {}
        log.info("the model has no language-model head: a new one, tied to its embeddings, is warmed up")
        loss = warm_up_head(loaded, examples, collator, self.settings, self.head_warmup)
        return {"new_head": {"parameters": sorted(loaded.new), **asdict(self.head_warmup), "loss": loss}}
