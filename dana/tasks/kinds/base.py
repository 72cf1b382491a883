"""The contract of a kind of target: a record's target to training, predictions, scores, saved models and tables.

An answer is what a text has as its target or gets as its prediction: a class number, a number, or a tuple of class
numbers. Answers of many texts are an array of shape (texts,): int64, float64, or of tuples (dtype object).

A new kind says :meth:`Kind.read`, :meth:`Kind.decode`, :meth:`Kind.tallied` and :meth:`Kind.shown`; the rest is here
for one class a unit, by softmax, and a kind replaces what is otherwise with it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dana.core.config import require

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor, nn

Answer = int | float | tuple[int, ...]
Scorer = Callable[[np.ndarray], np.ndarray]  # how often each text counts, (draws, texts), to scores (draws, models)
UNSEEN = -1  # the prediction of a word that was cut off: wrong
NEARLY_CONSTANT = 0.1


@dataclass(frozen=True)
class Kind(ABC):
    """What a task asks of a text. A subclass is one kind; its constructor takes the card's labels.

    Attributes:
        labels: Names of the classes, in the order of the logits.
        name: What a card calls the kind.
        metrics: What a card may be judged by, and whether ``higher`` or ``lower`` is better.
        main_metric: Taken where none is named.
        dtype: Of an array of answers; of tuples, object.
        problem_type: Of a saved model's configuration; None for what transformers has no name for.
        pipeline: Transformers' pipeline for a saved model.
        per_word: Whether every word of a text has an answer of its own.
        labelled: Whether a card has labels.
    """

    labels: tuple[str, ...]

    name: ClassVar[str]
    metrics: ClassVar[Mapping[str, str]]
    main_metric: ClassVar[str]
    dtype: ClassVar[type] = object
    problem_type: ClassVar[str | None] = None
    pipeline: ClassVar[str] = "text-classification"
    per_word: ClassVar[bool] = False
    labelled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        distinct = len(set(self.labels)) == len(self.labels) >= 2
        require(distinct, "labels", list(self.labels), "at least two, all different")

    @property
    def outputs(self) -> tuple[str, ...]:
        """A name for each logit."""
        return self.labels or ("value",)

    # A record

    def check_card(self, metric: str, template: str | None, text_pair: str | None) -> None:
        """Refuse a metric that the kind, or these labels, do not have, and ways to make a text that it has no use for.

        Raises:
            ConfigError: Naming the key and what there is.
        """
        require(metric in self.metrics, "metric", metric, f"one of {', '.join(self.metrics)}")

    @classmethod
    def read_text(cls, value: Any) -> tuple[str, tuple[str, ...] | None]:
        """The text that a field holds, not normalised; and its words, where each has an answer.

        Raises:
            ValueError: Saying what the value is instead.
        """
        if not isinstance(value, str):
            raise ValueError(f"is {type(value).__name__}, not text")
        return value, None

    @abstractmethod
    def read(self, value: Any) -> Answer:
        """The target that a field holds.

        Raises:
            ValueError: Saying what is wrong with it.
        """

    @classmethod
    def names_in(cls, value: Any) -> Collection[str]:
        """The labels that a field names, for who makes a card of records; none where the kind has no labels.

        Raises:
            ValueError: Saying what the value is instead.
        """
        if not isinstance(value, list | tuple):
            wanted = "a list of labels, one a word" if cls.per_word else "a list of labels"
            raise ValueError(f"label {value!r} is {type(value).__name__}, not {wanted}")
        return list(map(str, value))

    def code(self, label: Any) -> int:
        """A label's class number.

        Raises:
            ValueError: If the card has no such label.
        """
        if str(label) not in self.labels:
            raise ValueError(f"label {str(label)!r} is not among the card's: {', '.join(self.labels)}")
        return self.labels.index(str(label))

    def gather(self, answers: Sequence[Answer]) -> np.ndarray:
        """Answers as an array of shape (texts,)."""
        array: np.ndarray = np.empty(len(answers), dtype=self.dtype)
        array[:] = answers
        return array

    def sizes(self, answers: Sequence[Answer]) -> np.ndarray:
        """Units (texts, or words where each has an answer) of each text, of its answers."""
        return np.array([len(codes) if self.per_word else 1 for codes in answers], dtype=np.int64)  # type: ignore[arg-type]

    def classes(self, answers: Sequence[Answer]) -> np.ndarray:
        """The class numbers of all answers, one after the other."""
        codes: Any = list(chain.from_iterable(answers)) if self.dtype is object else answers  # type: ignore[arg-type]
        return np.array(codes, dtype=np.int64)

    # Training

    def targets(self, answers: Sequence[Answer]) -> np.ndarray:
        """What :meth:`loss` compares logits with, a row a unit."""
        return self.classes(answers)

    def fitted(self, targets: np.ndarray) -> "Kind":
        """The kind with what is learnt of the training targets before training."""
        return self

    def loss(self, logits: "Tensor", targets: "Tensor") -> "Tensor":
        """Mean loss of logits of shape (units, outputs)."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits, targets)

    def folded(self, out: "nn.Linear") -> "Kind":
        """Put what :meth:`fitted` learnt into the last layer, in place; the kind for the model as it now is."""
        return self

    # Predictions

    def activate(self, logits: "Tensor") -> "Tensor":
        """Probabilities or values of logits, the same shape (units, outputs)."""
        return logits.softmax(-1)

    @abstractmethod
    def decode(self, activated: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Predictions.

        Args:
            activated: float32 of shape (units, outputs), in the order of the texts.
            sizes: Units of each text.

        Returns:
            Answers of shape (texts,).
        """

    # Scores

    @property
    def scored(self) -> Sequence[str]:
        """The metrics that answers with these labels have."""
        return list(self.metrics)

    def scores(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
        """Every metric of answers, by name; finite."""
        once = np.ones((1, references.size))
        return {name: float(self.scorer(predictions[None], references, name)(once)[0, 0]) for name in self.scored}

    def scorer(self, predictions: np.ndarray, references: np.ndarray, metric: str) -> Scorer:
        """A function from how often each text counts to the score of each model.

        Args:
            predictions: Answers of shape (models, texts).
            references: Answers of shape (texts,).
            metric: Which score.

        Raises:
            ValueError: If the metric is unknown.
        """
        if metric not in self.metrics:
            raise ValueError(f"metric={metric!r}: must be one of {', '.join(self.metrics)}")
        tallies, score = self.tallied(predictions, references, metric)
        return lambda weights: score(*(np.tensordot(weights, tally, 1) for tally in tallies))

    @abstractmethod
    def tallied(
        self, predictions: np.ndarray, references: np.ndarray, metric: str
    ) -> tuple[Sequence[np.ndarray], Callable[..., np.ndarray]]:
        """What a metric sums over texts, and the score of the sums; arguments as of :meth:`scorer`.

        Returns:
            Tallies, each of shape (texts, models, ...); a function from their sums, each of shape (draws, models, ...),
            to scores of shape (draws, models).
        """

    def collapsed(self, predictions: np.ndarray, references: np.ndarray) -> bool:
        """Whether a model gives nearly every unit the same answer, and the data does not."""
        return is_degenerate(self.classes(predictions.tolist()), self.classes(references.tolist()))

    def alike(self, predictions: np.ndarray, references: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One of all texts that are answered alike, and how many they are: predictions, references, counts.

        Every text by itself will do; together they are drawn faster.
        """
        return predictions, references, np.ones(references.size, dtype=np.int64)

    # Tables

    def columns(self, activated: np.ndarray, references: np.ndarray) -> dict[str, "pa.Array"]:
        """``label``, ``prediction`` and what else ``predictions.parquet`` holds of the texts, a row a text."""
        import pyarrow as pa

        sizes = self.sizes(references.tolist())
        answer = pa.list_(pa.int32()) if self.dtype is object else pa.int32()
        rows, likely = list(activated), pa.list_(pa.float32())
        if self.per_word:
            rows, likely = [list(part) for part in np.split(activated, np.cumsum(sizes)[:-1])], pa.list_(likely)
        return {
            "label": pa.array(references.tolist(), answer),
            "prediction": pa.array(self.decode(activated, sizes).tolist(), answer),
            "probabilities": pa.array(rows, likely),
        }

    def activated(self, table: Mapping[str, Any]) -> np.ndarray:
        """What :meth:`columns` was given, from the columns of ``predictions.parquet``."""
        column = table["probabilities"]
        rows = list(chain.from_iterable(column.to_pylist())) if self.per_word else np.stack(column.to_numpy())
        return np.asarray(rows, dtype=np.float32)

    def answers(self, column: "pa.ChunkedArray") -> np.ndarray:
        """Answers of shape (rows,), from ``label`` or ``prediction`` of ``predictions.parquet``.

        Raises:
            ValueError: Saying which are none.
        """
        rows = column.to_pylist()
        answers = self.gather(list(map(tuple, rows)) if self.dtype is object else rows)
        codes = self.classes(rows)
        if ((codes < (UNSEEN if self.per_word else 0)) | (codes >= len(self.labels))).any():
            raise ValueError(f"a class outside 0 to {len(self.labels) - 1}")
        return answers

    @abstractmethod
    def shown(self, activated: np.ndarray, sizes: np.ndarray) -> dict[str, "pa.Array"]:
        """What ``dana predict`` says of texts, a row a text."""

    # The data of a task

    def counts(self, answers: Sequence[Answer], train: Sequence[Answer]) -> list[tuple[str, int, int]]:
        """Of each label, or range of values in the training data: its name, how many units have it, and of how many."""
        counts = np.bincount(self.classes(answers), minlength=len(self.labels))
        units = int(self.sizes(answers).sum())
        return [(label, int(count), units) for label, count in zip(self.labels, counts, strict=True)]

    def absent(self, answers: Sequence[Answer]) -> list[str]:
        """Labels that nothing has."""
        return [name for name, count, _ in self.counts(answers, answers) if not count] if self.labelled else []


def is_degenerate(predictions: np.ndarray, references: np.ndarray) -> bool:
    """Whether nearly everything was predicted to be one class, of texts that are not: the training collapsed.

    What is predicted besides the most frequent predicted class is set against what lies outside the most frequent
    true class. Below a tenth of it the model is a constant with a few stray predictions, and its score says nothing.
    Few predictions of a class that is rare are no collapse.

    Args:
        predictions: int64 of shape (examples,).
        references: The same.

    References:
        Mosbach, Andriushchenko and Klakow 2021, On the stability of fine-tuning BERT (runs that fail). Their mark,
        an accuracy not above the most frequent class's, passes strays that are right, and fails sound models of
        data where one class is nearly everything.
    """
    strays, others = (part.size - np.unique(part, return_counts=True)[1].max() for part in (predictions, references))
    return bool(strays == 0 or strays < NEARLY_CONSTANT * others)


def micro_f1(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """F1 of the counts of all classes together; 0 where nothing is there or predicted.

    Args:
        right: How many of a class were found, shape (..., classes).
        predicted: How often the class was predicted.
        true: How many of the class there are.

    Returns:
        Scores in [0, 1] of shape (...).
    """
    return 2 * right.sum(-1) / np.maximum(predicted.sum(-1) + true.sum(-1), 1)


def macro_f1(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Mean F1 over all classes, one that is neither there nor predicted counting 0; arguments as above."""
    return (2 * right / np.maximum(predicted + true, 1)).mean(-1)
