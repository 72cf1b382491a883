"""``dana finetune``: a checkpoint on a labelled task, over seeds; metrics.json and predictions.parquet."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dana.artifacts import MANIFEST, Artifact, Draft, make, open_artifact, write_json
from dana.config import require
from dana.corpus.documents import source_digests
from dana.encoders.checkpoint import check_checkpoint, quiet_transformers
from dana.errors import ArtifactError, ConfigError
from dana.finetune.card import SPLITS, TaskCard, load_card
from dana.finetune.data import Example, overlap, read_splits
from dana.finetune.encoded import Encoded
from dana.finetune.loop import SeedResult, run_seed
from dana.finetune.preset import Preset
from dana.finetune.scoring import is_degenerate, score
from dana.rng import generator
from dana.train.accelerator import make_accelerator
from dana.train.checkpoint import check_length, model_identity


@dataclass(frozen=True)
class FinetuneSettings:
    """A card's preset, and what differs from it.

    Attributes:
        preset: ``paper``, ``default`` or ``quick``; a card may have others.
        epochs: Instead of the preset's.
        learning_rate: Instead of the preset's.
        batch_size: Instead of the preset's.
        warmup: Instead of the preset's.
        seeds: Instead of the preset's: how many, from 0; or a list of seeds.
        evaluate: Instead of the preset's: ``last`` or ``best``.
        max_tokens: Instead of the preset's.
        max_train: Use so many training examples, the same for every model and seed.
    """

    preset: str = "default"
    epochs: int | None = None
    learning_rate: float | None = None
    batch_size: int | None = None
    warmup: float | None = None
    seeds: int | list[int] | None = None
    evaluate: str | None = None
    max_tokens: int | None = None
    max_train: int | None = None

    def __post_init__(self) -> None:
        require(self.max_train is None or self.max_train >= 1, "max_train", self.max_train, "at least 1")
        replace(Preset(), **self._given())

    def resolve(self, card: TaskCard) -> Preset:
        """The preset of a card with the given values put in.

        Raises:
            ConfigError: If the card has no such preset.
        """
        return replace(card.preset(self.preset), **self._given())

    def _given(self) -> dict[str, Any]:
        names = (item.name for item in fields(Preset))
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def finetune_stage(model: str, card: str, settings: FinetuneSettings, out: Path, data: str | None = None) -> Artifact:
    """Fine-tune over seeds. Under several processes every one must call this; they share the seeds out.

    Args:
        model: Folder with safetensors, or Hub name.
        card: A task card's name or YAML file.
        settings: Preset and differences.
        out: Folder for ``metrics.json`` (a row a seed; mean, std with ddof 1, n) and ``predictions.parquet``
            (seed, id, label, prediction, probabilities, a row a seed and test example).
        data: Folder that holds the card's data.

    Raises:
        ConfigError: If the card or preset is unknown, or the model is too small for ``max_tokens``.
        DataError: If the data is missing or does not fit the card.
        ArtifactError: If the model cannot be used, or `out` holds something else.
    """
    task = load_card(card)
    preset = settings.resolve(task)
    tokenizer = _tokenizer(model, preset.max_tokens)
    accelerator = make_accelerator()
    if accelerator.mixed_precision == "fp16":
        raise ConfigError("mixed_precision='fp16': must be no or bf16 for fine-tuning")
    decisive = {name: getattr(task, name) for name in ("name", "version", "labels", "metric", "text", "label")}
    depends_on = {
        "model": model_identity(model),
        "task": {**decisive, "data": source_digests(task.files(data, SPLITS))},
        "preset": {**asdict(preset), "seeds": preset.seed_list},
        "max_train": settings.max_train,
    }

    def write(draft: Draft | None) -> None:
        splits = read_splits(task, data)
        used = {**splits, "train": _some(splits["train"], settings.max_train)}
        encoded = {name: Encoded.of(split, tokenizer, preset.max_tokens) for name, split in used.items()}
        results = _run_seeds(model, task, encoded, preset, accelerator)
        if draft is None:
            return
        metrics = {
            "task": task.name,
            "version": task.version,
            "metric": task.metric,
            "direction": task.direction,
            "model": Path(model).resolve().name if Path(model).is_dir() else model,
            "preset": settings.preset,
            "settings": {**asdict(preset), "max_train": settings.max_train},
            "split_overlap": overlap(splits),
            **_summary([_row(result, encoded["test"].labels, task) for result in results]),
        }
        write_json(draft.path / "metrics.json", metrics)
        table = _predictions(results, used["test"])
        pq.write_table(table, draft.path / "predictions.parquet", compression="zstd")
        draft.counts |= {name: len(split) for name, split in used.items()}

    if accelerator.is_main_process:
        make(out, "finetune", depends_on, write)
    elif not (out / MANIFEST).is_file():  # the first cannot commit before all have brought their seeds
        write(None)
    accelerator.wait_for_everyone()
    return open_artifact(out, "finetune")


def _tokenizer(model: str, max_tokens: int) -> Any:
    """The model's tokenizer, once it is sure that the model can read so many tokens."""
    from transformers import AutoConfig, AutoTokenizer

    check_checkpoint(model)
    try:
        with quiet_transformers():
            config, tokenizer = AutoConfig.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{model}: cannot be loaded: {str(error).splitlines()[0]}") from error
    check_length(config, max_tokens)
    # Where a folder has no tokenizer, transformers makes one up that knows only its special tokens.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ArtifactError(f"{model}: has no tokenizer")
    if len(tokenizer) > config.vocab_size:
        raise ArtifactError(f"{model}: the tokenizer knows {len(tokenizer)} tokens, the model only {config.vocab_size}")
    return tokenizer


