"""A training run: corpus, weights and held-out text to examples; the trained model, its records and notes out.

Records also go to the experiment trackers that were named, through Accelerate; none is on unless it is asked for.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.logging import get_logger
from dana.core.schemas import iterate_documents
from dana.core.statistics import effective_sample_size
from dana.models.language_model import LanguageModel
from dana.train.checkpoints import CheckpointPolicy, Checkpoints, Saved, check_reaches, check_shares, to_extend
from dana.train.evaluation import HeldOut, heldout_sample
from dana.train.examples import Examples, SpecialTokens, build_examples
from dana.train.execution import Precision
from dana.train.head_warmup import warm_up_head
from dana.train.loop import Prepared, prepare, train
from dana.train.objectives.base import Collator, Objective
from dana.train.plan import Plan
from dana.train.planner import choose_execution
from dana.train.records import Progress, Record, StepRecord, values_of
from dana.train.settings import HeadWarmup, TrainSettings
from dana.train.state import export_model
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
    histogram, _ = np.histogram(kept, bins=10, range=(0.0, 1.0))
    size = effective_sample_size(kept)
    log.info("weights   %d examples count as %.0f; by tenths from 0 to 1: %s", kept.size, size, histogram)
    warnings = [MANY_EPOCHS.format(epochs=epochs, examples=kept.size)] if epochs >= OVERFIT_FROM else []
    for warning in warnings:
        log.warning("%s", warning)
    return {
        "effective_sample_size": size,
        "weight_histogram": histogram.tolist(),
        "epochs": round(epochs, 3),
        "warnings": warnings,
    }


def check_trackers(names: list[str]) -> None:
    """Refuse unknown trackers, and those whose package is missing, before any work.

    Raises:
        ConfigError: Naming the tracker.
    """
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    known = sorted(map(str, LOGGER_TYPE_TO_CLASS))
    for name in names:
        require(name in known, "trackers", name, f"one of {', '.join(known)}")
        available = name in [str(kind.value) for kind in get_available_trackers()]
        if not available:
            raise ConfigError(f"trackers: the package of {name!r} is not installed")
        if name == "tensorboard" and not (find_spec("tensorboard") or find_spec("tensorboardX")):
            raise ConfigError("trackers: tensorboard is not installed; pip install tensorboard, or trackers=[]")


def start_trackers(accelerator: Any, names: list[str], run: str, settings: dict[str, Any]) -> None:
    """Begin a run in every tracker that the accelerator was made with; settings go in as its configuration."""
    if names:
        plain = {key: value for key, value in _flat(settings) if isinstance(value, bool | int | float | str)}
        accelerator.init_trackers(run, config=plain)


def track(accelerator: Any, record: Record) -> None:
    """Pass a record's numbers on, under ``train/`` or ``held_out/``."""
    values = values_of(record)
    step, group = values.pop("step"), "train" if values.pop("kind") == "step" else "held_out"
    accelerator.log({f"{group}/{name}": value for name, value in values.items()}, step=step)


def stop_trackers(accelerator: Any) -> None:
    """Let trackers write what they hold. Accelerate's ``end_training`` would end the process group as well."""
    for tracker in accelerator.trackers:
        tracker.finish()


def logging_folder(out: Path) -> Path:
    """Where trackers write: beside the model, because its folder is committed whole."""
    return out.parent / "logs"


def _flat(values: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        found += _flat(value, f"{before}{key}.") if isinstance(value, dict) else [(before + key, value)]
    return found


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
