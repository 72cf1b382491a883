"""Separation of task from general text: anomaly scores to F1, AUROC, average precision and the choice of a detector.

DANA, section 3.1 ("Ranking anomaly detection algorithms"), reads the score as a classifier between held-out task units
(positive) and general units. The choice is by recall at the budget (:mod:`dana.scoring.ranking.recall`), or by F1 in
the protocol of the paper.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean, stdev

import numpy as np

from dana.core.errors import DataError
from dana.core.rng import generator

HELD_OUT = 0.1  # the paper's 90/10 split
CONTAMINATION = 0.1  # share of the training scores above the threshold, the default of PyOD; the paper gives none
MIN_TASK_UNITS = 20  # two held-out units: below that an F1 says nothing


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


@dataclass(frozen=True)
class Ranked:
    """One detector's row of the ranking. Times are seconds a fit, means over fits.

    Attributes:
        name: Its spec.
        recall: Share of held-out task units that would be kept at the budget; None in the paper's protocol.
        recall_low: Lower end of its interval of 95 % over documents.
        recall_high: Upper end.
        tied: Whether it is within one standard error of the best recall, so that the choice is open to it.
        f1_mean: Means over fits, see :class:`Separation`.
        f1_std: Standard deviation over fits (ddof 1). Fits share most of what they are fitted on: it is no error.
        auroc_mean: See f1_mean.
        auroc_std: See f1_std.
        ap_mean: See f1_mean.
        best_f1_mean: See f1_mean.
        stability: See :func:`stability`.
        fit_s: Fitting.
        score_s: Scoring what is held out, and the general units.
        n_seeds: Repetitions.
    """

    name: str
    recall: float | None
    recall_low: float | None
    recall_high: float | None
    tied: bool
    f1_mean: float
    f1_std: float
    auroc_mean: float
    auroc_std: float
    ap_mean: float
    best_f1_mean: float
    stability: float | None
    fit_s: float
    score_s: float
    n_seeds: int


def split(units: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of the 90 % that fits and of the held-out tenth.

    Raises:
        DataError: If there are fewer than 20 units.
    """
    if units < MIN_TASK_UNITS:
        raise DataError(
            f"the task has {units} units; ranking holds some of them out and needs at least {MIN_TASK_UNITS}"
        )
    order = generator(seed, "ranking", "split").permutation(units)
    held_out = round(units * HELD_OUT)
    return np.sort(order[held_out:]), np.sort(order[:held_out])


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


def summarise(
    name: str,
    runs: Sequence[Separation],
    stable: float | None,
    fit_s: Sequence[float],
    score_s: Sequence[float],
    seeds: int,
) -> Ranked:
    """Mean and standard deviation (ddof 1; 0 with one fit) of one detector's fits; no recall yet."""
    f1 = [run.f1 for run in runs]
    auroc = [run.auroc for run in runs]
    return Ranked(
        name=name,
        recall=None,
        recall_low=None,
        recall_high=None,
        tied=False,
        f1_mean=fmean(f1),
        f1_std=stdev(f1) if len(f1) > 1 else 0.0,
        auroc_mean=fmean(auroc),
        auroc_std=stdev(auroc) if len(auroc) > 1 else 0.0,
        ap_mean=fmean(run.ap for run in runs),
        best_f1_mean=fmean(run.best_f1 for run in runs),
        stability=stable,
        fit_s=fmean(fit_s),
        score_s=fmean(score_s),
        n_seeds=seeds,
    )


def choose_by_f1(ranked: Sequence[Ranked]) -> str:
    """The paper's rule: the highest mean F1; a tie goes to the higher AUROC, then to the earlier name."""
    return max(sorted(ranked, key=lambda row: row.name), key=lambda row: (row.f1_mean, row.auroc_mean)).name


def within_one_error(replicates: Sequence[np.ndarray]) -> list[bool]:
    """Which recalls are within one standard error of the best, by the bootstrap of the paired difference.

    Args:
        replicates: One array a detector, what :func:`dana.scoring.ranking.recall.recalls` gives, over the same
            replicates.

    References:
        Breiman, Friedman, Olshen and Stone 1984, Classification and regression trees, section 3.4.3 (the 1 SE rule).
    """
    best = max(replicates, key=lambda found: found[0])
    return [bool(best[0] - found[0] <= np.std((best - found)[1:], ddof=1)) for found in replicates]


def choose_by_recall(ranked: Sequence[Ranked]) -> str:
    """Of the detectors within one standard error of the best recall, the stablest; then the best, then by name.

    Stability counts to two decimals. Seconds do not decide: they differ from run to run, and the choice must not.
    """
    tied = sorted((row for row in ranked if row.tied), key=lambda row: row.name)
    return max(tied, key=lambda row: (round(row.stability or 0.0, 2), row.recall)).name


def sorted_rows(ranked: Sequence[Ranked]) -> list[dict]:
    """Plain rows, best recall first; without recall, best F1 first."""
    return [asdict(row) for row in sorted(ranked, key=lambda row: (-(row.recall or 0), -row.f1_mean, row.name))]
