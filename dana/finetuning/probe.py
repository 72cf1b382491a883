"""Probe frozen vectors of labelled texts with a linear model: draws, folds, fits and predictions.

Everything here is a pure function of arrays. Texts are known by keys (:func:`text_keys`), so draws
and folds depend neither on the order of a file nor on the model that made the vectors: all arms
are probed with the same labels.
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
USUAL_INVERSE_PENALTY = 1e-2  # where the texts are too few to choose
FOLDS = 3
QUANTILE_STRATA = 5  # of numbers, by which draws and folds are stratified
MOST_STEPS = 500  # of L-BFGS
LEAST_PROBABILITY = 1e-9  # in a loss, also of a class that no fitted text has
NO_PROBE = "each word has a label, and a probe sees one vector a text"


@dataclass(frozen=True)
class LabelledVectors:
    """Vectors of texts with their labels.

    Attributes:
        vectors: Shape (texts, width).
        labels: Labels of shape (texts,), as the kind represents them.
        kind: Kind of the labels.
        metric: Metric of the task.
        keys: Keys of the texts, from :func:`text_keys`.
        groups: Number of each text's group; a group is fitted to or predicted, never both. None if
            each text is alone.
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
        """Return some of the texts."""
        groups = None if self.groups is None else self.groups[rows]
        return replace(
            self,
            vectors=self.vectors[rows],
            labels=self.labels[rows],
            keys=self.keys[rows],
            groups=groups,
        )


def text_keys(examples: Sequence[Example]) -> np.ndarray:
    """Hash each text (both texts of a pair) to a number that depends on no other text, uint64.

    Equal texts get different keys, numbered in the order of their ids.
    """
    order = sorted(range(len(examples)), key=lambda row: examples[row].id)
    seen: Counter[tuple[str, ...]] = Counter()
    keys = np.zeros(len(examples), dtype=np.uint64)
    for row in order:
        texts = examples[row].texts
        keys[row] = document_key("\x1f".join([*texts, str(seen[texts])]))
        seen[texts] += 1
    return keys


def group_numbers(examples: Sequence[Example]) -> np.ndarray:
    """Number the groups of texts; a text without one is alone."""
    names = [
        f"group\x1f{example.group}" if example.group else f"row\x1f{row}"
        for row, example in enumerate(examples)
    ]
    return np.unique(names, return_inverse=True)[1]


def strata_of(labels: np.ndarray, kind: Kind) -> np.ndarray:
    """Number the strata of labels: classes, sets of labels, or fifths of the values; int64."""
    if not kind.has_labels:
        ends = np.quantile(labels, np.linspace(0, 1, QUANTILE_STRATA + 1)[1:-1])
        return np.searchsorted(np.unique(ends), labels, side="right")
    names = [str(label) for label in labels.tolist()]
    return np.unique(names, return_inverse=True)[1]


def draw_labels(
    keys: np.ndarray, strata: np.ndarray, size: int, draw: int, seed: int = 0
) -> np.ndarray:
    """Draw texts whose labels a probe may see, in proportion to the strata.

    A larger draw of the same number contains the smaller ones.

    Args:
        keys: Keys of the texts, from :func:`text_keys`.
        strata: Stratum of each text, from :func:`strata_of`.
        size: Number of texts; all, if there are no more.
        draw: Number of the draw.
        seed: Seed of all draws.

    Returns:
        Rows, ascending.
    """
    ranks = hash_uniform(derive_seed(seed, "probe", "draw", draw), keys)
    order = np.lexsort((keys, ranks, strata))  # by stratum, then rank
    counts = np.bincount(strata)
    starts = np.cumsum(counts) - counts
    # The i-th of n texts of a stratum is due when (i + 1/2) / n of all texts are drawn.
    within = np.arange(len(keys)) - starts[strata[order]]
    due = (within + 0.5) / counts[strata[order]]
    chosen = np.lexsort((ranks[order], due))[:size]
    return np.sort(order[chosen])


def fold_numbers(
    keys: np.ndarray,
    strata: np.ndarray,
    groups: np.ndarray | None = None,
    folds: int = FOLDS,
    seed: int = 0,
) -> np.ndarray:
    """Divide texts into stratified folds; those of a group stay together.

    Args:
        keys: Keys of the texts, from :func:`text_keys`.
        strata: Stratum of each text, from :func:`strata_of`.
        groups: Number of each text's group; None if each is alone.
        folds: Number of folds; fewer, if there are fewer groups.
        seed: Seed of the division.

    Returns:
        Number of each text's fold, int64.
    """
    if groups is None:
        groups = np.arange(len(keys))
    ranks = hash_uniform(derive_seed(seed, "probe", "folds"), keys)
    _, owners = np.unique(groups, return_inverse=True)
    count = int(owners.max()) + 1
    table = np.zeros((count, int(strata.max()) + 1), dtype=np.int64)
    np.add.at(table, (owners, strata), 1)
    lowest = np.ones(count)
    np.minimum.at(lowest, owners, ranks)
    sizes = table.sum(1)
    main_stratum = table.argmax(1)
    # Dealt stratum by stratum, large groups of each first, so that small ones even the folds out.
    order = np.lexsort((lowest, -sizes, main_stratum))
    numbers = np.empty(count, dtype=np.int64)
    numbers[order] = np.arange(count) % folds
    return numbers[owners]


