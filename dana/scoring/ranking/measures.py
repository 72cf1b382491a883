"""Measure how well anomaly scores separate held-out task text from general text, with bootstraps over documents.

DANA, section 3.1 ("Ranking anomaly detection algorithms"), uses the score to classify held-out task
units (positive) against general units and chooses by F1; see :func:`separation`. The default here
is recall at the budget: selection takes the share β of the pool with the lowest scores, so the
threshold is the β-quantile of the general scores (a false-positive rate of β), and recall is the
share of held-out task units below it; see :func:`recalls`.

What ranks held-out task text below chance is not used: :func:`refuse_below_chance`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy.special import stdtrit

from dana.core.errors import DataError
from dana.core.logging import get_logger
from dana.core.rng import generator
from dana.core.statistics import draw_groups

log = get_logger(__name__)

CONTAMINATION = 0.1  # share of the training scores above the threshold, the default of PyOD; the paper gives none
REPLICATES = 500  # bootstrap replicates of recall
PRECISION_REPLICATES = 200  # of average precision, which sorts once per replicate
CHANCE = 0.5
CONFOUNDED = 0.3  # size of a rank correlation of score and length that is warned of


def separation(
    training: np.ndarray, task: np.ndarray, general: np.ndarray, prevalence: float = 0.5
) -> tuple[float, float, float]:
    """Compute F1, AUROC and average precision of held-out task units (positive) against general units.

    F1 assumes as many general units as task units; its threshold is the 90th percentile of
    `training`. AUROC is the probability that a task unit scores lower than a general one; a tie
    counts half.

    Args:
        training: Scores of task units by fits without them; higher = more anomalous here and below.
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


def auroc_interval(
    scores: Sequence[tuple[np.ndarray, np.ndarray]], groups: Sequence[tuple[np.ndarray, np.ndarray]]
) -> dict[str, float]:
    """Compute AUROC of held-out task units against general units, with a 95 % interval over documents.

    AUROC is the mean, over task units, of the share of general units that score higher; a tie
    counts half. Its variance is the sum of both sides' clustered variances of such shares.

    Args:
        scores: Scores of task and of general units, a pair for each fit; higher = more foreign.
        groups: Group of each of these units, numbers or names; the units of a group vary together.

    Returns:
        ``auroc``, ``auroc_low`` and ``auroc_high``, by Student's t; 0 to 1 if a side has only one
        group.

    References:
        Obuchowski 1997, Nonparametric analysis of clustered ROC curve data.
    """
    above, error, fewest = 0.0, 0.0, np.inf  # groups of the smaller side
    for side in (0, 1):
        shares = np.concatenate([_shares_below(pair[1 - side], pair[side]) for pair in scores])
        group = np.unique(np.concatenate([pair[side] for pair in groups]), return_inverse=True)[1]
        sums = np.bincount(group, shares - shares.mean())
        above, fewest = shares.mean(), min(fewest, sums.size)
        error += float(sums @ sums) / shares.size**2 * sums.size / max(sums.size - 1, 1)
    reach = float(stdtrit(fewest - 1, 0.975)) * error**0.5 if fewest > 1 else 1.0
    return {
        "auroc": float(above),
        "auroc_low": max(0.0, above - reach),
        "auroc_high": min(1.0, above + reach),
    }


