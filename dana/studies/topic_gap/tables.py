"""Scores by topic, n, arm and seed to what topic costs: a table a topic, and differences from off topic with tests."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dana.core.statistics import holm, mean_interval
from dana.studies.topic_gap.settings import OFF, ON

P_VALUES = ("p_t", "p_wilcoxon")
DIGITS = 12  # differences of printed scores are equal where they differ by less: a tie is a tie


@dataclass(frozen=True)
class PairedTest:
    """Differences of two arms over topics.

    Attributes:
        mean: Of the differences.
        std: Of the differences, ddof 1.
        low: Lower end of the 95 % interval of the mean, by Student's t.
        high: Upper end.
        hedges_g: Mean over deviation, corrected for few topics; NaN of two, which say nothing of it.
        p_t: Two-sided p of the paired t-test.
        p_wilcoxon: Two-sided p of the signed-rank test.
    """

    mean: float
    std: float
    low: float
    high: float
    hedges_g: float
    p_t: float
    p_wilcoxon: float


def paired_test(differences: np.ndarray) -> PairedTest:
    """Test whether differences, one a topic, are 0 in the mean; all but the mean is NaN of a single one.

    Args:
        differences: Shape (topics,).

    References:
        Hedges 1981, Distribution theory for Glass's estimator of effect size: the correction 1 − 3 / (4 df − 1).
        Wilcoxon 1945, Individual comparisons by ranking methods; zeros are left out.
    """
    from scipy.stats import ttest_1samp, wilcoxon

    values = np.round(np.asarray(differences, dtype=np.float64), DIGITS)
    found = mean_interval(values.tolist())
    if values.size < 2:
        return PairedTest(found.mean, *(math.nan,) * 6)
    interval = (found.mean, found.std, found.low, found.high)
    if np.ptp(values) == 0:  # no deviation: neither an effect size nor a t
        return PairedTest(*interval, math.nan, *([1.0, 1.0] if values[0] == 0 else [math.nan, _signed_rank(values)]))
    correction = 1 - 3 / (4 * (values.size - 1) - 1) if values.size > 2 else math.nan  # 0 for one degree of freedom
    p_t = float(ttest_1samp(values, 0.0).pvalue)
    return PairedTest(*interval, correction * found.mean / found.std, p_t, float(wilcoxon(values).pvalue))


def _signed_rank(values: np.ndarray) -> float:
    from scipy.stats import wilcoxon

    return float(wilcoxon(values).pvalue)


def gap_frame(results: pd.DataFrame) -> pd.DataFrame:
    """A row a topic and n: topic, words, n, the mean score of each arm over seeds, and ``gap``: on less off topic.

    Args:
        results: A row a topic, n, arm and seed: topic, words, n, arm, seed, score.
    """
    arms = list(dict.fromkeys(results["arm"]))
    means = results.groupby(["n", "topic", "arm"])["score"].mean().unstack()[arms].reset_index()
    words = results.drop_duplicates("topic").set_index("topic")["words"]
    means.insert(1, "words", means["topic"].map(words))
    means = means[["topic", "words", "n", *arms]]
    means.columns.name = None
    return means.assign(gap=means[ON] - means[OFF]) if {ON, OFF} <= set(arms) else means


def gap_summary(results: pd.DataFrame) -> pd.DataFrame:
    """A row an n and arm other than off topic: both means over topics, and the difference with its tests.

    Columns: n, arm, other, topics, mean, mean_other, difference, std (ddof 1, over topics), low, high (95 %), hedges_g,
    lower (topics on which the arm scores below the other), p_t, p_wilcoxon, and both after Holm over all rows.

    Args:
        results: As for :func:`gap_frame`.
    """
    gap = gap_frame(results)
    rows: list[dict[str, Any]] = []
    for n, own in gap.groupby("n"):
        for arm in [arm for arm in dict.fromkeys(results["arm"]) if arm != OFF]:
            pairs = own.dropna(subset=[arm, OFF])
            differences = np.round((pairs[arm] - pairs[OFF]).to_numpy(), DIGITS)
            test = paired_test(differences)
            row = {"n": n, "arm": arm, "other": OFF, "topics": differences.size, "mean": pairs[arm].mean()}
            row |= {"mean_other": pairs[OFF].mean(), "difference": test.mean, "std": test.std}
            row |= {"low": test.low, "high": test.high, "hedges_g": test.hedges_g}
            row |= {"lower": int((differences < 0).sum())}
            rows.append(row | {name: getattr(test, name) for name in P_VALUES})
    summary = pd.DataFrame(rows)
    for name in P_VALUES if rows else ():
        summary[f"{name}_holm"] = _adjusted(summary[name])
    return summary


def _adjusted(values: pd.Series) -> pd.Series:
    """Holm over those that there are."""
    known = values.dropna()
    return pd.Series(holm(known.tolist()), index=known.index).reindex(values.index)
