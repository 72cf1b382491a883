"""Draw the figures of a report from its tables.

They show scores, selected text, losses, scores by seed, frozen vectors and differences.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dana.report.page import each
from dana.report.svg import COLOURS, Figure
from dana.report.tables import TEXTS, arm_name, metric_name, pair_name
from dana.report.verdicts import BETTER, RIVALS, WORSE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colour and marker of an arm.
STYLES = {
    "base": ("base", "s"),
    "pool": ("pool", "^"),
    "random": ("random", "D"),
    "dana": ("dana", "o"),
}
# Used in turn for other arms.
OTHER_STYLES = [("dana", "o"), ("other", "v"), ("extra", "P"), ("task", "X")]
FOREGROUND = ("pool", "target")
MOST_BARS = 12
LOSSES = ("target_loss", "pool_loss")
FORGOTTEN = " (up: forgotten)"
LONGEST_NAME = 24
WIDTH = 4.6  # inches: text stays readable on a screen of 400 pixels
# Inches of a forest plot: one row, and the frame around all rows.
ROW = 0.27
FRAME = 0.8
LONGEST_LABEL = 28
# Line widths of an undecided and of a decided interval.
THIN = 1.2
THICK = 3.6


def arm_styles(arms: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Choose colour and marker of each arm, the same in all figures with the same arms.

    Args:
        arms: Names of the arms; ``adapted``, the only arm of a run, looks like ``dana``.
    """
    styles = {arm: STYLES.get("dana" if arm == "adapted" else arm) for arm in arms}
    unused = cycle([style for style in OTHER_STYLES if style not in styles.values()])
    for arm in sorted(arm for arm, style in styles.items() if style is None):
        styles[arm] = next(unused)
    colours_and_markers = {}
    for arm, style in styles.items():
        if style is not None:
            colour, marker = style
            colours_and_markers[arm] = (COLOURS[colour], marker)
    return colours_and_markers


def score_histogram(frame: pd.DataFrame) -> Figure:
    """Draw the histograms of scores of all groups on one axis.

    Args:
        frame: Frame of :func:`dana.report.tables.histogram`.
    """
    names = [name for name in FOREGROUND if name in frame]

    def paint(axes: "Axes") -> None:
        edges = np.append(frame["from"], frame["to"].iloc[-1])
        for name in names:
            values = frame[name].to_numpy()
            axes.stairs(values, edges, fill=True, color=COLOURS[name], alpha=0.22)
            axes.stairs(values, edges, color=COLOURS[name], linewidth=1.8, label=TEXTS[name])
        axes.set(xlabel="anomaly score (left: like the task)", ylabel="share of units")
        axes.yaxis.set_major_formatter(_percent())
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0)
        _legend(axes, len(names))

    texts = ", ".join(TEXTS[name] for name in names)
    alt = f"Histograms of the anomaly scores of {texts} text on one axis."
    return Figure("score-histogram", alt, (WIDTH, 2.9), paint)


def amount_curve(curve: pd.DataFrame, beta: float) -> Figure:
    """Draw the perplexity of held-out target text by the selected share of the pool.

    One line is for ranked and one for random text. A second axis shows how much of the selected
    text scores like held-out target text.

    Args:
        curve: One row per cut: :class:`dana.weighting.in_domain.Amount`.
        beta: The share that was chosen.
    """

    def paint(axes: "Axes") -> None:
        share = 100 * curve["share"]
        random = curve["perplexity_random"]
        best = curve["perplexity"]
        chosen = f"chosen: {100 * beta:.3g} %"
        axes.plot(share, random, color=COLOURS["random"], marker="D", label="random text")
        axes.plot(share, best, color=COLOURS["dana"], marker="o", label="best text")
        axes.axvline(100 * beta, color=COLOURS["base"], linestyle=":", label=chosen)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="% of units selected",
            ylabel="perplexity of held-out target text",
        )
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        lines, labels = axes.get_legend_handles_labels()
        if curve["in_domain"].notna().any():
            beside = axes.twinx()
            in_domain = 100 * curve["in_domain"]
            lines += beside.plot(share, in_domain, color=COLOURS["extra"], linestyle="--")
            beside.set(ylim=(0, 103), ylabel="% that scores like held-out target text")
            beside.spines["right"].set_visible(True)
            beside.patch.set_visible(False)
            labels.append("scores like held-out target text, %")
        axes.legend(
            lines, labels, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2
        )

    best = float(curve["share"].iloc[curve["perplexity"].argmin()])
    alt = f"Perplexity is lowest at {100 * best:.3g} % of the pool; {100 * beta:.3g} % is chosen"
    return Figure("beta", alt, (WIDTH, 3.4), paint)


