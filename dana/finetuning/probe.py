"""Probe frozen vectors of labelled texts with a linear model: draws of labels, folds, fits and predictions.

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

VERSION = 1  # of the numbers
# Inverse strengths of the penalty, of which folds of the training texts choose.
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
USUAL_STRENGTH = 1e-2  # where the texts are too few to choose
FOLDS = 3
RANGES = 5  # of numbers, by which draws and folds are stratified
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

    def rows(self, rows: np.ndarray) -> "LabelledVectors":
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

    Of equal texts the second has another key than the first, in the order of their ids.
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
        ends = np.quantile(labels, np.linspace(0, 1, RANGES + 1)[1:-1])
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
    order = np.lexsort((keys, ranks, strata))
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
    # Large groups are dealt first, so that small ones even the folds out.
    order = np.lexsort((lowest, -table.sum(1), table.argmax(1)))
    numbers = np.empty(count, dtype=np.int64)
    numbers[order] = np.arange(count) % folds
    return numbers[owners]


def probe_scores(
    vectors: np.ndarray,
    labels: np.ndarray,
    kind: Kind,
    train: np.ndarray,
    test: np.ndarray,
    strength: float = USUAL_STRENGTH,
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
        strength: Inverse strength of the penalty.
        class_weight: ``balanced`` weighs the classes of the training texts alike, of several labels
            a text those with and without each; None weighs texts alike.

    Returns:
        Labels of shape (test texts,).
    """
    [predictions] = _path(vectors, labels, kind, train, test, [strength], class_weight)
    return predictions


def choose_strength(texts: LabelledVectors, samples: Sequence[np.ndarray] | None = None) -> float:
    """Choose the inverse strength of the penalty by cross-validation within samples of training texts.

    The log loss chooses (the squared error, of numbers); with class weights, the weighted one. The
    metric of so few texts is too coarse:
    it took a constant prediction for the best of 50 labels, and too weak a penalty with 500.

    Args:
        texts: The training texts.
        samples: Rows of one draw of labels each, all of one size; losses are summed over them.
            None takes all texts as one sample.

    Returns:
        The strength with the least loss; of equals the strongest penalty. The usual one where no
        sample can be divided.
    """
    losses = np.zeros(len(STRENGTHS))
    is_measured = False
    for sample in [np.arange(len(texts.labels))] if samples is None else samples:
        part = texts.rows(sample)
        numbers = fold_numbers(part.keys, part.strata, part.groups)
        if len(set(numbers.tolist())) < 2 or len(set(part.strata.tolist())) < 2:
            continue
        is_measured = True
        for train, test in _sides(numbers):
            losses += _losses(part, train, test)
    return STRENGTHS[int(losses.argmin())] if is_measured else USUAL_STRENGTH


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
        for train, test in _sides(numbers):
            predictions[repeat, test] = probe_scores(
                texts.vectors, texts.labels, texts.kind, train, test, strength, texts.class_weight
            )
    return predictions


def _sides(numbers: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows outside and inside each fold."""
    for number in np.unique(numbers):
        yield np.flatnonzero(numbers != number), np.flatnonzero(numbers == number)


def _path(
    vectors: np.ndarray,
    labels: np.ndarray,
    kind: Kind,
    train: np.ndarray,
    test: np.ndarray,
    strengths: Sequence[float],
    class_weight: str | None,
) -> Iterator[np.ndarray]:
    """Yield the predictions of one strength after the other; ascending ones start from the one before."""
    fitted, others = _standardise(vectors[train], vectors[test])
    if not kind.has_labels:
        yield from _ridge_path(fitted, labels[train], others, strengths)
    elif kind.dtype is object:
        targets = kind.loss_labels(labels[train].tolist())
        columns = [
            list(_logistic_path(fitted, target.astype(np.int64), others, strengths, class_weight))
            for target in targets.T
        ]
        for number in range(len(strengths)):
            chosen = np.stack([path[number] for path in columns], axis=1)
            yield kind.gather([tuple(np.flatnonzero(row).tolist()) for row in chosen])
    else:
        yield from _logistic_path(fitted, labels[train], others, strengths, class_weight)


def _losses(texts: LabelledVectors, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Sum the losses of test rows after a fit to the others, for each of :data:`STRENGTHS`."""
    labels = texts.labels
    kind = texts.kind
    weight = texts.class_weight
    fitted, others = _standardise(texts.vectors[train], texts.vectors[test])
    if not kind.has_labels:
        path = _ridge_path(fitted, labels[train], others, STRENGTHS)
        return np.array([np.square(predicted - labels[test]).sum() for predicted in path])
    if kind.dtype is not object:
        return _log_losses(fitted, labels[train], others, labels[test], weight)
    targets = kind.loss_labels(labels.tolist()).astype(np.int64)
    losses = np.zeros(len(STRENGTHS))
    for target in targets.T:
        losses += _log_losses(fitted, target[train], others, target[test], weight)
    return losses


def _log_losses(
    train: np.ndarray,
    targets: np.ndarray,
    test: np.ndarray,
    actual: np.ndarray,
    class_weight: str | None,
) -> np.ndarray:
    """Sum the log losses of logistic regression on test rows, for each of :data:`STRENGTHS`."""
    weights: Any = 1.0
    if class_weight is not None:
        counts = np.bincount(np.concatenate([targets, actual]))
        weights = balanced_weights(counts)[actual]
    if len(np.unique(targets)) < 2:
        wrong = (weights * (actual != targets[0])).sum()
        return np.full(len(STRENGTHS), -wrong * np.log(LEAST_PROBABILITY))
    losses = []
    for model in _logistic_fits(train, targets, STRENGTHS, class_weight):
        probabilities = model.predict_proba(test) * (model.classes_ == actual[:, None])
        of_actual = np.maximum(probabilities.sum(1), LEAST_PROBABILITY)
        losses.append(-(weights * np.log(of_actual)).sum())
    return np.array(losses)


def _standardise(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and scale both by the training rows; a constant column is only centred."""
    train = train.astype(np.float64)
    mean = train.mean(0)
    scale = train.std(0)
    scale[scale < 1e-12] = 1.0
    return (train - mean) / scale, (test.astype(np.float64) - mean) / scale


def _logistic_path(
    train: np.ndarray,
    targets: np.ndarray,
    test: np.ndarray,
    strengths: Sequence[float],
    class_weight: str | None,
) -> Iterator[np.ndarray]:
    """Yield the classes that logistic regression predicts; a single class is predicted always."""
    if len(np.unique(targets)) < 2:
        for _ in strengths:
            yield np.full(len(test), targets[0])
        return
    for model in _logistic_fits(train, targets, strengths, class_weight):
        yield model.predict(test)


def _logistic_fits(
    train: np.ndarray,
    targets: np.ndarray,
    strengths: Sequence[float],
    class_weight: str | None,
) -> Iterator[Any]:
    """Yield logistic regression of two classes or more, fitted with one strength after the other."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=MOST_STEPS, warm_start=True, class_weight=class_weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the last digits of the weakest penalty
        for strength in strengths:
            model.set_params(C=strength)
            yield model.fit(train, targets)


def _ridge_path(
    train: np.ndarray, targets: np.ndarray, test: np.ndarray, strengths: Sequence[float]
) -> Iterator[np.ndarray]:
    """Yield the values that ridge regression predicts; one decomposition serves all strengths."""
    mean = targets.mean()
    left, sizes, right = np.linalg.svd(train, full_matrices=False)
    projected = left.T @ (targets - mean)
    rotated: Any = test @ right.T
    for strength in strengths:
        yield mean + rotated @ (sizes * projected / (sizes**2 + 1 / strength))
