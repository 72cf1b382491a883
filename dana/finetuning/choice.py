"""Choose among models by their predictions of texts that they were not fitted to, and estimate the choice's score.

The highest score wins; of candidates within .005 of it, the cheapest. The score of a choice is too
high an estimate, as the choice was made for it. So it is estimated as in BBC-CV (Tsamardinos,
Greasidou and Borboudakis 2018, Bootstrapping the out-of-sample predictions for efficient and
accurate cross-validation): texts are drawn with replacement, the rule chooses on those that are
drawn, and its choice is scored on those that are not.

Everything here is a pure function of arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.core.rng import generator
from dana.core.statistics import draw_groups
from dana.tasks.kinds.base import Kind

VERSION = 1  # of the numbers
MARGIN = 0.005  # of the score: a gain that is not worth a dearer model
DRAWS = 1_000
BLOCK = 200  # draws that are scored at a time
LEAST_GROUPS = 10  # of fewer texts or groups nothing is known beside their score
Z = 1.959964  # of an interval of 95 %
NEARLY_ONE = 1 - 1e-9  # Fisher's transformation of 1 is infinite
CORRELATIONS = ("pearson", "spearman")


@dataclass(frozen=True)
class Candidate:
    """A model to choose, by its predictions of texts that it was not fitted to.

    Attributes:
        name: Its name.
        predictions: Labels of shape (fits, texts), as the kind represents them: a row for each
            repetition with another seed. Scores of rows are averaged.
    """

    name: str
    predictions: np.ndarray


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the score to expect of it.

    Attributes:
        name: Name of the chosen candidate.
        scores: Score of each candidate on all texts, by name.
        expected: The score to expect of the choice on new texts of this kind.
        low: Lower end of its interval of 95 %; None with fewer than ten texts or groups, and for
            a correlation or an error that is the same in all draws.
        high: Upper end.
        shares: In which share of the draws each candidate was chosen; empty with
            fewer than ten texts or groups.
    """

    name: str
    scores: dict[str, float]
    expected: float
    low: float | None
    high: float | None
    shares: dict[str, float]


def choose(
    candidates: Sequence[Candidate],
    labels: np.ndarray,
    kind: Kind,
    metric: str,
    groups: np.ndarray | None = None,
    seed: int = 0,
    draws: int = DRAWS,
) -> Choice:
    """Choose a candidate, and estimate the score of the choice with an interval.

    Args:
        candidates: The candidates, the cheapest first.
        labels: Labels of shape (texts,).
        kind: Kind of the labels.
        metric: Metric of the task.
        groups: Number of each text's group, which is drawn as a whole; None if each is alone.
        seed: Seed of the draws.
        draws: Number of draws.

    Returns:
        The choice. Its estimate corrects each candidate's mean score on the texts that are not
        drawn to its score on all texts, since a metric that is no mean, such as macro-F1, is lower
        on fewer texts.

    Raises:
        ValueError: If there is no candidate or no text.
    """
    if not candidates or not labels.size:
        raise ValueError("a choice needs candidates and texts")
    names = [candidate.name for candidate in candidates]
    rows = [row for candidate in candidates for row in candidate.predictions]
    owners = np.repeat(
        np.arange(len(candidates)), [len(candidate.predictions) for candidate in candidates]
    )
    scorer = kind.scorer(_stack(rows, labels), labels, metric)
    sign = -1.0 if kind.metrics[metric] == "lower" else 1.0
    margin = margin_of(labels, kind, metric)

    def scores_of(weights: np.ndarray) -> np.ndarray:
        """Score each candidate, the mean of its fits, by counts of the texts; (draws, candidates)."""
        by_fit = scorer(weights)
        return np.stack(
            [by_fit[:, owners == number].mean(1) for number in range(len(candidates))], axis=1
        )

    scores = scores_of(np.ones((1, labels.size)))
    chosen = int(choose_rows(sign * scores, margin)[0])
    by_name = {name: float(score) for name, score in zip(names, scores[0], strict=True)}
    if groups is None:
        groups = np.arange(labels.size)
    _, groups = np.unique(groups, return_inverse=True)
    if int(groups.max()) + 1 < LEAST_GROUPS:
        return Choice(names[chosen], by_name, by_name[names[chosen]], None, None, {})
    random = generator(seed, "final", "choice")
    _, first_texts = np.unique(groups, return_index=True)
    drawn_scores = []
    other_scores = []
    left_out = []
    for count in _blocks(draws):
        counts = draw_groups(random, groups, count)
        counts = counts[(counts == 0).any(1)]  # of few groups, a draw may leave none out
        is_left_out = counts == 0
        left_out.append(is_left_out[:, first_texts].mean(1))
        drawn_scores.append(scores_of(counts))
        other_scores.append(scores_of(is_left_out.astype(float)))
    drawn = np.concatenate(drawn_scores)
    others = np.concatenate(other_scores)
    share = float(np.concatenate(left_out).mean())
    choices = choose_rows(sign * drawn, margin)
    # Brought to the scores on all texts: (draws, candidates).
    others += scores - others.mean(0)
    of_choices = others[np.arange(len(choices)), choices]
    expected = float(of_choices.mean())
    if metric not in CORRELATIONS and sign > 0:
        expected = min(1.0, max(0.0, expected))
    deviation = spread_of_all(share) * float(of_choices.std())
    shares = np.bincount(choices, minlength=len(names)) / len(choices)
    low, high = _interval(expected, deviation, metric, sign, int(groups.max()) + 1)
    return Choice(
        names[chosen],
        by_name,
        expected,
        low,
        high,
        {name: float(share) for name, share in zip(names, shares, strict=True)},
    )


