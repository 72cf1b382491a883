"""Measure how well anomaly scores separate held-out target text from pool text.

DANA, section 3.1 ("Ranking anomaly detection algorithms"), uses the score to classify held-out
target units (positive) against pool units and chooses by F1; see :func:`separation`. The default
here is recall at the budget: selection takes the share β of the pool with the lowest scores, so the
threshold is the β-quantile of the pool scores (a false-positive rate of β), and recall is the share
of held-out target units below it; see :func:`recalls`.

What ranks held-out target text below chance is not used: :func:`refuse_below_chance`.
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

# Share of the training scores above the threshold, the default of PyOD; the paper gives none.
CONTAMINATION = 0.1
REPLICATES = 500  # bootstrap replicates of recall
PRECISION_REPLICATES = 200  # of average precision, which sorts once per replicate
CHANCE = 0.5
CONFOUNDED = 0.3  # size of a rank correlation of score and length that is warned of


def separation(
    training: np.ndarray, target: np.ndarray, pool: np.ndarray, prevalence: float = 0.5
) -> tuple[float, float, float]:
    """Compute F1, AUROC and average precision of held-out target units against pool units.

    Target units are the positive ones. F1 assumes as many pool units as target units; its threshold
    is the 90th percentile of `training`. AUROC is the probability that a target unit scores lower
    than a pool one; a tie counts half.

    Args:
        training: Scores of target units by fits without them; higher = more anomalous here and
            below.
        target: Scores of held-out target units.
        pool: Scores of pool units.
        prevalence: Share of target units to which average precision is weighted.

    Returns:
        F1, AUROC and average precision.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    is_target = np.repeat([1, 0], [target.size, pool.size])
    relevance = -np.concatenate([target, pool])
    threshold = np.quantile(training, 1 - CONTAMINATION)
    right = float((target <= threshold).mean())
    wrong = float((pool <= threshold).mean())
    f1 = 2 * right / (right + wrong + 1)
    auroc = roc_auc_score(is_target, relevance)
    weight = np.where(is_target, prevalence / target.size, (1 - prevalence) / pool.size)
    ap = average_precision_score(is_target, relevance, sample_weight=weight)
    return f1, float(auroc), float(ap)


def auroc_interval(
    scores: Sequence[tuple[np.ndarray, np.ndarray]], groups: Sequence[tuple[np.ndarray, np.ndarray]]
) -> dict[str, float]:
    """Compute AUROC of held-out target units against pool units, with a 95 % interval.

    The interval is over documents. AUROC is the mean, over target units, of the share of pool units
    that score higher; a tie counts half. Its variance is the sum of both sides' clustered variances
    of such shares.

    Args:
        scores: Scores of task and of pool units, a pair for each fit; higher = more foreign.
        groups: Group of each of these units, numbers or names; the units of a group vary together.

    Returns:
        ``auroc``, ``auroc_low`` and ``auroc_high``, by Student's t; 0 to 1 if a side has only one
        group.

    References:
        Obuchowski 1997, Nonparametric analysis of clustered ROC curve data.
    """
    auroc = 0.0
    variance = 0.0
    fewest = np.inf  # groups of the smaller side
    for side in (0, 1):
        shares = np.concatenate([_shares_below(pair[1 - side], pair[side]) for pair in scores])
        names = np.concatenate([pair[side] for pair in groups])
        _, group = np.unique(names, return_inverse=True)
        sums = np.bincount(group, shares - shares.mean())
        auroc = shares.mean()  # in the end that of pool units: the share of target units below
        fewest = min(fewest, sums.size)
        variance += float(sums @ sums) / shares.size**2 * sums.size / max(sums.size - 1, 1)
    reach = 1.0
    if fewest > 1:
        reach = float(stdtrit(fewest - 1, 0.975)) * variance**0.5
    return {
        "auroc": float(auroc),
        "auroc_low": max(0.0, auroc - reach),
        "auroc_high": min(1.0, auroc + reach),
    }


