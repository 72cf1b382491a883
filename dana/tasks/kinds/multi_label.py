"""Several labels per text: sigmoid, binary cross-entropy, threshold 0.5; micro-F1, macro-F1, subset accuracy."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.tasks.kinds.base import Answer, Kind, Tallies, is_degenerate, macro_f1, micro_f1

THRESHOLD = 0.5  # least probability of a predicted label


@dataclass(frozen=True)
class MultiLabel(Kind):
    """None, one or several labels per text. Answers are tuples of class numbers, ascending.

    Scores are micro-F1 over all labels, macro-F1 over the full label set (0 for a label without
    predictions and references), and the share of texts with all labels right.
    """

    name = "multi_label"
    metrics = dict.fromkeys(("micro_f1", "macro_f1", "subset_accuracy"), "higher")
    main_metric = "micro_f1"
    problem_type = "multi_label_classification"

    def read(self, value: Any) -> Answer:
        codes = [self.code(label) for label in self.names_in(value)]
        if len(set(codes)) < len(codes):
            raise ValueError(
                f"label {self.labels[Counter(codes).most_common(1)[0][0]]!r} occurs twice"
            )
        return tuple(sorted(codes))

    def targets(self, answers: Sequence[Answer]) -> np.ndarray:
        return self._indicators(self.gather(answers)).astype(np.float32)

    def _indicators(self, answers: np.ndarray) -> np.ndarray:
        rows = np.zeros((answers.size, len(self.labels)))
        for row, codes in zip(rows, answers.ravel(), strict=True):
            row[list(codes)] = 1
        return rows.reshape(*answers.shape, -1)

    def loss(self, logits: Any, targets: Any) -> Any:
        from torch.nn.functional import binary_cross_entropy_with_logits

        return binary_cross_entropy_with_logits(logits, targets)

    def activate(self, logits: Any) -> Any:
        return logits.sigmoid()

    def decode(self, outputs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return self.gather([tuple(np.flatnonzero(row).tolist()) for row in outputs >= THRESHOLD])

    def largest_class(self, references: np.ndarray) -> np.ndarray:
        return self.gather([Counter(references.tolist()).most_common(1)[0][0]] * references.size)

    def is_constant(self, predictions: np.ndarray, references: np.ndarray) -> bool:
        # each set of labels is a class
        numbers: dict[Answer, int] = {}
        sets = [
            [numbers.setdefault(codes, len(numbers)) for codes in part]
            for part in (predictions, references)
        ]
        return is_degenerate(*map(np.array, sets))

    def tallies(self, predictions: np.ndarray, references: np.ndarray, metric: str) -> Tallies:
        true, positives = (
            self._indicators(references)[:, None],
            self._indicators(predictions).swapaxes(0, 1),
        )
        if metric == "subset_accuracy":
            right = (positives == true).all(-1).astype(np.float64)
            return (right, np.ones_like(right)), np.divide
        return (positives * true, positives, true), macro_f1 if metric == "macro_f1" else micro_f1

    def prediction_columns(self, outputs: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        answers = [list(codes) for codes in self.decode(outputs, sizes)]
        likely = [row[codes] for row, codes in zip(outputs, answers, strict=True)]
        names = [[self.labels[code] for code in codes] for codes in answers]
        return {
            "label": pa.array(names, pa.list_(pa.string())),
            "probability": pa.array(likely, pa.list_(pa.float32())),
        }
