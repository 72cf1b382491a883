"""What ``dana adapt`` and ``dana pretrain`` share: examples, the loop, and one committed model folder."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dana.artifacts import MANIFEST, Artifact, Draft, make, open_artifact, read_manifest, write_text
from dana.errors import ConfigError
from dana.logging import get_logger
from dana.mlm.examples import Examples, build_examples
from dana.mlm.masking import Masking
from dana.mlm.tokens import Tokens
from dana.schemas import iterate_documents, table_identity
from dana.stages.pack import pack_stage
from dana.train.accelerator import make_accelerator
from dana.train.card import Provenance, model_card
from dana.train.checkpoint import Checkpoint, check_length, save_model
from dana.train.checkpoints import RECORDS, Checkpoints, Saved
from dana.train.evaluation import sample
from dana.train.head_warmup import HeadWarmup, warm_up_head
from dana.train.keeper import Keeper
from dana.train.loop import adapt, prepare
from dana.train.planner import Planner, planned
from dana.train.records import EvaluationRecord, Progress, Record, to_line
from dana.train.settings import TrainSettings
from dana.train.trackers import check_trackers, logging_folder, start_trackers, stop_trackers, track
from dana.train.wiring import set_up
from dana.weights import effective_sample_size

log = get_logger(__name__)


@dataclass(frozen=True)
class TrainingData:
    """The four inputs of a training run.

    Attributes:
        corpus: Folder of documents to train on.
        weights: Folder of weights over them, or None to use everything with weight 1.
        task_heldout: Folder of task documents to measure on.
        general_heldout: Folder of general documents to measure on.
    """

    corpus: Path
    weights: Path | None
    task_heldout: Path
    general_heldout: Path

    def identity(self) -> dict[str, Any]:
        """Fingerprints of all four."""
        return {name: table_identity(folder) if folder else None for name, folder in vars(self).items()}

    def heldout_ids(self) -> set[str]:
        """Ids of all held-out documents; they are never trained on, wherever they come from."""
        return {
            document.doc_id
            for folder in (self.task_heldout, self.general_heldout)
            for document in iterate_documents(folder)
        }


@dataclass(frozen=True)
class TrainingJob:
    """One model to be trained.

    Attributes:
        base: What it starts from, in words.
        load: Makes the model and its tokenizer; called only when there is work to do.
        data: Its inputs.
        settings: The run.
        head_warmup: For a model without a language-model head.
    """

    base: str
    load: Callable[[], Checkpoint]
    data: TrainingData
    settings: TrainSettings
    head_warmup: HeadWarmup


def run_job(job: TrainingJob, origin: dict[str, Any], out: Path) -> Artifact:
    """Train on every rank and commit the model folder on the first.

    A run that was killed goes on from its newest checkpoint, kept under ``OUT-checkpoints`` until the model is
    committed.

    Args:
        job: What to train.
        origin: What else the outcome depends on: the base model's identity or size.
        out: The artifact's folder.

    Raises:
        Preempted: If a signal asked to stop; what was done is saved.
    """
    execution = job.settings.execution
    settings = {key: value for key, value in asdict(job.settings).items() if key != "execution"}
    if not job.settings.next_sentence:  # runs that know of no pairs keep the fingerprint they always had
        del settings["next_sentence"]
    depends_on = {**origin, **job.data.identity(), "settings": settings}
    check_trackers(execution.trackers)
    accelerator = make_accelerator(execution.trackers, logging_folder(out))
    checkpoints = Checkpoints(out.with_name(f"{out.name}-checkpoints"), depends_on, execution.keep)
    there = (out / MANIFEST).is_file()
    accelerator.wait_for_everyone()  # all have looked before the first one writes
    training = _Training(job, accelerator, checkpoints, out)
    if there or accelerator.is_main_process:
        make(out, "model", depends_on, training.run)
        checkpoints.remove()
    else:
        training.run(None)
    accelerator.wait_for_everyone()
    return open_artifact(out, "model")


@dataclass(frozen=True)
class _Training:
    """One run, from its inputs to a filled draft, the same on every rank."""

    job: TrainingJob
    accelerator: Any
    checkpoints: Checkpoints
    out: Path

    def run(self, draft: Draft | None) -> None:
        """Train, and fill the draft. Ranks without a draft take part and write nothing."""
        saved = self._saved()
        checkpoint, settings = self.job.load(), self.job.settings
        check_length(checkpoint.model.config, settings.max_tokens)
        masking = Masking.of(checkpoint.tokenizer, settings.seed, settings.mask_rate)
        examples, heldout, counts = self._texts(checkpoint.tokenizer)
        notes = saved.manifest["notes"] if saved else self._begin(checkpoint, examples, masking)
        choice = planned(notes["execution"])
        set_up(checkpoint.model, choice.shape, choice.compiled)
        prepared = prepare(checkpoint.model, settings, self.accelerator, choice.shape)
        keeper = Keeper(self.checkpoints, settings, notes)
        done = keeper.resume(prepared, saved) if saved else Progress()
        start_trackers(self.accelerator, settings.execution.trackers, self.out.name, asdict(settings))
        for record in keeper.watch(prepared, adapt(prepared, examples, masking, settings, heldout, done)):
            track(self.accelerator, record)
        keeper.finish(prepared)
        stop_trackers(self.accelerator)
        save_model(prepared, checkpoint.tokenizer, draft.path if draft else None)
        if draft is not None:
            write_text(draft.path / RECORDS, "".join(map(to_line, keeper.records)))
            draft.counts |= counts
            draft.seeds["seed"] = settings.seed
            draft.notes |= notes
            _write_card(draft, self.job, examples, keeper.records)

    def _texts(self, tokenizer: Any) -> tuple[Examples, dict[str, Examples], dict[str, int]]:
        """What to train on, what to measure on, and counts of the former."""
        data, settings = self.job.data, self.job.settings
        most = settings.max_tokens
        with self.accelerator.main_process_first():
            tokens = Tokens.open(pack_stage(data.corpus, tokenizer).path)
        examples, counts = build_examples(
            tokens, data.weights, tokenizer, most, exclude=data.heldout_ids(), paired=settings.next_sentence
        )
        heldout = {}
        for name, folder in (("task", data.task_heldout), ("general", data.general_heldout)):
            everything, _ = build_examples(Tokens.of(iterate_documents(folder), tokenizer), None, tokenizer, most)
            heldout[name] = sample(everything, settings.evaluation_tokens)
        return examples, heldout, counts

    def _begin(self, checkpoint: Checkpoint, examples: Examples, masking: Masking) -> dict[str, Any]:
        """Warm up a new head and choose how to run; what a resumed run must know of it, for the manifest."""
        histogram, _ = np.histogram(examples.weights, bins=10, range=(0.0, 1.0))
        size = effective_sample_size(examples.weights)
        notes: dict[str, Any] = {"effective_sample_size": size, "weight_histogram": histogram.tolist()}
        log.info("weights   %d examples count as %.0f; by tenths from 0 to 1: %s", len(examples), size, histogram)
        if checkpoint.new:
            log.info("%s has no language-model head: a new one, tied to its embeddings, is warmed up", self.job.base)
            warmup = self.job.head_warmup
            loss = warm_up_head(checkpoint, examples, masking, self.job.settings, warmup)
            notes["new_head"] = {"parameters": sorted(checkpoint.new), **asdict(warmup), "loss": loss}
        choice = Planner(checkpoint.model, examples, masking, self.job.settings, self.accelerator).choose()
        notes["execution"] = {
            **asdict(choice),
            "processes": self.accelerator.num_processes,
            "kind": self.accelerator.distributed_type.value,
            "precision": self.accelerator.mixed_precision,
        }
        return notes

    def _saved(self) -> Saved | None:
        """The checkpoint to go on from, the same on every rank.

        Raises:
            ConfigError: If it was trained in another precision.
        """
        found: list[Saved | None] = [None]
        if self.accelerator.is_main_process:
            if self.job.settings.execution.resume == "never":
                self.checkpoints.remove()
            found = [self.checkpoints.newest()]
        if self.accelerator.num_processes > 1:
            from accelerate.utils import broadcast_object_list

            broadcast_object_list(found)
        (saved,) = found
        if saved is not None:
            before, now = saved.manifest["notes"]["execution"]["precision"], self.accelerator.mixed_precision
            if before != now:
                raise ConfigError(f"{saved.path} was trained with mixed_precision={before}, this launch says {now}")
        return saved


def _write_card(draft: Draft, job: TrainingJob, examples: Examples, records: list[Record]) -> None:
    """Write ``README.md`` and put the first and last held-out losses into the manifest."""
    evaluations = [record for record in records if isinstance(record, EvaluationRecord)]
    steps = len(records) - len(evaluations)
    identity = job.data.identity()
    provenance = Provenance(job.base, _weighting(job.data.weights), identity["corpus"], identity["weights"] or "none")
    card = model_card(
        provenance,
        job.settings,
        evaluations,
        steps=steps,
        effective_size=effective_sample_size(examples.weights),
        examples=len(examples),
    )
    write_text(draft.path / "README.md", card)
    draft.counts |= {"examples": len(examples), "steps": steps, "tokens_seen": evaluations[-1].tokens}
    draft.notes["losses"] = {"before": asdict(evaluations[0]), "after": asdict(evaluations[-1])}


def _weighting(weights: Path | None) -> str:
    """The policy that made a weights folder, in a word."""
    if weights is None:
        return "none (every example counts 1)"
    return read_manifest(weights).get("depends_on", {}).get("settings", {}).get("policy", "given")
