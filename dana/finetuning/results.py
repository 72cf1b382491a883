"""Store the result of each seed as it finishes; write metrics.json, predictions.parquet and a text table of all."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from safetensors.torch import load_model, save_model
from torch.nn import Module

from dana.core.artifacts import read_json, write_json
from dana.finetuning.folders import SealedFolders
from dana.tasks.card import TaskCard
from dana.tasks.examples import Example, is_unseen
from dana.tasks.kinds import DEFAULT
from dana.tasks.kinds.base import Kind
from dana.tasks.tables import collapsed_seeds
from dana.train.execution import refuse_precision

METRICS = "metrics.json"
ADAPTATION = "adaptation"  # index of the adaptation, or fold, of a fine-tuning
PREDICTIONS = "predictions.parquet"
RESULT = "result.json"
OUTPUTS = "probabilities.npy"
WEIGHTS = "weights.safetensors"


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
    """

    seed: int
    epoch: int
    dev_scores: list[float]
    outputs: np.ndarray
    seconds: float

    @property
    def dev_score(self) -> float:
        """The task's metric on the development data after the tested epoch."""
        return self.dev_scores[min(self.epoch, len(self.dev_scores)) - 1]


@dataclass(frozen=True)
class Seeds(SealedFolders):
    """The finished seeds of one fine-tuning, in ``OUT-seeds`` (``seed-0``, ``seed-1``), and the best model so far.

    A process commits its seed by one rename, so a killed run loses only unfinished seeds. Seeds
    depend on model, task, data and hyper-parameters, not on the list of seeds: a rerun may add
    some.

    Attributes:
        precision: Precision of the computation.
        seeds: Seeds of the run, in order.
        sign: 1 if a higher development score is better, -1 if a lower one is.
    """

    precision: str = "no"
    seeds: tuple[int, ...] = ()
    sign: int = 1

    def count(self) -> int:
        """Count the finished seeds."""
        return len(list(self.folder.glob("seed-*")))

    def read(self, seed: int) -> SeedResult | None:
        """Read the result of a seed; None if it is not finished, or damaged.

        Raises:
            Contradiction: If it belongs to another fine-tuning; names the difference.
            ConfigError: If it was run in another precision.
        """
        if (checkpoint := self.open(f"seed-{seed}")) is None:
            return None
        refuse_precision(self.folder, checkpoint.manifest["precision"], self.precision)
        outputs = np.load(checkpoint.path / OUTPUTS, allow_pickle=False)
        return SeedResult(**read_json(checkpoint.path / RESULT), outputs=outputs)

    def write(self, result: SeedResult) -> None:
        """Commit the result of a seed."""
        values = {name: value for name, value in vars(result).items() if name != "outputs"}

        def fill(folder: Path) -> None:
            write_json(folder / RESULT, values)
            np.save(folder / OUTPUTS, result.outputs, allow_pickle=False)

        self.commit(f"seed-{result.seed}", fill, {"precision": self.precision})

    def keep_model(self, result: SeedResult, classifier: Module) -> None:
        """Save a seed's weights if no better seed's are saved, and delete those of worse seeds.

        Safe for several processes at once: the best weights are never deleted, because none are
        better.
        """
        others = {
            seed: model
            for seed in self.seeds
            if (model := self.open(f"model-{seed}")) and seed != result.seed
        }
        ranks = {
            seed: self._rank(seed, model.manifest["dev_score"]) for seed, model in others.items()
        }
        rank = self._rank(result.seed, result.dev_score)
        if any(other > rank for other in ranks.values()):
            return
        notes = {"dev_score": result.dev_score, "precision": self.precision}
        self.commit(
            f"model-{result.seed}",
            lambda folder: save_model(classifier, str(folder / WEIGHTS)),
            notes,
        )
        for model in others.values():
            shutil.rmtree(model.path, ignore_errors=True)

    def restore(self, seed: int, classifier: Module) -> bool:
        """Load a seed's saved weights into a classifier; returns False if there are no intact ones."""
        if (checkpoint := self.open(f"model-{seed}")) is None or checkpoint.manifest[
            "precision"
        ] != self.precision:
            return False
        load_model(classifier, checkpoint.path / WEIGHTS)
        return True

    def _rank(self, seed: int, dev_score: float) -> tuple[float, int]:
        # of equal scores the earlier seed wins
        return self.sign * dev_score, -self.seeds.index(seed)


