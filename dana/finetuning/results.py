"""Write metrics.json and predictions.parquet of a fine-tuned seed, join those of several, and tabulate them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dana.core.artifacts import read_json, write_json
from dana.tasks.card import TaskCard
from dana.tasks.examples import Example, is_unseen
from dana.tasks.kinds.base import Kind
from dana.tasks.tables import collapsed_seeds

METRICS = "metrics.json"
ADAPTATION = "adaptation"  # index of the adaptation, or fold, of a fine-tuning
PREDICTIONS = "predictions.parquet"


@dataclass(frozen=True)
class SeedResult:
    """Result of one seed.

    Attributes:
        seed: The seed.
        epoch: The tested epoch, from 1.
        dev_scores: The task's metric on the development data, after each epoch under ``evaluate:
            best``, else after the last one.
        outputs: float32 of shape (test units, outputs): probabilities of the labels, or values.
        seconds: Time for loading, training and testing.
        precision: Precision that it was computed in, by Accelerate's name; None if it is not known.
    """

    seed: int
    epoch: int
    dev_scores: list[float]
    outputs: np.ndarray
    seconds: float
    precision: str | None = None

    @property
    def dev_score(self) -> float:
        """The task's metric on the development data after the tested epoch."""
        return self.dev_scores[min(self.epoch, len(self.dev_scores)) - 1]


def write_result(
    folder: Path,
    card: TaskCard,
    details: dict[str, Any],
    result: SeedResult,
    splits: dict[str, list[Example]],
) -> dict[str, Any]:
    """Write ``metrics.json`` and ``predictions.parquet`` of one seed.

    Args:
        folder: Target folder.
        card: The task.
        details: Further entries of ``metrics.json``: model, preset, settings, overlap of the
            splits, baselines, number of folds.
        result: Result of the seed.
        splits: Examples of all splits.

    Returns:
        Content of ``metrics.json``.
    """
    test = splits["test"]
    task = {
        "task": card.name,
        "version": card.version,
        "metric": card.metric,
        "direction": card.direction,
        "kind": card.kind,
        "labels": card.labels,
    }
    row = _row(result, card, test)
    for split in ("dev", "test"):
        labels = card.label_kind.gather([example.label for example in splits[split]])
        row[f"largest_class_{split}"] = card.label_kind.baseline(labels, card.metric)
    unseen_mean = _unseen_mean(result, card, splits)
    metrics = {
        **task,
        **details,
        "split_overlap": {**details["split_overlap"], "unseen_mean": unseen_mean},
        "adaptations": 1,
        "finetunings": 1,
        **_summary([row]),
    }
    write_json(folder / METRICS, metrics)
    predictions = _predictions(result, card.label_kind, test)
    pq.write_table(predictions, folder / PREDICTIONS, compression="zstd")
    return metrics


def read_results(folder: Path, kind: Kind) -> list[SeedResult]:
    """Read back the result of every seed in a folder that this module wrote."""
    predictions = pq.read_table(folder / PREDICTIONS)
    results = []
    for row in read_json(folder / METRICS)["seeds"]:
        table = predictions.filter(pc.equal(predictions["seed"], row["seed"]))
        outputs = kind.outputs_from(dict(zip(table.column_names, table.columns, strict=True)))
        results.append(
            SeedResult(row["seed"], row["epoch"], row["dev_scores"], outputs, row["seconds"])
        )
    return results


def summarise(folders: Sequence[Path]) -> dict[str, Any]:
    """Return the metrics of seeds that were made alike, as if ``metrics.json`` had a row for each.

    Args:
        folders: Folders of :func:`write_result`.
    """
    parts = [read_json(folder / METRICS) for folder in folders]
    rows = list(chain.from_iterable(part["seeds"] for part in parts))
    return {**parts[0], **_summary(rows)}


def join_results(
    parts: Mapping[int, Sequence[Path]], folder: Path, kind: Kind, baselines: Mapping[str, float]
) -> None:
    """Join the results of seeds that differ only in their adaptation, or fold, and seed.

    With folds ``mean`` is the mean, over the fine-tunings of a fold, of the metric of all folds'
    predictions together.

    Args:
        parts: Folders of :func:`write_result` by index of the adaptation or fold, in the order of
            the rows; as many for every index.
        folder: Target folder.
        kind: Kind of the label.
        baselines: What simple models score on all texts.
    """
    rows: list[dict[str, Any]] = []
    tables: list[pa.Table] = []
    every: list[dict[str, Any]] = []
    first_of_each: list[dict[str, Any]] = []
    for index, folders in parts.items():
        metrics_of_seeds = [read_json(part / METRICS) for part in folders]
        first_of_each.append(metrics_of_seeds[0])
        for part, metrics in zip(folders, metrics_of_seeds, strict=True):
            every.append(metrics)
            rows += [{**row, ADAPTATION: index} for row in metrics["seeds"]]
            table = pq.read_table(part / PREDICTIONS)
            column = pa.array([index] * len(table), pa.int64())
            tables.append(table.set_column(0, ADAPTATION, column))
    predictions = pa.concat_tables(tables)
    pq.write_table(predictions, folder / PREDICTIONS, compression="zstd")
    first = every[0]
    settings = {**first["settings"], "seeds": [row["seed"] for row in rows]}
    content = {
        **first,
        "settings": settings,
        "baselines": baselines,
        "adaptations": len(parts),
        "finetunings": len(rows) // len(parts),
        **_summary(rows),
    }
    split_overlap = dict(first["split_overlap"])
    if first["folds"] is not None:
        for name in split_overlap.keys() - {"unseen_mean"}:
            split_overlap[name] = sum(part["split_overlap"][name] for part in first_of_each)
        content |= _sums_of_folds(first_of_each)
        content["mean"] = _mean_of_folds(rows, predictions, kind, content["metric"])
    unseen_means = [part["split_overlap"]["unseen_mean"] for part in every]
    split_overlap["unseen_mean"] = None if None in unseen_means else fmean(unseen_means)
    content["split_overlap"] = split_overlap
    write_json(folder / METRICS, content)


