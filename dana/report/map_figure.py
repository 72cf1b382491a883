"""Map of task, general and kept text to a figure, a table of who lies nearer the task, and a sentence."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dana.report.figures import WIDTH
from dana.report.page import Column, Table, each, number, percent
from dana.report.svg import COLOURS, Figure
from dana.report.text_map import TextMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {"general": "general", "kept": "kept", "task": "task, held out"}
STYLES = {"general": ("general", ".", 26), "kept": ("dana", "^", 20), "task": ("task", "o", 20)}  # colour, marker, size


def map_figure(drawn: TextMap) -> Figure:
    """Units as points by the two principal components, task text on the left; no text is in it."""

    def paint(axes: "Axes") -> None:
        for name, (colour, marker, size) in STYLES.items():
            own = drawn.points[drawn.points["text"] == name]
            axes.scatter(own["x"], own["y"], s=size, marker=marker, c=COLOURS[colour], linewidths=0, label=NAMES[name])
        axes.set_aspect("equal", "datalim")
        axes.set(
            xlabel=f"first component ({percent(drawn.variance[0])} of the variance)",
            ylabel=f"second ({percent(drawn.variance[1])})",
        )
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, handletextpad=0.2)

    counts = drawn.points["text"].value_counts()
    shown = ", ".join(f"{counts[name]} {NAMES[name]}" for name in STYLES)
    return Figure("map", f"Map of units by two principal components of their vectors: {shown}.", (WIDTH, 4.0), paint)


def nearness_table(drawn: TextMap) -> Table:
    """A row a text: distance to the centre of the task's held-out units, and how many are nearer than general text."""
    found = {name: drawn.distances.loc[drawn.distances["text"] == name, "distance"] for name in STYLES}
    middle = float(np.median(found["general"]))
    rows = [
        {"text": name, "units": len(own), "median_distance": own.median(), "share_nearer": (own < middle).mean()}
        for name, own in found.items()
    ]
    columns = (
        Column("text", lambda row: NAMES[row.text], numeric=False),
        Column("units", lambda row: number(row.units, 0)),
        Column("median distance", lambda row: number(row.median_distance)),
        Column("nearer than the median general unit", lambda row: percent(row.share_nearer)),
    )
    caption = (
        "Cosine distance of a unit's vector to the centre of the task's held-out units, centred on general text; of a "
        f"sample, {percent(drawn.stored)} of which is stored. Kept units are drawn by weight. The map shows the two "
        "directions in which task and general text vary most, the distances are taken in all."
    )
    return Table("nearness", caption, pd.DataFrame(rows), columns)


def point_table(drawn: TextMap) -> Table:
    """A row a point of the map, for its file."""
    return Table("map", "Units by two principal components.", drawn.points)


def map_finding(table: Table) -> str:
    """How many kept units lie nearer the task than the median general unit."""
    rows = {row.text: row for row in each(table.frame)}
    return (
        f"{percent(rows['kept'].share_nearer)} of the kept units lie nearer to the centre of the task's held-out text "
        f"than the median general unit (50\N{NO-BREAK SPACE}% by chance); of that text itself "
        f"{percent(rows['task'].share_nearer)} do."
    )
