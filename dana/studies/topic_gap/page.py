"""The page of a topic gap: scores by topic, n, arm and seed to differences with tests over topics, and to a report."""

import math
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dana.core.statistics import ALPHA, holm, mean_interval
from dana.report.page import Column, Report, Section, Table, decimals, each, interval_text, number, text_columns
from dana.report.svg import Figure
from dana.studies.topic_gap.settings import OFF, ON

if TYPE_CHECKING:
    from matplotlib.axes import Axes

P_VALUES = ("p_t", "p_wilcoxon")
DIGITS = 12  # differences of printed scores are equal where they differ by less: a tie is a tie


def paired_test(differences: np.ndarray) -> dict[str, float]:
    """Test whether differences, one a topic, are 0 in the mean; all but the mean is NaN of a single one.

    Args:
        differences: Shape (topics,).

    Returns:
        ``difference`` (their mean), ``std`` (ddof 1), ``low`` and ``high`` (95 % interval of the mean, by Student's t),
        ``hedges_g`` (mean over deviation, corrected for few topics; NaN of two, which say nothing of it), ``p_t``
        (two-sided, paired t-test) and ``p_wilcoxon`` (two-sided, signed-rank test).

    References:
        Hedges 1981, Distribution theory for Glass's estimator of effect size: the correction 1 − 3 / (4 df − 1).
        Wilcoxon 1945, Individual comparisons by ranking methods; zeros are left out.
    """
    from scipy.stats import ttest_1samp, wilcoxon

    values = np.round(np.asarray(differences, dtype=np.float64), DIGITS)
    interval, is_zero = mean_interval(values.tolist()), not values.any()
    hedges_g, p_t, p_wilcoxon = math.nan, math.nan, math.nan
    if values.size > 1:
        p_wilcoxon = 1.0 if is_zero else float(wilcoxon(values).pvalue)
        if np.ptp(values) > 0:  # else there is no deviation: neither an effect size nor a t
            p_t = float(ttest_1samp(values, 0.0).pvalue)
            # The correction would be 0 of one degree of freedom.
            correction = 1 - 3 / (4 * (values.size - 1) - 1) if values.size > 2 else math.nan
            hedges_g = correction * interval.mean / interval.std
        elif is_zero:
            p_t = 1.0
    test = {"difference": interval.mean, "std": interval.std, "low": interval.low, "high": interval.high}
    return {**test, "hedges_g": hedges_g, "p_t": p_t, "p_wilcoxon": p_wilcoxon}


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

    Columns: n, arm, other, topics, mean, mean_other, lower (topics on which the arm scores below the other), those of
    :func:`paired_test`, and both p after Holm over all rows.

    Args:
        results: As for :func:`gap_frame`.
    """
    arms = [arm for arm in dict.fromkeys(results["arm"]) if arm != OFF]
    rows = []
    for (n, own), arm in product(gap_frame(results).groupby("n"), arms):
        pairs = own.dropna(subset=[arm, OFF])
        differences = np.round((pairs[arm] - pairs[OFF]).to_numpy(), DIGITS)
        row = {"n": n, "arm": arm, "other": OFF, "topics": differences.size, "mean": pairs[arm].mean()}
        row |= {"mean_other": pairs[OFF].mean(), "lower": int((differences < 0).sum())}
        rows.append(row | paired_test(differences))
    summary = pd.DataFrame(rows)
    for name in P_VALUES if rows else ():
        known = summary[name].dropna()
        summary[f"{name}_holm"] = pd.Series(holm(known.tolist()), index=known.index).reindex(summary.index)
    return summary


def gap_report(
    task: str,
    model: str,
    results: pd.DataFrame,
    counts: Mapping[str, Any],
    left_out: Mapping[int, str],
    words: Mapping[int, str],
) -> Report:
    """All that the page says.

    Args:
        task: Name of the task.
        model: Folder or name of the checkpoint.
        results: A row a topic, n, arm and seed: topic, words, n, arm, seed, score, collapsed, train, dev, test.
        counts: Of the pool: in, kept, dropped by reason.
        left_out: Topics that are not measured, with the reason.
        words: The most probable words of each topic.
    """
    gap, summary = gap_frame(results), gap_summary(results)
    verdicts = [_verdict(row, Path(model).name) for row in each(summary)]
    caption = (
        "Macro-F1, mean over topics, of an arm and, as other, of training off topic; the difference, its 95 % interval "
        "by Student's t, Hedges' g, and on how many topics it is below 0; p as they are, and by Holm over all rows."
    )
    differences = Table("summary", caption, summary, SUMMARY)
    by_topic = Table("gap", "Means over seeds; the gap is on less off topic.", gap, _topic_columns(gap))
    measured = _measured(results, counts, left_out, words)
    sections = [
        Section("Differences from training off topic", "\n".join(verdicts), tables=(differences,)),
        Section("Macro-F1 by topic", "", tables=(by_topic,)),
        Section("What was measured", measured, tables=(Table("results", "", results),)),
    ]
    return Report(f"{task}: what a classifier loses where the topic changes", verdicts[0], [], sections)


def _verdict(row: Any, model: str) -> str:
    """What a row of the summary says."""
    trained, points = "on topic" if row.arm == ON else f"on {row.arm}", number(100 * row.difference, 1, True)
    claim = f"N = {row.n}: trained {trained}, {model} has {points} points of macro-F1 over training off topic"
    if row.topics < 2:
        return f"{claim}, on one topic, which says nothing of others."
    interval = interval_text(100 * row.low, 100 * row.high, 1)
    p = f"{row.p_t_holm:.1e}" if row.p_t_holm < 0.0005 else number(row.p_t_holm, 4)
    chance = "" if row.p_t_holm <= ALPHA else "; that may be chance"
    return f"{claim} (95 % interval {interval}, p = {p} by paired t over {row.topics} topics after Holm){chance}."


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
        at = gap.columns.get_loc(name)  # by place: an arm's spec is no name of an attribute
        return Column(name, lambda row: number(row[at], 3, sign=name == "gap"))

    scores = [score(name) for name in gap.columns if name not in ("topic", "words", "n")]
    return (*decimals(0, "n", "topic"), *text_columns("words"), *scores)


def _measured(
    results: pd.DataFrame, counts: Mapping[str, Any], left_out: Mapping[int, str], words: Mapping[int, str]
) -> str:
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in counts["dropped"].items()) or "none"
    seeds, collapsed = results["seed"].nunique(), int(results["collapsed"].sum())
    lines = [
        f"{counts['kept']:,} of {counts['in']:,} documents; left out: {dropped}.",
        f"Scores are means over {seeds} seed{'s' * (seeds > 1)}; the epoch is chosen on validation texts off topic.",
    ]
    if collapsed:
        lines.append(f"{collapsed} of {len(results)} models collapsed: nearly all texts got one label.")
    lines += [f"Topic {topic} ({words[topic]}) is left out, {reason}." for topic, reason in left_out.items()]
    return "\n".join(lines)


def keyword_curve(points: pd.DataFrame) -> Figure:
    """Draw the score by number of keywords, a line a run and N, over its score off topic, dashed (Figure 2).

    Args:
        points: A row a run, N and number of keywords: run, n, keywords, score, off.
    """

    def paint(axes: "Axes") -> None:
        for at, ((run, n), own) in enumerate(points.groupby(["run", "n"])):
            axes.plot(own["keywords"], own["score"], "o-", color=f"C{at}", label=f"{Path(str(run)).name}, N = {n}")
            axes.axhline(own["off"].iloc[0], color=f"C{at}", linestyle="--", linewidth=1)
        axes.set(xlabel="keywords of a synthetic text", ylabel="macro-F1, %", xscale="log")
        axes.legend()

    return Figure("figure2", "Macro-F1 by number of keywords; dashed: trained off topic alone.", (5, 3.6), paint)