def loss_curves(evaluations: pd.DataFrame, text: str) -> Figure:
    """Draw the change of the held-out loss over training tokens, one line per arm.

    The figures of both texts share their limits, so that gain and forgetting can be compared.
    Standard errors are in the table: they belong to a loss, while the change of a loss on the same
    tokens is more certain.

    Args:
        evaluations: ``evaluations`` of :class:`dana.report.run.RunFrames`.
        text: ``target`` or ``pool``.
    """
    rows = evaluations.sort_values("step", kind="stable")
    styles = arm_styles(dict.fromkeys(evaluations["arm"]))
    changes = {name: rows[name] - rows.groupby("arm")[name].transform("first") for name in LOSSES}
    every_change = np.append(np.concatenate(list(changes.values())), 0.0)
    low = np.nanmin(every_change)
    high = np.nanmax(every_change)
    margin = 0.06 * (high - low) or 0.1
    has_new_head = evaluations["pool_guess"].notna().any()

    def paint(axes: "Axes") -> None:
        from matplotlib.ticker import EngFormatter

        axes.axhline(0, color=COLOURS["rule"], linewidth=1, zorder=1)
        for arm, (colour, marker) in styles.items():
            mask = rows["arm"] == arm
            change = changes[f"{text}_loss"][mask]
            axes.plot(
                rows["tokens"][mask],
                change,
                color=colour,
                marker=marker,
                markersize=5,
                linewidth=1.8,
                label=arm_name(arm),
            )
        axes.set(
            xlabel="tokens seen",
            ylabel="change of the loss",
            ylim=(low - margin, high + margin),
        )
        title = f"{text} text, held out"
        if text == "pool" and not has_new_head:
            title += FORGOTTEN
        axes.set_title(title, fontsize=10)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        _legend(axes, 2, above=1.1)

    names = ", ".join(map(arm_name, styles))
    alt = (
        f"Change of the loss on held-out {text} text over tokens seen, a line for each of: {names}."
    )
    return Figure(f"loss-{text}", alt, (WIDTH, 3.0 + _legend_height(len(styles))), paint)


def seed_dots(results: pd.DataFrame, task: str) -> Figure:
    """Draw each seed's score as a dot and each arm's mean as a bar.

    Args:
        results: Frame of :func:`dana.report.tables.seed_table`.
        task: Name of the task.
    """
    task_results = results[results["task"] == task]
    arms = list(dict.fromkeys(task_results["arm"]))
    styles = arm_styles(arms)

    def paint(axes: "Axes") -> None:
        heights = list(range(len(arms) - 1, -1, -1))  # the first arm on top
        for arm, height in zip(arms, heights, strict=True):
            seeds = task_results[task_results["arm"] == arm]
            scores = seeds["score"]
            levels = np.full(len(scores), height)
            colour, marker = styles[arm]
            faces = np.where(seeds["degenerate"].to_numpy(bool), "none", colour)
            axes.scatter(scores, levels, s=34, c=faces, edgecolors=colour, marker=marker, zorder=3)
            ends = [height - 0.28, height + 0.28]
            axes.plot([scores.mean()] * 2, ends, color=colour, linewidth=2.4, zorder=2)
        name_rows(axes, heights, [arm_name(arm) for arm in arms])
        axes.set_ylim(-0.6, len(arms) - 0.4)
        metrics = " or ".join(metric_name(metric) for metric in task_results["metric"].unique())
        hollow = "; hollow: collapsed" if task_results["degenerate"].any() else ""
        axes.set_xlabel(f"{metrics} on {shorten(task)}\n(symbol: a seed{hollow}; bar: the mean)")

    alt = f"Scores on {task}, one dot per seed, for each of: {', '.join(map(arm_name, arms))}."
    return Figure(f"seeds-{_slug(task)}", alt, (WIDTH, 0.85 + 0.42 * len(arms)), paint)


def probe_curves(probes: pd.DataFrame, task: str) -> Figure:
    """Draw the score of frozen vectors over the number of labels, one line per arm.

    Args:
        probes: Frame of :func:`dana.report.tables.probe_table`.
        task: Name of the task.
    """
    rows = probes[(probes["task"] == task) & (probes["method"] == "linear")]
    styles = arm_styles(dict.fromkeys(rows["arm"]))

    def paint(axes: "Axes") -> None:
        for arm, (colour, marker) in styles.items():
            part = rows[rows["arm"] == arm].sort_values("labels", kind="stable")
            axes.plot(
                part["labels"],
                part["mean"],
                color=colour,
                marker=marker,
                markersize=5,
                linewidth=1.8,
                label=arm_name(arm),
            )
        axes.set_xscale("log")
        ticks = sorted(set(rows["labels"]))
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        metrics = " or ".join(metric_name(metric) for metric in rows["metric"].unique())
        axes.set(xlabel="labelled texts", ylabel=metrics)
        axes.set_title(f"frozen vectors on {shorten(task)}", fontsize=10)
        _legend(axes, 2, above=1.1)

    names = ", ".join(map(arm_name, styles))
    alt = (
        f"Score of frozen vectors on {task} over the number of labels, a line for each of: {names}."
    )
    return Figure(f"probe-{_slug(task)}", alt, (WIDTH, 3.0 + _legend_height(len(styles))), paint)


