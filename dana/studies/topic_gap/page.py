"""Compare the arms of a topic gap by paired tests over topics, and build the page."""

import math
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dana.core.statistics import ALPHA, holm, mean_interval
from dana.report.page import (
    Column,
    Report,
    Section,
    Table,
    decimals,
    each,
    interval_text,
    number,
    text_columns,
)
from dana.studies.topic_gap.settings import OFF, ON

P_VALUES = ("p_t", "p_wilcoxon")
# Fewest of each for a p in the headline: from five topics Wilcoxon's p is never below 0.0625.
TOPICS = 6
SEEDS = 2
DIGITS = 12  # differences are rounded, so that ties of printed scores are ties


def paired_test(differences: np.ndarray) -> dict[str, float]:
    """Test whether the mean of differences, one per topic, is 0.

    Args:
        differences: Shape (topics,).

    Returns:
        ``difference`` (mean), ``std`` (ddof 1), ``low`` and ``high`` (95 % interval of the mean, by
        Student's t), ``hedges_g`` (effect size, corrected for few topics; NaN for two), ``p_t``
        (two-sided paired t-test) and ``p_wilcoxon`` (two-sided signed-rank test). For one topic,
        all but the mean are NaN.

    References:
        Hedges 1981, Distribution theory for Glass's estimator of effect size: the correction 1 − 3
        / (4 df − 1). Wilcoxon 1945, Individual comparisons by ranking methods; zeros are dropped.
    """
    from scipy.stats import ttest_1samp, wilcoxon

    values = np.round(np.asarray(differences, dtype=np.float64), DIGITS)
    interval = mean_interval(values.tolist())
    is_zero = not values.any()
    hedges_g = math.nan
    p_t = math.nan
    p_wilcoxon = math.nan
    if values.size > 1:
        p_wilcoxon = 1.0 if is_zero else float(wilcoxon(values).pvalue)
        if np.ptp(values) > 0:  # else the deviation is 0, and effect size and t are undefined
            p_t = float(ttest_1samp(values, 0.0).pvalue)
            # The correction is 0 for one degree of freedom.
            correction = 1 - 3 / (4 * (values.size - 1) - 1) if values.size > 2 else math.nan
            hedges_g = correction * interval.mean / interval.std
        elif is_zero:
            p_t = 1.0
    return {
        "difference": interval.mean,
        "std": interval.std,
        "low": interval.low,
        "high": interval.high,
        "hedges_g": hedges_g,
        "p_t": p_t,
        "p_wilcoxon": p_wilcoxon,
    }


def gap_frame(results: pd.DataFrame) -> pd.DataFrame:
    """Average the scores of each arm over seeds.

    Args:
        results: One row per topic, n, arm and seed: topic, words, n, arm, seed, score.

    Returns:
        One row per topic and n: topic, words, n, one column per arm, and ``gap``, on topic minus
        off topic, if there are both.
    """
    arms = list(dict.fromkeys(results["arm"]))
    means = results.groupby(["n", "topic", "arm"])["score"].mean().unstack()[arms].reset_index()
    words = results.drop_duplicates("topic").set_index("topic")["words"]
    means.insert(1, "words", means["topic"].map(words))
    means = means[["topic", "words", "n", *arms]]
    means.columns.name = None
    if ON in arms and OFF in arms:
        return means.assign(gap=means[ON] - means[OFF])
    return means


def gap_summary(results: pd.DataFrame) -> pd.DataFrame:
    """Compare each arm with off topic, over topics.

    Args:
        results: As for :func:`gap_frame`.

    Returns:
        One row per n and arm: n, arm, other, topics, mean, mean_other, lower (topics on which the
        arm scores below the other), entries of :func:`paired_test`, and both p after Holm over all
        rows.
    """
    arms = [arm for arm in dict.fromkeys(results["arm"]) if arm != OFF]
    rows = []
    for (n, group), arm in product(gap_frame(results).groupby("n"), arms):
        pairs = group.dropna(subset=[arm, OFF])
        differences = np.round((pairs[arm] - pairs[OFF]).to_numpy(), DIGITS)
        row = {
            "n": n,
            "arm": arm,
            "other": OFF,
            "topics": differences.size,
            "mean": pairs[arm].mean(),
            "mean_other": pairs[OFF].mean(),
            "lower": int((differences < 0).sum()),
            **paired_test(differences),
        }
        rows.append(row)
    summary = pd.DataFrame(rows)
    if summary.empty:
        return summary
    for name in P_VALUES:
        p_values = summary[name].dropna()
        adjusted = pd.Series(holm(p_values.tolist()), index=p_values.index)
        summary[f"{name}_holm"] = adjusted.reindex(summary.index)
    return summary


