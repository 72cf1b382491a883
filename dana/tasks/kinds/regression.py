"""One number per text: squared error of standardised labels; Pearson, Spearman, mean squared and absolute error."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dana.core.config import require
from dana.tasks.kinds.base import Kind, Label, Scorer, Tallies

# Least standard deviation of predictions, relative to the labels. Least squares with
# correlation r has ratio r, so below it the model explains less than a hundredth of the variance.
SPREAD = 0.1
BLOCK = 100  # texts left out at a time
PARTS = 5  # number of ranges of the training values in tables


@dataclass(frozen=True)
class Regression(Kind):
    """One number per text. Labels are numbers.

    Scores are correlations in [-1, 1], 0 if either side is constant; the absolute error, in the
    unit of the values; and the squared error.

    Attributes:
        mean: Mean of the training labels; the loss is that of (label - mean) / std.
        std: Population standard deviation of the training labels; 1 if all are equal.
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

    def read(self, value: Any) -> Label:
        try:
            number = float("nan") if isinstance(value, bool) or "_" in str(value) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not abs(number) <= float(np.finfo(np.float32).max):
            raise ValueError(
                f"label {str(value)[:40]!r} is not a finite number of single precision"
            )
        return number

    def loss_labels(self, labels: Sequence[Label]) -> np.ndarray:
        return np.array(labels, dtype=np.float32)[:, None]

    def fit(self, loss_labels: np.ndarray) -> Kind:
        values = loss_labels.astype(np.float64)
        return replace(self, mean=float(values.mean()), std=float(values.std()) or 1.0)

    def class_weights(self, loss_labels: np.ndarray) -> np.ndarray:
        raise ValueError("numbers have no classes")

    def loss(self, logits: Any, loss_labels: Any, weights: Any = None) -> Any:
        from torch.nn.functional import mse_loss

        return mse_loss(logits, (loss_labels - self.mean) / self.std)

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

    def largest_class(self, labels: np.ndarray) -> np.ndarray:
        return np.full(labels.size, labels.mean())

    def is_constant(self, predictions: np.ndarray, labels: np.ndarray) -> bool:
        return bool(predictions.std() <= SPREAD * labels.std())

    def scorer(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> Scorer:
        if metric not in ("pearson", "spearman"):
            return super().scorer(predictions, labels, metric)
        transform = (
            _weighted_ranks if metric == "spearman" else lambda values, weights: values[None]
        )

        def correlations(weights: np.ndarray) -> np.ndarray:
            actual = transform(labels, weights)
            return np.stack(
                [
                    _correlation(transform(values, weights), actual, weights)
                    for values in predictions
                ],
                axis=1,
            )

        return correlations

    def scores_without_each(
        self, predictions: np.ndarray, labels: np.ndarray, metric: str
    ) -> np.ndarray:
        score, texts = self.scorer(predictions, labels, metric), np.arange(labels.size)
        blocks = np.array_split(texts, math.ceil(texts.size / BLOCK))
        return np.concatenate(
            [score((texts != block[:, None]).astype(float)) for block in blocks]
        ).T

    def tallies(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> Tallies:
        error = (predictions - labels).T
        return (error**2 if metric == "mse" else np.abs(error), np.ones_like(error)), np.divide

    def columns(self, outputs: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        return {
            "label": pa.array(labels, pa.float64()),
            "prediction": pa.array(outputs[:, 0], pa.float32()),
        }

    def outputs_from(self, table: Mapping[str, Any]) -> np.ndarray:
        return table["prediction"].to_numpy()[:, None]

    def labels_from(self, column: Any) -> np.ndarray:
        values = column.to_numpy().astype(np.float64)
        if not np.isfinite(values).all():
            raise ValueError("a value that is not finite")
        return values

    def prediction_columns(self, outputs: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        return {"value": pa.array(outputs[:, 0], pa.float32())}

    def counts(self, labels: Sequence[Label], train: Sequence[Label]) -> list[tuple[str, int, int]]:
        # The ranges are fifths of the training values; the first and the last are open.
        ends = np.unique(np.quantile(self.gather(train), np.linspace(0, 1, PARTS + 1)[1:-1]))
        counts = np.bincount(
            np.searchsorted(ends, self.gather(labels), side="right"), minlength=ends.size + 1
        )
        prediction_columns = [f"{end:.4g}" for end in ends]
        between = [f"{low} to below {high}" for low, high in pairwise(prediction_columns)]
        names = [f"below {prediction_columns[0]}", *between, f"{prediction_columns[-1]} and above"]
        return [(name, int(count), len(labels)) for name, count in zip(names, counts, strict=True)]


def _weighted_ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rank values that occur `weights` times each, ties by their mean rank: shape (draws, texts)."""
    _, level = np.unique(values, return_inverse=True)
    order = np.argsort(level, kind="stable")
    starts = np.flatnonzero(np.diff(level[order], prepend=-1))
    counts = np.add.reduceat(weights[:, order], starts, axis=1)
    return (np.cumsum(counts, axis=1) - counts / 2 + 0.5)[:, level]


def _correlation(values: np.ndarray, other: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute Pearson's correlation of weighted values of shape (draws, texts); 0 if either is constant."""
    total = weights.sum(1, keepdims=True)
    first, second = (
        part - (part * weights).sum(1, keepdims=True) / total for part in (values, other)
    )
    both, one_square, other_square = (
        (weights * part).sum(1) for part in (first * second, first**2, second**2)
    )
    varies = (one_square > 0) & (other_square > 0)
    return np.divide(
        both, np.sqrt(one_square * other_square), out=np.zeros_like(both), where=varies
    )