def _slug(task: str) -> str:
    """Return the name of a task as part of a figure's name; another for each task."""
    return "".join(
        letter if letter.isalnum() or letter == "-" else f"_{ord(letter):x}_" for letter in task
    )


def forest_rows(differences: pd.DataFrame) -> pd.DataFrame:
    """Select the rows of a forest plot: questions, and comparisons with base or random text.

    Rows without a number, or with a collapsed model, are left out.
    """
    is_wanted = differences["asked"] | differences["other"].isin(RIVALS)
    is_measured = (differences["n"] > 0) & (differences["collapsed"] == 0)
    return differences[is_wanted & is_measured]


def forest(differences: pd.DataFrame) -> Figure | None:
    """Draw a forest plot of mean differences with two-level intervals, grouped by task.

    Decided comparisons have a thick line and a filled symbol.

    Args:
        differences: Frame of :func:`dana.report.tables.difference_table`.

    Returns:
        The figure; None without rows.
    """
    rows = forest_rows(differences)
    if rows.empty:
        return None
    lines: list[tuple[str, Any]] = []  # label and row: a task's name without a row, then its rows
    for task, task_rows in rows.groupby("task", sort=False):
        lines.append((shorten(str(task), LONGEST_LABEL), None))
        for row in each(task_rows):
            lines.append((f"{shorten(pair_name(row), LONGEST_LABEL)}, n = {row.n}", row))
    styles = arm_styles({*rows["arm"], *rows["other"]})

    def paint(axes: "Axes") -> None:
        heights = range(len(lines) - 1, -1, -1)
        axes.axvline(0, color=COLOURS["ink"], linewidth=1, zorder=1)
        name_rows(axes, list(heights), [label for label, _ in lines])
        for height, (_, row), label in zip(heights, lines, axes.get_yticklabels(), strict=True):
            label.set_fontweight("bold" if row is None else "normal")
            if row is not None:
                _draw_row(axes, height, row, *styles[row.arm])
        axes.set_ylim(-0.6, len(lines) - 0.4)
        axes.locator_params(axis="x", nbins=4)
        metrics = " or ".join(metric_name(metric) for metric in rows["metric"].unique())
        axes.set_xlabel(f"difference in {metrics}\n(hollow: open or not asked)")

    descriptions = []
    for row in each(rows):
        pair = f"{arm_name(row.arm)} minus {arm_name(row.other)}"
        descriptions.append(f"{pair} on {row.task} {row.mean:+.3f}, {row.verdict}")
    alt = f"Differences with 95 % intervals: {'; '.join(descriptions)}."
    return Figure("differences", alt, (WIDTH, FRAME + ROW * len(lines)), paint)


def _draw_row(axes: "Axes", height: int, row: Any, colour: str, marker: str) -> None:
    """Draw the mean and the interval of one comparison."""
    is_decided = row.verdict in (BETTER, WORSE)
    if not math.isnan(row.low):
        width = THICK if is_decided else THIN
        axes.plot([row.low, row.high], [height, height], color=colour, linewidth=width, zorder=2)
    face = colour if is_decided else "none"
    axes.scatter([row.mean], [height], s=26, c=face, edgecolors=colour, marker=marker, zorder=3)


def name_rows(axes: "Axes", heights: Sequence[float] | np.ndarray, names: Sequence[str]) -> None:
    """Label rows at the left, in place of a y axis."""
    axes.set_yticks(list(heights), list(names))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _legend(axes: "Axes", columns: int, above: float = 1.0) -> None:
    """Put the legend above the axes."""
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, above), ncols=columns, handlelength=1.8)


def _legend_height(entries: int) -> float:
    """Return the height in inches of a legend with two columns."""
    return 0.22 * ((entries + 1) // 2)


def _percent() -> Any:
    """Return a formatter of shares as percentages."""
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(xmax=1, decimals=None)


def shorten(name: str, limit: int = LONGEST_NAME) -> str:
    """Shorten a name to its last characters if it is too long for a figure."""
    if len(name) <= limit:
        return name
    return "…" + name[1 - limit :]
