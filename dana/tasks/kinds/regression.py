"""One number per text: squared error of standardised targets; Pearson, Spearman, mean squared and absolute error."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dana.core.config import require
from dana.tasks.kinds.base import Answer, Kind, Scorer, Tallies

# Least standard deviation of predictions, relative to the true values. Least squares with
# correlation r has ratio r, so below it the model explains less than a hundredth of the variance.
SPREAD = 0.1
BLOCK = 100  # texts left out at a time
PARTS = 5  # number of ranges of the training values in tables


@dataclass(frozen=True)
class Regression(Kind):
    """One number per text. Answers are numbers.

    Scores are correlations in [-1, 1], 0 if either side is constant; the absolute error, in the
    unit of the values; and the squared error.

    Attributes:
        mean: Mean of the training targets; the loss is that of (target - mean) / std.
        std: Population standard deviation of the training targets; 1 if all are equal.
    """

    mean: float = 0.0
    std: float = 1.0

    name = "regression"
    metrics = {"pearson": "higher", "spearman": "higher", "mse": "lower", "mae": "lower"}  # noqa: RUF012, never changed
    main_metric = "pearson"
    dtype = np.float64
    problem_type = "regression"
    has_labels = False

    def __post_init__(self) -> None:
        require(not self.labels, "labels", list(self.labels), "left out: a number has no labels")

    @classmethod
    def names_in(cls, value: Any) -> Collection[str]:
        cls(()).read(value)
        return ()

    def read(self, value: Any) -> Answer:
        try:
            number = float("nan") if isinstance(value, bool) or "_" in str(value) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not abs(number) <= float(np.finfo(np.float32).max):
            raise ValueError(
                f"label {str(value)[:40]!r} is not a finite number of single precision"
            )
        return number

    def targets(self, answers: Sequence[Answer]) -> np.ndarray:
        return np.array(answers, dtype=np.float32)[:, None]

    def fit(self, targets: np.ndarray) -> Kind:
        values = targets.astype(np.float64)
        return replace(self, mean=float(values.mean()), std=float(values.std()) or 1.0)

    def loss(self, logits: Any, targets: Any) -> Any:
        from torch.nn.functional import mse_loss

        return mse_loss(logits, (targets - self.mean) / self.std)

    def activate(self, logits: Any) -> Any:
        return logits * self.std + self.mean

    def fold_into(self, out: Any) -> Kind:
        # A saved model then predicts the values themselves, and needs no mean and deviation beside
        # it.
        import torch

        with torch.no_grad():
            out.weight.mul_(self.std)
            out.bias.mul_(self.std).add_(self.mean)
        return replace(self, mean=0.0, std=1.0)

    def decode(self, outputs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return outputs[:, 0].astype(np.float64)

    def largest_class(self, references: np.ndarray) -> np.ndarray:
        return np.full(references.size, references.mean())

    def is_constant(self, predictions: np.ndarray, references: np.ndarray) -> bool:
        return bool(predictions.std() <= SPREAD * references.std())

    def scorer(self, predictions: np.ndarray, references: np.ndarray, metric: str) -> Scorer:
        if metric not in ("pearson", "spearman"):
            return super().scorer(predictions, references, metric)
        transform = (
            _weighted_ranks if metric == "spearman" else lambda values, weights: values[None]
        )

        def correlations(weights: np.ndarray) -> np.ndarray:
            true = transform(references, weights)
            return np.stack(
                [_correlation(transform(values, weights), true, weights) for values in predictions],
                axis=1,
            )

        return correlations

    def scores_without_each(
        self, predictions: np.ndarray, references: np.ndarray, metric: str
    ) -> np.ndarray:
        score, texts = self.scorer(predictions, references, metric), np.arange(references.size)
        blocks = np.array_split(texts, math.ceil(texts.size / BLOCK))
        return np.concatenate(
            [score((texts != block[:, None]).astype(float)) for block in blocks]
        ).T

    def tallies(self, predictions: np.ndarray, references: np.ndarray, metric: str) -> Tallies:
        error = (predictions - references).T
        return (error**2 if metric == "mse" else np.abs(error), np.ones_like(error)), np.divide

    def columns(self, outputs: np.ndarray, references: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        return {
            "label": pa.array(references, pa.float64()),
            "prediction": pa.array(outputs[:, 0], pa.float32()),
        }

    def outputs_from(self, table: Mapping[str, Any]) -> np.ndarray:
        return table["prediction"].to_numpy()[:, None]

    def answers(self, column: Any) -> np.ndarray:
        values = column.to_numpy().astype(np.float64)
        if not np.isfinite(values).all():
            raise ValueError("a value that is not finite")
        return values

    def prediction_columns(self, outputs: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        return {"value": pa.array(outputs[:, 0], pa.float32())}

    def counts(
        self, answers: Sequence[Answer], train: Sequence[Answer]
    ) -> list[tuple[str, int, int]]:
        # The ranges are fifths of the training values; the first and the last are open.
        ends = np.unique(np.quantile(self.gather(train), np.linspace(0, 1, PARTS + 1)[1:-1]))
        counts = np.bincount(
            np.searchsorted(ends, self.gather(answers), side="right"), minlength=ends.size + 1
        )
        prediction_columns = [f"{end:.4g}" for end in ends]
        between = [f"{low} to below {high}" for low, high in pairwise(prediction_columns)]
        names = [f"below {prediction_columns[0]}", *between, f"{prediction_columns[-1]} and above"]
        return [(name, int(count), len(answers)) for name, count in zip(names, counts, strict=True)]


def _weighted_ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rank values that occur `weights` times each, ties by their mean rank: shape (draws, texts)."""
    _, level = np.unique(values, return_inverse=True)
    order = np.argsort(level, kind="stable")
    starts = np.flatnonzero(np.diff(level[order], prepend=-1))
    counts = np.add.reduceat(weights[:, order], starts, axis=1)
    return (np.cumsum(counts, axis=1) - counts / 2 + 0.5)[:, level]


def _correlation(one: np.ndarray, other: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute Pearson's correlation of weighted values of shape (draws, texts); 0 if either is constant."""
    total = weights.sum(1, keepdims=True)
    first, second = (part - (part * weights).sum(1, keepdims=True) / total for part in (one, other))
    both, one_square, other_square = (
        (weights * part).sum(1) for part in (first * second, first**2, second**2)
    )
    varies = (one_square > 0) & (other_square > 0)
    return np.divide(
        both, np.sqrt(one_square * other_square), out=np.zeros_like(both), where=varies
    )