def choose_rows(scores: np.ndarray, margin: float) -> np.ndarray:
    """Apply the rule to each row of scores, of which higher is better.

    Args:
        scores: Shape (draws, candidates), the cheapest candidate first.
        margin: A candidate is chosen if the best is better by no more than this.

    Returns:
        Number of the chosen candidate of each row.
    """
    is_near = scores >= scores.max(1, keepdims=True) - margin - 1e-12
    chosen: np.ndarray = is_near.argmax(1)
    return chosen


def margin_of(labels: np.ndarray, kind: Kind, metric: str) -> float:
    """Return the difference of scores that is not worth a dearer model.

    It is .005; of an error, which has the unit of the labels, .005 of the error of the mean value.
    """
    if kind.metrics[metric] == "lower":
        return MARGIN * kind.baseline(labels, metric)
    return MARGIN


def _interval(
    expected: float, deviation: float, metric: str, sign: float, groups: int
) -> tuple[float | None, float | None]:
    """Return the ends of the interval around an expected score, on the scale of its metric.

    Of a share, or a mean of shares, it is Wilson's, for as many texts as have this deviation: near 1
    the interval is longer below than above, and texts that are all right do not make it empty. Of a
    correlation it is Fisher's; that of an error is symmetric in its logarithm.

    Args:
        expected: The expected score.
        deviation: Its standard deviation.
        metric: Name of the metric.
        sign: -1 for an error.
        groups: Number of texts or groups.

    Returns:
        Both ends; None for a correlation or an error that no draw changes.
    """
    if metric in CORRELATIONS or sign < 0:
        if deviation == 0:
            return None, None
        if metric in CORRELATIONS:
            inside = float(np.clip(expected, -NEARLY_ONE, NEARLY_ONE))
            centre = np.arctanh(inside)
            half = Z * deviation / (1 - inside**2)
            return float(np.tanh(centre - half)), float(np.tanh(centre + half))
        ratio = float(np.exp(Z * deviation / expected))
        return expected / ratio, expected * ratio
    variance = expected * (1 - expected)
    texts = variance / deviation**2 if deviation > 0 and variance > 0 else float(groups)
    widening = 1 + Z**2 / texts
    centre = (expected + Z**2 / (2 * texts)) / widening
    half = Z / widening * float(np.sqrt(variance / texts + Z**2 / (4 * texts**2)))
    return max(0.0, centre - half), min(1.0, centre + half)


def spread_of_all(share: float) -> float:
    """Return by how much a score on a share of the texts varies too much for a score on all of them.

    A score on a share s of the texts deviates from the score on all of them as much as the latter
    from the truth, times the root of (1 - s) / s: the scale of the delete-d jackknife (Shao and Wu
    1989, A general theory for jackknife variance estimation).
    """
    return float(np.sqrt(share / (1 - share)))


def _stack(rows: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
    """Stack predictions of equal dtype, of tuples too, to shape (fits, texts)."""
    stacked: np.ndarray = np.empty((len(rows), labels.size), dtype=labels.dtype)
    for number, row in enumerate(rows):
        stacked[number] = row
    return stacked


def _blocks(draws: int) -> list[int]:
    """Divide a number of draws into numbers that are scored at a time."""
    whole, rest = divmod(draws, BLOCK)
    return [BLOCK] * whole + ([rest] if rest else [])


def label_rows(predictions: np.ndarray, labels: np.ndarray, kind: Kind) -> list[dict[str, Any]]:
    """Compute precision, recall and F1 of each label, averaged over fits; none of numbers.

    Args:
        predictions: Labels of shape (fits, texts).
        labels: Labels of shape (texts,).
        kind: Kind of the labels.

    Returns:
        For each label ``label``, ``texts``, ``precision``, ``recall`` and ``f1``; what has no
        denominator is 0.
    """
    from sklearn.metrics import precision_recall_fscore_support

    if not kind.has_labels:
        return []
    numbers = np.arange(len(kind.labels))
    actual = _indicated(labels, kind)
    fits = [
        precision_recall_fscore_support(
            actual, _indicated(row, kind), labels=numbers, zero_division=0
        )
        for row in predictions
    ]
    precision, recall, f1, texts = np.mean(fits, axis=0)
    return [
        {
            "label": name,
            "texts": int(texts[number]),
            "precision": float(precision[number]),
            "recall": float(recall[number]),
            "f1": float(f1[number]),
        }
        for number, name in enumerate(kind.labels)
    ]


def _indicated(labels: np.ndarray, kind: Kind) -> np.ndarray:
    """Return labels as scikit-learn measures them: numbers, or rows of 0 and 1 for several a text."""
    if kind.dtype is object:
        return np.asarray(kind.loss_labels(labels.tolist()))
    return labels
