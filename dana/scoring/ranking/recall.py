"""Recall at the budget: scores of held-out task units and of general units to a share, with a bootstrap interval.

A selector keeps the share β of the pool with the lowest scores. So its threshold is the β-quantile of the general
scores (a false-positive rate of β), and recall is the share of held-out task units below it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dana.core.rng import generator
from dana.core.statistics import draw_groups
from dana.scoring.ranking.separation import Separation, separation

REPLICATES = 500


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


@dataclass(frozen=True)
class Resampling:
    """Which documents a bootstrap replicate holds, the same for every detector, so that differences are paired.

    Attributes:
        task: Shape (replicates + 1, task units), how often each unit's group was drawn; the first row is all ones.
        general: Shape (replicates + 1, general units), the same by document.
    """

    task: np.ndarray
    general: np.ndarray

    @classmethod
    def of(cls, task_groups: np.ndarray, general_groups: np.ndarray, seed: int) -> "Resampling":
        """Draw groups with replacement, as many as there are, on both sides."""
        draws = []
        for label, groups in (("task", task_groups), ("general", general_groups)):
            drawn = draw_groups(generator(seed, "recall", label), groups, REPLICATES)
            draws.append(np.concatenate([np.ones((1, groups.size)), drawn]).astype(np.float32))
        return cls(*draws)


def recalls(folds: Sequence[Fold], resampling: Resampling, budget: float) -> np.ndarray:
    """Recall at the budget, shape (replicates + 1,); the first is that of the data as they are.

    Each fold has its own threshold, the budget's quantile of the general scores there. Task units that tie with it
    count by the share of the tied general units that the budget keeps, so equal scores for all earn the budget.

    Args:
        folds: Of one repetition or several; together they hold out every unit equally often.
        resampling: See :class:`Resampling`.
        budget: β, share of the general units that is kept.
    """
    kept, all_units = 0.0, 0.0
    for fold in folds:
        order = np.argsort(fold.general, kind="stable")
        sorted_scores = fold.general[order]
        reached = np.cumsum(resampling.general[:, order], axis=1, dtype=np.float64)
        reached /= reached[:, -1:]
        at = np.minimum((reached < budget - 1e-12).sum(1), order.size - 1)
        threshold = sorted_scores[at]
        low, high = (np.searchsorted(sorted_scores, threshold, side) for side in ("left", "right"))
        each = np.arange(at.size)
        below = np.where(low > 0, reached[each, low - 1], 0.0)
        tied = (budget - below) / np.maximum(reached[each, high - 1] - below, 1e-300)
        weights = resampling.task[:, fold.rows]
        found = (fold.task < threshold[:, None]) + np.clip(tied, 0, 1)[:, None] * (fold.task == threshold[:, None])
        kept = kept + (weights * found).sum(1)
        all_units = all_units + weights.sum(1)
    return kept / np.maximum(all_units, 1e-300)


def separations(folds: Sequence[Fold], prevalence: float) -> list[Separation]:
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
