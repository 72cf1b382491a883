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

from dana.core.errors import DataError
from dana.core.rng import generator
from dana.core.statistics import draw_groups

CONTAMINATION = 0.1  # share of the training scores above the threshold, the default of PyOD; the paper gives none
REPLICATES = 500  # of recall; an average precision, which takes a sort each, has 200
PRECISION_REPLICATES = 200


@dataclass(frozen=True)
class Separation:
    """How well anomaly scores separate held-out task units from general ones; task is the positive class.

    Attributes:
        f1: F1 at the threshold (1 - 0.1)-quantile of the training scores, as many general units as task units.
        auroc: Probability that a task unit scores lower than a general one, ties half.
        ap: Average precision of ranking by low score, at a given prevalence.
        best_f1: F1 at the best threshold in hindsight, as many general units as task units.
        threshold: The score up to which a unit counts as in-domain.
    """

    f1: float
    auroc: float
    ap: float
    best_f1: float
    threshold: float


def separation(training: np.ndarray, task: np.ndarray, general: np.ndarray, prevalence: float = 0.5) -> Separation:
    """Compare scores of held-out task units with those of general units.

    Args:
        training: Scores of task units, which set the threshold; higher is more anomalous here and below.
        task: Scores of held-out task units.
        general: Scores of general units; any number, F1 is that of equally many.
        prevalence: Share of task units at which the average precision is taken.

    Raises:
        DataError: If an array is empty or holds a non-finite value.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    for name, values in {"training": training, "task": task, "general": general}.items():
        if values.size == 0:
            raise DataError(f"{name} scores are empty")
        if not np.isfinite(values).all():
            raise DataError(f"{name} scores hold {int((~np.isfinite(values)).sum())} non-finite values")
    is_task = np.concatenate([np.ones(task.size), np.zeros(general.size)])
    relevance = -np.concatenate([task, general])
    threshold = float(np.quantile(training, 1 - CONTAMINATION))
    found, wrong = float((task <= threshold).mean()), float((general <= threshold).mean())
    false, true, _ = roc_curve(is_task, relevance)
    weight = np.where(is_task, prevalence / task.size, (1 - prevalence) / general.size)
    return Separation(
        f1=2 * found / (found + wrong + 1),
        auroc=float(roc_auc_score(is_task, relevance)),
        ap=float(average_precision_score(is_task, relevance, sample_weight=weight)),
        best_f1=float(np.max(2 * true / (true + false + 1))),
        threshold=threshold,
    )


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
