"""Results of a fine-tuning: each seed as it finishes; metrics.json, predictions.parquet and a text table of all."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from safetensors.torch import load_model, save_model
from torch.nn import Module

from dana.core.artifacts import read_json, write_json
from dana.core.errors import Contradiction
from dana.tasks.card import TaskCard
from dana.tasks.examples import Example
from dana.tasks.kinds import DEFAULT
from dana.tasks.kinds.base import Kind
from dana.train.checkpoints import Checkpoints
from dana.train.execution import refuse_precision

METRICS = "metrics.json"
PREDICTIONS = "predictions.parquet"
RESULT = "result.json"
OUTPUTS = "probabilities.npy"
WEIGHTS = "weights.safetensors"


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


@dataclass(frozen=True)
class Seeds(Checkpoints):
    """The finished seeds of one fine-tuning in ``OUT-seeds``: ``seed-0``, ``seed-1``; and the model of the best so far.

    Whichever process ran a seed commits it by one rename, so that a killed run loses only the seeds it was in. They
    depend on model, task, data and hyper-parameters, not on which seeds are run: a rerun may ask for more.

    Attributes:
        precision: What they are computed in.
        seeds: Those that are run, in order.
        sign: 1 where a higher development score is better, -1 where a lower one is.
    """

    precision: str = "no"
    seeds: tuple[int, ...] = ()
    sign: int = 1

    def count(self) -> int:
        """How many are finished."""
        return len(list(self.folder.glob("seed-*")))

    def read(self, seed: int) -> SeedResult | None:
        """What a seed gave; None if it is not finished, or damaged.

        Raises:
            Contradiction: If it is of another fine-tuning; the difference is named.
            ConfigError: If it was run in another precision.
        """
        if (saved := self.open(f"seed-{seed}")) is None:
            return None
        refuse_precision(self.folder, saved.manifest["precision"], self.precision)
        return SeedResult(**read_json(saved.path / RESULT), outputs=np.load(saved.path / OUTPUTS, allow_pickle=False))

    def write(self, result: SeedResult) -> None:
        """Commit what a seed gave."""
        told = {name: value for name, value in vars(result).items() if name != "outputs"}

        def fill(folder: Path) -> None:
            write_json(folder / RESULT, told)
            np.save(folder / OUTPUTS, result.outputs, allow_pickle=False)

        self.commit(f"seed-{result.seed}", fill, {"precision": self.precision})

    def keep_model(self, result: SeedResult, classifier: Module) -> None:
        """Keep a seed's weights until all have run, unless a better seed's wait; worse ones go.

        Processes do this side by side: the best of all is never removed, because there is none better.
        """
        waiting = {seed: saved for seed in self.seeds if (saved := self.open(f"model-{seed}")) and seed != result.seed}
        ranks = {seed: self._rank(seed, saved.manifest["dev_score"]) for seed, saved in waiting.items()}
        rank = self._rank(result.seed, result.dev_score)
        if any(other > rank for other in ranks.values()):
            return
        notes = {"dev_score": result.dev_score, "precision": self.precision}
        self.commit(f"model-{result.seed}", lambda folder: save_model(classifier, str(folder / WEIGHTS)), notes)
        for saved in waiting.values():
            shutil.rmtree(saved.path, ignore_errors=True)

    def restore(self, seed: int, classifier: Module) -> bool:
        """Put a seed's weights into a classifier; returns whether they were kept, whole."""
        if (saved := self.open(f"model-{seed}")) is None or saved.manifest["precision"] != self.precision:
            return False
        load_model(classifier, saved.path / WEIGHTS)
        return True

    def _rank(self, seed: int, dev_score: float) -> tuple[float, int]:
        """The larger the better; of equal scores the earlier seed."""
        return self.sign * dev_score, -self.seeds.index(seed)

    def refuse(self, path: Path, made_from: dict[str, Any], differences: str) -> NoReturn:
        """See :meth:`dana.train.checkpoints.Checkpoints.refuse`."""
        raise Contradiction(self.folder, [differences])


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
