"""Tables' frames to figures: score histogram, kept share by source, loss curves, scores by seed."""

from collections.abc import Iterable
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dana.report.svg import COLOURS, Figure
from dana.report.tables import metric_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES = {"base": ("base", "s"), "general": ("general", "^"), "random": ("random", "D"), "dana": ("dana", "o")}
OTHER_STYLES = [("dana", "o"), ("other", "v"), ("planted", "P"), ("task", "X")]  # of arms of any other name, in turn
LABELS = {"task": "task, held out", "general": "general", "planted": "planted in general"}
FOREGROUND = ("general", "task", "planted")
MOST_BARS = 12
LOSSES = ("task_loss", "general_loss")
FORGOTTEN = " (up: forgotten)"
LONGEST_NAME = 24
WIDTH = 4.6  # inches: its text is still text on a screen of 400 pixels


def arm_styles(arms: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each arm; alike in all figures that show the same arms.

    Args:
        arms: Their names. A run with one arm calls it adapted, and shows it as dana's.
    """
    found = {arm: STYLES.get("dana" if arm == "adapted" else arm) for arm in arms}
    free = [style for style in OTHER_STYLES if style not in found.values()]
    others = cycle(free)
    for arm in sorted(arm for arm, style in found.items() if style is None):
        found[arm] = next(others)
    return {arm: (COLOURS[style[0]], style[1]) for arm, style in found.items() if style}


def score_histogram(frame: pd.DataFrame) -> Figure:
    """Outlines of the groups' scores on one axis.

    Args:
        frame: Of :func:`dana.report.tables.histogram`.
    """
    names = [name for name in FOREGROUND if name in frame]

    def paint(axes: "Axes") -> None:
        edges = np.append(frame["from"], frame["to"].iloc[-1])
        for name, style in zip(names, ("-", "-", "--"), strict=False):
            values = frame[name].to_numpy()
            axes.stairs(values, edges, fill=True, color=COLOURS[name], alpha=0.22)
            axes.stairs(values, edges, color=COLOURS[name], linewidth=1.8, linestyle=style, label=LABELS[name])
        axes.set(xlabel="anomaly score (left: like the task)", ylabel="share of units")
        axes.yaxis.set_major_formatter(_percent())
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0)
        _legend(axes, len(names))

    alt = f"Histograms of the anomaly scores of {', '.join(LABELS[name] for name in names)} text on one axis."
    return Figure("score-histogram", alt, (WIDTH, 2.9), paint)


def kept_bars(frame: pd.DataFrame) -> Figure:
    """Each source's share of the kept text as a bar, its share of the corpus as a tick across it.

    Args:
        frame: Of :func:`dana.report.tables.kept_table`; the first twelve sources are drawn.
    """
    shown = frame.head(MOST_BARS).iloc[::-1]

    def paint(axes: "Axes") -> None:
        places = np.arange(len(shown))
        planted = shown["source"].str.endswith("(planted)").to_numpy()
        bars = np.where(planted, COLOURS["planted"], COLOURS["dana"])
        axes.barh(places, shown["share_of_kept_characters"], height=0.62, color=bars, label="_kept")
        axes.scatter(
            shown["share_of_characters"],
            places,
            marker="|",
            s=230,
            linewidths=2,
            color=COLOURS["ink"],
            zorder=3,
        )
        axes.set_yticks(places, [shorten(source) for source in shown["source"]])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_formatter(_percent())
        axes.set_xlabel("bar: share of the kept text; tick: share of the corpus")
        axes.set_xlim(0)

    alt = f"Bars: the share of the kept text of {len(shown)} sources, beside their share of the corpus."
    return Figure("kept-by-source", alt, (WIDTH, 0.75 + 0.27 * len(shown)), paint)


def loss_curves(evaluations: pd.DataFrame, text: str) -> Figure:
    """Change of the held-out loss since the start over tokens seen, a line an arm.

    Both texts have the same heights, so that what was gained and what was forgotten compare. Standard errors are of a
    loss and not of its change, which is surer; they are in the table.

    Args:
        evaluations: Of :class:`dana.report.frames.RunFrames`.
        text: ``task`` or ``general``.
    """
    rows = evaluations.sort_values("step", kind="stable")
    styles = arm_styles(dict.fromkeys(evaluations["arm"]))
    changes = {name: rows[name] - rows.groupby("arm")[name].transform("first") for name in LOSSES}
    every = np.append(np.concatenate(list(changes.values())), 0.0)
    low, high = np.nanmin(every), np.nanmax(every)
    margin = 0.06 * (high - low) or 0.1

    def paint(axes: "Axes") -> None:
        axes.axhline(0, color=COLOURS["rule"], linewidth=1, zorder=1)
        for arm, (colour, marker) in styles.items():
            own = rows["arm"] == arm
            change = changes[f"{text}_loss"][own]
            axes.plot(rows["tokens"][own], change, color=colour, marker=marker, markersize=5, linewidth=1.8, label=arm)
        axes.set(xlabel="tokens seen", ylabel="change, nats a masked token", ylim=(low - margin, high + margin))
        axes.set_title(f"{text} text, held out{FORGOTTEN if text == 'general' else ''}", fontsize=10)
        axes.xaxis.set_major_formatter(_engineering())
        _legend(axes, 2, above=1.1)

    alt = f"Change of the loss on held-out {text} text over tokens seen, a line for each of: {', '.join(styles)}."
    return Figure(f"loss-{text}", alt, (WIDTH, 3.0 + 0.22 * ((len(styles) + 1) // 2)), paint)


def seed_dots(results: pd.DataFrame, task: str) -> Figure:
    """Every seed's score as a dot, each arm's mean as a bar; lines join a seed's arms, which are paired.

    Where arms were not made alike, each bears its group's letter, and no line joins two groups.

    Args:
        results: Of :func:`dana.report.outcomes.seed_table`.
        task: Which one.
    """
    own = results[results["task"] == task]
    arms = list(dict.fromkeys(own["arm"]))
    styles = arm_styles(arms)

    def paint(axes: "Axes") -> None:
        places = {arm: len(arms) - 1 - place for place, arm in enumerate(arms)}
        for _, seed in own.groupby(["group", "seed"]):
            ordered = seed.sort_values("arm", key=lambda arm: arm.map(places))
            axes.plot(ordered["score"], ordered["arm"].map(places), color=COLOURS["rule"], linewidth=0.8, zorder=1)
        for arm in arms:
            seeds = own[own["arm"] == arm]
            scores, collapsed = seeds["score"], seeds["degenerate"].to_numpy(bool)
            heights = np.full(len(scores), places[arm])
            colour, marker = styles[arm]
            filled = np.where(collapsed, "none", colour)
            axes.scatter(scores, heights, s=34, c=filled, edgecolors=colour, marker=marker, zorder=3)
            low, high = places[arm] - 0.28, places[arm] + 0.28
            axes.plot([scores.mean()] * 2, [low, high], color=colour, linewidth=2.4, zorder=2)
        axes.set_yticks(list(places.values()), [_grouped(own, arm) for arm in places])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(-0.6, len(arms) - 0.4)
        axes.spines["left"].set_visible(False)
        metrics = " or ".join(metric_name(metric) for metric in own["metric"].unique())
        hollow = "; hollow: collapsed" if own["degenerate"].any() else ""
        axes.set_xlabel(f"{metrics} on {shorten(task)}\n(symbol: a seed{hollow}; bar: the mean)")

    alt = f"Scores on {task}, a dot a seed, for each of: {', '.join(arms)}."
    return Figure(f"seeds-{_identifier(task)}", alt, (WIDTH, 0.85 + 0.42 * len(arms)), paint)


def _grouped(own: pd.DataFrame, arm: str) -> str:
    """An arm's name, with its group's letter where there are several."""
    letter = own.loc[own["arm"] == arm, "group"].iloc[0]
    return f"{arm} ({letter})" if own["group"].nunique() > 1 else arm


def _legend(axes: "Axes", columns: int, above: float = 1.0) -> None:
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, above), ncols=columns, handlelength=1.8)


def _percent() -> Any:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(xmax=1, decimals=None)


def _engineering() -> Any:
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="")


def shorten(name: str, most: int = LONGEST_NAME) -> str:
    """The end of a name, where it is too long for a figure."""
    return name if len(name) <= most else "…" + name[1 - most :]


def _identifier(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)