def write_results(
    folder: Path,
    card: TaskCard,
    details: dict[str, Any],
    results: Sequence[SeedResult],
    splits: dict[str, list[Example]],
) -> None:
    """Write ``metrics.json`` (one row per seed; mean, std with ddof 1, n) and ``predictions.parquet``.

    Args:
        folder: Target folder.
        card: The task.
        details: Further entries of ``metrics.json``: model, preset, settings, overlap of the
            splits, floors, number of folds.
        results: Results of the seeds, in the order of the rows.
        splits: Examples of all splits.
    """
    test = splits["test"]
    task = {
        "task": card.name,
        "version": card.version,
        "metric": card.metric,
        "direction": card.direction,
    }
    if card.kind != DEFAULT:
        task |= {"kind": card.kind, "labels": card.labels}
    references = {
        split: card.target.gather([example.label for example in splits[split]])
        for split in ("dev", "test")
    }
    floors = {
        f"largest_class_{split}": card.target.floor(part, card.metric)
        for split, part in references.items()
    }
    rows = [{**_row(result, card, test), **floors} for result in results]
    overlap = {**details["split_overlap"], "unseen_mean": _unseen_mean(results, card, splits)}
    repetitions = {"adaptations": 1, "finetunings": len(rows)}
    write_json(
        folder / METRICS,
        {**task, **details, "split_overlap": overlap, **repetitions, **_summary(rows)},
    )
    pq.write_table(
        _predictions(results, card.target, test), folder / PREDICTIONS, compression="zstd"
    )


def read_results(folder: Path, kind: Kind) -> list[SeedResult]:
    """Read back the results of the seeds that :func:`write_results` wrote."""
    predictions = pq.read_table(folder / PREDICTIONS)
    results = []
    for row in read_json(folder / METRICS)["seeds"]:
        table = predictions.filter(pc.equal(predictions["seed"], row["seed"]))
        outputs = kind.outputs_from(dict(zip(table.column_names, table.columns, strict=True)))
        results.append(
            SeedResult(row["seed"], row["epoch"], row["dev_scores"], outputs, row["seconds"])
        )
    return results


def join_results(
    parts: Mapping[int, Path], folder: Path, kind: Kind, floors: Mapping[str, float]
) -> None:
    """Join the results of fine-tunings that differ only in their adaptation, or fold, and seeds.

    With folds ``mean`` is the mean, over the fine-tunings of a fold, of the metric of all folds'
    predictions together.

    Args:
        parts: Folders of :func:`write_results` by index of the adaptation, in the order of the
            rows.
        folder: Target folder.
        kind: Kind of the target.
        floors: What simple models score on all texts.
    """
    metrics = [read_json(part / METRICS) for part in parts.values()]
    tables = [pq.read_table(part / PREDICTIONS) for part in parts.values()]
    indices = (
        pa.array([index] * len(table), pa.int64())
        for index, table in zip(parts, tables, strict=True)
    )
    columns = zip(tables, indices, strict=True)
    table = pa.concat_tables(table.set_column(0, ADAPTATION, column) for table, column in columns)
    pq.write_table(table, folder / PREDICTIONS, compression="zstd")
    pairs = zip(parts, metrics, strict=True)
    rows = [{**row, ADAPTATION: index} for index, part in pairs for row in part["seeds"]]
    overlaps = [part["split_overlap"] for part in metrics]
    means = [overlap.pop("unseen_mean") for overlap in overlaps]
    settings = {**metrics[0]["settings"], "seeds": [row["seed"] for row in rows]}
    content = {
        **metrics[0],
        "settings": settings,
        "floors": floors,
        "adaptations": len(parts),
        **_summary(rows),
    }
    if metrics[0]["folds"] is not None:
        overlaps[0] = {name: sum(overlap[name] for overlap in overlaps) for name in overlaps[0]}
        content["untrained_labels"] = [
            *dict.fromkeys(name for part in metrics for name in part["untrained_labels"])
        ]
        groups = zip(*([row["seed"] for row in part["seeds"]] for part in metrics), strict=True)
        pools = (
            table.filter(pc.is_in(table["seed"], pa.array(group, pa.int64()))) for group in groups
        )
        answers = ([kind.answers(pool[name]) for name in ("prediction", "label")] for pool in pools)
        content["mean"] = fmean(kind.scores(*pair)[content["metric"]] for pair in answers)
    content["split_overlap"] = {
        **overlaps[0],
        "unseen_mean": None if None in means else fmean(means),
    }
    write_json(folder / METRICS, content)


