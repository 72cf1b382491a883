"""Several labels per text: sigmoid, binary cross-entropy, threshold 0.5; micro-F1, macro-F1, subset accuracy."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.tasks.kinds.base import Kind, Label, Tallies, is_degenerate, macro_f1, micro_f1

THRESHOLD = 0.5  # least probability of a predicted label


@dataclass(frozen=True)
class MultiLabel(Kind):
    """None, one or several labels per text. Labels are tuples of class numbers, ascending.

    Scores are micro-F1 over all labels, macro-F1 over the full label set (0 for a label without
    predictions and labels), and the share of texts with all labels right.
    """

    name = "multi_label"
    metrics = dict.fromkeys(("micro_f1", "macro_f1", "subset_accuracy"), "higher")
    main_metric = "micro_f1"
    problem_type = "multi_label_classification"

    def read(self, value: Any) -> Label:
        codes = [self.code(label) for label in self.names_in(value)]
        if len(set(codes)) < len(codes):
            raise ValueError(
                f"label {self.labels[Counter(codes).most_common(1)[0][0]]!r} occurs twice"
            )
        return tuple(sorted(codes))

    def loss_labels(self, labels: Sequence[Label]) -> np.ndarray:
        return self._indicators(self.gather(labels)).astype(np.float32)

    def _indicators(self, labels: np.ndarray) -> np.ndarray:
        rows = np.zeros((labels.size, len(self.labels)))
        for row, codes in zip(rows, labels.ravel(), strict=True):
            row[list(codes)] = 1
        return rows.reshape(*labels.shape, -1)

    def loss(self, logits: Any, loss_labels: Any) -> Any:
        from torch.nn.functional import binary_cross_entropy_with_logits

        return binary_cross_entropy_with_logits(logits, loss_labels)

    def activate(self, logits: Any) -> Any:
        return logits.sigmoid()

    def decode(self, outputs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return self.gather([tuple(np.flatnonzero(row).tolist()) for row in outputs >= THRESHOLD])

    def largest_class(self, labels: np.ndarray) -> np.ndarray:
        return self.gather([Counter(labels.tolist()).most_common(1)[0][0]] * labels.size)

    def is_constant(self, predictions: np.ndarray, labels: np.ndarray) -> bool:
        # each set of labels is a class
        numbers: dict[Label, int] = {}
        sets = [
            [numbers.setdefault(codes, len(numbers)) for codes in part]
            for part in (predictions, labels)
        ]
        return is_degenerate(*map(np.array, sets))

    def tallies(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> Tallies:
        actual, positives = (
            self._indicators(labels)[:, None],
            self._indicators(predictions).swapaxes(0, 1),
        )
        if metric == "subset_accuracy":
            right = (positives == actual).all(-1).astype(np.float64)
            return (right, np.ones_like(right)), np.divide
        return (
            positives * actual,
            positives,
            actual,
        ), macro_f1 if metric == "macro_f1" else micro_f1

    def prediction_columns(self, outputs: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        labels = [list(codes) for codes in self.decode(outputs, sizes)]
        likely = [row[codes] for row, codes in zip(outputs, labels, strict=True)]
        names = [[self.labels[code] for code in codes] for codes in labels]
        return {
            "label": pa.array(names, pa.list_(pa.string())),
            "probability": pa.array(likely, pa.list_(pa.float32())),
        }
