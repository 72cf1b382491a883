"""Results of a fine-tuning: metrics.json, predictions.parquet and a text table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dana.core.artifacts import read_json, write_json
from dana.tasks.card import TaskCard
from dana.tasks.examples import Example
from dana.tasks.kinds import DEFAULT
from dana.tasks.kinds.base import Kind

METRICS = "metrics.json"
PREDICTIONS = "predictions.parquet"


@dataclass(frozen=True)
class SeedResult:
    """What one seed gave.

    Attributes:
        seed: The seed.
        epoch: The epoch that was tested, from 1.
        dev_scores: The task's metric on the development data: after each epoch where the best is tested, else after the
            last alone.
        outputs: float32 of shape (test examples, outputs): probabilities of the labels, or what else the kind has.
        seconds: Loading, training and testing.
    """

    seed: int
    epoch: int
    dev_scores: list[float]
    outputs: np.ndarray
    seconds: float

    @property
    def dev_score(self) -> float:
        """The task's metric on the development data after the epoch that was tested."""
        return self.dev_scores[min(self.epoch, len(self.dev_scores)) - 1]


def write_results(
    folder: Path, card: TaskCard, said: dict[str, Any], results: Sequence[SeedResult], test: Sequence[Example]
) -> None:
    """Write ``metrics.json`` (a row a seed; mean, std with ddof 1, n) and ``predictions.parquet``.

    Args:
        folder: Where.
        card: The task.
        said: What else ``metrics.json`` says: model, preset, settings.
        results: What the seeds gave, in the order of the rows.
        test: The examples that were predicted.
    """
    task = {"task": card.name, "version": card.version, "metric": card.metric, "direction": card.direction}
    if card.kind != DEFAULT:
        task |= {"kind": card.kind, "labels": card.labels}
    rows = [_row(result, card, test) for result in results]
    write_json(folder / METRICS, {**task, **said, **_summary(rows)})
    pq.write_table(_predictions(results, card.target, test), folder / PREDICTIONS, compression="zstd")


def read_results(folder: Path, kind: Kind) -> list[SeedResult]:
    """What the seeds of a committed fine-tuning of a kind gave, exactly as :func:`write_results` was told."""
    predictions = pq.read_table(folder / PREDICTIONS)
    found = []
    for row in read_json(folder / METRICS)["seeds"]:
        own = predictions.filter(pc.equal(predictions["seed"], row["seed"]))
        outputs = kind.activated(dict(zip(own.column_names, own.columns, strict=True)))
        found.append(SeedResult(row["seed"], row["epoch"], row["dev_scores"], outputs, row["seconds"]))
    return found


def join_results(parts: Sequence[Path], folder: Path) -> None:
    """Write results of several fine-tunings of a task, with other seeds each, as one.

    Args:
        parts: Folders of :func:`write_results`; in the order of the rows.
        folder: Where.
    """
    told = [read_json(part / METRICS) for part in parts]
    rows = [row for metrics in told for row in metrics["seeds"]]
    seeds = [row["seed"] for row in rows]
    settings = {**told[0]["settings"], "seeds": seeds}
    write_json(folder / METRICS, {**told[0], "settings": settings, **_summary(rows)})
    tables = [pq.read_table(part / PREDICTIONS) for part in parts]
    pq.write_table(pa.concat_tables(tables), folder / PREDICTIONS, compression="zstd")


def scores_of(result: SeedResult, kind: Kind, test: Sequence[Example]) -> tuple[dict[str, float], bool]:
    """Every metric of a seed on the test examples, and whether its model collapsed."""
    answers = [example.label for example in test]
    predictions, references = kind.decode(result.outputs, kind.sizes(answers)), kind.gather(answers)
    return kind.scores(predictions, references), kind.collapsed(predictions, references)


def results_table(metrics: dict[str, Any]) -> str:
    """``metrics.json`` as text: a line a seed, then mean and standard deviation; a collapsed seed says so."""
    name = metrics["metric"]
    lines = [f"{'seed':<6} {name:>9} {'dev':>9} {'epoch':>6} {'seconds':>9}"]
    for row in metrics["seeds"]:
        flag = "  collapsed: its score says nothing" if row["degenerate"] else ""
        scores = f"{row['score']:>9.4f} {row['dev_score']:>9.4f}"
        lines.append(f"{row['seed']:<6} {scores} {row['epoch']:>6} {row['seconds']:>9.1f}{flag}")
    spread = f" \u00b1 {metrics['std']:.4f}" if metrics["std"] is not None else ""
    count = f"n = {metrics['n']} seeds, standard deviation with ddof 1" if spread else "n = 1 seed"
    lines.append(f"{'mean':<6} {metrics['mean']:>9.4f}{spread}  ({count})")
    return "\n".join(lines)


def _row(result: SeedResult, task: TaskCard, test: Sequence[Example]) -> dict[str, Any]:
    scores, collapsed = scores_of(result, task.target, test)
    return {
        "seed": result.seed,
        "score": scores[task.metric],
        "dev_score": result.dev_score,
        **scores,
        "degenerate": collapsed,
        "epoch": result.epoch,
        "dev_scores": result.dev_scores,
        "seconds": result.seconds,
    }


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    scores = [row["score"] for row in rows]
    std = stdev(scores) if len(scores) > 1 else None
    return {"seeds": rows, "mean": fmean(scores), "std": std, "ddof": 1, "n": len(scores)}


def _predictions(results: Sequence[SeedResult], kind: Kind, test: Sequence[Example]) -> pa.Table:
    references = kind.gather([example.label for example in test] * len(results))
    return pa.table(
        {
            "seed": pa.array(np.repeat([result.seed for result in results], len(test)), pa.int64()),
            "id": pa.array([example.id for example in test] * len(results)),
            **kind.columns(np.concatenate([result.outputs for result in results]), references),
        }
    )
