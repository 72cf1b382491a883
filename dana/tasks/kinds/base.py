"""Define the interface of a kind of label: how it is read, trained, decoded, scored and saved.

A label is a class number, a number, or a tuple of class numbers, and so is a prediction of it.
Those of many texts are an array of shape (texts,): int64, float64, or tuples (dtype object).

A new kind defines :meth:`Kind.read`, :meth:`Kind.decode`, :meth:`Kind.tallies` and
:meth:`Kind.prediction_columns`. The other methods here are for one class per unit, by softmax; a
kind overrides those that differ.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dana.core.config import require
from dana.corpus.text import normalise
from dana.tasks.kinds.values import is_blank

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor, nn

Label = int | float | tuple[int, ...]
Tallies = tuple[Sequence[np.ndarray], Callable[..., np.ndarray]]  # of :meth:`Kind.tallies`
# A scorer converts counts of the texts, (draws, texts), to scores, (draws, models).
Scorer = Callable[[np.ndarray], np.ndarray]
UNSEEN = -1  # prediction of a truncated word, always wrong
NEARLY_CONSTANT = 0.1


@dataclass(frozen=True)
class Kind(ABC):
    """A kind of label. Each subclass is one kind; its constructor takes the card's labels.

    Attributes:
        labels: Names of the classes, in the order of the logits.
        name: Name of the kind in a card.
        metrics: Metrics of the kind, each ``higher`` or ``lower``, whichever is better.
        main_metric: Default metric.
        dtype: dtype of an array of labels; object for tuples.
        problem_type: ``problem_type`` of a saved model's configuration; None if transformers has
            none.
        pipeline: Transformers' pipeline for a saved model.
        per_word: Whether every word of a text has its own label.
        has_labels: Whether cards of this kind have labels.
    """

    labels: tuple[str, ...]

    name: ClassVar[str]
    metrics: ClassVar[Mapping[str, str]]
    main_metric: ClassVar[str]
    dtype: ClassVar[type] = object
    problem_type: ClassVar[str | None] = None
    pipeline: ClassVar[str] = "text-classification"
    per_word: ClassVar[bool] = False
    has_labels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        distinct = len(set(self.labels)) == len(self.labels) >= 2
        require(distinct, "labels", list(self.labels), "at least two, all different")

    @property
    def outputs(self) -> tuple[str, ...]:
        """A name for each logit."""
        return self.labels or ("value",)

    # A record

    def check_card(self, metric: str, template: str | None, text_pair: str | None) -> None:
        """Refuse a metric or a form of text that does not fit the kind and its labels.

        Raises:
            ConfigError: Names the key and the allowed values.
        """
        require(metric in self.metrics, "metric", metric, f"one of {', '.join(self.metrics)}")

    @classmethod
    def read_text(cls, value: Any) -> tuple[str, tuple[str, ...] | None]:
        """Read the text of a field, not normalised; and its words, if each has a label.

        Raises:
            ValueError: If it is not text; names the type.
        """
        if not isinstance(value, str):
            raise ValueError(f"is {type(value).__name__}, not text")
        return value, None

    @abstractmethod
    def read(self, value: Any) -> Label:
        """Convert the value of the label field to a label.

        Raises:
            ValueError: If it is not valid; says why.
        """

    @classmethod
    def names_in(cls, value: Any) -> Collection[str]:
        """Return the names of labels in a label field, to make a card from records.

        They are empty for kinds without labels.

        Raises:
            ValueError: If the value has another type.
        """
        if not isinstance(value, list | tuple):
            form = "a list of labels, one per word" if cls.per_word else "a list of labels"
            raise ValueError(f"label {value!r} is {type(value).__name__}, not {form}")
        return list(map(label_name, value))

    def code(self, label: Any) -> int:
        """Return the class number of a label.

        Raises:
            ValueError: If the card has no such label.
        """
        names = [label_name(label), *_other_names(label)]
        for name in names:
            if name in self.labels:
                return self.labels.index(name)
        raise ValueError(f"label {names[0]!r} is not among the card's: {', '.join(self.labels)}")

    def gather(self, labels: Sequence[Label]) -> np.ndarray:
        """Convert labels to an array of shape (texts,)."""
        array: np.ndarray = np.empty(len(labels), dtype=self.dtype)
        array[:] = labels
        return array

    def sizes(self, labels: Sequence[Label]) -> np.ndarray:
        """Count the units of each text from its label: 1, or its words if each has a label."""
        if not self.per_word:
            return np.ones(len(labels), dtype=np.int64)
        return np.array([len(codes) for codes in labels], dtype=np.int64)  # type: ignore[arg-type]

    def classes(self, labels: Sequence[Label]) -> np.ndarray:
        """Concatenate the class numbers of all labels."""
        codes: Any = labels
        if self.dtype is object:  # each label is a tuple
            codes = list(chain.from_iterable(codes))
        return np.array(codes, dtype=np.int64)

    # Training

    def loss_labels(self, labels: Sequence[Label]) -> np.ndarray:
        """Convert labels to the rows of :meth:`loss`, one row per unit."""
        return self.classes(labels)

    def fit(self, loss_labels: np.ndarray) -> "Kind":
        """Return the kind with its parameters (mean, deviation), estimated from training labels."""
        return self

    def class_weights(self, loss_labels: np.ndarray) -> np.ndarray:
        """Compute weights by which all classes count alike in the loss of the training units.

        The weight of a class is the number of units over the number of classes that they have and
        the number of its units (King and Zeng 2001; ``balanced`` in scikit-learn). Their mean over
        the units is 1.

        Args:
            loss_labels: From :meth:`loss_labels`, of all training units.

        Returns:
            float32 of shape (outputs,); 0 for a class without a unit.
        """
        counts = np.bincount(loss_labels, minlength=len(self.labels))
        return balanced_weights(counts)

    def loss(
        self, logits: "Tensor", loss_labels: "Tensor", weights: "Tensor | None" = None
    ) -> "Tensor":
        """Compute the mean loss of logits of shape (units, outputs).

        The weighted loss is divided by the number of units, not by the sum of their weights, so
        that the loss of a batch is the mean of those of its parts, whatever classes are in each.

        Args:
            logits: Of shape (units, outputs).
            loss_labels: Rows of :meth:`loss_labels`.
            weights: From :meth:`class_weights`; None weighs all units alike.
        """
        from torch.nn.functional import cross_entropy

        if weights is None:
            return cross_entropy(logits, loss_labels)
        losses = cross_entropy(logits, loss_labels, reduction="none")
        return (weights[loss_labels] * losses).mean()

    def fold_into(self, out: "nn.Linear") -> "Kind":
        """Fold the parameters of :meth:`fit` into the last layer, in place.

        Returns:
            The kind without these parameters.
        """
        return self

    # Predictions

    def activate(self, logits: "Tensor") -> "Tensor":
        """Convert logits to probabilities or values, of the same shape (units, outputs)."""
        return logits.softmax(-1)

    @abstractmethod
    def decode(self, outputs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Convert probabilities or values to predicted labels.

        Args:
            outputs: float32 of shape (units, outputs), in the order of the texts.
            sizes: Units of each text.

        Returns:
            Labels of shape (texts,).
        """

    # Scores

    @property
    def defined_metrics(self) -> Sequence[str]:
        """The metrics that are defined for these labels."""
        return list(self.metrics)

    def scores(self, predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Compute every metric, by name; all are finite."""
        return {name: self.score(predictions, labels, name) for name in self.defined_metrics}

    def score(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> float:
        """Compute one metric of labels of shape (texts,)."""
        scorer = self.scorer(predictions[None], labels, metric)
        every_text_once = np.ones((1, labels.size))
        return float(scorer(every_text_once)[0, 0])

    def scorer(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> Scorer:
        """Return a function from counts of the texts to the score of each model, for bootstraps.

        Args:
            predictions: Labels of shape (models, texts).
            labels: Labels of shape (texts,).
            metric: Name of the metric.

        Raises:
            ValueError: If the metric is unknown.
        """
        if metric not in self.metrics:
            raise ValueError(f"metric={metric!r}: must be one of {', '.join(self.metrics)}")
        tallies, score_of_sums = self.tallies(predictions, labels, metric)

        def score(weights: np.ndarray) -> np.ndarray:
            sums = [np.tensordot(weights, tally, 1) for tally in tallies]
            return score_of_sums(*sums)

        return score

    def influences(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> np.ndarray:
        """Compute what each text adds to each model's score, by the jackknife.

        The arguments are those of :meth:`scorer`.

        Returns:
            Shape (models, texts). A model's row averages to its score; of accuracy it is 1 or 0.

        References:
            Efron and Stein 1981, The jackknife estimate of variance.
        """
        texts = labels.size
        scorer = self.scorer(predictions, labels, metric)
        [scores] = scorer(np.ones((1, texts)))
        with_all: np.ndarray = scores[:, None]
        if texts == 1:
            return with_all
        without = self.scores_without_each(predictions, labels, metric)
        influences: np.ndarray = with_all + (texts - 1) * (without.mean(1, keepdims=True) - without)
        return influences

    def scores_without_each(
        self, predictions: np.ndarray, labels: np.ndarray, metric: str
    ) -> np.ndarray:
        """Compute each model's score without each text in turn, of shape (models, texts)."""
        tallies, score_of_sums = self.tallies(predictions, labels, metric)
        sums_without_each = [tally.sum(0) - tally for tally in tallies]
        return score_of_sums(*sums_without_each).T

    @abstractmethod
    def tallies(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> Tallies:
        """Return the per-text tallies of a metric, and the function of their sums.

        The arguments are those of :meth:`scorer`.

        Returns:
            Tallies, each of shape (texts, models, ...); a function from their sums, each of shape
            (draws, models, ...), to scores of shape (draws, models).
        """

    def is_collapsed(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> bool:
        """Return whether a model says nothing.

        It then predicts (nearly) always the same label, or no better than one label would.

        Args:
            predictions: Labels of shape (texts,).
            labels: The same.
            metric: Metric by which it is compared with :meth:`largest_class`.
        """
        score = self.score(predictions, labels, metric)
        baseline = self.baseline(labels, metric)
        sign = -1 if self.metrics[metric] == "lower" else 1
        beats_baseline = sign * score > sign * baseline
        return not beats_baseline or self.is_constant(predictions, labels)

    def is_constant(self, predictions: np.ndarray, labels: np.ndarray) -> bool:
        """Return whether a model predicts nearly one label for every unit, unlike the labels."""
        return is_degenerate(self.classes(predictions.tolist()), self.classes(labels.tolist()))

    def largest_class(self, labels: np.ndarray) -> np.ndarray:
        """Return the predictions of a model that knows only the most frequent class.

        Kinds without classes take the most frequent set of labels, or the mean value.
        """
        largest = int(np.bincount(self.classes(labels.tolist())).argmax())
        if not self.per_word:
            return self.gather([largest] * labels.size)
        return self.gather([(largest,) * len(codes) for codes in labels])

    def baseline(self, labels: np.ndarray, metric: str) -> float:
        """Compute the score of :meth:`largest_class`, which a model has to beat."""
        return self.score(self.largest_class(labels), labels, metric)

    # Tables

    def columns(self, outputs: np.ndarray, labels: np.ndarray) -> dict[str, "pa.Array"]:
        """Make the columns of ``predictions.parquet``, one row per text.

        Returns:
            ``label``, ``prediction`` and ``probabilities``, by name.
        """
        import pyarrow as pa

        sizes = self.sizes(labels.tolist())
        label_type = pa.int32()
        if self.dtype is object:
            label_type = pa.list_(label_type)
        probabilities = list(outputs)
        probabilities_type = pa.list_(pa.float32())
        if self.per_word:
            probabilities = [list(rows) for rows in split_units(outputs, sizes)]
            probabilities_type = pa.list_(probabilities_type)
        return {
            "label": pa.array(labels.tolist(), label_type),
            "prediction": pa.array(self.decode(outputs, sizes).tolist(), label_type),
            "probabilities": pa.array(probabilities, probabilities_type),
        }

    def label_column(self, labels: Sequence[Any], codes: type = np.int64) -> "pa.Array":
        """Make a column of labels, whose type does not depend on them.

        Of texts that all have no label, the type would be another, and tables of folds could not be
        joined.

        Args:
            labels: The labels.
            codes: Type of a label that is a number of :attr:`labels`.
        """
        import pyarrow as pa

        number = pa.from_numpy_dtype(codes if self.has_labels else self.dtype)
        return pa.array(labels, pa.list_(number) if self.dtype is object else number)

    def outputs_from(self, table: Mapping[str, Any]) -> np.ndarray:
        """Read the outputs back from the columns of ``predictions.parquet``."""
        column = table["probabilities"]
        if not self.per_word:
            return np.asarray(np.stack(column.to_numpy()), dtype=np.float32)
        words = list(chain.from_iterable(column.to_pylist()))
        return np.asarray(words, dtype=np.float32)

    def labels_from(self, column: "pa.ChunkedArray") -> np.ndarray:
        """Read labels of shape (rows,) from ``label`` or ``prediction`` of ``predictions.parquet``.

        Raises:
            ValueError: If some are not valid; says which.
        """
        rows = column.to_pylist()
        row_labels = list(map(tuple, rows)) if self.dtype is object else rows
        labels = self.gather(row_labels)
        codes = self.classes(rows)
        lowest = UNSEEN if self.per_word else 0
        is_outside = (codes < lowest) | (codes >= len(self.labels))
        if is_outside.any():
            raise ValueError(f"a class outside 0 to {len(self.labels) - 1}")
        return labels

    @abstractmethod
    def prediction_columns(self, outputs: np.ndarray, sizes: np.ndarray) -> dict[str, "pa.Array"]:
        """Make the columns that ``dana predict`` writes, one row per text."""

    # The data of a task

    def counts(self, labels: Sequence[Label], train: Sequence[Label]) -> list[tuple[str, int, int]]:
        """Count the units of each label, or of each range of values of the training data.

        Returns:
            Name of the label or range, its count, and the number of all units, for each.
        """
        counts = np.bincount(self.classes(labels), minlength=len(self.labels))
        units = int(self.sizes(labels).sum())
        named_counts = zip(self.labels, counts, strict=True)
        return [(name, int(count), units) for name, count in named_counts]

    def absent(self, labels: Sequence[Label]) -> list[str]:
        """Return the names of the labels that no text has; none for kinds without labels."""
        if not self.has_labels:
            return []
        return [name for name, count, _ in self.counts(labels, labels) if not count]


def label_name(value: Any) -> str:
    """Convert a label to its name: normalised like a text; a whole float is named like the integer.

    Raises:
        ValueError: If nothing remains, or the value is a list or mapping.
    """
    if isinstance(value, list | tuple | dict | set):
        raise ValueError(f"label {value!r} is {type(value).__name__}, not a name")
    name = ""
    if isinstance(value, float) and value.is_integer():
        name = normalise(str(int(value)))
    elif not is_blank(value):
        name = normalise(str(value))
    if not name:
        raise ValueError(f"label {value!r} is empty")
    return name


def _other_names(value: Any) -> list[str]:
    """Return how a card may write the label of a JSON value, besides its name: 1.0, true."""
    if isinstance(value, bool):
        return [str(value).lower()]
    if isinstance(value, float):
        return [str(value)]
    return []


def split_units(values: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Split an array over all units into one array per text.

    Args:
        values: Shape (units, ...), in the order of the texts.
        sizes: Units of each text.
    """
    return np.split(values, np.cumsum(sizes)[:-1])


def balanced_weights(counts: np.ndarray) -> np.ndarray:
    """Compute weights of classes by which each counts alike, 1 in the mean over units.

    Args:
        counts: Number of units of each class, shape (..., classes).

    Returns:
        float32 of the same shape; 0 for a class without a unit.
    """
    counts = np.asarray(counts, dtype=np.float64)
    units = counts.sum(-1, keepdims=True)
    classes = (counts > 0).sum(-1, keepdims=True)
    weights: np.ndarray = np.divide(
        units, classes * counts, out=np.zeros_like(counts), where=counts > 0
    )
    return weights.astype(np.float32)


def is_degenerate(predictions: np.ndarray, labels: np.ndarray) -> bool:
    """Return whether a model collapsed: it predicts nearly always one class, unlike the labels.

    The number of predictions outside the most frequent predicted class is compared with the number
    of labels outside the most frequent labelled class. Below a tenth of that, the model is a
    constant with a few stray predictions, and its score means nothing. Few predictions of a rare
    class are no collapse.

    Args:
        predictions: int64 of shape (examples,).
        labels: The same.

    References:
        Mosbach, Andriushchenko and Klakow 2021, On the stability of fine-tuning BERT (failed runs).
        Their criterion, an accuracy not above that of the most frequent class, misses collapsed
        models with a few right predictions; :meth:`Kind.is_collapsed` joins the two.
    """
    stray_predictions = _count_outside_largest(predictions)
    other_labels = _count_outside_largest(labels)
    return bool(stray_predictions == 0 or stray_predictions < NEARLY_CONSTANT * other_labels)


def _count_outside_largest(classes: np.ndarray) -> np.int64:
    """Count the units outside the most frequent class."""
    _, counts = np.unique(classes, return_counts=True)
    outside: np.int64 = classes.size - counts.max()
    return outside


def micro_f1(right: np.ndarray, positives: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Compute F1 over the pooled counts of all classes; 0 without predictions and labels.

    Args:
        right: True positives of each class, shape (..., classes).
        positives: Predictions of each class.
        actual: Labels of each class.

    Returns:
        Scores in [0, 1] of shape (...).
    """
    f1: np.ndarray = 2 * right.sum(-1) / np.maximum(positives.sum(-1) + actual.sum(-1), 1)
    return f1


def macro_f1(right: np.ndarray, positives: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Compute mean F1 over all classes; 0 for one without predictions and labels.

    The arguments are those of :func:`micro_f1`.
    """
    f1: np.ndarray = (2 * right / np.maximum(positives + actual, 1)).mean(-1)
    return f1
