"""Measure how well anomaly scores separate held-out task text from general text, with bootstraps over documents.

DANA, section 3.1 ("Ranking anomaly detection algorithms"), uses the score to classify held-out task units (positive)
against general units and chooses by F1; see :func:`separation`. The default here is recall at the budget: selection
takes the share β of the pool with the lowest scores, so the threshold is the β-quantile of the general scores (a
false-positive rate of β), and recall is the share of held-out task units below it; see :func:`recalls`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np

from dana.core.rng import generator
from dana.core.statistics import draw_groups

CONTAMINATION = 0.1  # share of the training scores above the threshold, the default of PyOD; the paper gives none
REPLICATES = 500  # bootstrap replicates of recall
PRECISION_REPLICATES = 200  # of average precision, which sorts once per replicate


def separation(
    training: np.ndarray, task: np.ndarray, general: np.ndarray, prevalence: float = 0.5
) -> tuple[float, float, float]:
    """Compute F1, AUROC and average precision of held-out task units (positive) against general units.

    F1 assumes as many general units as task units; its threshold is the 90th percentile of the training scores. AUROC
    is the probability that a task unit scores lower than a general one; a tie counts half.

    Args:
        training: Scores of task units, which set the threshold; higher = more anomalous here and below.
        task: Scores of held-out task units.
        general: Scores of general units.
        prevalence: Share of task units to which average precision is weighted.

    Returns:
        F1, AUROC and average precision.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    is_task = np.repeat([1, 0], [task.size, general.size])
    relevance = -np.concatenate([task, general])
    threshold = np.quantile(training, 1 - CONTAMINATION)
    right, wrong = float((task <= threshold).mean()), float((general <= threshold).mean())
    weight = np.where(is_task, prevalence / task.size, (1 - prevalence) / general.size)
    ap = average_precision_score(is_task, relevance, sample_weight=weight)
    return 2 * right / (right + wrong + 1), float(roc_auc_score(is_task, relevance)), float(ap)


def stability(scores_by_fit: Sequence[np.ndarray]) -> float | None:
    """Average the Spearman correlation of one general sample's scores over all pairs of fits; None with one fit.

    Fits differ in their part of the task and in the detector's seed, so this estimates how far a second run of the
    selection would agree.
    """
    from scipy.stats import rankdata

    ranks = [rankdata(scores) for scores in scores_by_fit]
    pairs = [float(np.corrcoef(a, b)[0, 1]) for a, b in combinations(ranks, 2)]
    return fmean(pairs) if pairs else None


@dataclass(frozen=True)
class Fold:
    """Scores of one fold by a selector fitted on the other folds; higher = more foreign.

    Attributes:
        rows: Indices of the held-out units among the task's units, shape (held-out units,).
        task: Scores of the held-out units, shape (held-out units,).
        general: Scores of the general units, shape (general units,), the same units in every fold.
    """

    rows: np.ndarray
    task: np.ndarray
    general: np.ndarray