def probe_scores(
    vectors: np.ndarray,
    labels: np.ndarray,
    kind: Kind,
    train: np.ndarray,
    test: np.ndarray,
    strength: float = USUAL_INVERSE_PENALTY,
    class_weight: str | None = None,
) -> np.ndarray:
    """Fit a linear model to some vectors and predict the labels of others.

    Vectors are standardised by the training texts. One label a text: logistic regression; several:
    one for each label; numbers: ridge regression.

    Args:
        vectors: Shape (texts, width).
        labels: Labels of shape (texts,), as the kind represents them; those of `test` are not read.
        kind: Kind of the labels.
        train: Rows to fit to.
        test: Rows to predict.
        strength: Inverse of the penalty, scikit-learn's C.
        class_weight: ``balanced`` weighs the classes of the training texts alike, of several labels
            a text those with and without each; None weighs texts alike.

    Returns:
        Labels of shape (test texts,).
    """
    return _predictions(vectors, labels, kind, train, test, strength, class_weight)


def choose_strength(texts: LabelledVectors, samples: Sequence[np.ndarray] | None = None) -> float:
    """Choose the inverse of the penalty by cross-validation within samples of training texts.

    The log loss chooses, weighted if classes are (of numbers, the squared error), not the task's
    metric: on 50 labels the metric preferred a constant prediction, on 500 too weak a penalty.

    Args:
        texts: The training texts.
        samples: Rows of one draw of labels each, all of one size; losses are summed over them.
            None takes all texts as one sample.

    Returns:
        The strength with the least loss; of equals the strongest penalty. The usual one where no
        sample can be divided.
    """
    if samples is None:
        samples = [np.arange(len(texts.labels))]
    losses = np.zeros(len(INVERSE_PENALTIES))
    is_measured = False
    for sample in samples:
        part = texts.take(sample)
        numbers = fold_numbers(part.keys, part.strata, part.groups)
        if len(set(numbers.tolist())) < 2 or len(set(part.strata.tolist())) < 2:
            continue
        is_measured = True
        for train, test in _train_and_test_rows(numbers):
            losses += _losses(part, train, test)
    return INVERSE_PENALTIES[int(losses.argmin())] if is_measured else USUAL_INVERSE_PENALTY


def cross_validated(
    texts: LabelledVectors, repeats: int = 5, folds: int = FOLDS, seed: int = 0
) -> np.ndarray:
    """Predict every text by probes of the other folds, in several divisions into folds.

    The strength of the penalty is chosen within all texts, once. Divisions are the same for any
    vectors of the same texts, so that the predictions of two models are paired.

    Args:
        texts: The texts, for example all training texts of a task.
        repeats: Number of divisions.
        folds: Number of folds of each.
        seed: Seed of the divisions.

    Returns:
        Labels of shape (repeats, texts).

    Raises:
        ValueError: If there are fewer than two groups.
    """
    strength = choose_strength(texts)
    strata = texts.strata
    predictions = np.empty((repeats, len(texts.labels)), dtype=texts.labels.dtype)
    for repeat in range(repeats):
        own_seed = derive_seed(seed, "probe", "repeat", repeat)
        numbers = fold_numbers(texts.keys, strata, texts.groups, folds, own_seed)
        if len(set(numbers.tolist())) < 2:
            raise ValueError("cross-validation needs texts of at least two groups")
        for train, test in _train_and_test_rows(numbers):
            predictions[repeat, test] = probe_scores(
                texts.vectors, texts.labels, texts.kind, train, test, strength, texts.class_weight
            )
    return predictions


