"""Probe frozen vectors of labelled texts with a linear model: draws, folds, fits and predictions.

Everything here is a pure function of its arguments. Texts are known by keys (:func:`text_keys`), so
draws and folds depend neither on the order of a file nor on the model that made the vectors: all
arms are probed with the same labels.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dana.core.rng import derive_seed, document_key, hash_uniform
from dana.tasks.card import TaskCard
from dana.tasks.examples import Example
from dana.tasks.kinds.base import Kind, balanced_weights
from dana.tasks.kinds.multi_label import THRESHOLD
from dana.tasks.kinds.single_label import SingleLabel

VERSION = 1  # raise when results of a probe change
# scikit-learn's C, the inverse of the penalty; chosen by cross-validation within the training texts
INVERSE_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
USUAL_INVERSE_PENALTY = 1e-2  # is taken where the texts are too few to choose one
FOLDS = 3
QUANTILE_STRATA = 5  # labels that are numbers are divided into so many parts of equally many texts
MOST_STEPS = 500  # of L-BFGS
# Smaller probabilities count as this one in a loss: that of a class without a fitted text is 0.
LEAST_PROBABILITY = 1e-9
LEAST_DEVIATION = 1e-12  # of a column that is scaled; MiniLM has two columns of about 1e-33
# Classes of one of several labels: 0 without, 1 with it.
WITH_AND_WITHOUT = SingleLabel.from_count(2)
# Why a task with labels of words has no probe; a message says it after the task's name.
NO_PROBE = "each word has a label, and a probe sees one vector a text"


@dataclass(frozen=True)
class LabelledVectors:
    """Vectors of texts with their labels.

    Attributes:
        vectors: Shape (texts, width).
        labels: Labels of shape (texts,), as the kind represents them.
        kind: Kind of the labels.
        metric: Metric of the task.
        keys: Key of each text, from :func:`text_keys`.
        groups: Number of each text's group. In every fold a model is fitted to all texts of a group
            or predicts all of them. None if each text is a group of its own.
        class_weight: ``balanced`` weighs classes alike; None weighs texts alike.
    """

    vectors: np.ndarray
    labels: np.ndarray
    kind: Kind
    metric: str
    keys: np.ndarray
    groups: np.ndarray | None = None
    class_weight: str | None = None

    @classmethod
    def of_examples(
        cls, task: TaskCard, examples: Sequence[Example], vectors: np.ndarray
    ) -> "LabelledVectors":
        """Make them of the texts of a task.

        Args:
            task: The task.
            examples: Its texts, with their labels.
            vectors: Their vectors, of shape (examples, width).
        """
        kind = task.label_kind
        labels = kind.gather([example.label for example in examples])
        groups = group_numbers(examples)
        keys = text_keys(examples)
        return cls(vectors, labels, kind, task.metric, keys, groups, task.class_weight)

    @property
    def strata(self) -> np.ndarray:
        """Stratum of each text."""
        return strata_of(self.labels, self.kind)

    def take(self, rows: np.ndarray) -> "LabelledVectors":
        """Return the texts of some rows, in the order of the rows."""
        groups = None if self.groups is None else self.groups[rows]
        return replace(
            self,
            vectors=self.vectors[rows],
            labels=self.labels[rows],
            keys=self.keys[rows],
            groups=groups,
        )


def text_keys(examples: Sequence[Example]) -> np.ndarray:
    """Hash each text, or both texts of a pair, to a key, uint64 of shape (examples,).

    A key depends on no other texts but equal ones: these are numbered in the order of their ids, so
    that their keys differ.
    """
    rows_by_id = sorted(range(len(examples)), key=lambda row: examples[row].id)
    earlier_copies: Counter[tuple[str, ...]] = Counter()
    keys = np.zeros(len(examples), dtype=np.uint64)
    for row in rows_by_id:
        texts = examples[row].texts
        number_of_copy = earlier_copies[texts]
        keys[row] = document_key("\x1f".join([*texts, str(number_of_copy)]))
        earlier_copies[texts] += 1
    return keys


def in_key_order(examples: Sequence[Example]) -> list[Example]:
    """Order texts by their keys, so that the order of a file decides nothing."""
    return [examples[row] for row in np.argsort(text_keys(examples), kind="stable")]


def group_numbers(examples: Sequence[Example]) -> np.ndarray:
    """Return the number of each text's group, from 0, int64 of shape (examples,).

    A text without a group is a group of its own.
    """
    names = []
    for row, example in enumerate(examples):
        if example.group:
            names.append(f"group\x1f{example.group}")
        else:
            names.append(f"row\x1f{row}")
    _, numbers = np.unique(names, return_inverse=True)
    return numbers


def strata_of(labels: np.ndarray, kind: Kind) -> np.ndarray:
    """Return the number of each label's stratum, from 0, int64 of shape (texts,).

    A stratum is a class, a set of labels, or a fifth of the texts by their values.

    Args:
        labels: Labels of shape (texts,), as the kind represents them.
        kind: Kind of the labels.
    """
    if not kind.has_labels:
        shares = np.linspace(0, 1, QUANTILE_STRATA + 1)
        inner_ends = np.quantile(labels, shares[1:-1])
        # Ends are equal where more than a fifth of the texts share a value; each then counts once.
        return np.searchsorted(np.unique(inner_ends), labels, side="right")
    names = [str(label) for label in labels.tolist()]
    _, numbers = np.unique(names, return_inverse=True)
    return numbers


def draw_labels(
    keys: np.ndarray, strata: np.ndarray, size: int, draw: int, seed: int = 0
) -> np.ndarray:
    """Draw the texts whose labels a probe may see; each stratum has about its share of them.

    With the same seed and number of the draw, a larger draw contains every smaller one.

    Args:
        keys: Key of each text, from :func:`text_keys`.
        strata: Stratum of each text, from :func:`strata_of`.
        size: How many texts are drawn; all of them if there are no more.
        draw: Number of the draw.
        seed: Seed of all draws.

    Returns:
        Rows, ascending.
    """
    ranks = hash_uniform(derive_seed(seed, "probe", "draw", draw), keys)
    # Sorted by stratum; within a stratum by rank, and by key if two ranks are equal.
    order = np.lexsort((keys, ranks, strata))
    sorted_strata = strata[order]
    sorted_ranks = ranks[order]
    texts_of_stratum = np.bincount(strata)
    starts = np.cumsum(texts_of_stratum) - texts_of_stratum
    # Text i of the n texts of a stratum, from 0, is due when the share (i + 1/2) / n of all texts is
    # drawn. So each stratum has about its share in the first texts, however many these are.
    place_in_stratum = np.arange(len(keys)) - starts[sorted_strata]
    due = (place_in_stratum + 0.5) / texts_of_stratum[sorted_strata]
    first_due = np.lexsort((sorted_ranks, due))[:size]
    return np.sort(order[first_due])


def fold_numbers(
    keys: np.ndarray,
    strata: np.ndarray,
    groups: np.ndarray | None = None,
    folds: int = FOLDS,
    seed: int = 0,
) -> np.ndarray:
    """Divide texts into stratified folds; the texts of a group are in one fold.

    Args:
        keys: Key of each text, from :func:`text_keys`.
        strata: Stratum of each text, from :func:`strata_of`.
        groups: Number of each text's group; None if each text is a group of its own.
        folds: Number of folds. If there are fewer groups, there are as many folds as groups.
        seed: Seed of the division.

    Returns:
        Number of each text's fold, int64.
    """
    if groups is None:
        groups = np.arange(len(keys))
    ranks = hash_uniform(derive_seed(seed, "probe", "folds"), keys)
    _, group_of_text = np.unique(groups, return_inverse=True)
    count = int(group_of_text.max()) + 1
    # Number of texts of each group in each stratum.
    table = np.zeros((count, int(strata.max()) + 1), dtype=np.int64)
    np.add.at(table, (group_of_text, strata), 1)
    lowest_rank = np.ones(count)
    np.minimum.at(lowest_rank, group_of_text, ranks)
    sizes = table.sum(1)
    main_stratum = table.argmax(1)
    # The groups are dealt to the folds in turn, sorted by their main stratum and from the largest to
    # the smallest, so that the folds end up about equally large. The rank decides between equals.
    order = np.lexsort((lowest_rank, -sizes, main_stratum))
    fold_of_group = np.empty(count, dtype=np.int64)
    fold_of_group[order] = np.arange(count) % folds
    return fold_of_group[group_of_text]


def fitted(
    vectors: np.ndarray,
    targets: np.ndarray,
    kind: Kind,
    strength: float = USUAL_INVERSE_PENALTY,
    class_weight: str | None = None,
) -> Any:
    """Fit the linear model of the probe to vectors, as a scikit-learn pipeline.

    Vectors are standardised by these texts; a column that is constant in them, but for rounding, is
    centred and not scaled. The model is logistic regression if a text has one label, one logistic
    regression for each label if it has several, and ridge regression if the labels are numbers. If
    the texts have one class alone, it is predicted for every text.

    Args:
        vectors: Shape (texts, width).
        targets: Class numbers or names of shape (texts,); for several labels a text, rows of 0 and
            1 of shape (texts, labels); or numbers of shape (texts,).
        kind: Kind of the labels.
        strength: Inverse of the penalty: scikit-learn's C, and one over the alpha of its ridge.
        class_weight: ``balanced`` weighs the classes of the texts alike. If a text has several
            labels, it weighs the texts with a label and those without it alike, for each label.
            None weighs texts alike.
    """
    from sklearn.pipeline import make_pipeline

    scaler = _scaler(vectors)
    standardised = scaler.transform(vectors.astype(np.float64))
    [model] = _fits(standardised, targets, kind, [strength], class_weight)
    return make_pipeline(scaler, model)


def probe_scores(
    vectors: np.ndarray,
    labels: np.ndarray,
    kind: Kind,
    train: np.ndarray,
    test: np.ndarray,
    strength: float = USUAL_INVERSE_PENALTY,
    class_weight: str | None = None,
) -> np.ndarray:
    """Predict the labels of some texts by a linear model (:func:`fitted`) of the vectors of others.

    Args:
        vectors: Shape (texts, width).
        labels: Labels of shape (texts,), as the kind represents them; those of `test` are not read.
        kind: Kind of the labels.
        train: Rows of the texts that the model is fitted to.
        test: Rows of the texts to predict.
        strength: See :func:`fitted`.
        class_weight: See :func:`fitted`.

    Returns:
        Labels of shape (test texts,), as the kind represents them.
    """
    targets = _targets(labels[train], kind)
    pipeline = fitted(vectors[train], targets, kind, strength, class_weight)
    tested_vectors = vectors[test].astype(np.float64)
    if _has_label_sets(kind):
        # Not by predict: of scikit-learn's one against the rest it takes .5 for the threshold of a
        # logit where no text, or every text, has the first label.
        has_label = pipeline.predict_proba(tested_vectors) > THRESHOLD
        return kind.gather([tuple(np.flatnonzero(row).tolist()) for row in has_label])
    predictions: np.ndarray = pipeline.predict(tested_vectors)
    return predictions


def choose_strength(texts: LabelledVectors, samples: Sequence[np.ndarray] | None = None) -> float:
    """Choose the inverse of the penalty by cross-validation within samples of training texts.

    The choice is by the log loss, which weighs classes as the fit does, or by the squared error if
    the labels are numbers. It is not by the task's metric: on 50 labels the metric preferred a
    constant prediction, on 500 labels too weak a penalty.

    Args:
        texts: The training texts.
        samples: Rows of each sample, as :func:`draw_labels` draws them, all of one size; the losses
            of all samples are added. None takes all texts as one sample.

    Returns:
        The one of :data:`INVERSE_PENALTIES` with the least loss; of equal ones that of the strongest
        penalty. :data:`USUAL_INVERSE_PENALTY` if every sample has one group or one stratum alone.
    """
    if samples is None:
        samples = [np.arange(len(texts.labels))]
    losses = np.zeros(len(INVERSE_PENALTIES))
    is_measured = False
    for sample in samples:
        part = texts.take(sample)
        strata = part.strata
        numbers = fold_numbers(part.keys, strata, part.groups)
        if not _are_several(numbers) or not _are_several(strata):
            continue
        is_measured = True
        for train, test in _train_and_test_rows(numbers):
            losses += _losses_by_penalty(part, train, test)
    if not is_measured:
        return USUAL_INVERSE_PENALTY
    return INVERSE_PENALTIES[int(losses.argmin())]


def cross_validated(
    texts: LabelledVectors, repeats: int = 5, folds: int = FOLDS, seed: int = 0
) -> np.ndarray:
    """Predict every text by a model that is fitted to the other folds, for several divisions into folds.

    The strength of the penalty is chosen once, on all texts. The divisions do not depend on the
    vectors, so that the predictions by the vectors of two models can be compared text by text.

    Args:
        texts: The texts, for example all training texts of a task.
        repeats: Number of divisions.
        folds: Number of folds of each division.
        seed: Seed of the divisions.

    Returns:
        Labels of shape (repeats, texts), as the kind represents them.

    Raises:
        ValueError: If there are fewer than two groups.
    """
    strength = choose_strength(texts)
    strata = texts.strata
    predictions = np.empty((repeats, len(texts.labels)), dtype=texts.labels.dtype)
    for repeat in range(repeats):
        seed_of_division = derive_seed(seed, "probe", "repeat", repeat)
        numbers = fold_numbers(texts.keys, strata, texts.groups, folds, seed_of_division)
        if not _are_several(numbers):
            raise ValueError("cross-validation needs texts of at least two groups")
        for train, test in _train_and_test_rows(numbers):
            predictions[repeat, test] = probe_scores(
                texts.vectors, texts.labels, texts.kind, train, test, strength, texts.class_weight
            )
    return predictions


def _are_several(numbers: np.ndarray) -> bool:
    """Return whether an array has at least two different numbers."""
    return np.unique(numbers).size >= 2


def _has_label_sets(kind: Kind) -> bool:
    """Return whether a label is a tuple of class numbers, and not one class number."""
    return kind.dtype is object


def _train_and_test_rows(numbers: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows outside and inside each fold."""
    for number in np.unique(numbers):
        is_tested = numbers == number
        yield np.flatnonzero(~is_tested), np.flatnonzero(is_tested)


