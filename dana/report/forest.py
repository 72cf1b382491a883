"""Forest plot: paired differences between arms, a row each with its interval, tasks one below the other."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from dana.report.figures import WIDTH, arm_styles, shorten
from dana.report.page import each
from dana.report.svg import COLOURS, Figure
from dana.report.tables import metric_name
from dana.report.verdicts import BETTER, RIVALS, WORSE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW, FRAME = 0.27, 0.8  # inches: a row, and what is around all of them
LONGEST = 22  # characters of a label
THIN, THICK = 1.2, 3.6  # of an interval that leaves the question open, and of one that decides it


def forest_rows(differences: pd.DataFrame) -> pd.DataFrame:
    """What is drawn: every arm against base and against random text, and the questions, where there is a number."""
    drawn = (differences["other"].isin(RIVALS) | differences["asked"]) & (differences["n"] > 0)
    return differences[drawn]


def forest(differences: pd.DataFrame) -> Figure | None:
    """Mean differences with their two-level intervals, a task after the other; None where there is none to draw.

    What the verdict decided has a thick stroke and a filled symbol.

    Args:
        differences: Frame of :func:`dana.report.outcomes.difference_table`.
    """
    rows = forest_rows(differences)
    if rows.empty:
        return None
    lines: list[Any] = []
    for task, own in rows.groupby("task", sort=False):
        lines += [str(task), *each(own)]

    styles = arm_styles({*rows["arm"], *rows["other"]})

    def paint(axes: "Axes") -> None:
        places = range(len(lines) - 1, -1, -1)
        axes.axvline(0, color=COLOURS["ink"], linewidth=1, zorder=1)
        for place, line in zip(places, lines, strict=True):
            if not isinstance(line, str):
                _draw_row(axes, place, line, *styles[line.arm])
        axes.set_yticks(list(places), [_label(line) for line in lines])
        for label, line in zip(axes.get_yticklabels(), lines, strict=True):
            label.set_fontweight("bold" if isinstance(line, str) else "normal")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_ylim(-0.6, len(lines) - 0.4)
        axes.locator_params(axis="x", nbins=4)
        metrics = " or ".join(metric_name(metric) for metric in rows["metric"].unique())
        axes.set_xlabel(f"difference in {metrics}\n(hollow: open or not asked)")

    alt = f"Differences with 95 % intervals: {'; '.join(_said(row) for row in each(rows))}."
    return Figure("differences", alt, (WIDTH, FRAME + ROW * len(lines)), paint)


def _draw_row(axes: "Axes", place: int, row: Any, own: str, marker: str) -> None:
    decided = row.verdict in (BETTER, WORSE)
    if row.low == row.low:
        axes.plot([row.low, row.high], [place, place], color=own, linewidth=THICK if decided else THIN, zorder=2)
    face = own if decided else "none"
    axes.scatter([row.mean], [place], s=26, c=face, edgecolors=own, marker=marker, zorder=3)


def _label(line: Any) -> str:
    if isinstance(line, str):
        return shorten(line, LONGEST)
    return f"{shorten(f'{line.arm} − {line.other}', LONGEST)}, n = {line.n}"


def _said(row: Any) -> str:
    return f"{row.arm} minus {row.other} on {row.task} {row.mean:+.3f}, {row.verdict}"