def _some(examples: list[Example], most: int | None) -> list[Example]:
    """A fixed random subset, whatever the model and seed."""
    if most is None or most >= len(examples):
        return examples
    rows = generator(0, "finetune", "subset").permutation(len(examples))[:most]
    return [examples[row] for row in np.sort(rows)]


def _run_seeds(
    model: str, task: TaskCard, encoded: dict[str, Encoded], preset: Preset, accelerator: Any
) -> list[SeedResult]:
    """Every process runs its share of the seeds and gets the results of all, in the order of the seeds."""
    from accelerate.utils import gather_object

    own = preset.seed_list[accelerator.process_index :: accelerator.num_processes]
    results = gather_object([run_seed(model, encoded, task, preset, seed, accelerator) for seed in own])
    return sorted(results, key=lambda result: preset.seed_list.index(result.seed))


def _row(result: SeedResult, labels: np.ndarray, task: TaskCard) -> dict[str, Any]:
    predictions = result.probabilities.argmax(1)
    scores = score(predictions, labels, len(task.labels))
    return {
        "seed": result.seed,
        "score": scores[task.metric],
        "dev_score": result.dev_scores[result.epoch - 1],
        **scores,
        "degenerate": is_degenerate(predictions),
        "epoch": result.epoch,
        "dev_scores": result.dev_scores,
        "seconds": result.seconds,
    }


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    scores = [row["score"] for row in rows]
    std = stdev(scores) if len(scores) > 1 else None
    return {"seeds": rows, "mean": fmean(scores), "std": std, "ddof": 1, "n": len(scores)}


def _predictions(results: Sequence[SeedResult], test: Sequence[Example]) -> pa.Table:
    probabilities = np.concatenate([result.probabilities for result in results])
    return pa.table(
        {
            "seed": pa.array(np.repeat([result.seed for result in results], len(test)), pa.int64()),
            "id": pa.array([example.id for example in test] * len(results)),
            "label": pa.array([example.label for example in test] * len(results), pa.int32()),
            "prediction": pa.array(probabilities.argmax(1), pa.int32()),
            "probabilities": pa.array(list(probabilities), pa.list_(pa.float32())),
        }
    )
