"""The contract of a kind of target: a record's target to training, predictions, scores, saved models and tables.

An answer is what a text has as its target or gets as its prediction: a class number, a number, or a tuple of class
numbers. Answers of many texts are an array of shape (texts,): int64, float64, or of tuples (dtype object).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dana.core.config import require

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor, nn

Answer = int | float | tuple[int, ...]
Scorer = Callable[[np.ndarray], np.ndarray]  # how often each text counts, (draws, texts), to scores (draws, models)


@dataclass(frozen=True)
class Kind(ABC):
    """What a task asks of a text. A subclass is one kind; its constructor takes the card's labels.

    Attributes:
        labels: Names of the classes, in the order of the logits.
        name: What a card calls the kind.
        metrics: What a card may be judged by, and whether ``higher`` or ``lower`` is better.
        main_metric: Taken where none is named.
        problem_type: Of a saved model's configuration; None for what transformers has no name for.
        pipeline: Transformers' pipeline for a saved model.
        per_word: Whether every word of a text has an answer of its own.
        labelled: Whether a card has labels.
        assumes_spread: Whether scores vary as :func:`dana.report.power.assumed_spread` says, where there is no pilot.
    """

    labels: tuple[str, ...]

    name: ClassVar[str]
    metrics: ClassVar[Mapping[str, str]]
    main_metric: ClassVar[str]
    problem_type: ClassVar[str | None] = None
    pipeline: ClassVar[str] = "text-classification"
    per_word: ClassVar[bool] = False
    labelled: ClassVar[bool] = True
    assumes_spread: ClassVar[bool] = True

    def __post_init__(self) -> None:
        distinct = len(set(self.labels)) == len(self.labels) >= 2
        require(distinct, "labels", list(self.labels), "at least two, all different")

    @classmethod
    def opens(cls, outputs: int, problem_type: str | None, per_word: bool) -> bool:
        """Whether a model of transformers answers as this kind does.

        Args:
            outputs: Its logits.
            problem_type: As its configuration says.
            per_word: Whether it gives every token a label.
        """
        return per_word == cls.per_word and problem_type == cls.problem_type

    @property
    def outputs(self) -> tuple[str, ...]:
        """A name for each logit."""
        return self.labels

    def check_metric(self, metric: str) -> None:
        """Refuse a metric that the kind, or these labels, do not have.

        Raises:
            ConfigError: Naming the metrics that there are.
        """
        require(metric in self.metrics, "metric", metric, f"one of {', '.join(self.metrics)}")

    # A record

    @classmethod
    def read_text(cls, value: Any) -> tuple[str, tuple[str, ...] | None]:
        """The text that a field holds, not normalised; and its words, where each has an answer.

        Raises:
            ValueError: Saying what the value is instead.
        """
        if not isinstance(value, str):
            raise ValueError(f"is {type(value).__name__}, not text")
        return value, None

    def check_fields(self, template: str | None, text_pair: str | None) -> None:
        """Refuse ways to make a text that the kind has no use for.

        Raises:
            ConfigError: Naming the key.
        """
        return

    @classmethod
    @abstractmethod
    def names_in(cls, value: Any) -> Collection[str]:
        """The labels that a field names, for who makes a card of records; none where the kind has no labels.

        Raises:
            ValueError: Saying what the value is instead.
        """

    @abstractmethod
    def read(self, value: Any) -> Answer:
        """The target that a field holds.

        Raises:
            ValueError: Saying what is wrong with it.
        """

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
        found = np.empty(len(answers), dtype=object)
        found[:] = answers
        return found

    # Training. Units are texts, or words where each has an answer.

    @abstractmethod
    def targets(self, answers: Sequence[Answer]) -> np.ndarray:
        """What :meth:`loss` compares logits with, a row a unit."""

    def fitted(self, targets: np.ndarray) -> "Kind":
        """The kind with what is learnt of the training targets before training."""
        return self

    @abstractmethod
    def loss(self, logits: "Tensor", targets: "Tensor") -> "Tensor":
        """Mean loss of logits of shape (units, outputs)."""

    def folded(self, out: "nn.Linear") -> "Kind":
        """Put what :meth:`fitted` learnt into the last layer, in place; the kind for the model as it now is."""
        return self

    # Predictions

    @abstractmethod
    def activate(self, logits: "Tensor") -> "Tensor":
        """Probabilities or values of logits, the same shape (units, outputs)."""

    @abstractmethod
    def decode(self, activated: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Predictions.

        Args:
            activated: float32 of shape (units, outputs), in the order of the texts.
            sizes: Units of each text.

        Returns:
            Answers of shape (texts,).
        """

    def sizes(self, answers: Sequence[Answer]) -> np.ndarray:
        """Units of each text, of its answers."""
        return np.ones(len(answers), dtype=np.int64)

    # Scores

    @property
    def scored(self) -> Sequence[str]:
        """The metrics that answers with these labels have."""
        return list(self.metrics)

    def scores(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
        """Every metric of answers, by name; finite."""
        once = np.ones((1, references.size))
        return {name: float(self.scorer(predictions[None], references, name)(once)[0, 0]) for name in self.scored}

    @abstractmethod
    def collapsed(self, predictions: np.ndarray, references: np.ndarray) -> bool:
        """Whether a model gives nearly every text the same answer, and the data does not."""

    @abstractmethod
    def scorer(self, predictions: np.ndarray, references: np.ndarray, metric: str) -> Scorer:
        """A function from how often each text counts to the score of each model.

        Args:
            predictions: Answers of shape (models, texts).
            references: Answers of shape (texts,).
            metric: Which score.

        Raises:
            ValueError: If the metric is unknown.
        """

    def alike(self, predictions: np.ndarray, references: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One of all texts that are answered alike, and how many they are: predictions, references, counts.

        Every text by itself will do; together they are drawn faster.
        """
        return predictions, references, np.ones(references.size, dtype=np.int64)

    # Tables

    @abstractmethod
    def columns(self, activated: np.ndarray, references: np.ndarray) -> dict[str, "pa.Array"]:
        """``label``, ``prediction`` and what else ``predictions.parquet`` holds of the texts, a row a text."""

    @abstractmethod
    def activated(self, table: Mapping[str, Any]) -> np.ndarray:
        """What :meth:`columns` was given, from the columns of ``predictions.parquet``."""

    @abstractmethod
    def answers(self, column: "pa.ChunkedArray") -> np.ndarray:
        """Answers of shape (rows,), from ``label`` or ``prediction`` of ``predictions.parquet``.

        Raises:
            ValueError: Saying which are none.
        """

    @abstractmethod
    def shown(self, activated: np.ndarray, sizes: np.ndarray) -> dict[str, "pa.Array"]:
        """What ``dana predict`` says of texts, a row a text."""

    # The data of a task

    @abstractmethod
    def counts(self, answers: Sequence[Answer], train: Sequence[Answer]) -> list[tuple[str, int, int]]:
        """Of each label, or range of values in the training data: its name, how many have it, and of how many."""

    def absent(self, answers: Sequence[Answer]) -> list[str]:
        """Labels that nothing has."""
        return [name for name, count, _ in self.counts(answers, answers) if not count]

    @abstractmethod
    def drift(self, train: Sequence[Answer], other: Sequence[Answer]) -> tuple[float | None, float | None]:
        """How far two splits' targets are apart, in [0, 1], and p of a test that they are not; None where none fits."""


def by_tallies(tallies: Sequence[np.ndarray], score: Callable[..., np.ndarray]) -> Scorer:
    """A scorer by sums over texts.

    Args:
        tallies: Each of shape (texts, models, ...).
        score: From the sums, each of shape (draws, models, ...), to scores of shape (draws, models).
    """
    return lambda weights: score(*(np.tensordot(weights, tally, 1) for tally in tallies))


def listed(value: Any, wanted: str) -> Sequence[Any]:
    """A label that is a list, as it is.

    Args:
        value: The label.
        wanted: What it should be, in words.

    Raises:
        ValueError: If it is none.
    """
    if not isinstance(value, list | tuple):
        raise ValueError(f"label {value!r} is {type(value).__name__}, not {wanted}")
    return value