def _sums_of_folds(metrics: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the entries of ``metrics.json`` that all folds have together.

    Args:
        metrics: That of one seed of each fold.
    """
    untrained_labels: dict[str, None] = {}  # in the order in which they are met
    for part in metrics:
        untrained_labels |= dict.fromkeys(part["untrained_labels"])
    sums: dict[str, Any] = {"untrained_labels": [*untrained_labels]}
    if all(part.get("full_texts") is not None for part in metrics):
        full_texts = [part["full_texts"] for part in metrics]
        counts = {name: sum(part[name] for part in full_texts) for name in ("count", "of")}
        sums["full_texts"] = {**full_texts[0], **counts}
    return sums


def _mean_of_folds(
    rows: Sequence[dict[str, Any]], predictions: pa.Table, kind: Kind, metric: str
) -> float:
    """Compute the metric of all folds' predictions together, for the first seed of each fold, the second, ..."""
    seeds_of: dict[int, list[int]] = {}
    for row in rows:
        seeds_of.setdefault(row[ADAPTATION], []).append(row["seed"])
    scores = []
    for seeds in zip(*seeds_of.values(), strict=True):
        pool = predictions.filter(pc.is_in(predictions["seed"], pa.array(seeds, pa.int64())))
        label_values = kind.labels_from(pool["prediction"])
        labels = kind.labels_from(pool["label"])
        scores.append(kind.scores(label_values, labels)[metric])
    return fmean(scores)


def _unseen_mean(
    result: SeedResult, card: TaskCard, splits: dict[str, list[Example]]
) -> float | None:
    """Score the test examples whose text is in no other split; None where all are, or none."""
    unseen = is_unseen(splits)
    if unseen.all() or not unseen.any():
        return None
    kind = card.label_kind
    label_values = [example.label for example in splits["test"]]
    labels = kind.gather(label_values)[unseen]
    predictions = kind.decode(result.outputs, kind.sizes(label_values))[unseen]
    return kind.scores(predictions, labels)[card.metric]


def scores_of(
    result: SeedResult, task: TaskCard, test: Sequence[Example]
) -> tuple[dict[str, float], bool]:
    """Compute every metric of a seed on the test examples, and whether its model collapsed there."""
    kind = task.label_kind
    label_values = [example.label for example in test]
    labels = kind.gather(label_values)
    predictions = kind.decode(result.outputs, kind.sizes(label_values))
    is_collapsed = kind.is_collapsed(predictions, labels, task.metric)
    return kind.scores(predictions, labels), is_collapsed


def results_table(metrics: dict[str, Any]) -> str:
    """Format ``metrics.json`` as text: one line per seed, with a mark if it collapsed, then mean and deviation."""
    collapsed = collapsed_seeds(metrics)
    lines = [f"{'seed':<6} {metrics['metric']:>9} {'dev':>9} {'epoch':>6} {'seconds':>9}"]
    for row in metrics["seeds"]:
        scores = f"{row['score']:>9.4f} {row['dev_score']:>9.4f}"
        line = f"{row['seed']:<6} {scores} {row['epoch']:>6} {row['seconds']:>9.1f}"
        if row["seed"] in collapsed:
            line += "  collapsed: not above the largest class, or nearly one label"
        lines.append(line)
    mean = f"{'mean':<6} {metrics['mean']:>9.4f}"
    if metrics["std"] is None:
        lines.append(f"{mean}  (n = 1 seed)")
    else:
        count = f"n = {metrics['n']} seeds, standard deviation with ddof 1"
        lines.append(f"{mean} \u00b1 {metrics['std']:.4f}  ({count})")
    baselines = metrics.get("baselines")
    if baselines:
        scores_by_name = [f"{name} {score:.4f}" for name, score in baselines.items()]
        lines.append(f"baselines {', '.join(scores_by_name)}")
    return "\n".join(lines)


def _row(result: SeedResult, task: TaskCard, test: Sequence[Example]) -> dict[str, Any]:
    scores, is_collapsed = scores_of(result, task, test)
    return {
        ADAPTATION: 0,
        "seed": result.seed,
        "score": scores[task.metric],
        "dev_score": result.dev_score,
        **scores,
        "degenerate": is_collapsed,
        "epoch": result.epoch,
        "dev_scores": result.dev_scores,
        "seconds": result.seconds,
    }


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    scores = [row["score"] for row in rows]
    std = stdev(scores) if len(scores) > 1 else None
    return {"seeds": rows, "mean": fmean(scores), "std": std, "ddof": 1, "n": len(scores)}


def _predictions(result: SeedResult, kind: Kind, test: Sequence[Example]) -> pa.Table:
    labels = kind.gather([example.label for example in test])
    count = len(test)
    keys = {
        ADAPTATION: pa.array(np.zeros(count, dtype=np.int64)),
        "seed": pa.array(np.full(count, result.seed), pa.int64()),
        "id": pa.array([example.id for example in test]),
    }
    return pa.table({**keys, **kind.columns(result.outputs, labels)})