def _train_and_test_rows(numbers: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows outside and inside each fold."""
    for number in np.unique(numbers):
        yield np.flatnonzero(numbers != number), np.flatnonzero(numbers == number)


def _predictions(
    vectors: np.ndarray,
    labels: np.ndarray,
    kind: Kind,
    train: np.ndarray,
    test: np.ndarray,
    inverse_penalty: float,
    class_weight: str | None,
) -> np.ndarray:
    """Predict the labels of test rows by a model that is fitted to the training rows."""
    fitted_vectors, other_vectors = _standardise(vectors[train], vectors[test])
    fitted_labels = labels[train]
    if not kind.has_labels:
        return next(_ridge_path(fitted_vectors, fitted_labels, other_vectors, [inverse_penalty]))
    has_several_labels = kind.dtype is object  # each label is then a tuple
    if not has_several_labels:
        return _logistic_predictions(
            fitted_vectors, fitted_labels, other_vectors, inverse_penalty, class_weight
        )
    targets = kind.loss_labels(fitted_labels.tolist()).astype(np.int64)
    columns = [
        _logistic_predictions(fitted_vectors, target, other_vectors, inverse_penalty, class_weight)
        for target in targets.T
    ]
    is_chosen = np.stack(columns, axis=1)
    return kind.gather([tuple(np.flatnonzero(row).tolist()) for row in is_chosen])


def _losses(texts: LabelledVectors, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Sum the losses of test rows by a fit to the others, for each of :data:`INVERSE_PENALTIES`."""
    labels = texts.labels
    kind = texts.kind
    weight = texts.class_weight
    fitted_vectors, other_vectors = _standardise(texts.vectors[train], texts.vectors[test])
    if not kind.has_labels:
        path = _ridge_path(fitted_vectors, labels[train], other_vectors, INVERSE_PENALTIES)
        return np.array([np.square(predicted - labels[test]).sum() for predicted in path])
    has_several_labels = kind.dtype is object  # each label is then a tuple
    if not has_several_labels:
        return _log_losses(fitted_vectors, labels[train], other_vectors, labels[test], weight)
    targets = kind.loss_labels(labels.tolist()).astype(np.int64)
    losses = np.zeros(len(INVERSE_PENALTIES))
    for target in targets.T:
        losses += _log_losses(fitted_vectors, target[train], other_vectors, target[test], weight)
    return losses


def _log_losses(
    fitted_vectors: np.ndarray,
    fitted_labels: np.ndarray,
    other_vectors: np.ndarray,
    other_labels: np.ndarray,
    class_weight: str | None,
) -> np.ndarray:
    """Sum logistic regression's log losses of the others, for each of :data:`INVERSE_PENALTIES`."""
    weights: Any = 1.0
    if class_weight is not None:
        # Counted on both sides: a class has one weight in all folds, also one that is on one side.
        counts = np.bincount(np.concatenate([fitted_labels, other_labels]))
        weights = balanced_weights(counts)[other_labels]
    if len(np.unique(fitted_labels)) < 2:
        # A single class is predicted with certainty, whatever the penalty.
        wrong = (weights * (other_labels != fitted_labels[0])).sum()
        return np.full(len(INVERSE_PENALTIES), -wrong * np.log(LEAST_PROBABILITY))
    losses = []
    for model in _logistic_fits(fitted_vectors, fitted_labels, INVERSE_PENALTIES, class_weight):
        probabilities = model.predict_proba(other_vectors)
        is_actual = model.classes_ == other_labels[:, None]
        of_actual = (probabilities * is_actual).sum(1)  # 0 of a class that no fitted text has
        log_probabilities = np.log(np.maximum(of_actual, LEAST_PROBABILITY))
        losses.append(-(weights * log_probabilities).sum())
    return np.array(losses)


def _standardise(
    fitted_vectors: np.ndarray, other_vectors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Centre and scale both by those that are fitted to; a constant column is only centred."""
    fitted_vectors = fitted_vectors.astype(np.float64)
    other_vectors = other_vectors.astype(np.float64)
    mean = fitted_vectors.mean(0)
    scale = fitted_vectors.std(0)
    scale[scale < 1e-12] = 1.0
    return (fitted_vectors - mean) / scale, (other_vectors - mean) / scale


def _logistic_predictions(
    fitted_vectors: np.ndarray,
    fitted_labels: np.ndarray,
    other_vectors: np.ndarray,
    inverse_penalty: float,
    class_weight: str | None,
) -> np.ndarray:
    """Predict classes of the others by logistic regression; a single class is predicted always."""
    if len(np.unique(fitted_labels)) < 2:
        return np.full(len(other_vectors), fitted_labels[0])
    model = next(_logistic_fits(fitted_vectors, fitted_labels, [inverse_penalty], class_weight))
    predictions: np.ndarray = model.predict(other_vectors)
    return predictions


def _logistic_fits(
    fitted_vectors: np.ndarray,
    fitted_labels: np.ndarray,
    inverse_penalties: Sequence[float],
    class_weight: str | None,
) -> Iterator[Any]:
    """Fit logistic regression with one strength after the other; yields the same model, refitted.

    There are two classes or more. Each fit starts from the one before.
    """
    from sklearn.linear_model import LogisticRegression

    model: Any = LogisticRegression(max_iter=MOST_STEPS, warm_start=True, class_weight=class_weight)
    for inverse_penalty in inverse_penalties:
        model.set_params(C=inverse_penalty)
        with warnings.catch_warnings():
            # ConvergenceWarning: L-BFGS may miss the last digits of the weakest penalty.
            warnings.simplefilter("ignore")
            model.fit(fitted_vectors, fitted_labels)
        yield model


def _ridge_path(
    fitted_vectors: np.ndarray,
    fitted_labels: np.ndarray,
    other_vectors: np.ndarray,
    inverse_penalties: Sequence[float],
) -> Iterator[np.ndarray]:
    """Yield the values that ridge regression predicts; one decomposition serves all penalties."""
    mean = fitted_labels.mean()
    left, singular_values, right = np.linalg.svd(fitted_vectors, full_matrices=False)
    projected = left.T @ (fitted_labels - mean)
    rotated: Any = other_vectors @ right.T
    for inverse_penalty in inverse_penalties:
        shrunk = singular_values * projected / (singular_values**2 + 1 / inverse_penalty)
        yield mean + rotated @ shrunk