def _targets(labels: np.ndarray, kind: Kind) -> np.ndarray:
    """Return labels as a pipeline is fitted to them: as they are, or rows of 0 and 1 for label sets."""
    if _has_label_sets(kind):
        return kind.loss_labels(labels.tolist()).astype(np.int64)
    return labels


def _losses_by_penalty(texts: LabelledVectors, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return the summed loss of the test rows for each of :data:`INVERSE_PENALTIES`.

    It is the squared error if the labels are numbers, else the log loss; if a text has several
    labels, that of all labels.

    Args:
        texts: All texts.
        train: Rows of the texts that the models are fitted to.
        test: Rows of the texts whose losses are summed.
    """
    kind = texts.kind
    targets = _targets(texts.labels, kind)
    columns = [targets]
    if _has_label_sets(kind):
        columns = list(targets.T)
        kind = WITH_AND_WITHOUT
    scaler = _scaler(texts.vectors[train])
    fitted_vectors = scaler.transform(texts.vectors[train].astype(np.float64))
    tested_vectors = scaler.transform(texts.vectors[test].astype(np.float64))
    losses = np.zeros(len(INVERSE_PENALTIES))
    for column in columns:
        weights = np.ones(len(test))
        if texts.class_weight is not None:
            # Fitted and tested texts are counted together: a class then has the same weight in the
            # losses of all folds, even where one side has no text of it.
            counts = np.bincount(column[np.concatenate([train, test])])
            weights = balanced_weights(counts)[column[test]]
        models = _fits(fitted_vectors, column[train], kind, INVERSE_PENALTIES, texts.class_weight)
        for index, model in enumerate(models):
            losses[index] += _loss(model, tested_vectors, column[test], kind, weights)
    return losses


def _loss(
    model: Any, vectors: np.ndarray, targets: np.ndarray, kind: Kind, weights: np.ndarray
) -> float:
    """Return the summed loss of texts with one label or a number, of shape (texts,), each with a weight."""
    if not kind.has_labels:
        return float(np.square(model.predict(vectors) - targets).sum())
    probabilities = model.predict_proba(vectors)
    is_actual = targets[:, None] == model.classes_
    of_actual = (probabilities * is_actual).sum(1)  # 0 if no fitted text has the class
    log_probabilities = np.log(np.maximum(of_actual, LEAST_PROBABILITY))
    return -float((weights * log_probabilities).sum())


def _scaler(vectors: np.ndarray) -> Any:
    """Make what standardises vectors by these; a column that is constant in them is only centred."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(vectors.astype(np.float64))
    scaler.scale_[scaler.scale_ < LEAST_DEVIATION] = 1.0
    return scaler


def _fits(
    vectors: np.ndarray,
    targets: np.ndarray,
    kind: Kind,
    strengths: Sequence[float],
    class_weight: str | None,
) -> Iterator[Any]:
    """Fit the linear model with one penalty after the other, and yield it after each fit.

    It is the same object every time, so it has to be used before the next fit. Logistic regression
    starts from the weights of the fit before, which saves steps.

    Args:
        vectors: Standardised vectors of shape (texts, width).
        targets: See :func:`fitted`.
        kind: Kind of the labels.
        strengths: Inverses of the penalty.
        class_weight: See :func:`fitted`.
    """
    model = _linear_model(targets, kind, class_weight)
    for strength in strengths:
        _set_strength(model, strength)
        with warnings.catch_warnings():
            # L-BFGS warns (ConvergenceWarning) if it stops before the last digits, as it may with the
            # weakest penalty; one against the rest, of a label that all texts or none have.
            warnings.simplefilter("ignore")
            model.fit(vectors, targets)
        yield model


def _linear_model(targets: np.ndarray, kind: Kind, class_weight: str | None) -> Any:
    """Make the linear model of a kind of label, not fitted yet."""
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier

    if not kind.has_labels:
        return Ridge()
    model = LogisticRegression(max_iter=MOST_STEPS, warm_start=True, class_weight=class_weight)
    if _has_label_sets(kind):
        return OneVsRestClassifier(model)
    if not _are_several(targets):
        return DummyClassifier(strategy="most_frequent")
    return model


def _set_strength(model: Any, strength: float) -> None:
    """Set the inverse of the penalty of a linear model, if it has one."""
    parameters = model.get_params()
    if "alpha" in parameters:
        model.set_params(alpha=1 / strength)
    if "C" in parameters:
        model.set_params(C=strength)
    if "estimator__C" in parameters:
        model.set_params(estimator__C=strength)