def _unseen_mean(
    results: Sequence[SeedResult], card: TaskCard, splits: dict[str, list[Example]]
) -> float | None:
    """Score the test examples whose text is in no other split, mean over seeds; None where all are, or none."""
    unseen, kind = is_unseen(splits), card.target
    if unseen.all() or not unseen.any():
        return None
    answers = [example.label for example in splits["test"]]
    references, sizes = kind.gather(answers)[unseen], kind.sizes(answers)
    scores = (
        kind.scores(kind.decode(result.outputs, sizes)[unseen], references)[card.metric]
        for result in results
    )
    return fmean(scores)


def scores_of(
    result: SeedResult, task: TaskCard, test: Sequence[Example]
) -> tuple[dict[str, float], bool]:
    """Compute every metric of a seed on the test examples, and whether its model collapsed there."""
    kind, answers = task.target, [example.label for example in test]
    predictions, references = kind.decode(result.outputs, kind.sizes(answers)), kind.gather(answers)
    return kind.scores(predictions, references), kind.is_collapsed(
        predictions, references, task.metric
    )


def results_table(metrics: dict[str, Any]) -> str:
    """Format ``metrics.json`` as text: one line per seed, with a mark if it collapsed, then mean and deviation."""
    name, collapses = metrics["metric"], collapsed_seeds(metrics)
    lines = [f"{'seed':<6} {name:>9} {'dev':>9} {'epoch':>6} {'seconds':>9}"]
    for row in metrics["seeds"]:
        flag = (
            "  collapsed: not above the largest class, or nearly one answer"
            if row["seed"] in collapses
            else ""
        )
        scores = f"{row['score']:>9.4f} {row['dev_score']:>9.4f}"
        lines.append(f"{row['seed']:<6} {scores} {row['epoch']:>6} {row['seconds']:>9.1f}{flag}")
    spread = f" \u00b1 {metrics['std']:.4f}" if metrics["std"] is not None else ""
    count = f"n = {metrics['n']} seeds, standard deviation with ddof 1" if spread else "n = 1 seed"
    lines.append(f"{'mean':<6} {metrics['mean']:>9.4f}{spread}  ({count})")
    if floors := metrics.get("floors"):
        lines.append(f"floors {', '.join(f'{name} {score:.4f}' for name, score in floors.items())}")
    return "\n".join(lines)


def _row(result: SeedResult, task: TaskCard, test: Sequence[Example]) -> dict[str, Any]:
    scores, is_collapsed = scores_of(result, task, test)
    row: dict[str, Any] = {ADAPTATION: 0, "seed": result.seed, "score": scores[task.metric]}
    row |= {
        "dev_score": result.dev_score,
        **scores,
        "degenerate": is_collapsed,
        "epoch": result.epoch,
    }
    return row | {"dev_scores": result.dev_scores, "seconds": result.seconds}


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    scores = [row["score"] for row in rows]
    std = stdev(scores) if len(scores) > 1 else None
    return {"seeds": rows, "mean": fmean(scores), "std": std, "ddof": 1, "n": len(scores)}


def _predictions(results: Sequence[SeedResult], kind: Kind, test: Sequence[Example]) -> pa.Table:
    references = kind.gather([example.label for example in test] * len(results))
    seeds = np.repeat([result.seed for result in results], len(test))
    keys = {
        ADAPTATION: pa.array(np.zeros(len(references), dtype=np.int64)),
        "seed": pa.array(seeds, pa.int64()),
    }
    keys |= {"id": pa.array([example.id for example in test] * len(results))}
    return pa.table(
        {**keys, **kind.columns(np.concatenate([result.outputs for result in results]), references)}
    )
