"""Measures of how anomaly scores tell held-out task text from general text, with bootstraps over documents.

DANA, section 3.1 ("Ranking anomaly detection algorithms"), reads the score as a classifier between held-out task units
(positive) and general units; in the protocol of the paper the choice is by F1. Ours is by recall at the budget: a
selector keeps the share β of the pool with the lowest scores, so its threshold is the β-quantile of the general scores
(a false-positive rate of β), and recall is the share of held-out task units below it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np

from dana.core.rng import generator
from dana.core.statistics import draw_groups

CONTAMINATION = 0.1  # share of the training scores above the threshold, the default of PyOD; the paper gives none
REPLICATES = 500  # of recall; an average precision, which takes a sort each, has 200
PRECISION_REPLICATES = 200


def separation(
    training: np.ndarray, task: np.ndarray, general: np.ndarray, prevalence: float = 0.5
) -> tuple[float, float, float]:
    """F1, AUROC and average precision of scores of held-out task units (positive) against those of general units.

    F1 is that of as many general units as task units, at the 90th percentile of the training scores. AUROC is the
    probability that a task unit scores lower than a general one, ties half.

    Args:
        training: Scores of task units, which set the threshold; higher is more anomalous here and below.
        task: Scores of held-out task units.
        general: Scores of general units.
        prevalence: Share of task units at which the average precision is taken.
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
    """Mean Spearman correlation of one general sample's scores between every two fits; None with one fit.

    Each fit has its own part of the task and its own detector randomness, so this is what a user would see who ran
    the selection twice.
    """
    from scipy.stats import rankdata

    ranks = [rankdata(scores) for scores in scores_by_fit]
    pairs = [float(np.corrcoef(a, b)[0, 1]) for a, b in combinations(ranks, 2)]
    return fmean(pairs) if pairs else None


@dataclass(frozen=True)
class Fold:
    """Scores by a selector that was fitted on the other folds; higher = more foreign.

    Attributes:
        rows: Shape (held-out units,), their places among the task's units.
        task: Shape (held-out units,).
        general: Shape (general units,), the same units in every fold.
    """

    rows: np.ndarray
    task: np.ndarray
    general: np.ndarray


def bootstrap_counts(task_groups: np.ndarray, general_groups: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """How often each unit's group is drawn in a replicate, where groups are drawn with replacement on both sides.

    The draws are the same for every detector, so that differences are paired.

    Returns:
        Float32 of shape (replicates + 1, units) for the task and for general text; the first row is all ones.
    """
    draws = []
    for label, groups in (("task", task_groups), ("general", general_groups)):
        drawn = draw_groups(generator(seed, "recall", label), groups, REPLICATES)
        draws.append(np.concatenate([np.ones((1, groups.size)), drawn]).astype(np.float32))
    return tuple(draws)


def recalls(folds: Sequence[Fold], draws: tuple[np.ndarray, ...], budget: float) -> np.ndarray:
    """Recall at the budget, shape (replicates + 1,); the first is that of the data as they are.

    Each fold has its own threshold, the budget's quantile of the general scores there. Task units that tie with it
    count by the share of the tied general units that the budget keeps, so equal scores for all earn the budget.

    Args:
        folds: Of one repetition or several; together they hold out every unit equally often.
        draws: See :func:`bootstrap_counts`.
        budget: β, share of the general units that is kept.
    """
    kept, all_units = 0.0, 0.0
    for fold in folds:
        order = np.argsort(fold.general, kind="stable")
        sorted_scores = fold.general[order]
        reached = np.cumsum(draws[1][:, order], axis=1, dtype=np.float64)
        reached /= reached[:, -1:]
        at = np.minimum((reached < budget - 1e-12).sum(1), order.size - 1)
        threshold = sorted_scores[at]
        low, high = (np.searchsorted(sorted_scores, threshold, side) for side in ("left", "right"))
        each = np.arange(at.size)
        below = np.where(low > 0, reached[each, low - 1], 0.0)
        tied = (budget - below) / np.maximum(reached[each, high - 1] - below, 1e-300)
        weights = draws[0][:, fold.rows]
        found = (fold.task < threshold[:, None]) + np.clip(tied, 0, 1)[:, None] * (fold.task == threshold[:, None])
        kept = kept + (weights * found).sum(1)
        all_units = all_units + weights.sum(1)
    return kept / np.maximum(all_units, 1e-300)


def separations(folds: Sequence[Fold], prevalence: float) -> list[tuple[float, float, float]]:
    """The paper's numbers, a fold each, at a threshold that neither the fold nor its own fit has seen.

    The 90th percentile of scores of units in the other folds, each scored by a detector that was not fitted on it. (A
    detector by neighbours gives a unit that it was fitted on too low a score: the unit is its own neighbour.) To be of
    one scale, every fold's scores are standardised by its own general scores.

    Args:
        folds: Of one repetition.
        prevalence: Of the task, for the average precision.
    """
    scaled = []
    for fold in folds:
        mean, std = fold.general.mean(), fold.general.std() or 1.0
        scaled.append(((fold.task - mean) / std, (fold.general - mean) / std))
    return [
        separation(np.concatenate([task for task, _ in scaled[:place] + scaled[place + 1 :]]), *own, prevalence)
        for place, own in enumerate(scaled)
    ]


def average_precisions(
    task: np.ndarray, general: np.ndarray, groups: tuple[np.ndarray, np.ndarray], prevalence: float, seed: int
) -> np.ndarray:
    """Average precision of ranking by low score, shape (replicates + 1,); the first is that of the data as they are.

    Args:
        task: Scores of task pieces, higher = more foreign.
        general: Scores of general pieces.
        groups: Of either, int64; pieces of one number are drawn together.
        prevalence: Share of task text that the pieces are weighted to.
        seed: Of the bootstrap; the same seed draws the same groups, so that selectors are compared on the same draws.
    """
    from sklearn.metrics import average_precision_score

    is_task = np.repeat([True, False], [task.size, general.size])
    relevance = -np.concatenate([task, general])
    found = []
    for replicate in range(PRECISION_REPLICATES + 1):
        random = generator(seed, "precision", replicate)
        counts = [np.ones(side.size) if replicate == 0 else draw_groups(random, side, 1)[0] for side in groups]
        shares = [
            share * count / max(count.sum(), 1)
            for share, count in zip((prevalence, 1 - prevalence), counts, strict=True)
        ]
        found.append(average_precision_score(is_task, relevance, sample_weight=np.concatenate(shares)))
    return np.array(found)


def recalls_at(task: np.ndarray, general: np.ndarray, budget: float) -> float:
    """Share of task scores below the β-quantile of the general ones; those equal to it count half."""
    threshold = np.quantile(general, budget)
    return float((task < threshold).mean() + 0.5 * (task == threshold).mean())
