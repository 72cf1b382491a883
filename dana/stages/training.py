"""What ``dana adapt`` and ``dana pretrain`` share: examples, the loop, and one committed model folder."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dana.artifacts import (
    MANIFEST,
    Artifact,
    Draft,
    file_digest,
    fingerprint,
    make,
    open_artifact,
    write_text,
)
from dana.errors import ArtifactError
from dana.logging import get_logger
from dana.mlm.examples import Examples, build_examples
from dana.mlm.masking import Masking
from dana.schemas import iterate_documents, parts
from dana.train.accelerator import make_accelerator
from dana.train.card import Provenance, model_card
from dana.train.checkpoint import Checkpoint, check_length, save_model
from dana.train.evaluation import sample
from dana.train.head_warmup import HeadWarmup, warm_up_head
from dana.train.loop import EvaluationRecord, StepRecord, adapt, prepare
from dana.train.settings import TrainSettings
from dana.weights import effective_sample_size

log = get_logger(__name__)

RECORDS = "training.jsonl"

Record = StepRecord | EvaluationRecord


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
        return {name: folder_identity(folder) if folder else None for name, folder in vars(self).items()}

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

    Args:
        job: What to train.
        origin: What else the outcome depends on: the base model's identity or size.
        out: The artifact's folder.
    """
    settings = {key: value for key, value in asdict(job.settings).items() if key != "micro_batch_tokens"}
    depends_on = {**origin, **job.data.identity(), "settings": settings}
    accelerator = make_accelerator()
    there = (out / MANIFEST).is_file()
    accelerator.wait_for_everyone()  # all have looked before the first one writes
    if there or accelerator.is_main_process:
        make(out, "model", depends_on, lambda draft: _train(job, accelerator, draft))
    else:
        _train(job, accelerator, None)
    accelerator.wait_for_everyone()
    return open_artifact(out, "model")


def _train(job: TrainingJob, accelerator: Any, draft: Draft | None) -> None:
    """Train, and fill the draft. Ranks without a draft take part and write nothing."""
    checkpoint, data, settings = job.load(), job.data, job.settings
    tokenizer = checkpoint.tokenizer
    check_length(checkpoint.model.config, settings.max_tokens)
    masking = Masking.of(tokenizer, settings.seed, settings.mask_rate)
    examples, counts = build_examples(
        data.corpus, data.weights, tokenizer, settings.max_tokens, exclude=data.heldout_ids()
    )
    heldout = {}
    for name, folder in (("task", data.task_heldout), ("general", data.general_heldout)):
        everything, _ = build_examples(folder, None, tokenizer, settings.max_tokens)
        heldout[name] = sample(everything, settings.evaluation_tokens)
    notes: dict[str, Any] = {"effective_sample_size": effective_sample_size(examples.weights)}
    if checkpoint.new:
        log.info("%s has no language-model head: a new one, tied to its embeddings, is warmed up", job.base)
        loss = warm_up_head(checkpoint, examples, masking, settings, job.head_warmup)
        notes["new_head"] = {"parameters": sorted(checkpoint.new), **asdict(job.head_warmup), "loss": loss}
    prepared = prepare(checkpoint.model, settings, accelerator)
    records: list[Record] = []
    with _recorder(draft) as write:
        for record in adapt(prepared, examples, masking, settings, heldout):
            records.append(record)
            write(record)
    save_model(prepared, tokenizer, draft.path if draft else None)
    if draft is not None:
        draft.counts |= counts
        draft.seeds["seed"] = settings.seed
        draft.notes |= notes
        _write_card(draft, job, examples, records)


@contextmanager
def _recorder(draft: Draft | None) -> Iterator[Callable[[Record], None]]:
    """Writes records as they come, a line each; does nothing without a draft."""
    if draft is None:
        yield lambda record: None
        return
    with (draft.path / RECORDS).open("w", encoding="utf-8", buffering=1) as lines:

        def write(record: Record) -> None:
            lines.write(json.dumps(asdict(record)) + "\n")

        yield write


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
    return _manifest(weights).get("depends_on", {}).get("settings", {}).get("policy", "given")


def folder_identity(folder: Path) -> str:
    """The fingerprint of a table's folder: its manifest's, or a digest of its parts.

    Raises:
        ArtifactError: If there is no table.
    """
    if not parts(folder):
        raise ArtifactError(f"{folder}: holds no part-*.parquet, so neither documents nor weights")
    digest = _manifest(folder).get("fingerprint")
    return digest or fingerprint({part.name: file_digest(part) for part in parts(folder)})


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
