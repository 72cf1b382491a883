"""One number per text: squared error of standardised labels.

The scores are Pearson's and Spearman's correlation, mean squared and mean absolute error.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dana.core.config import require
from dana.tasks.kinds.base import Kind, Label, Scorer, Tallies

# Least standard deviation of predictions, relative to the labels. Least squares with
# correlation r has ratio r, so below it the model explains less than a hundredth of the variance.
SPREAD = 0.1
BLOCK = 100  # scores computed at a time, each of all texts but one


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
    metrics = {  # noqa: RUF012, never changed
        "pearson": "higher",
        "spearman": "higher",
        "mse": "lower",
        "mae": "lower",
    }
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
        number = float("nan")
        # Python takes True for 1 and "1_0" for 10; a table does not mean that.
        if not isinstance(value, bool) and "_" not in str(value):
            with suppress(TypeError, ValueError, OverflowError):
                number = float(value)
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
        # A saved model then predicts the values themselves, and needs no mean and deviation.
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
        transform = _weighted_ranks if metric == "spearman" else _as_they_are

        def correlations(weights: np.ndarray) -> np.ndarray:
            actual = transform(labels, weights)
            by_model = []
            for values in predictions:
                predicted = transform(values, weights)
                by_model.append(_correlation(predicted, actual, weights))
            return np.stack(by_model, axis=1)

        return correlations

    def scores_without_each(
        self, predictions: np.ndarray, labels: np.ndarray, metric: str
    ) -> np.ndarray:
        score = self.scorer(predictions, labels, metric)
        texts = np.arange(labels.size)
        scores = []
        for block in np.array_split(texts, math.ceil(texts.size / BLOCK)):
            weights = (texts != block[:, None]).astype(float)  # each row leaves one text out
            scores.append(score(weights))
        return np.concatenate(scores).T

    def tallies(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> Tallies:
        error = (predictions - labels).T
        loss = error**2 if metric == "mse" else np.abs(error)
        return (loss, np.ones_like(error)), np.divide

    def columns(self, outputs: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        return {
            "label": pa.array(labels, pa.float64()),
            "prediction": pa.array(outputs[:, 0], pa.float32()),
        }

    def outputs_from(self, table: Mapping[str, Any]) -> np.ndarray:
        outputs: np.ndarray = table["prediction"].to_numpy()[:, None]
        return outputs

    def labels_from(self, column: Any) -> np.ndarray:
        values: np.ndarray = column.to_numpy().astype(np.float64)
        if not np.isfinite(values).all():
            raise ValueError("a value that is not finite")
        return values

    def prediction_columns(self, outputs: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        return {"value": pa.array(outputs[:, 0], pa.float32())}

    def counts(self, labels: Sequence[Label], train: Sequence[Label]) -> list[tuple[str, int, int]]:
        # The ranges are fifths of the training values; the first and the last are open.
        ends = ends_of_fifths(self.gather(train))
        ranges = np.searchsorted(ends, self.gather(labels), side="right")
        counts = np.bincount(ranges, minlength=ends.size + 1)
        shown_ends = _shown(ends)
        between = [f"{low} to below {high}" for low, high in pairwise(shown_ends)]
        names = [f"below {shown_ends[0]}", *between, f"{shown_ends[-1]} and above"]
        return [(name, int(count), len(labels)) for name, count in zip(names, counts, strict=True)]


def ends_of_fifths(values: np.ndarray) -> np.ndarray:
    """Return the four inner ends of the fifths of the values, fewer if some are equal."""
    inner_quantiles = np.linspace(0, 1, 6)[1:-1]
    ends: np.ndarray = np.unique(np.quantile(values, inner_quantiles))
    return ends


def _shown(ends: np.ndarray) -> list[str]:
    """Write numbers with four digits, or as many as tell them apart."""
    for digits in range(4, 18):
        shown = [f"{end:.{digits}g}" for end in ends]
        if len({*shown}) == len(shown):
            break
    return shown


def _as_they_are(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the values for all draws at once, of shape (1, texts)."""
    return values[None]


def _weighted_ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rank values that occur `weights` times each, ties by mean rank; shape (draws, texts)."""
    _, level = np.unique(values, return_inverse=True)
    order = np.argsort(level, kind="stable")
    starts = np.flatnonzero(np.diff(level[order], prepend=-1))
    counts = np.add.reduceat(weights[:, order], starts, axis=1)
    return (np.cumsum(counts, axis=1) - counts / 2 + 0.5)[:, level]


def _correlation(values: np.ndarray, other: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute Pearson's correlation of weighted values; 0 if either is constant.

    Args:
        values: Shape (draws, texts), or (1, texts) where all draws have the same.
        other: The same.
        weights: How often each draw has each text, shape (draws, texts).

    Returns:
        One correlation per draw.
    """
    centred = _centre(values, weights)
    other_centred = _centre(other, weights)
    covariance = (weights * (centred * other_centred)).sum(1)
    variance = (weights * centred**2).sum(1)
    other_variance = (weights * other_centred**2).sum(1)
    scale = np.sqrt(variance * other_variance)
    varies = _varies(values, weights) & _varies(other, weights) & (scale > 0)
    correlation: np.ndarray = np.divide(
        covariance, scale, out=np.zeros_like(covariance), where=varies
    )
    return correlation


def _varies(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return whether the texts of each draw have different values.

    Their variance does not tell: of equal values rounding may leave a little.
    """
    is_drawn = weights > 0
    lowest = np.where(is_drawn, values, np.inf).min(1)
    highest = np.where(is_drawn, values, -np.inf).max(1)
    varies: np.ndarray = highest > lowest
    return varies


def _centre(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Subtract the weighted mean of each draw."""
    means = (values * weights).sum(1, keepdims=True) / weights.sum(1, keepdims=True)
    centred: np.ndarray = values - means
    return centred
