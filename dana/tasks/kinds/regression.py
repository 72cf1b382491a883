"""A number a text: squared error of standardised targets; Pearson, Spearman, mean squared and mean absolute error."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dana.core.config import require
from dana.tasks.kinds.base import Answer, Kind, Scorer

SPREAD = 0.1  # of the true values; least squares of correlation r predict r of it, so below, a hundredth is explained
PARTS = 5  # ranges of the training data's values


@dataclass(frozen=True)
class Regression(Kind):
    """A number a text. Answers are numbers.

    Scores are correlations in [-1, 1], 0 where either side is constant, and errors in the unit of the values and its
    square.

    Attributes:
        mean: Of the training targets; the loss is of targets less it, over `std`.
        std: Of the same, population; 1 where all are equal.
    """

    mean: float = 0.0
    std: float = 1.0

    name = "regression"
    metrics = {"pearson": "higher", "spearman": "higher", "mse": "lower", "mae": "lower"}  # noqa: RUF012, never changed
    main_metric = "pearson"
    dtype = np.float64
    problem_type = "regression"
    labelled = False

    def __post_init__(self) -> None:
        require(not self.labels, "labels", list(self.labels), "left out, a number has none")

    @classmethod
    def names_in(cls, value: Any) -> Collection[str]:
        cls(()).read(value)
        return ()

    def read(self, value: Any) -> Answer:
        try:
            number = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not abs(number) <= float(np.finfo(np.float32).max):
            raise ValueError(f"label {str(value)[:40]!r} is not a finite number of single precision")
        return number

    def targets(self, answers: Sequence[Answer]) -> np.ndarray:
        return np.array(answers, dtype=np.float32)[:, None]

    def fitted(self, targets: np.ndarray) -> Kind:
        values = targets.astype(np.float64)
        return replace(self, mean=float(values.mean()), std=float(values.std()) or 1.0)

    def loss(self, logits: Any, targets: Any) -> Any:
        from torch.nn.functional import mse_loss

        return mse_loss(logits, (targets - self.mean) / self.std)

    def activate(self, logits: Any) -> Any:
        return logits * self.std + self.mean

    def folded(self, out: Any) -> Kind:
        """The last layer then gives the values themselves, so a saved model needs no mean and deviation beside it."""
        import torch

        with torch.no_grad():
            out.weight.mul_(self.std)
            out.bias.mul_(self.std).add_(self.mean)
        return replace(self, mean=0.0, std=1.0)

    def decode(self, activated: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return activated[:, 0].astype(np.float64)

    def collapsed(self, predictions: np.ndarray, references: np.ndarray) -> bool:
        """Nearly the same number for every text: a standard deviation below a tenth of the true values'."""
        return bool(predictions.std() <= SPREAD * references.std())

    def scorer(self, predictions: np.ndarray, references: np.ndarray, metric: str) -> Scorer:
        if metric not in ("pearson", "spearman"):
            return super().scorer(predictions, references, metric)
        compared = _weighted_ranks if metric == "spearman" else lambda values, weights: values[None]

        def correlations(weights: np.ndarray) -> np.ndarray:
            true = compared(references, weights)
            return np.stack([_correlation(compared(own, weights), true, weights) for own in predictions], axis=1)

        return correlations

    def tallied(
        self, predictions: np.ndarray, references: np.ndarray, metric: str
    ) -> tuple[Sequence[np.ndarray], Callable[..., np.ndarray]]:
        error = (predictions - references).T
        return (error**2 if metric == "mse" else np.abs(error), np.ones_like(error)), np.divide

    def columns(self, activated: np.ndarray, references: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        return {"label": pa.array(references, pa.float64()), "prediction": pa.array(activated[:, 0], pa.float32())}

    def activated(self, table: Mapping[str, Any]) -> np.ndarray:
        return table["prediction"].to_numpy()[:, None]

    def answers(self, column: Any) -> np.ndarray:
        values = column.to_numpy().astype(np.float64)
        if not np.isfinite(values).all():
            raise ValueError("a value that is not finite")
        return values

    def shown(self, activated: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        return {"value": pa.array(activated[:, 0], pa.float32())}

    def counts(self, answers: Sequence[Answer], train: Sequence[Answer]) -> list[tuple[str, int, int]]:
        """Of ranges that part the training values into fifths; the first and the last have no end."""
        ends = np.unique(np.quantile(self.gather(train), np.linspace(0, 1, PARTS + 1)[1:-1]))
        counts = np.bincount(np.searchsorted(ends, self.gather(answers), side="right"), minlength=ends.size + 1)
        shown = [f"{end:.4g}" for end in ends]
        between = [f"{low} to below {high}" for low, high in pairwise(shown)]
        names = [f"below {shown[0]}", *between, f"{shown[-1]} and above"]
        return [(name, int(count), len(answers)) for name, count in zip(names, counts, strict=True)]


def _weighted_ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean ranks of values that are there so many times, equal ones sharing theirs: (draws, texts)."""
    _, place = np.unique(values, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    often = np.add.reduceat(weights[:, order], starts, axis=1)
    return (np.cumsum(often, axis=1) - often / 2 + 0.5)[:, place]


def _correlation(one: np.ndarray, other: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pearson's correlation of weighted values, each of shape (draws, texts); 0 where either does not vary."""
    total = weights.sum(1, keepdims=True)
    first, second = (part - (part * weights).sum(1, keepdims=True) / total for part in (one, other))
    both, square, its = ((weights * product).sum(1) for product in (first * second, first**2, second**2))
    varies = (square > 0) & (its > 0)
    return np.divide(both, np.sqrt(square * its), out=np.zeros_like(both), where=varies)