def gap_report(
    task: str,
    model: str,
    results: pd.DataFrame,
    counts: Mapping[str, Any],
    left_out: Mapping[int, str],
    words: Mapping[int, str],
    labels: int,
) -> Report:
    """Build the page.

    A sentence has a p only if there are six topics and two seeds; it says what guessing scores.

    Args:
        task: Name of the task.
        model: Folder or name of the checkpoint.
        results: One row per topic, n, arm and seed: topic, words, n, arm, seed, score, collapsed,
            train, dev, test.
        counts: Counts of the pool: in, kept, dropped by reason.
        left_out: Topics that are left out, with the reason.
        words: Most probable words of each topic.
        labels: Number of labels, each with as many test texts.
    """
    gap = gap_frame(results)
    summary = gap_summary(results)
    seeds = results["seed"].nunique()
    verdicts = [_verdict(row, Path(model).name, seeds, labels) for row in each(summary)]
    caption = (
        "Mean macro-F1 over topics of an arm and of training off topic (other); their difference,"
        " its 95 % interval by Student's t, Hedges' g, and the number of topics where it is below"
        " 0; p without and with Holm over all rows."
    )
    differences = Table("summary", caption, summary, SUMMARY)
    by_topic = Table("gap", "Means over seeds; gap: on minus off topic.", gap, _topic_columns(gap))
    coverage = _coverage(results, counts, left_out, words)
    sections = [
        Section("Differences from training off topic", "\n".join(verdicts), tables=(differences,)),
        Section("Macro-F1 by topic", "", tables=(by_topic,)),
        Section("What was measured", coverage, tables=(Table("results", "", results),)),
    ]
    return Report(f"{task}: what a classifier loses off topic", verdicts[0], [], sections)


def _verdict(row: Any, model: str, seeds: int, labels: int) -> str:
    """Put a row of the summary in words."""
    training = "on topic" if row.arm == ON else f"on {row.arm}"
    points = number(100 * row.difference, 1, True)
    claim = (
        f"N = {row.n}: trained {training}, {model} gets {points} points of macro-F1 over training"
        f" off topic, which has {number(row.mean_other, 3)}"
        f" (random labels: {number(1 / labels, 3)})"
    )
    if row.topics < 2:
        return f"{claim}, on one topic only."
    interval = f"95 % interval {interval_text(100 * row.low, 100 * row.high, 1)}"
    if row.topics < TOPICS or seeds < SEEDS:
        return (
            f"{claim} ({interval}; no p, as it takes {TOPICS} topics and {SEEDS} seeds:"
            f" {row.topics} and {seeds})."
        )
    p = f"{row.p_t_holm:.1e}" if row.p_t_holm < 0.0005 else number(row.p_t_holm, 4)
    test = f"p = {p} by paired t over {row.topics} topics after Holm"
    chance = "" if row.p_t_holm <= ALPHA else "; it may be chance"
    return f"{claim} ({interval}, {test}){chance}."


SUMMARY = (
    *decimals(0, "n"),
    *text_columns("arm"),
    *decimals(3, "mean", "mean_other"),
    *decimals(3, "difference", "low", "high", sign=True),
    *decimals(2, "hedges_g"),
    *decimals(0, "topics", "lower"),
    *decimals(4, "p_t", "p_t_holm", "p_wilcoxon", "p_wilcoxon_holm"),
)


def _topic_columns(gap: pd.DataFrame) -> tuple[Column, ...]:
    def score(name: str) -> Column:
        position = gap.columns.get_loc(name)  # by position: the name of an arm is a spec
        return Column(name, lambda row: number(row[position], 3, sign=name == "gap"))

    scores = [score(name) for name in gap.columns if name not in ("topic", "words", "n")]
    return (*decimals(0, "n", "topic"), *text_columns("words"), *scores)


def _coverage(
    results: pd.DataFrame,
    counts: Mapping[str, Any],
    left_out: Mapping[int, str],
    words: Mapping[int, str],
) -> str:
    """Tell which documents, topics and seeds were measured, and how many models collapsed."""
    drops = [f"{count:,} {reason}" for reason, count in counts["dropped"].items()]
    seeds = results["seed"].nunique()
    plural = "s" if seeds > 1 else ""
    lines = [
        f"{counts['kept']:,} of {counts['in']:,} documents;"
        f" left out: {', '.join(drops) or 'none'}.",
        f"Scores are means over {seeds} seed{plural};"
        " the epoch is chosen on validation texts off topic.",
    ]
    collapses = int(results["collapsed"].sum())
    if collapses:
        lines.append(
            f"{collapses} of {len(results)} models collapsed:"
            " they predict one label for nearly all texts."
        )
    for topic, reason in left_out.items():
        lines.append(f"Topic {topic} ({words[topic]}) is left out, {reason}.")
    return "\n".join(lines)
