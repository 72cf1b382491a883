"""The page of a topic gap: scores by topic, n, arm and seed to differences with tests over topics, and to a report."""

import math
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dana.core.statistics import ALPHA, holm, mean_interval
from dana.report.page import Column, Report, Section, Table, each, number
from dana.report.svg import COLOURS, Figure
from dana.studies.topic_gap.settings import OFF, ON

if TYPE_CHECKING:
    from matplotlib.axes import Axes

P_VALUES = ("p_t", "p_wilcoxon")
DIGITS = 12  # differences of printed scores are equal where they differ by less: a tie is a tie
SHOWN_WORDS = 5
PAINTS = ("general", "random", "dana", "task", "planted", "other")
MARKERS = ("o", "s", "^", "D", "v", "P")


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
    caption = "Means over topics; interval of the difference by Student's t; p as they are, and by Holm over all rows."
    differences = Table("summary", caption, summary, SUMMARY)
    by_topic = Table("gap", "Means over seeds; the gap is on less off topic.", gap, _topic_columns(gap))
    measured = _measured(results, counts, left_out, words)
    sections = [
        Section("Differences from training off topic", "\n".join(verdicts), tables=(differences,)),
        Section("Macro-F1 by topic", "", (_scatter(results, gap),), (by_topic,)),
        Section("What was measured", measured, tables=(Table("results", "", results),)),
    ]
    title = f"{task}: what a classifier loses where the topic changes"
    return Report(title, verdicts[0], [], sections, figure_folder=".")


def _verdict(row: Any, model: str) -> str:
    """What a row of the summary says."""
    points, topics = 100 * row.difference, f"{row.topics} topic{'s' * (row.topics > 1)}"
    change = "loses" if (points >= 0) == (row.arm == ON) else "gains"
    what = f"{model} {change} {number(abs(points), 1)} points of macro-F1"
    trained = "off topic" if row.arm == ON else f"on {row.arm}"
    claim = f"N = {row.n}: trained {trained}, {what}{'' if row.arm == ON else ' over training off topic'}"
    if row.topics < 2:
        return f"{claim} on one topic, which says nothing of others."
    low, high = (row.low, row.high) if points >= 0 else (-row.high, -row.low)
    interval = f"95 % interval {number(100 * low, 1)} to {number(100 * high, 1)}"
    p = "p cannot be had" if math.isnan(row.p_t_holm) else f"p = {_p(row.p_t_holm)}"
    chance = "" if row.p_t_holm <= ALPHA else "; that may be chance"
    return f"{claim} ({interval}, {p} by paired t over {topics} after Holm){chance}."


def _p(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.1e}" if value < 0.0005 else f"{value:.4f}"


SUMMARY = (
    Column("N", lambda row: str(row.n)),
    Column("trained on", lambda row: row.arm, numeric=False),
    Column("macro-F1", lambda row: number(row.mean)),
    Column("off topic", lambda row: number(row.mean_other)),
    Column("difference", lambda row: number(row.difference, 3, True)),
    Column("95 % interval", lambda row: f"{number(row.low)} to {number(row.high)}"),
    Column("Hedges' g", lambda row: number(row.hedges_g, 2)),
    Column("topics", lambda row: str(row.topics)),
    Column("lower on", lambda row: str(row.lower)),
    Column("p (t)", lambda row: _p(row.p_t)),
    Column("p (t), Holm", lambda row: _p(row.p_t_holm)),
    Column("p (Wilcoxon)", lambda row: _p(row.p_wilcoxon)),
    Column("p (Wilcoxon), Holm", lambda row: _p(row.p_wilcoxon_holm)),
)


def _topic_columns(gap: pd.DataFrame) -> tuple[Column, ...]:
    def score(name: str) -> Column:
        at = gap.columns.get_loc(name)  # by place: an arm's spec is no name of an attribute
        return Column(name, lambda row: number(row[at], 3, sign=name == "gap"))

    return (
        Column("N", lambda row: str(row.n)),
        Column("topic", lambda row: str(row.topic)),
        Column("words", lambda row: _few(row.words), numeric=False),
        *(score(name) for name in gap.columns if name not in ("topic", "words", "n")),
    )


def _few(words: str) -> str:
    return " ".join(words.split()[:SHOWN_WORDS])


def _measured(
    results: pd.DataFrame, counts: Mapping[str, Any], left_out: Mapping[int, str], words: Mapping[int, str]
) -> str:
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in counts["dropped"].items()) or "none"
    parts = results[results["arm"] == OFF].groupby("n")[["train", "dev", "test"]].first()
    sizes = "; ".join(
        f"N = {n}: {', '.join(f'{part} {count:,}' for part, count in own.items())}" for n, own in parts.iterrows()
    )
    seeds, collapsed = results["seed"].nunique(), int(results["collapsed"].sum())
    lines = [
        f"{counts['kept']:,} of {counts['in']:,} documents; left out: {dropped}.",
        f"Texts of all labels: {sizes}. Scores are means over {seeds} seed{'s' * (seeds > 1)}; the epoch is chosen "
        "on validation texts off topic.",
    ]
    if collapsed:
        lines.append(f"{collapsed} of {len(results)} models collapsed: nearly all texts got one label.")
    lines += [f"Topic {topic} ({_few(words[topic])}) is left out, {reason}." for topic, reason in left_out.items()]
    return "\n".join(lines)


def _scatter(results: pd.DataFrame, gap: pd.DataFrame) -> Figure:
    """Each topic's score of every arm against its score off topic; its number stands at the highest."""
    arms = [arm for arm in dict.fromkeys(results["arm"]) if arm != OFF]
    sizes = list(dict.fromkeys(gap["n"]))

    def paint(axes: "Axes") -> None:
        ends = [gap[[OFF, *arms]].min().min() - 0.03, gap[[OFF, *arms]].max().max() + 0.03]
        axes.plot(ends, ends, color=COLOURS["rule"], linewidth=1, zorder=1)
        for place, (arm, n) in enumerate(product(arms, sizes)):
            own = gap[gap["n"] == n]
            painted = sizes.index(n) if len(sizes) > 1 else arms.index(arm)
            colour, marker = COLOURS[PAINTS[painted % len(PAINTS)]], MARKERS[arms.index(arm) % len(MARKERS)]
            label = f"{arm}, N = {n}"
            axes.scatter(own[OFF], own[arm], s=26, c=colour, marker=marker, zorder=3 + place, label=label)
        for topic, off, best in zip(gap["topic"], gap[OFF], gap[arms].max(axis=1), strict=True):
            axes.annotate(str(topic), (off, best), (4, 2), textcoords="offset points", fontsize=7)
        axes.set(xlabel="macro-F1, trained off topic", ylabel="macro-F1", xlim=ends, ylim=ends)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))

    alt = f"Macro-F1 of {', '.join(arms)} against training off topic; a point a topic, above the line is better."
    return Figure("topic_gap", alt, (6.8, 4.2), paint)


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
