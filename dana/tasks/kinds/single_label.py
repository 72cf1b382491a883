"""One label a text: softmax and cross-entropy; accuracy, micro-F1 and macro-F1 by local ``evaluate`` modules."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dana.tasks.kinds.base import Answer, Kind, macro_f1

MODULES = Path(__file__).parents[1] / "evaluation_modules"


@dataclass(frozen=True)
class SingleLabel(Kind):
    """One of several labels a text. Answers are class numbers."""

    name = "single_label"
    metrics = dict.fromkeys(("accuracy", "micro_f1", "macro_f1"), "higher")
    main_metric = "macro_f1"
    dtype = np.int64
    problem_type = "single_label_classification"

    @classmethod
    def numbered(cls, classes: int) -> "SingleLabel":
        """The kind of so many labels that are called by their numbers."""
        return cls(tuple(map(str, range(classes))))

    @classmethod
    def names_in(cls, value: Any) -> Collection[str]:
        if isinstance(value, list | tuple | dict):
            remedy = "not one label (kind: multi_label has several)"
            raise ValueError(f"label {value!r} is {type(value).__name__}, {remedy}")
        return (str(value),)

    def read(self, value: Any) -> Answer:
        return self.code(value)

    def decode(self, activated: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return activated.argmax(1)

    def scores(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
        return score_predictions(predictions, references, len(self.labels))

    def tallied(
        self, predictions: np.ndarray, references: np.ndarray, metric: str
    ) -> tuple[Sequence[np.ndarray], Callable[..., np.ndarray]]:
        numbers = np.arange(len(self.labels))
        true = (references[:, None, None] == numbers).astype(np.float64)
        predicted = (predictions.T[..., None] == numbers).astype(np.float64)
        return (predicted * true, predicted, true), macro_f1 if metric == "macro_f1" else _accuracy

    def alike(self, predictions: np.ndarray, references: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        kinds, counts = np.unique(np.vstack([references, predictions]), axis=1, return_counts=True)
        return kinds[1:], kinds[0], counts

    def shown(self, activated: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        names = [self.labels[code] for code in activated.argmax(1)]
        return {"label": pa.array(names, pa.string()), "probability": pa.array(activated.max(1), pa.float32())}


def _accuracy(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Share of right predictions; with one label a text it is micro-F1, too."""
    return right.sum(-1) / true.sum(-1)


def score_predictions(predictions: np.ndarray, references: np.ndarray, labels: int) -> dict[str, float]:
    """Accuracy, micro-F1 and macro-F1, each in [0, 1], higher is better.

    With one label a text, micro-F1 over all labels is accuracy. Macro-F1 is over the full label set: one that
    is neither there nor predicted counts 0, so that every seed averages over the same classes.

    Args:
        predictions: int64 of shape (examples,).
        references: The same.
        labels: Size of the full label set.
    """
    scores: dict[str, float] = {}
    for name in SingleLabel.metrics:
        scores |= _module(name).compute(predictions=predictions, references=references, labels=list(range(labels)))
    return scores


@cache
def _module(name: str) -> Any:
    """Loading takes a tenth of a second, and there is a score for every epoch of every seed."""
    import evaluate

    return evaluate.load(str(MODULES / name), keep_in_memory=True)
