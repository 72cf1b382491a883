"""A number a text: squared error of standardised targets; Pearson, Spearman, mean squared and mean absolute error."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dana.core.config import require
from dana.tasks.kinds.base import Answer, Kind, Scorer, by_tallies

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
    problem_type = "regression"
    labelled = False
    assumes_spread = False

    def __post_init__(self) -> None:
        require(not self.labels, "labels", list(self.labels), "left out, a number has none")

    @classmethod
    def opens(cls, outputs: int, problem_type: str | None, per_word: bool) -> bool:
        return not per_word and outputs == 1 and problem_type in (None, cls.problem_type)

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("value",)

    @classmethod
    def names_in(cls, value: Any) -> Collection[str]:
        cls(()).read(value)
        return ()

    def read(self, value: Any) -> Answer:
        try:
            found = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            found = float("nan")
        if not abs(found) <= float(np.finfo(np.float32).max):
            raise ValueError(f"label {str(value)[:40]!r} is not a finite number of single precision")
        return found

    def gather(self, answers: Sequence[Answer]) -> np.ndarray:
        return np.array(answers, dtype=np.float64)

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
        error = (predictions - references).T
        if metric == "mse":
            return by_tallies((error**2, np.ones_like(error)), np.divide)
        if metric == "mae":
            return by_tallies((np.abs(error), np.ones_like(error)), np.divide)
        if metric not in self.metrics:
            raise ValueError(f"metric={metric!r}: must be one of {', '.join(self.metrics)}")
        ranks = _weighted_ranks if metric == "spearman" else _as_they_are
        return lambda weights: np.stack(
            [_correlation(ranks(own, weights), ranks(references, weights), weights) for own in predictions], axis=1
        )

    def columns(self, activated: np.ndarray, references: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        return {"label": pa.array(references, pa.float64()), "prediction": pa.array(activated[:, 0], pa.float32())}

    def activated(self, table: Mapping[str, Any]) -> np.ndarray:
        return table["prediction"].to_numpy()[:, None]

    def answers(self, column: Any) -> np.ndarray:
        found = column.to_numpy().astype(np.float64)
        if not np.isfinite(found).all():
            raise ValueError("a value that is not finite")
        return found

    def shown(self, activated: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        return {"value": pa.array(activated[:, 0], pa.float32())}

    def counts(self, answers: Sequence[Answer], train: Sequence[Answer]) -> list[tuple[str, int, int]]:
        """Of ranges that part the training values into fifths; the first and the last have no end."""
        ends = np.unique(np.quantile(self.gather(train), np.linspace(0, 1, PARTS + 1)[1:-1]))
        found = np.bincount(np.searchsorted(ends, self.gather(answers), side="right"), minlength=ends.size + 1)
        shown = ["", *(f"{end:.4g}" for end in ends), ""]
        names = [f"{low} to below {high}" for low, high in pairwise(shown)]
        names = [name.strip().removeprefix("to ") for name in names]
        names[-1] = f"{shown[-2]} and above"
        return [(name, int(count), len(answers)) for name, count in zip(names, found, strict=True)]

    def absent(self, answers: Sequence[Answer]) -> list[str]:
        return []

    def drift(self, train: Sequence[Answer], other: Sequence[Answer]) -> tuple[float | None, float | None]:
        """Largest distance of the distribution functions, and p of the two-sample Kolmogorov-Smirnov test."""
        from scipy.stats import ks_2samp

        found = ks_2samp(self.gather(train), self.gather(other))
        return float(found.statistic), float(found.pvalue)


def _as_they_are(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.broadcast_to(values, weights.shape)


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
