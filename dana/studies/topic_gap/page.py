"""The page of a topic gap: its tables to Markdown that answers in words first, and a figure of on against off topic."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dana.core.statistics import ALPHA
from dana.report.page import each, markdown_text, number
from dana.report.svg import COLOURS, Figure
from dana.studies.topic_gap.settings import OFF, ON

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN_WORDS = 5
FIGURE = "topic_gap"
PAINTS = ("general", "random", "dana", "task", "planted", "other")
MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True)
class GapPage:
    """All that a page says.

    Attributes:
        task: Name of the task.
        model: Folder or name of the checkpoint.
        results: A row a topic, n, arm and seed.
        gap: Of :func:`dana.studies.topic_gap.tables.gap_frame`.
        summary: Of :func:`dana.studies.topic_gap.tables.gap_summary`.
        counts: Of the pool: in, kept, dropped by reason.
        left_out: Topics that are not measured, with the reason.
        words: The most probable words of each topic.
    """

    task: str
    model: str
    results: pd.DataFrame
    gap: pd.DataFrame
    summary: pd.DataFrame
    counts: Mapping[str, Any]
    left_out: Mapping[int, str]
    words: Mapping[int, str]

    def markdown(self) -> str:
        """The page."""
        title = f"# {markdown_text(self.task)}: what a classifier loses where the topic changes"
        parts = [title, *self.verdicts(), "## Differences from training off topic", self._summary()]
        parts += ["## Macro-F1 by topic", self._topics(), f"![{self.figure.alt}]({FIGURE}.svg)"]
        return "\n\n".join([*parts, "## What was measured", *self._measured()]) + "\n"

    def verdicts(self) -> list[str]:
        """A sentence an n and arm."""
        return [_verdict(row, Path(self.model).name) for row in each(self.summary)]

    @property
    def figure(self) -> Figure:
        """Each topic's score of every arm against its score off topic; its number stands at the highest."""
        arms = [arm for arm in dict.fromkeys(self.results["arm"]) if arm != OFF]
        sizes = list(dict.fromkeys(self.gap["n"]))

        def paint(axes: "Axes") -> None:
            ends = [self.gap[[OFF, *arms]].min().min() - 0.03, self.gap[[OFF, *arms]].max().max() + 0.03]
            axes.plot(ends, ends, color=COLOURS["rule"], linewidth=1, zorder=1)
            for place, (arm, n) in enumerate(product(arms, sizes)):
                own = self.gap[self.gap["n"] == n]
                painted = sizes.index(n) if len(sizes) > 1 else arms.index(arm)
                colour, marker = COLOURS[PAINTS[painted % len(PAINTS)]], MARKERS[arms.index(arm) % len(MARKERS)]
                label = f"{arm}, N = {n}"
                axes.scatter(own[OFF], own[arm], s=26, c=colour, marker=marker, zorder=3 + place, label=label)
            for topic, off, best in zip(self.gap["topic"], self.gap[OFF], self.gap[arms].max(axis=1), strict=True):
                axes.annotate(str(topic), (off, best), (4, 2), textcoords="offset points", fontsize=7)
            axes.set(xlabel="macro-F1, trained off topic", ylabel="macro-F1", xlim=ends, ylim=ends)
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))

        alt = f"Macro-F1 of {', '.join(arms)} against training off topic; a point a topic, above the line is better."
        return Figure(FIGURE, alt, (6.8, 4.2), paint)

    def _summary(self) -> str:
        head = ["N", "trained on", "macro-F1", "off topic", "difference", "95 % interval", "Hedges' g", "topics"]
        head += ["lower on", "p (t)", "p (t), Holm", "p (Wilcoxon)", "p (Wilcoxon), Holm"]
        rows = []
        for row in each(self.summary):
            cells = [str(row.n), row.arm, number(row.mean), number(row.mean_other), number(row.difference, 3, True)]
            cells += [f"{number(row.low)} to {number(row.high)}", number(row.hedges_g, 2), str(row.topics)]
            p_values = (row.p_t, row.p_t_holm, row.p_wilcoxon, row.p_wilcoxon_holm)
            rows.append([*cells, str(row.lower), *map(_p, p_values)])
        return _table(head, rows)

    def _topics(self) -> str:
        arms = list(dict.fromkeys(self.results["arm"]))
        has_gap = "gap" in self.gap
        head = ["N", "topic", "words", *arms, *(["gap"] if has_gap else [])]
        rows = []
        for row in self.gap.to_dict("records"):
            words = " ".join(str(row["words"]).split()[:SHOWN_WORDS])
            scores = [number(row[arm]) for arm in arms]
            rows.append([str(row["n"]), str(row["topic"]), words, *scores])
            if has_gap:
                rows[-1].append(number(row["gap"], 3, True))
        return _table(head, rows)

    def _measured(self) -> list[str]:
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in self.counts["dropped"].items()) or "none"
        sizes = "; ".join(
            f"N = {n}: {', '.join(f'{part} {own[part].iloc[0]:,}' for part in ('train', 'dev', 'test'))}"
            for n, own in self.results[self.results["arm"] == OFF].groupby("n")
        )
        seeds, collapsed = self.results["seed"].nunique(), int(self.results["collapsed"].sum())
        said = [
            f"{self.counts['kept']:,} of {self.counts['in']:,} documents; left out: {dropped}.",
            f"Texts of all labels: {sizes}. Scores are means over {seeds} seed{'s' * (seeds > 1)}; the epoch is chosen "
            "on validation texts off topic.",
        ]
        if collapsed:
            said.append(f"{collapsed} of {len(self.results)} models collapsed: nearly all texts got one label.")
        for topic, reason in self.left_out.items():
            words = " ".join(self.words[topic].split()[:SHOWN_WORDS])
            said.append(f"Topic {topic} ({words}) is left out, {reason}.")
        return [markdown_text(line) for line in said]


def _verdict(row: Any, model: str) -> str:
    """What a row of the summary says."""
    points, many = 100 * row.difference, f"{row.topics} topic{'s' * (row.topics > 1)}"
    if row.arm == ON:
        verb = "loses" if points >= 0 else "gains"
        said = f"trained off topic, {model} {verb} {number(abs(points), 1)} points of macro-F1"
    else:
        said = (
            f"trained on {row.arm}, {model} {'gains' if points >= 0 else 'loses'} {number(abs(points), 1)} points of "
        )
        said += "macro-F1 over training off topic"
    low, high = (row.low, row.high) if points >= 0 else (-row.high, -row.low)
    if row.topics < 2:
        return markdown_text(f"N = {row.n}: {said} on one topic, which says nothing of others.")
    how = f"95 % interval {number(100 * low, 1)} to {number(100 * high, 1)}, p {_p_in_words(row.p_t_holm)} by paired t "
    how += f"over {many} after Holm"
    chance = "" if row.p_t_holm <= ALPHA else "; that may be chance"
    return f"**{markdown_text(f'N = {row.n}: {said}')}** ({markdown_text(how)}){chance}."


def _p(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.1e}" if value < 0.0005 else f"{value:.4f}"


def _p_in_words(value: float) -> str:
    return "cannot be had" if math.isnan(value) else f"= {_p(value)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [list(head), ["---"] * len(head), *([markdown_text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
