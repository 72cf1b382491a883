"""Several labels per text: sigmoid, binary cross-entropy, threshold 0.5.

The scores are micro-F1, macro-F1 and subset accuracy.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.corpus.text import normalise
from dana.tasks.kinds.base import (
    Kind,
    Label,
    Tallies,
    balanced_weights,
    is_degenerate,
    macro_f1,
    micro_f1,
)
from dana.tasks.kinds.values import (
    SEPARATORS,
    as_bits,
    as_list,
    is_blank,
    parse_list,
    split_text,
)

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
        """Convert a list of labels, the text of one, labels between marks, or a vector of 0 and 1.

        The places of a vector are the card's labels in their order.

        Raises:
            ValueError: If it is none of these, has an unknown label or one twice; or can be read in
                two ways.
        """
        parts = self._parts(value)
        bits = as_bits(parts)
        if bits is not None and len(bits) == len(self.labels):
            may_be_names = set(self.labels) == {"0", "1"}
            if not may_be_names:
                return tuple(np.flatnonzero(bits).tolist())
            raise ValueError(
                f"label {value!r} is a vector of 0 and 1, or both labels '0' and '1'; give the "
                "card's labels other names, and write lists of them or vectors"
            )
        codes = [self.code(label) for label in parts]
        if len(set(codes)) < len(codes):
            repeated = self.labels[_most_common(codes)]
            raise ValueError(f"label {repeated!r} occurs twice")
        return tuple(sorted(codes))

    def _parts(self, value: Any) -> list[Any]:
        """Divide the value of a label field into names, or into the places of a vector."""
        parts = as_list(value)
        if parts is not None:
            return parts
        if not isinstance(value, str):
            return [*self.names_in(value)]  # which refuses it
        if normalise(value) in self.labels:
            return [value]
        if is_blank(value):
            raise ValueError("label '' is empty; write [] for a text that has none of the labels")
        parsed = parse_list(value)
        if parsed is not None:
            return parsed
        ways = [self._divide(value, mark) for mark in SEPARATORS if mark in value]
        found = [way for way in ways if way is not None]
        if len(found) == 1:
            return found[0]
        if found:
            raise ValueError(f"label {value!r} can be divided in several ways; write a list")
        raise ValueError(
            f"label {value!r} is str, not a list of labels, nor labels of the card between "
            f"semicolons, bars or commas; the card has {', '.join(self.labels)}"
        )

    def _divide(self, value: str, mark: str) -> list[Any] | None:
        """Divide text at a mark; None unless that gives labels of the card, or a vector of all."""
        parts = split_text(value, mark)
        if not parts:
            return None
        bits = as_bits(parts)
        is_vector = bits is not None and len(bits) == len(self.labels)
        if is_vector or all(normalise(part) in self.labels for part in parts):
            return parts
        return None

    def loss_labels(self, labels: Sequence[Label]) -> np.ndarray:
        return self._indicators(self.gather(labels)).astype(np.float32)

    def _indicators(self, labels: np.ndarray) -> np.ndarray:
        """Convert labels of any shape to 0 and 1, of shape (..., labels)."""
        rows = np.zeros((labels.size, len(self.labels)))
        for row, codes in zip(rows, labels.ravel(), strict=True):
            row[list(codes)] = 1
        return rows.reshape(*labels.shape, -1)

    def class_weights(self, loss_labels: np.ndarray) -> np.ndarray:
        # Each label has two classes: texts without it and texts with it, shape (labels, 2).
        positives = loss_labels.sum(0)
        counts = np.stack([len(loss_labels) - positives, positives], axis=1)
        return balanced_weights(counts)

    def loss(self, logits: Any, loss_labels: Any, weights: Any = None) -> Any:
        from torch.nn.functional import binary_cross_entropy_with_logits

        if weights is None:
            return binary_cross_entropy_with_logits(logits, loss_labels)
        losses = binary_cross_entropy_with_logits(logits, loss_labels, reduction="none")
        of_units = weights[:, 0] * (1 - loss_labels) + weights[:, 1] * loss_labels
        return (of_units * losses).mean()

    def activate(self, logits: Any) -> Any:
        return logits.sigmoid()

    def decode(self, outputs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        is_predicted = outputs >= THRESHOLD
        return self.gather([tuple(np.flatnonzero(row).tolist()) for row in is_predicted])

    def largest_class(self, labels: np.ndarray) -> np.ndarray:
        largest = _most_common(labels.tolist())
        return self.gather([largest] * labels.size)

    def is_constant(self, predictions: np.ndarray, labels: np.ndarray) -> bool:
        # Each set of labels is a class.
        numbers: dict[Label, int] = {}
        predicted_sets = _number_sets(predictions, numbers)
        labelled_sets = _number_sets(labels, numbers)
        return is_degenerate(predicted_sets, labelled_sets)

    def tallies(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> Tallies:
        actual = self._indicators(labels)[:, None]
        positives = self._indicators(predictions).swapaxes(0, 1)
        if metric == "subset_accuracy":
            right = (positives == actual).all(-1).astype(np.float64)
            return (right, np.ones_like(right)), np.divide
        counts = (positives * actual, positives, actual)
        return counts, macro_f1 if metric == "macro_f1" else micro_f1

    def prediction_columns(self, outputs: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        names = []
        probabilities = []
        for row, predicted in zip(outputs, self.decode(outputs, sizes), strict=True):
            codes = list(predicted)
            names.append([self.labels[code] for code in codes])
            probabilities.append(row[codes])
        return {
            "label": pa.array(names, pa.list_(pa.string())),
            "probability": pa.array(probabilities, pa.list_(pa.float32())),
        }


def _most_common(values: Sequence[Any]) -> Any:
    """Return the most frequent value; of several the one that comes first."""
    [(value, _)] = Counter(values).most_common(1)
    return value


def _number_sets(labels: np.ndarray, numbers: dict[Label, int]) -> np.ndarray:
    """Number the sets of labels of texts; `numbers` has the number of each set, and grows."""
    return np.array([numbers.setdefault(codes, len(numbers)) for codes in labels])
