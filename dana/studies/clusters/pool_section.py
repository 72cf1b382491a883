"""Clusters of a run's pool to a table, bars and sentences: which of them look like the task, and which are kept."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dana.report.collect import embedding_store, scores_folder, weight_folders
from dana.report.figures import MOST_BARS, WIDTH, shorten
from dana.report.frames import RunFrames
from dana.report.page import Column, Section, Table, each, number, percent
from dana.report.svg import COLOURS, Figure
from dana.studies.clusters.cluster_spread import read_spread, spread_finding, spread_table
from dana.studies.clusters.pool_clusters import read_pool_clusters

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNKNOWN_TASK = (
    "How the task's text falls into them is not known here: the vectors of its held-out units by the clusters' encoder "
    "are not stored."
)


def sections(run: RunFrames) -> list[Section]:
    """What a report says of the pool's clusters; nothing where it has none."""
    weights = weight_folders(run.path)
    first = next(iter(weights.values()), None)
    pool = read_pool_clusters(run.path, scores_folder(run.path), first, embedding_store(run.path))
    if pool is None:
        return []
    table, spread = pool_table(pool), read_spread(run.path, weights)
    is_weighed = run.selected is not None and "weight" in run.selected.units
    answer = [pool_finding(table, is_weighed), *([] if spread is None else [spread_finding(spread)])]
    tables = (table, None if spread is None else spread_table(spread))
    return [Section("What is the pool made of?", " ".join(answer), (pool_bars(table),), tables)]


def pool_table(pool: pd.DataFrame) -> Table:
    """A row a cluster, those that look most like the task first; without the task those that most is kept of.

    Args:
        pool: Of :func:`dana.studies.clusters.pool_clusters.read_pool_clusters`.
    """
    frame = pool.assign(share_of_units=pool["units"] / pool["units"].sum())
    for name in ("task_units", "kept"):
        frame[f"share_of_{name}"] = pool[name] / max(pool[name].sum(), 1e-300)
    frame["times_in_task"] = frame["share_of_task_units"] / frame["share_of_units"].clip(lower=1e-300)
    frame["share_of_its_units_kept"] = pool["kept"] / pool["units"].clip(lower=1)
    order = ["times_in_task", "share_of_kept", "units"]
    frame = frame.sort_values(order, ascending=False, kind="stable").reset_index(drop=True)
    columns = [
        Column("cluster", lambda row: f"{row.cluster}: {row.name}", numeric=False),
        Column("units", lambda row: number(row.units, 0)),
        Column("share of the pool", lambda row: percent(row.share_of_units)),
    ]
    if _is_known(frame, "task_units"):
        columns.append(Column("share of the task", lambda row: percent(row.share_of_task_units)))
        columns.append(Column("task over pool", lambda row: number(row.times_in_task, 1)))
    if _is_known(frame, "kept"):
        columns.append(Column("of its units kept", lambda row: percent(row.share_of_its_units_kept)))
        columns.append(Column("share of what is kept", lambda row: percent(row.share_of_kept)))
    caption = "Clusters by the words that set them apart; shares are of units. Kept is the sum of weights."
    if _is_known(frame, "task_units"):
        count = number(pool["task_units"].sum(), 0)
        caption += f" The task's: {count} distinct held-out units, each in its likeliest cluster."
    return Table("pool_clusters", caption, frame, tuple(columns), most=MOST_BARS)


def _is_known(frame: pd.DataFrame, name: str) -> bool:
    return bool(frame[name].notna().all() and frame[name].sum() > 0)


def pool_finding(table: Table, is_weighed: bool) -> str:
    """Sentences on which clusters look like the task, and how much of them is kept.

    Args:
        table: Of :func:`pool_table`.
        is_weighed: Whether the run has weights.
    """
    frame = table.frame
    said = [f"The pool falls into {len(frame)} clusters; clusters.html says what each is."]
    kept = _is_known(frame, "kept")
    if _is_known(frame, "task_units"):
        like = frame[frame["times_in_task"] > 1]
        named = ", ".join(repr(name) for name in like["name"].head(3)) + (" and others" if len(like) > 3 else "")
        holds = f"{percent(like['share_of_task_units'].sum())} of the task's held-out text"
        holds += f", {percent(like['share_of_units'].sum())} of the pool"
        holds += f" and {percent(like['share_of_kept'].sum())} of what is kept" if kept else ""
        if len(like):
            said.append(f"Where the task has a larger share than the pool ({named}), there is {holds}.")
    else:
        said.append(UNKNOWN_TASK)
    if kept:
        most = max(each(frame), key=lambda row: row.share_of_kept)
        said.append(
            f"The largest part of what is kept, {percent(most.share_of_kept)}, is of {most.name!r}: "
            f"{percent(most.share_of_its_units_kept)} of its units."
        )
    elif is_weighed:
        said.append("The weights keep nothing, or are of other units than the clusters.")
    return " ".join(said)


def pool_bars(table: Table) -> Figure:
    """A cluster's share of the pool as a tick, of what is kept as a bar, of the task as a circle, as far as known."""
    frame = table.frame.head(MOST_BARS).iloc[::-1]
    marks = {"tick": "pool"}
    if _is_known(table.frame, "kept"):
        marks = {"bar": "kept", **marks}
    if _is_known(table.frame, "task_units"):
        marks["circle"] = "task"

    def paint(axes: "Axes") -> None:
        from matplotlib.ticker import PercentFormatter

        places = np.arange(len(frame))
        if "bar" in marks:
            axes.barh(places, frame["share_of_kept"], height=0.62, color=COLOURS["dana"])
        shares = frame["share_of_units"]
        axes.scatter(shares, places, marker="|", s=230, linewidths=2, color=COLOURS["ink"], zorder=3)
        if "circle" in marks:
            axes.scatter(frame["share_of_task_units"], places, s=34, color=COLOURS["task"], zorder=4, clip_on=False)
        axes.set_yticks(places, [f"{row.cluster}: {shorten(row.name)}" for row in each(frame)])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=None))
        axes.set_xlabel(", ".join(f"{meaning} ({mark})" for mark, meaning in marks.items()))
        axes.set_xlim(0)

    said = ", ".join(marks.values())
    alt = f"Shares of {len(frame)} clusters in: {said}."
    return Figure("pool-clusters", alt, (WIDTH, 0.75 + 0.27 * len(frame)), paint)
