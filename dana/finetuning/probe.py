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
from dana.tasks.examples import Example
from dana.tasks.kinds.base import Kind, balanced_weights

VERSION = 1  # raise when results of a probe change
# scikit-learn's C, the inverse of the penalty; chosen by cross-validation within the training texts
INVERSE_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
USUAL_INVERSE_PENALTY = 1e-2  # is taken where the texts are too few to choose one
FOLDS = 3
QUANTILE_STRATA = 5  # labels that are numbers are divided into so many parts of equally many texts
MOST_STEPS = 500  # of L-BFGS
# Smaller probabilities count as this one in a loss: that of a class without a fitted text is 0.
LEAST_PROBABILITY = 1e-9
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


def probe_scores(
    vectors: np.ndarray,
    labels: np.ndarray,
    kind: Kind,
    train: np.ndarray,
    test: np.ndarray,
    strength: float = USUAL_INVERSE_PENALTY,
    class_weight: str | None = None,
) -> np.ndarray:
    """Predict the labels of some texts by a linear model that is fitted to the vectors of others.

    Vectors are standardised by the training texts. The model is logistic regression if a text has
    one label, one logistic regression for each label if it has several, and ridge regression if the
    labels are numbers.

    Args:
        vectors: Shape (texts, width).
        labels: Labels of shape (texts,), as the kind represents them; those of `test` are not read.
        kind: Kind of the labels.
        train: Rows of the texts that the model is fitted to.
        test: Rows of the texts to predict.
        strength: Inverse of the penalty: scikit-learn's C, and one over the alpha of its ridge.
        class_weight: ``balanced`` weighs the classes of the training texts alike. If a text has
            several labels, it weighs the texts with a label and those without it alike, for each
            label. None weighs texts alike.

    Returns:
        Labels of shape (test texts,), as the kind represents them.
    """
    fitted_vectors, tested_vectors = _standardise(vectors[train], vectors[test])
    fitted_labels = labels[train]
    if not kind.has_labels:
        [values] = _ridge_predictions(fitted_vectors, fitted_labels, tested_vectors, [strength])
        return values
    if not _has_label_sets(kind):
        return _logistic_predictions(
            fitted_vectors, fitted_labels, tested_vectors, strength, class_weight
        )
    indicators = kind.loss_labels(fitted_labels.tolist()).astype(np.int64)
    columns = []
    for has_label in indicators.T:
        column = _logistic_predictions(
            fitted_vectors, has_label, tested_vectors, strength, class_weight
        )
        columns.append(column)
    is_predicted = np.stack(columns, axis=1)
    label_sets = [tuple(np.flatnonzero(row).tolist()) for row in is_predicted]
    return kind.gather(label_sets)


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