def _shares_below(reference: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Compute, for each value, the share of the reference that is lower, shape (values,); a tie counts half."""
    sorted_scores = np.sort(reference)
    return (
        np.searchsorted(sorted_scores, values, "left")
        + np.searchsorted(sorted_scores, values, "right")
    ) / (2 * sorted_scores.size)


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Compute the Spearman correlation of two measures of the same units; 0 if either is constant."""
    from scipy.stats import rankdata

    ranks = rankdata(one), rankdata(other)
    return 0.0 if any(np.ptp(one) == 0 for one in ranks) else float(np.corrcoef(*ranks)[0, 1])


def is_below_chance(row: Mapping[str, Any]) -> bool:
    """Return True if the interval of AUROC, from :func:`auroc_interval`, lies below a half."""
    return row["auroc_high"] < CHANCE


def refuse_below_chance(name: str, row: Mapping[str, Any], allowed: bool) -> None:
    """Refuse to use what ranks held-out task text below chance.

    Args:
        name: What is used.
        row: Has the fields of :func:`auroc_interval`.
        allowed: Only warn.

    Raises:
        DataError: If the interval of AUROC lies below a half.
    """
    if is_below_chance(row):
        interval = f"AUROC {row['auroc_low']:.2f} to {row['auroc_high']:.2f}, chance {CHANCE}"
        problem = (
            f"{name}: held-out task text scores as more foreign than general text ({interval})"
        )
        if not allowed:
            remedy = "other units, geometry or selector, or use it with --allow-below-chance (allow_below_chance=True)"
            raise DataError(f"{problem}; take {remedy}")
        log.warning("chance    %s", problem)


def check_scores(folder: Path, notes: Mapping[str, Any], allowed: bool) -> None:
    """Log how scores separate held-out task text, and refuse those that do so below chance.

    Args:
        folder: Folder of the scores, for the message.
        notes: Notes of :func:`dana.scoring.scoring.write_scores`: none without held-out text;
            ``by_chance`` if the selector is a baseline that learns nothing, which one time in forty
            lies below chance.
        allowed: Only warn.

    Raises:
        DataError: See :func:`refuse_below_chance`.
    """
    if "auroc" in notes and not notes.get("by_chance"):
        text = "AUROC of held-out task text %.2f; rank correlation of score and length %.2f"
        log.info("scores    " + text, notes["auroc"], notes["length"])
        warn_of_length({str(folder): notes["length"]})
        refuse_below_chance(str(folder), notes, allowed)


def warn_of_length(correlations: Mapping[str, float]) -> None:
    """Warn of scores whose rank correlation with the length of the text, given by name, is above 0.3 in size."""
    if high := [
        f"{name} {value:.2f}" for name, value in correlations.items() if abs(value) > CONFOUNDED
    ]:
        rest = "below 0 long units are preferred; compare other units or another geometry"
        log.warning("length    rank correlation of score and length: %s; %s", ", ".join(high), rest)


def stability(scores_by_fit: Sequence[np.ndarray]) -> float | None:
    """Average the Spearman correlation of one general sample's scores over all pairs of fits; None with one fit.

    Fits differ in their part of the task and in the detector's seed, so this estimates how far a
    second run of the selection would agree.
    """
    pairs = [rank_correlation(one, other) for one, other in combinations(scores_by_fit, 2)]
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


def against_chance(
    folds: Sequence[Fold], task_groups: np.ndarray, documents: np.ndarray, lengths: np.ndarray
) -> dict[str, float]:
    """Compute the interval of AUROC over all folds, and the mean rank correlation of score and length.

    Args:
        folds: Folds with the same general units.
        task_groups: Group of each task unit, int64 of shape (task units,).
        documents: Document of each general unit, shape (general units,).
        lengths: Characters of each general unit, shape (general units,).

    Returns:
        ``auroc_low`` and ``auroc_high`` of :func:`auroc_interval`, and ``length``.
    """
    groups = [(task_groups[fold.rows], documents) for fold in folds]
    interval = auroc_interval([(fold.task, fold.general) for fold in folds], groups)
    length = fmean(rank_correlation(fold.general, lengths) for fold in folds)
    return {
        "auroc_low": interval["auroc_low"],
        "auroc_high": interval["auroc_high"],
        "length": length,
    }


def bootstrap_counts(
    task_groups: np.ndarray, general_groups: np.ndarray, seed: int
) -> tuple[np.ndarray, ...]:
    """Draw groups with replacement, for task and general text; count how often each unit's group is in a replicate.

    The draws are the same for every detector, so differences between detectors are paired.

    Returns:
        Counts for the task and for general text, float32 of shape (replicates + 1, units). The
        first row is all ones: the data as they are.
    """
    draws = []
    for label, groups in (("task", task_groups), ("general", general_groups)):
        counts = draw_groups(generator(seed, "recall", label), groups, REPLICATES)
        draws.append(np.concatenate([np.ones((1, groups.size)), counts]).astype(np.float32))
    return tuple(draws)


def recalls(folds: Sequence[Fold], draws: tuple[np.ndarray, ...], budget: float) -> np.ndarray:
    """Compute recall at the budget on the data and on every bootstrap replicate.

    Each fold has its own threshold, the β-quantile of its general scores. Task units at the
    threshold count by the share of the general units at the threshold that the budget includes, so
    constant scores have recall β.

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
        tie_share = (budget - mass_below) / np.maximum(
            cumulative[each, high - 1] - mass_below, 1e-300
        )
        weights = draws[0][:, fold.rows]
        below = (fold.task < threshold[:, None]) + np.clip(tie_share, 0, 1)[:, None] * (
            fold.task == threshold[:, None]
        )
        hits = hits + (weights * below).sum(1)
        all_units = all_units + weights.sum(1)
    return hits / np.maximum(all_units, 1e-300)


def separations(folds: Sequence[Fold], prevalence: float) -> list[tuple[float, float, float]]:
    """Compute :func:`separation` for each fold, with a threshold from the other folds.

    The threshold is the 90th percentile of the other folds' held-out scores, standardised by
    general scores. Scores of units that a detector was fitted on would set it too low: such a unit
    is its own neighbour.

    Args:
        folds: Folds of one repetition.
        prevalence: Share of task units to which average precision is weighted.
    """
    z_scores = []
    for fold in folds:
        mean, std = fold.general.mean(), fold.general.std() or 1.0
        z_scores.append(((fold.task - mean) / std, (fold.general - mean) / std))
    return [
        separation(
            np.concatenate([task for task, _ in z_scores[:number] + z_scores[number + 1 :]]),
            *pair,
            prevalence,
        )
        for number, pair in enumerate(z_scores)
    ]


def average_precisions(
    task: np.ndarray,
    general: np.ndarray,
    groups: tuple[np.ndarray, np.ndarray],
    prevalence: float,
    seed: int,
) -> np.ndarray:
    """Compute average precision of ranking by low score, on the data and on every bootstrap replicate.

    Args:
        task: Scores of task pieces, higher = more foreign.
        general: Scores of general pieces.
        groups: Group of each task piece and of each general piece, int64; the pieces of a group are
            drawn together.
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
        counts = [
            np.ones(side.size) if replicate == 0 else draw_groups(random, side, 1)[0]
            for side in groups
        ]
        shares = [
            share * count / max(count.sum(), 1)
            for share, count in zip((prevalence, 1 - prevalence), counts, strict=True)
        ]
        precisions.append(
            average_precision_score(is_task, relevance, sample_weight=np.concatenate(shares))
        )
    return np.array(precisions)


def recalls_at(task: np.ndarray, general: np.ndarray, budget: float) -> float:
    """Compute the share of task scores below the β-quantile of the general scores; a tie counts half."""
    threshold = np.quantile(general, budget)
    return float((task < threshold).mean() + 0.5 * (task == threshold).mean())