def bootstrap_counts(task_groups: np.ndarray, general_groups: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """Draw groups with replacement, for task and general text; count how often each unit's group is in a replicate.

    The draws are the same for every detector, so differences between detectors are paired.

    Returns:
        Counts for the task and for general text, float32 of shape (replicates + 1, units). The first row is all ones:
        the data as they are.
    """
    draws = []
    for label, groups in (("task", task_groups), ("general", general_groups)):
        counts = draw_groups(generator(seed, "recall", label), groups, REPLICATES)
        draws.append(np.concatenate([np.ones((1, groups.size)), counts]).astype(np.float32))
    return tuple(draws)


def recalls(folds: Sequence[Fold], draws: tuple[np.ndarray, ...], budget: float) -> np.ndarray:
    """Compute recall at the budget on the data and on every bootstrap replicate.

    Each fold has its own threshold, the β-quantile of its general scores. Task units at the threshold count by the
    share of the general units at the threshold that the budget includes, so constant scores have recall β.

    Args:
        folds: Folds of one repetition or several; together they hold out every unit equally often.
        draws: Counts of :func:`bootstrap_counts`.
        budget: β, share of the general units that is selected.

    Returns:
        Recalls, shape (replicates + 1,); the first is that of the data as they are.
    """
    hits, all_units = 0.0, 0.0
    for fold in folds:
        order = np.argsort(fold.general, kind="stable")
        sorted_scores = fold.general[order]
        cumulative = np.cumsum(draws[1][:, order], axis=1, dtype=np.float64)
        cumulative /= cumulative[:, -1:]
        at = np.minimum((cumulative < budget - 1e-12).sum(1), order.size - 1)
        threshold = sorted_scores[at]
        low, high = (np.searchsorted(sorted_scores, threshold, side) for side in ("left", "right"))
        each = np.arange(at.size)
        mass_below = np.where(low > 0, cumulative[each, low - 1], 0.0)
        tie_share = (budget - mass_below) / np.maximum(cumulative[each, high - 1] - mass_below, 1e-300)
        weights = draws[0][:, fold.rows]
        below = (fold.task < threshold[:, None]) + np.clip(tie_share, 0, 1)[:, None] * (fold.task == threshold[:, None])
        hits = hits + (weights * below).sum(1)
        all_units = all_units + weights.sum(1)
    return hits / np.maximum(all_units, 1e-300)


def separations(folds: Sequence[Fold], prevalence: float) -> list[tuple[float, float, float]]:
    """Compute :func:`separation` for each fold, with a threshold from the other folds.

    The threshold is the 90th percentile of the other folds' held-out scores. Scores of units that a detector was fitted
    on would set it too low for detectors by neighbours, as such a unit is its own neighbour. Each fold's scores are
    standardised by its general scores, so that folds share a scale.

    Args:
        folds: Folds of one repetition.
        prevalence: Share of task units to which average precision is weighted.
    """
    z_scores = []
    for fold in folds:
        mean, std = fold.general.mean(), fold.general.std() or 1.0
        z_scores.append(((fold.task - mean) / std, (fold.general - mean) / std))
    return [
        separation(np.concatenate([task for task, _ in z_scores[:number] + z_scores[number + 1 :]]), *pair, prevalence)
        for number, pair in enumerate(z_scores)
    ]


def average_precisions(
    task: np.ndarray, general: np.ndarray, groups: tuple[np.ndarray, np.ndarray], prevalence: float, seed: int
) -> np.ndarray:
    """Compute average precision of ranking by low score, on the data and on every bootstrap replicate.

    Args:
        task: Scores of task pieces, higher = more foreign.
        general: Scores of general pieces.
        groups: Group of each task piece and of each general piece, int64; the pieces of a group are drawn together.
        prevalence: Share of task text to which the pieces are weighted.
        seed: Seed of the bootstrap. Selectors with the same seed are compared on the same draws.

    Returns:
        Average precisions, shape (replicates + 1,); the first is that of the data as they are.
    """
    from sklearn.metrics import average_precision_score

    is_task = np.repeat([True, False], [task.size, general.size])
    relevance = -np.concatenate([task, general])
    precisions = []
    for replicate in range(PRECISION_REPLICATES + 1):
        random = generator(seed, "precision", replicate)
        counts = [np.ones(side.size) if replicate == 0 else draw_groups(random, side, 1)[0] for side in groups]
        shares = [
            share * count / max(count.sum(), 1)
            for share, count in zip((prevalence, 1 - prevalence), counts, strict=True)
        ]
        precisions.append(average_precision_score(is_task, relevance, sample_weight=np.concatenate(shares)))
    return np.array(precisions)


def recalls_at(task: np.ndarray, general: np.ndarray, budget: float) -> float:
    """Compute the share of task scores below the β-quantile of the general scores; a tie counts half."""
    threshold = np.quantile(general, budget)
    return float((task < threshold).mean() + 0.5 * (task == threshold).mean())