def _losses_by_penalty(texts: LabelledVectors, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return the summed loss of the test rows for each of :data:`INVERSE_PENALTIES`.

    It is the squared error if the labels are numbers, else the log loss; if a text has several
    labels, that of all labels.

    Args:
        texts: All texts.
        train: Rows of the texts that the models are fitted to.
        test: Rows of the texts whose losses are summed.
    """
    labels = texts.labels
    kind = texts.kind
    weight = texts.class_weight
    fitted_vectors, tested_vectors = _standardise(texts.vectors[train], texts.vectors[test])
    if not kind.has_labels:
        values_by_penalty = _ridge_predictions(
            fitted_vectors, labels[train], tested_vectors, INVERSE_PENALTIES
        )
        return np.array([np.square(values - labels[test]).sum() for values in values_by_penalty])
    if not _has_label_sets(kind):
        return _log_losses_by_penalty(
            fitted_vectors, labels[train], tested_vectors, labels[test], weight
        )
    indicators = kind.loss_labels(labels.tolist()).astype(np.int64)
    losses = np.zeros(len(INVERSE_PENALTIES))
    for has_label in indicators.T:
        losses += _log_losses_by_penalty(
            fitted_vectors, has_label[train], tested_vectors, has_label[test], weight
        )
    return losses


def _log_losses_by_penalty(
    fitted_vectors: np.ndarray,
    fitted_labels: np.ndarray,
    tested_vectors: np.ndarray,
    tested_labels: np.ndarray,
    class_weight: str | None,
) -> np.ndarray:
    """Return logistic regression's summed log loss of the tested texts for each penalty.

    The penalties are those of :data:`INVERSE_PENALTIES`.

    Args:
        fitted_vectors: Standardised vectors of shape (fitted texts, width).
        fitted_labels: Class numbers of shape (fitted texts,).
        tested_vectors: Standardised vectors of shape (tested texts, width).
        tested_labels: Class numbers of shape (tested texts,).
        class_weight: ``balanced`` weighs classes alike, in the fit and in the loss; None weighs
            texts alike.
    """
    weights: Any = 1.0
    if class_weight is not None:
        # Fitted and tested texts are counted together: a class then has the same weight in the
        # losses of all folds, even where one side has no text of it.
        counts = np.bincount(np.concatenate([fitted_labels, tested_labels]))
        weights = balanced_weights(counts)[tested_labels]
    if not _are_several(fitted_labels):
        # The only fitted class is predicted with certainty, whatever the penalty is.
        weight_of_wrong_texts = (weights * (tested_labels != fitted_labels[0])).sum()
        loss = -weight_of_wrong_texts * np.log(LEAST_PROBABILITY)
        return np.full(len(INVERSE_PENALTIES), loss)
    losses = []
    for model in _logistic_fits(fitted_vectors, fitted_labels, INVERSE_PENALTIES, class_weight):
        probabilities = model.predict_proba(tested_vectors)
        is_actual = tested_labels[:, None] == model.classes_
        of_actual = (probabilities * is_actual).sum(1)  # 0 if no fitted text has the class
        log_probabilities = np.log(np.maximum(of_actual, LEAST_PROBABILITY))
        losses.append(-(weights * log_probabilities).sum())
    return np.array(losses)


def _standardise(
    fitted_vectors: np.ndarray, tested_vectors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Standardise both arrays by the mean and deviation of the fitted vectors, to float64.

    A column that is constant in the fitted vectors is centred, not scaled.
    """
    fitted_vectors = fitted_vectors.astype(np.float64)
    tested_vectors = tested_vectors.astype(np.float64)
    mean = fitted_vectors.mean(0)
    scale = fitted_vectors.std(0)
    is_constant = scale < 1e-12
    scale[is_constant] = 1.0
    return (fitted_vectors - mean) / scale, (tested_vectors - mean) / scale


def _logistic_predictions(
    fitted_vectors: np.ndarray,
    fitted_labels: np.ndarray,
    tested_vectors: np.ndarray,
    inverse_penalty: float,
    class_weight: str | None,
) -> np.ndarray:
    """Predict the classes of the tested texts by logistic regression.

    If the fitted texts have one class alone, it is predicted for every text.

    Returns:
        Class numbers of shape (tested texts,).
    """
    if not _are_several(fitted_labels):
        return np.full(len(tested_vectors), fitted_labels[0])
    [model] = _logistic_fits(fitted_vectors, fitted_labels, [inverse_penalty], class_weight)
    predictions: np.ndarray = model.predict(tested_vectors)
    return predictions


def _logistic_fits(
    fitted_vectors: np.ndarray,
    fitted_labels: np.ndarray,
    inverse_penalties: Sequence[float],
    class_weight: str | None,
) -> Iterator[Any]:
    """Fit logistic regression with one penalty after the other, and yield the model after each fit.

    It is the same object every time, so it has to be used before the next fit. Each fit starts from
    the weights of the fit before, which saves steps.

    Args:
        fitted_vectors: Standardised vectors of shape (fitted texts, width).
        fitted_labels: Class numbers of shape (fitted texts,), of two classes or more.
        inverse_penalties: Values of scikit-learn's C.
        class_weight: ``balanced`` weighs classes alike; None weighs texts alike.
    """
    from sklearn.linear_model import LogisticRegression

    model: Any = LogisticRegression(max_iter=MOST_STEPS, warm_start=True, class_weight=class_weight)
    for inverse_penalty in inverse_penalties:
        model.set_params(C=inverse_penalty)
        with warnings.catch_warnings():
            # L-BFGS warns (ConvergenceWarning) if it stops before the last digits, as it may with the
            # weakest penalty.
            warnings.simplefilter("ignore")
            model.fit(fitted_vectors, fitted_labels)
        yield model


def _ridge_predictions(
    fitted_vectors: np.ndarray,
    fitted_labels: np.ndarray,
    tested_vectors: np.ndarray,
    inverse_penalties: Sequence[float],
) -> Iterator[np.ndarray]:
    """Yield the values that ridge regression predicts for the tested texts, for each penalty.

    With the singular values s of the fitted vectors U s V, the weights are V' (s U'y) / (s² + 1 / C).
    So one decomposition serves all penalties. The intercept is the mean of the fitted labels, since
    the vectors are centred.

    Args:
        fitted_vectors: Standardised vectors of shape (fitted texts, width).
        fitted_labels: Numbers of shape (fitted texts,).
        tested_vectors: Standardised vectors of shape (tested texts, width).
        inverse_penalties: Values of C, one over the penalty of the squared weights.
    """
    mean = fitted_labels.mean()
    left, singular_values, right = np.linalg.svd(fitted_vectors, full_matrices=False)
    projected_labels = left.T @ (fitted_labels - mean)
    rotated_vectors: Any = tested_vectors @ right.T
    for inverse_penalty in inverse_penalties:
        penalised_squares = singular_values**2 + 1 / inverse_penalty
        rotated_weights = singular_values * projected_labels / penalised_squares
        yield mean + rotated_vectors @ rotated_weights
