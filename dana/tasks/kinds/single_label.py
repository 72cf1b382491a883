"""One label per text: softmax and cross-entropy.

The scores, accuracy, micro-F1 and macro-F1, are those of a local ``evaluate`` module.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dana.tasks.kinds.base import Kind, Label, Tallies, label_name, macro_f1

MODULE = Path(__file__).parents[1] / "evaluation_modules" / "classification"


@dataclass(frozen=True)
class SingleLabel(Kind):
    """One of several labels per text. Labels are class numbers."""

    name = "single_label"
    metrics = dict.fromkeys(("accuracy", "micro_f1", "macro_f1"), "higher")
    main_metric = "macro_f1"
    dtype = np.int64
    problem_type = "single_label_classification"

    @classmethod
    def from_count(cls, classes: int) -> "SingleLabel":
        """Make a kind whose labels are the numbers of its classes."""
        return cls(tuple(map(str, range(classes))))

    @classmethod
    def names_in(cls, value: Any) -> Collection[str]:
        if isinstance(value, list | tuple | dict):
            raise ValueError(
                f"label {value!r} is {type(value).__name__}, not one label; "
                "or use kind: multi_label"
            )
        return (label_name(value),)

    def read(self, value: Any) -> Label:
        return self.code(value)

    def decode(self, outputs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        classes: np.ndarray = outputs.argmax(1)
        return classes

    def scores(self, predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        return score_predictions(predictions, labels, len(self.labels))

    def tallies(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> Tallies:
        numbers = np.arange(len(self.labels))
        actual = (labels[:, None, None] == numbers).astype(np.float64)
        positives = (predictions.T[..., None] == numbers).astype(np.float64)
        counts = (positives * actual, positives, actual)
        return counts, macro_f1 if metric == "macro_f1" else _accuracy

    def prediction_columns(self, outputs: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        names = [self.labels[code] for code in outputs.argmax(1)]
        return {
            "label": pa.array(names, pa.string()),
            "probability": pa.array(outputs.max(1), pa.float32()),
        }


def _accuracy(right: np.ndarray, positives: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Compute the share of right predictions, which is also micro-F1 with one label per text."""
    accuracy: np.ndarray = right.sum(-1) / actual.sum(-1)
    return accuracy


def score_predictions(
    predictions: np.ndarray, labels: np.ndarray, classes: int
) -> dict[str, float]:
    """Compute accuracy, micro-F1 and macro-F1, each in [0, 1], higher is better.

    With one label per text, micro-F1 over all labels is accuracy. Macro-F1 averages over the full
    label set, with 0 for a label without predictions and labels, so every seed averages over
    the same classes.

    Args:
        predictions: int64 of shape (examples,).
        labels: int64 of shape (examples,).
        classes: Size of the full label set.
    """
    scores: dict[str, float] = _module().compute(
        predictions=predictions, references=labels, labels=list(range(classes))
    )
    return scores


@cache
def _module() -> Any:
    import evaluate  # loading a module takes 0.1 s, and every epoch of every seed has a score

    return evaluate.load(str(MODULE), keep_in_memory=True)
