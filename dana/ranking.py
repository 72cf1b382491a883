"""Which detector tells this task from general text? Held-out F1 and what belongs beside it.

DANA section 3.1, "Ranking anomaly detection algorithms". The anomaly score is read as a classifier between
held-out task units (positive) and as many general units: D-04 and A-D03 of the requirements.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean, stdev

import numpy as np

from dana.errors import DataError
from dana.rng import generator

HELD_OUT = 0.1  # the paper's 90/10 split
CONTAMINATION = 0.1  # share of the training scores above the threshold (A-D03, PyOD's rule)
MIN_TASK_UNITS = 20  # two held-out units: below that an F1 says nothing


@dataclass(frozen=True)
class Separation:
    """How well anomaly scores separate held-out task units from general ones; task is the positive class.

    Attributes:
        f1: F1 at the threshold (1 - 0.1)-quantile of the training scores.
        auroc: Probability that a task unit scores lower than a general one, ties half.
        ap: Average precision of ranking by low score.
        best_f1: F1 at the best threshold in hindsight.
        threshold: The score up to which a unit counts as in-domain.
    """

    f1: float
    auroc: float
    ap: float
    best_f1: float
    threshold: float


@dataclass(frozen=True)
class Ranked:
    """One detector's row of the ranking, over seeds. Times are seconds, means over seeds."""

    name: str
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
        raise DataError(f"the task has {units} units; ranking holds out a tenth and needs at least {MIN_TASK_UNITS}")
    order = generator(seed, "ranking", "split").permutation(units)
    held_out = max(1, round(units * HELD_OUT))
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def separation(training: np.ndarray, task: np.ndarray, general: np.ndarray) -> Separation:
    """Compare scores of held-out task units with those of general units.

    Args:
        training: Scores of the units the detector was fitted on, which set the threshold; higher is
            more anomalous here and below.
        task: Scores of held-out task units.
        general: Scores of general units.

    Raises:
        DataError: If an array is empty or holds a non-finite value.
    """
    from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score

    for name, values in {"training": training, "task": task, "general": general}.items():
        if values.size == 0:
            raise DataError(f"{name} scores are empty")
        if not np.isfinite(values).all():
            raise DataError(f"{name} scores hold {int((~np.isfinite(values)).sum())} non-finite values")
    is_task = np.concatenate([np.ones(task.size), np.zeros(general.size)])
    relevance = -np.concatenate([task, general])
    threshold = float(np.quantile(training, 1 - CONTAMINATION))
    found, wrong = int((task <= threshold).sum()), int((general <= threshold).sum())
    precision, recall, _ = precision_recall_curve(is_task, relevance)
    return Separation(
        f1=2 * found / (found + wrong + task.size),
        auroc=float(roc_auc_score(is_task, relevance)),
        ap=float(average_precision_score(is_task, relevance)),
        best_f1=float(np.max(2 * precision * recall / np.maximum(precision + recall, 1e-12))),
        threshold=threshold,
    )


def stability(scores_by_seed: Sequence[np.ndarray]) -> float | None:
    """Mean Spearman correlation of one sample's scores between every two seeds; None with one seed.

    Each seed has its own split and its own detector randomness, so this is what a user would see who ran
    the selection twice.
    """
    from scipy.stats import rankdata

    ranks = [rankdata(scores) for scores in scores_by_seed]
    pairs = [float(np.corrcoef(a, b)[0, 1]) for a, b in combinations(ranks, 2)]
    return fmean(pairs) if pairs else None


def summarise(
    name: str,
    runs: Sequence[Separation],
    stable: float | None,
    fit_s: Sequence[float],
    score_s: Sequence[float],
) -> Ranked:
    """Mean and standard deviation (ddof 1; 0 with one seed) of one detector's runs."""
    f1 = [run.f1 for run in runs]
    auroc = [run.auroc for run in runs]
    return Ranked(
        name=name,
        f1_mean=fmean(f1),
        f1_std=stdev(f1) if len(f1) > 1 else 0.0,
        auroc_mean=fmean(auroc),
        auroc_std=stdev(auroc) if len(auroc) > 1 else 0.0,
        ap_mean=fmean(run.ap for run in runs),
        best_f1_mean=fmean(run.best_f1 for run in runs),
        stability=stable,
        fit_s=fmean(fit_s),
        score_s=fmean(score_s),
        n_seeds=len(runs),
    )


def choose(ranked: Sequence[Ranked]) -> str:
    """The detector with the highest mean F1; a tie goes to the higher AUROC, then to the earlier name."""
    return max(sorted(ranked, key=lambda row: row.name), key=lambda row: (row.f1_mean, row.auroc_mean)).name


def as_rows(ranked: Sequence[Ranked]) -> list[dict]:
    """Plain rows, best F1 first."""
    return [asdict(row) for row in sorted(ranked, key=lambda row: (-row.f1_mean, -row.auroc_mean, row.name))]
