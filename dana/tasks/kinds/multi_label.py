"""Any number of labels a text: sigmoid and binary cross-entropy, threshold 0.5; micro-F1, macro-F1, subset accuracy."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.tasks.kinds.base import Answer, Kind, Scorer, by_tallies, listed
from dana.tasks.kinds.counts import macro_f1, micro_f1
from dana.tasks.metrics import is_degenerate

THRESHOLD = 0.5  # of the probability from which on a label is given
AVERAGES = {"micro_f1": micro_f1, "macro_f1": macro_f1}


@dataclass(frozen=True)
class MultiLabel(Kind):
    """None, one or several labels a text. Answers are tuples of class numbers, ascending.

    Scores are micro-F1 over all labels together, macro-F1 over the full label set (0 of a label that is neither there
    nor predicted, as of one label a text), and the share of texts with all labels right.
    """

    name = "multi_label"
    metrics = dict.fromkeys((*AVERAGES, "subset_accuracy"), "higher")
    main_metric = "micro_f1"
    problem_type = "multi_label_classification"

    @classmethod
    def names_in(cls, value: Any) -> Collection[str]:
        return [str(label) for label in listed(value, "a list of labels")]

    def read(self, value: Any) -> Answer:
        codes = [self.code(label) for label in listed(value, "a list of labels")]
        if len(set(codes)) < len(codes):
            raise ValueError(f"label {self.labels[Counter(codes).most_common(1)[0][0]]!r} is there twice")
        return tuple(sorted(codes))

    def targets(self, answers: Sequence[Answer]) -> np.ndarray:
        return self._indicators(self.gather(answers)).astype(np.float32)

    def _indicators(self, answers: np.ndarray) -> np.ndarray:
        """Ones where a text has a label: float64 of shape (..., labels)."""
        found = np.zeros((answers.size, len(self.labels)))
        for row, codes in enumerate(answers.ravel()):
            found[row, list(codes)] = 1
        return found.reshape(*answers.shape, -1)

    def loss(self, logits: Any, targets: Any) -> Any:
        from torch.nn.functional import binary_cross_entropy_with_logits

        return binary_cross_entropy_with_logits(logits, targets)

    def activate(self, logits: Any) -> Any:
        return logits.sigmoid()

    def decode(self, activated: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return self.gather([tuple(np.flatnonzero(row).tolist()) for row in activated >= THRESHOLD])

    def collapsed(self, predictions: np.ndarray, references: np.ndarray) -> bool:
        """Sets of labels count as classes: a model collapsed that gives nearly every text the same set."""
        numbers: dict[Answer, int] = {}
        sets = [
            np.array([numbers.setdefault(codes, len(numbers)) for codes in part]) for part in (predictions, references)
        ]
        return is_degenerate(*sets)

    def scorer(self, predictions: np.ndarray, references: np.ndarray, metric: str) -> Scorer:
        true, predicted = self._indicators(references)[:, None], self._indicators(predictions).swapaxes(0, 1)
        if metric == "subset_accuracy":
            right = (predicted == true).all(-1).astype(np.float64)
            return by_tallies((right, np.ones_like(right)), np.divide)
        if metric not in AVERAGES:
            raise ValueError(f"metric={metric!r}: must be one of {', '.join(self.metrics)}")
        return by_tallies((predicted * true, predicted, true), AVERAGES[metric])

    def columns(self, activated: np.ndarray, references: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        predictions = self.decode(activated, np.ones(references.size, dtype=np.int64))
        return {
            "label": pa.array(map(list, references), pa.list_(pa.int32())),
            "prediction": pa.array(map(list, predictions), pa.list_(pa.int32())),
            "probabilities": pa.array(list(activated), pa.list_(pa.float32())),
        }

    def activated(self, table: Mapping[str, Any]) -> np.ndarray:
        return np.stack(table["probabilities"].to_numpy())

    def answers(self, column: Any) -> np.ndarray:
        found = [tuple(codes) for codes in column.to_pylist()]
        if not all(0 <= code < len(self.labels) for codes in found for code in codes):
            raise ValueError(f"a class outside 0 to {len(self.labels) - 1}")
        return self.gather(found)

    def shown(self, activated: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        """The labels that are given, and the probability of each of them."""
        import pyarrow as pa

        given = self.decode(activated, sizes)
        likely = [row[list(codes)] for row, codes in zip(activated, given, strict=True)]
        return {
            "label": pa.array([[self.labels[code] for code in codes] for codes in given], pa.list_(pa.string())),
            "probability": pa.array(likely, pa.list_(pa.float32())),
        }

    def counts(self, answers: Sequence[Answer], train: Sequence[Answer]) -> list[tuple[str, int, int]]:
        """How many texts have each label; they sum to more than all texts."""
        found = self._indicators(self.gather(answers)).sum(0)
        return [(label, int(count), len(answers)) for label, count in zip(self.labels, found, strict=True)]

    def drift(self, train: Sequence[Answer], other: Sequence[Answer]) -> tuple[float | None, float | None]:
        """The largest difference of a label's share, and p of the most surprising chi-square of a label, Bonferroni."""
        from scipy.stats import chi2_contingency

        shares, p_values = [0.0], [1.0]
        for (_, count, of), (_, there, all_there) in zip(
            self.counts(train, train), self.counts(other, other), strict=True
        ):
            shares.append(abs(count / of - there / all_there))
            table = np.array([[count, of - count], [there, all_there - there]])
            if table.sum(0).all():
                p_values.append(float(chi2_contingency(table, correction=False).pvalue))
        return max(shares), min(1.0, min(p_values) * len(self.labels))
