"""Training stages, ``dana adapt`` and ``dana pretrain``: model, corpus and weights in, a committed model folder out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dana.core.artifacts import Artifact, Draft, make_together, read_manifest, write_text
from dana.core.launch import first
from dana.core.logging import get_logger
from dana.core.registry import OBJECTIVES
from dana.core.schemas import DOCUMENTS, WEIGHTS, iterate_documents, table_identity
from dana.models.language_model import LanguageModel, check_length
from dana.stages.held_out import held_out_stage
from dana.stages.pack import pack_stage
from dana.train.card import Provenance, model_card
from dana.train.checkpoints import RECORDS, Checkpoints, saved_to_resume
from dana.train.examples import Examples, build_examples
from dana.train.execution import make_accelerator
from dana.train.planner import checkpoint_gradients
from dana.train.records import EvaluationRecord, StepRecord, in_words, summary, to_line, values_of
from dana.train.run import Trained, TrainingRun, check_trackers, heldout_examples, logging_folder, training_examples
from dana.train.settings import HeadWarmup, TrainSettings
from dana.train.state import save_model
from dana.train.tokens import Tokens

log = get_logger(__name__)


@dataclass(frozen=True)
class TrainingData:
    """The four inputs of a training run.

    Attributes:
        corpus: Folder of documents to train on.
        weights: Folder of weights over them, or None to use everything with weight 1.
        task_heldout: Folder of task documents to measure on.
        general_heldout: Folder of general documents to measure on; made from the corpus where there is none.
    """

    corpus: Path
    weights: Path | None
    task_heldout: Path
    general_heldout: Path

    def hold_out(self) -> None:
        """Make the general documents to measure on where there are none."""
        if not self.general_heldout.is_dir():
            held_out_stage(self.corpus, self.general_heldout)

    def identity(self) -> dict[str, Any]:
        """Fingerprints of all four."""
        return {**self.given(), "general_heldout": table_identity(self.general_heldout, DOCUMENTS)}

    def given(self) -> dict[str, Any]:
        """Fingerprints of the three that must be there already, each looked at (:func:`table_identity`)."""
        weights = table_identity(self.weights, WEIGHTS) if self.weights else None
        documents = {name: table_identity(getattr(self, name), DOCUMENTS) for name in ("corpus", "task_heldout")}
        return {**documents, "weights": weights}

    def heldout_ids(self) -> set[str]:
        """Ids of all held-out documents; they are never trained on, wherever they come from."""
        return {
            document.doc_id
            for folder in (self.task_heldout, self.general_heldout)
            for document in iterate_documents(folder)
        }


def weighted_examples(data: TrainingData, tokenizer: Any, objective: str, max_tokens: int) -> Examples:
    """The examples that the weights keep of a corpus, without held-out documents.

    Args:
        data: Corpus, weights and held-out documents.
        tokenizer: Of the model that will be trained.
        objective: Spec of the objective, which says what special tokens an example has.
        max_tokens: Most tokens of an example, special tokens included.

    Raises:
        ConfigError: If the tokenizer does not fit the objective, or `max_tokens` is too small.
        ArtifactError: If a folder is missing.
    """
    data.given()
    data.hold_out()
    special_tokens = OBJECTIVES.create(objective).collator(tokenizer, 0).special_tokens
    tokens = Tokens.open(pack_stage(data.corpus, tokenizer).path)
    examples, _ = build_examples(tokens, data.weights, special_tokens, max_tokens, data.heldout_ids())
    return examples


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
    load: Callable[[], LanguageModel]
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
    check_trackers(execution.trackers)
    job.data.given()  # what is missing is said before several processes wait for each other
    accelerator = make_accelerator(execution.trackers, logging_folder(out))
    first(job.data.hold_out)
    depends_on = {**origin, **job.data.identity(), "settings": job.settings.decisive()}
    checkpoints = Checkpoints(out.with_name(f"{out.name}-checkpoints"), depends_on, execution.keep)

    def write(draft: Draft | None) -> None:
        saved = saved_to_resume(checkpoints, execution, accelerator)
        _train(job, TrainingRun(job.settings, job.head_warmup, accelerator, checkpoints, saved, out), draft)

    made = make_together(out, "model", depends_on, write)
    first(checkpoints.remove)
    return made


def _train(job: TrainingJob, run: TrainingRun, draft: Draft | None) -> None:
    """Train, and fill the draft. Ranks without a draft take part and write nothing."""
    data, settings, loaded = job.data, job.settings, job.load()
    tokenizer = loaded.tokenizer
    check_length(loaded.model.config, settings.max_tokens)
    if settings.execution.gradient_checkpointing:
        checkpoint_gradients(loaded.model)
    objective = settings.make_objective()
    collator = objective.collator(tokenizer, settings.seed)
    tokens = Tokens.open(pack_stage(data.corpus, tokenizer).path)
    exclude = data.heldout_ids()
    examples, counts = training_examples(tokens, data.weights, exclude, collator.special_tokens, settings)
    folders = {"task": data.task_heldout, "general": data.general_heldout}
    heldout = heldout_examples(folders, objective, tokenizer, settings)
    trained = run.train(loaded, examples, collator, heldout)
    save_model(trained.prepared, tokenizer, draft.path if draft else None)
    if draft is not None:
        draft.counts |= counts
        draft.seeds["seed"] = settings.seed
        draft.notes |= trained.notes
        _describe(draft, job, examples, trained)


def _describe(draft: Draft, job: TrainingJob, examples: Examples, trained: Trained) -> None:
    """Write ``training.jsonl`` and ``README.md``; speed and the first and last held-out losses go into the manifest."""
    records = trained.records
    write_text(draft.path / RECORDS, "".join(map(to_line, records)))
    draft.notes["speed"] = summary(records)
    log.info("speed     %s", in_words(draft.notes["speed"]))
    evaluations = [record for record in records if isinstance(record, EvaluationRecord)]
    steps = len(records) - len(evaluations)
    identity = job.data.identity()
    provenance = Provenance(job.base, _weighting(job.data.weights), identity["corpus"], identity["weights"] or "none")
    kept = examples.kept_weights
    size = draft.notes["effective_sample_size"]
    card = model_card(provenance, job.settings, evaluations, steps, size, kept.size, draft.notes)
    write_text(draft.path / "README.md", card)
    skipped = sum(isinstance(record, StepRecord) and bool(record.skipped) for record in records)
    draft.counts |= {"steps_skipped": skipped} if skipped else {}
    draft.counts |= {"examples": kept.size, "steps": steps, "tokens_seen": evaluations[-1].tokens}
    draft.notes["losses"] = {"before": values_of(evaluations[0]), "after": values_of(evaluations[-1])}


def _weighting(weights: Path | None) -> str:
    """The policy that made a weights folder, in a word."""
    if weights is None:
        return "none (every example counts 1)"
    return read_manifest(weights).get("depends_on", {}).get("settings", {}).get("policy", "given")
