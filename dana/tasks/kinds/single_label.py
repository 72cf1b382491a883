"""One label a text: softmax and cross-entropy; accuracy, micro-F1 and macro-F1."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.tasks.kinds.base import Answer, Kind, Scorer, by_tallies
from dana.tasks.kinds.counts import accuracy, macro_f1
from dana.tasks.metrics import is_degenerate, score_predictions

SCORES = {"accuracy": accuracy, "micro_f1": accuracy, "macro_f1": macro_f1}  # with one label a text the first two agree


@dataclass(frozen=True)
class SingleLabel(Kind):
    """One of several labels a text. Answers are class numbers."""

    name = "single_label"
    metrics = dict.fromkeys(SCORES, "higher")
    main_metric = "macro_f1"
    problem_type = "single_label_classification"

    @classmethod
    def opens(cls, outputs: int, problem_type: str | None, per_word: bool) -> bool:
        return not per_word and outputs >= 2 and problem_type in (None, cls.problem_type)

    @classmethod
    def numbered(cls, classes: int) -> "SingleLabel":
        """The kind of so many labels that are called by their numbers."""
        return cls(tuple(map(str, range(classes))))

    @classmethod
    def names_in(cls, value: Any) -> Collection[str]:
        if isinstance(value, list | tuple | dict):
            raise ValueError(
                f"label {value!r} is {type(value).__name__}, not one label (kind: multi_label has several)"
            )
        return (str(value),)

    def read(self, value: Any) -> Answer:
        return self.code(value)

    def gather(self, answers: Sequence[Answer]) -> np.ndarray:
        return np.array(answers, dtype=np.int64)

    def targets(self, answers: Sequence[Answer]) -> np.ndarray:
        return self.gather(answers)

    def loss(self, logits: Any, targets: Any) -> Any:
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits, targets)

    def activate(self, logits: Any) -> Any:
        return logits.softmax(-1)

    def decode(self, activated: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return activated.argmax(1)

    def scores(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
        return score_predictions(predictions, references, len(self.labels))

    def collapsed(self, predictions: np.ndarray, references: np.ndarray) -> bool:
        return is_degenerate(predictions, references)

    def scorer(self, predictions: np.ndarray, references: np.ndarray, metric: str) -> Scorer:
        if metric not in SCORES:
            raise ValueError(f"metric={metric!r}: must be one of {', '.join(SCORES)}")
        true, predicted = self._tallies(references[None]), self._tallies(predictions)
        return by_tallies((predicted * true, predicted, true), SCORES[metric])

    def _tallies(self, numbers: np.ndarray) -> np.ndarray:
        """Ones where models, of shape (models, texts), say which class: (texts, models, classes)."""
        return (numbers.T[..., None] == np.arange(len(self.labels))).astype(np.float64)

    def alike(self, predictions: np.ndarray, references: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        kinds, counts = np.unique(np.vstack([references, predictions]), axis=1, return_counts=True)
        return kinds[1:], kinds[0], counts

    def columns(self, activated: np.ndarray, references: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        return {
            "label": pa.array(references, pa.int32()),
            "prediction": pa.array(activated.argmax(1), pa.int32()),
            "probabilities": pa.array(list(activated), pa.list_(pa.float32())),
        }

    def activated(self, table: Mapping[str, Any]) -> np.ndarray:
        return np.stack(table["probabilities"].to_numpy())

    def answers(self, column: Any) -> np.ndarray:
        found = column.to_numpy()
        if ((found < 0) | (found >= len(self.labels))).any():
            raise ValueError(f"a class outside 0 to {len(self.labels) - 1}")
        return found

    def shown(self, activated: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        return {
            "label": pa.array([self.labels[code] for code in activated.argmax(1)], pa.string()),
            "probability": pa.array(activated.max(1), pa.float32()),
        }

    def counts(self, answers: Sequence[Answer], train: Sequence[Answer]) -> list[tuple[str, int, int]]:
        found = Counter(answers)
        return [(label, found[code], len(answers)) for code, label in enumerate(self.labels)]

    def drift(self, train: Sequence[Answer], other: Sequence[Answer]) -> tuple[float | None, float | None]:
        """Total variation distance of the label shares, and p of the chi-square test of homogeneity."""
        return label_drift(*(np.array([row[1] for row in self.counts(part, part)]) for part in (train, other)))


def label_drift(train: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Total variation distance of two label distributions, and the p value of the chi-square test of homogeneity.

    Args:
        train: Counts, shape (labels,), not all 0.
        other: The same.
    """
    from scipy.stats import chi2_contingency

    distance = float(np.abs(train / train.sum() - other / other.sum()).sum() / 2)
    seen = np.stack([train, other])[:, (train + other) > 0]
    return distance, float(chi2_contingency(seen, correction=False).pvalue) if seen.shape[1] > 1 else 1.0