def _shares_below(reference: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Compute, for each value, the share of the reference that is lower; a tie counts half.

    Returns:
        Shape (values,).
    """
    sorted_scores = np.sort(reference)
    below = np.searchsorted(sorted_scores, values, "left")
    not_above = np.searchsorted(sorted_scores, values, "right")
    return (below + not_above) / (2 * sorted_scores.size)


def rank_correlation(first: np.ndarray, other: np.ndarray) -> float:
    """Compute the Spearman correlation of two measures of units; 0 if either is constant."""
    from scipy.stats import rankdata

    first_ranks = rankdata(first)
    other_ranks = rankdata(other)
    if np.ptp(first_ranks) == 0 or np.ptp(other_ranks) == 0:
        return 0.0
    return float(np.corrcoef(first_ranks, other_ranks)[0, 1])


def is_below_chance(row: Mapping[str, Any]) -> bool:
    """Return True if the interval of AUROC, from :func:`auroc_interval`, lies below a half."""
    high: float = row["auroc_high"]
    return high < CHANCE


def refuse_below_chance(name: str, row: Mapping[str, Any], allowed: bool) -> None:
    """Refuse to use what ranks held-out target text below chance.

    Args:
        name: What is used.
        row: Has the fields of :func:`auroc_interval`.
        allowed: Only warn.

    Raises:
        DataError: If the interval of AUROC lies below a half.
    """
    if not is_below_chance(row):
        return
    interval = f"AUROC {row['auroc_low']:.2f} to {row['auroc_high']:.2f}, chance {CHANCE}"
    problem = f"{name}: held-out target text scores as more foreign than pool text ({interval})"
    if not allowed:
        raise DataError(
            f"{problem}; take other units, geometry or selector, or use it with "
            "--allow-below-chance (allow_below_chance=True)"
        )
    log.warning("chance    %s", problem)


def check_scores(folder: Path, notes: Mapping[str, Any], allowed: bool) -> None:
    """Log how scores separate held-out target text, and refuse those that do so below chance.

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
        text = "AUROC of held-out target text %.2f; rank correlation of score and length %.2f"
        log.info("scores    " + text, notes["auroc"], notes["length"])
        warn_of_length({str(folder): notes["length"]})
        refuse_below_chance(str(folder), notes, allowed)


def warn_of_length(correlations: Mapping[str, float]) -> None:
    """Warn of scores whose rank correlation with the length of the text is above 0.3 in size.

    Args:
        correlations: The correlation of each folder of scores, by name.
    """
    high = []
    for name, value in correlations.items():
        if abs(value) > CONFOUNDED:
            high.append(f"{name} {value:.2f}")
    if high:
        remedy = "below 0 long units are preferred; compare other units or another geometry"
        log.warning(
            "length    rank correlation of score and length: %s; %s", ", ".join(high), remedy
        )


def stability(scores_by_fit: Sequence[np.ndarray]) -> float | None:
    """Average the Spearman correlation of one pool sample's scores over all pairs of fits.

    With one fit there is none. Fits differ in their part of the task and in the detector's seed, so
    this estimates how far a second run of the selection would agree.
    """
    pairs = [rank_correlation(first, second) for first, second in combinations(scores_by_fit, 2)]
    return fmean(pairs) if pairs else None


@dataclass(frozen=True)
class Fold:
    """Scores of one fold by a selector fitted on the other folds; higher = more foreign.

    Attributes:
        rows: Indices of the held-out units among the target's units, shape (held-out units,).
        target: Scores of the held-out units, shape (held-out units,).
        pool: Scores of the pool units, shape (pool units,), the same units in every fold.
    """

    rows: np.ndarray
    target: np.ndarray
    pool: np.ndarray


def against_chance(
    folds: Sequence[Fold], target_groups: np.ndarray, documents: np.ndarray, lengths: np.ndarray
) -> dict[str, float]:
    """Compute the interval of AUROC over all folds, and how scores correlate with lengths.

    Args:
        folds: Folds with the same pool units.
        target_groups: Group of each target unit, int64 of shape (target units,).
        documents: Document of each pool unit, shape (pool units,).
        lengths: Characters of each pool unit, shape (pool units,).

    Returns:
        ``auroc_low`` and ``auroc_high`` of :func:`auroc_interval`, and ``length``, the mean rank
        correlation of score and length.
    """
    groups = [(target_groups[fold.rows], documents) for fold in folds]
    interval = auroc_interval([(fold.target, fold.pool) for fold in folds], groups)
    length = fmean(rank_correlation(fold.pool, lengths) for fold in folds)
    return {
        "auroc_low": interval["auroc_low"],
        "auroc_high": interval["auroc_high"],
        "length": length,
    }


def bootstrap_counts(
    target_groups: np.ndarray, pool_groups: np.ndarray, seed: int
) -> tuple[np.ndarray, ...]:
    """Draw groups with replacement, for target and pool text.

    Count how often each unit's group is in a replicate. The draws are the same for every detector,
    so differences between detectors are paired.

    Returns:
        Counts for the task and for pool text, float32 of shape (replicates + 1, units). The
        first row is all ones: the data as they are.
    """
    draws = []
    for label, groups in (("target", target_groups), ("pool", pool_groups)):
        counts = draw_groups(generator(seed, "recall", label), groups, REPLICATES)
        draws.append(np.concatenate([np.ones((1, groups.size)), counts]).astype(np.float32))
    return tuple(draws)


def recalls(folds: Sequence[Fold], draws: tuple[np.ndarray, ...], budget: float) -> np.ndarray:
    """Compute recall at the budget on the data and on every bootstrap replicate.

    Each fold has its own threshold, the β-quantile of its pool scores. Target units at the
    threshold count by the share of the pool units at the threshold that the budget includes, so
    constant scores have recall β.

    Args:
        folds: Folds of one repetition or several; together they hold out every unit equally often.
        draws: Counts of :func:`bootstrap_counts`.
        budget: β, share of the pool units that is selected.

    Returns:
        Recalls, shape (replicates + 1,); the first is that of the data as they are.
    """
    target_counts, pool_counts = draws
    hits = 0.0
    all_units = 0.0
    for fold in folds:
        threshold, tie_share = _thresholds(fold.pool, pool_counts, budget)
        is_below = fold.target < threshold[:, None]
        is_tie = fold.target == threshold[:, None]
        shares = is_below + tie_share[:, None] * is_tie
        weights = target_counts[:, fold.rows]
        hits = hits + (weights * shares).sum(1)
        all_units = all_units + weights.sum(1)
    recall: np.ndarray = hits / np.maximum(all_units, 1e-300)
    return recall


def _thresholds(
    pool: np.ndarray, counts: np.ndarray, budget: float
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the β-quantile of pool scores on every bootstrap replicate.

    Args:
        pool: Scores of the pool units, shape (pool units,).
        counts: How often each unit is in a replicate, shape (replicates + 1, pool units).
        budget: β.

    Returns:
        The quantiles, and the share of the units at the quantile that the budget includes; both of
        shape (replicates + 1,).
    """
    order = np.argsort(pool, kind="stable")
    sorted_scores = pool[order]
    cumulative = np.cumsum(counts[:, order], axis=1, dtype=np.float64)
    cumulative /= cumulative[:, -1:]
    threshold_rows = np.minimum((cumulative < budget - 1e-12).sum(1), order.size - 1)
    threshold = sorted_scores[threshold_rows]
    low = np.searchsorted(sorted_scores, threshold, "left")
    high = np.searchsorted(sorted_scores, threshold, "right")
    replicates = np.arange(threshold_rows.size)
    mass_below = np.where(low > 0, cumulative[replicates, low - 1], 0.0)
    mass_of_ties = cumulative[replicates, high - 1] - mass_below
    tie_share = (budget - mass_below) / np.maximum(mass_of_ties, 1e-300)
    return threshold, np.clip(tie_share, 0, 1)


def separations(folds: Sequence[Fold], prevalence: float) -> list[tuple[float, float, float]]:
    """Compute :func:`separation` for each fold, with a threshold from the other folds.

    The threshold is the 90th percentile of the other folds' held-out scores, standardised by pool
    scores. Scores of units that a detector was fitted on would set it too low: such a unit is its
    own neighbour.

    Args:
        folds: Folds of one repetition.
        prevalence: Share of target units to which average precision is weighted.
    """
    targets = []
    pools = []
    for fold in folds:
        mean = fold.pool.mean()
        std = fold.pool.std() or 1.0
        targets.append((fold.target - mean) / std)
        pools.append((fold.pool - mean) / std)
    measured = []
    for number, (target, pool) in enumerate(zip(targets, pools, strict=True)):
        training = np.concatenate(targets[:number] + targets[number + 1 :])
        measured.append(separation(training, target, pool, prevalence))
    return measured


def average_precisions(
    target: np.ndarray,
    pool: np.ndarray,
    groups: tuple[np.ndarray, np.ndarray],
    prevalence: float,
    seed: int,
) -> np.ndarray:
    """Compute average precision of ranking by low score, on the data and on each replicate.

    Args:
        target: Scores of target pieces, higher = more foreign.
        pool: Scores of pool pieces.
        groups: Group of each target piece and of each pool piece, int64; the pieces of a group are
            drawn together.
        prevalence: Share of target text to which the pieces are weighted.
        seed: Seed of the bootstrap. Selectors with the same seed are compared on the same draws.

    Returns:
        Average precisions, shape (replicates + 1,); the first is that of the data as they are.
    """
    from sklearn.metrics import average_precision_score

    is_target = np.repeat([True, False], [target.size, pool.size])
    relevance = -np.concatenate([target, pool])
    target_groups, pool_groups = groups
    precisions = []
    for replicate in range(PRECISION_REPLICATES + 1):
        if replicate == 0:
            target_counts = np.ones(target.size)
            pool_counts = np.ones(pool.size)
        else:
            random = generator(seed, "precision", replicate)
            target_counts = draw_groups(random, target_groups, 1)[0]
            pool_counts = draw_groups(random, pool_groups, 1)[0]
        target_weights = prevalence * target_counts / max(target_counts.sum(), 1)
        pool_weights = (1 - prevalence) * pool_counts / max(pool_counts.sum(), 1)
        weights = np.concatenate([target_weights, pool_weights])
        precisions.append(average_precision_score(is_target, relevance, sample_weight=weights))
    return np.array(precisions)


def recalls_at(target: np.ndarray, pool: np.ndarray, budget: float) -> float:
    """Compute the share of target scores below the β-quantile of pool scores; a tie counts half."""
    threshold = np.quantile(pool, budget)
    return float((target < threshold).mean() + 0.5 * (target == threshold).mean())
