"""Measure the loss of a language model on each held-out text: the result of an arm where no text has a label."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import Artifact, Draft, make_on_all_ranks, write_json
from dana.core.errors import DataError
from dana.core.files import text_key
from dana.core.logging import get_logger
from dana.core.rng import derive_seed, hash_uniform
from dana.core.schemas import DOCUMENTS, Document, iterate_documents, table_identity
from dana.finetuning.results import ADAPTATION, METRICS, PREDICTIONS
from dana.models.folder import check_checkpoint, model_identity, model_name
from dana.models.language_model import check_length
from dana.stages.training import require_saved_head
from dana.tasks.kinds.text_loss import TextLoss
from dana.train.evaluation import SEED, example_losses
from dana.train.examples import build_examples
from dana.train.execution import Precision, make_accelerator
from dana.train.loop import prepare
from dana.train.settings import AdaptSettings
from dana.train.tokens import Tokens

log = get_logger(__name__)

METRIC = TextLoss.main_metric
OF_LOSS = (
    "max_tokens",
    "evaluation_tokens",
)  # settings that decide which tokens are predicted, from how much context


def loss_stage(
    model: str, texts: Path, task: str, settings: AdaptSettings, index: int, out: Path
) -> Artifact:
    """Measure the losses of held-out texts, and write them as a fine-tuning's results are written.

    So arms are compared over adaptations and texts as on a task with labels
    (:mod:`dana.report.verdicts`).

    Args:
        model: Folder with safetensors, or Hub name.
        texts: Folder of held-out documents; of many, a pseudo-random part of at most
            ``evaluation_tokens`` tokens.
        task: Name of the text in the report.
        settings: Settings of the training; its objective predicts, without dropout and at fixed
            masks.
        index: Index of the adaptation, and the seed in the results.
        out: Folder for ``metrics.json`` and ``predictions.parquet`` (id and source of each text,
            ``label``, its number of predicted tokens, ``prediction``, the sum of their nats, and
            its ``characters``).

    Raises:
        ArtifactError: If model or texts are missing.
        ConfigError: If the model has no head for the objective, or too few positions.
        DataError: If fewer than two texts have a token to predict.
    """
    check_checkpoint(model)
    require_saved_head(settings)
    objective = settings.make_objective()
    preset: dict[str, Any] = {name: getattr(settings, name) for name in OF_LOSS} | {
        "seeds": [index]
    }
    origin = {
        "task": task,
        "kind": TextLoss.name,
        "labels": [],
        "data": table_identity(texts, DOCUMENTS),
    }
    depends_on = {
        "model": model_identity(model),
        "task": origin,
        "preset": preset | objective.decisive(),
    }

    def write(draft: Draft | None) -> None:
        accelerator = make_accelerator()
        table, chance = _losses(model, texts, settings, accelerator)
        if draft is not None:
            draft.notes["precision"] = Precision.from_accelerator(accelerator).name
            draft.counts["texts"] = len(table)
            content = {"task": task, "model": model_name(model), "settings": preset}
            _write(draft.path, table, content, chance, index)

    return make_on_all_ranks(out, "finetune", depends_on, write)


def _losses(
    model: str, texts: Path, settings: AdaptSettings, accelerator: Any
) -> tuple[pa.Table, float]:
    """Measure texts: their id, source, characters, predicted tokens and nats; and the loss of a uniform guess."""
    objective = settings.make_objective()
    language_model = objective.prepare_model(model, settings.seed)
    check_length(language_model.model.config, settings.max_tokens)
    collator = objective.heldout_collator(language_model.tokenizer)
    documents = _order(iterate_documents(texts))
    tokens = Tokens.from_documents(documents, language_model.tokenizer)
    ends = np.array([span.after for span in tokens.documents()])
    count = max(1, int((ends <= settings.evaluation_tokens).sum()))
    examples, _ = build_examples(tokens, None, collator.special_tokens, settings.max_tokens)
    examples = examples.rows(np.flatnonzero(examples.starts < ends[count - 1]))
    state = prepare(language_model.model, settings, accelerator)
    sums, counts = example_losses(state.module, examples, collator, state.shape, accelerator)
    owners = np.searchsorted(ends, examples.starts, side="right")
    sizes = np.bincount(owners, counts, count)
    nats = np.bincount(owners, sums, count)
    if (sizes > 0).sum() < 2:
        raise DataError(
            f"{texts}: holds {(sizes > 0).sum()} text(s) with a token to predict; a comparison needs 2"
        )
    measured = documents[:count]
    columns = {
        "id": pa.array([document.doc_id for document in measured]),
        "source": pa.array([document.source for document in measured]),
        "label": sizes,
        "prediction": nats,
        "characters": pa.array([len(document.text) for document in measured]),
    }
    table = pa.table(columns).filter(pa.array(sizes > 0))
    return table, math.log(len(language_model.tokenizer))


def _order(documents: Any) -> list[Document]:
    """Order documents pseudo-randomly by their text."""
    texts = list(documents)
    keys = np.array([text_key(document.text) for document in texts], dtype=np.uint64)
    ranks = hash_uniform(derive_seed(SEED, "texts"), keys)
    return [texts[row] for row in np.argsort(ranks, kind="stable")]


def _write(
    folder: Path, table: pa.Table, content: dict[str, Any], chance: float, index: int
) -> None:
    """Write losses in the form of :func:`dana.finetuning.results.write_result`, and log their means."""
    rows = table.to_pandas()
    means = rows[["label", "prediction", "characters"]].sum()
    loss = means["prediction"] / means["label"]
    bits = means["prediction"] / math.log(2) / means["characters"]
    numbers = (
        f"{loss:.4f} nats a token, perplexity {math.exp(loss):.1f}, {bits:.3f} bits a character"
    )
    log.info("loss      %s: %s", content["task"], numbers)
    by_source = rows.groupby("source")[["prediction", "label"]].sum()
    score = {
        ADAPTATION: 0,
        "seed": index,
        "score": loss,
        "dev_score": loss,
        METRIC: loss,
        "perplexity": math.exp(loss),
    }
    score |= {
        "bits_per_character": bits,
        "degenerate": False,
        "epoch": 0,
        "dev_scores": [loss],
        "seconds": 0.0,
    }
    score |= dict.fromkeys(("largest_class_dev", "largest_class_test"), chance)
    content |= {
        "version": 1,
        "metric": METRIC,
        "direction": "lower",
        "kind": TextLoss.name,
        "labels": [],
    }
    content |= {"preset": "loss", "untrained_labels": [], "baselines": {}}
    content |= {
        "split_overlap": {"seen": 0, "unseen": len(rows), "unseen_mean": None},
        "folds": None,
    }
    content |= {
        "by_source": (by_source["prediction"] / by_source["label"]).to_dict(),
        "adaptations": 1,
    }
    content |= {"finetunings": 1, "seeds": [score], "mean": loss, "std": None, "ddof": 1, "n": 1}
    write_json(folder / METRICS, content)
    keys = {
        ADAPTATION: pa.array([0] * len(rows)),
        "seed": pa.array([index] * len(rows), pa.int64()),
    }
    columns = dict(zip(table.column_names, table.columns, strict=True))
    pq.write_table(pa.table({**keys, **columns}), folder / PREDICTIONS, compression="zstd")
