"""The page of a comparison of selectors: its two tables to sections with tables and a figure."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dana.core.origin import package_versions
from dana.report.page import Column, Report, Section, Table, number, percent
from dana.report.svg import COLOURS, Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Cell = Callable[[Any], str]
ORACLE = "oracle"  # no contestant: the ceiling
ENDS = ("low", "high")
OF_KEPT = {
    "precision": "plants among the kept",
    "recall": "plants kept",
    "kl_reduction": "KL reduction (nats)",
    "perplexity": "perplexity of task text",
    "length_ratio": "length / pool's",
    "duplicate_share": "duplicates",
}


def comparison_report(name: str, table: pd.DataFrame, summary: pd.DataFrame) -> Report:
    """Everything the page says.

    Args:
        name: Of the comparison.
        table: ``comparison.csv``, budgets as text.
        summary: ``summary.csv``.
    """
    means = _means(summary) if "precision_at_r" in summary else None
    sections = [] if means is None else [_recall(summary, means)]
    budgets = [budget for budget in table["budget"].unique() if budget]
    sections += [_kept(table, budgets), _sources(table, budgets[0]), _overlap(table, budgets[0]), _cost(summary)]
    return Report(name, _verdict(summary, means), [], sections, package_versions())


def _means(summary: pd.DataFrame) -> pd.Series:
    """Mean precision at R of each selector over tasks and fit sizes, the best first; of those measured everywhere."""
    cells = summary.groupby("selector")["precision_at_r"].agg(["mean", "size"])
    whole = cells[cells["size"] == cells["size"].max()]["mean"]
    return whole.sort_values(ascending=False, kind="stable")


def _verdict(summary: pd.DataFrame, means: pd.Series | None) -> str:
    if means is None:
        return "The scores of runs, compared without planted text."
    tasks, fits = summary["task"].nunique(), summary["fit"].nunique()
    asked = means.drop(ORACLE, errors="ignore")
    over = f"over {tasks} task{'s' * (tasks > 1)} and {fits} fit size{'s' * (fits > 1)}"
    said = f"{asked.index[0]} finds most planted task text: mean precision at R {number(asked.iloc[0])} {over}"
    return f"{said}; next is {asked.index[1]} with {number(asked.iloc[1])}." if len(asked) > 1 else f"{said}."


def _recall(summary: pd.DataFrame, means: pd.Series) -> Section:
    cells = list(summary[["task", "fit"]].drop_duplicates().itertuples(index=False, name=None))
    rows = []
    for selector in means.index:
        own = summary[summary["selector"] == selector].set_index(["task", "fit"])
        found = {f"{task} {fit}": own["precision_at_r"].get((task, fit), np.nan) for task, fit in cells}
        interval = {f"{task} {fit} {end}": own[end].get((task, fit), np.nan) for task, fit in cells for end in ENDS}
        rows.append({"selector": selector, "mean": means[selector], **found, **interval})
    frame = pd.DataFrame(rows)
    columns = [Column("selector", lambda row: row[0], numeric=False), Column("mean", lambda row: number(row[1]))]
    for place, (task, fit) in enumerate(cells):
        at, low = 2 + place, 2 + len(cells) + 2 * place
        columns.append(Column(f"{task}, {fit}", _interval(at, low)))
    caption = (
        "Share of plants among the best R documents, R = number of plants: mean over fit seeds, with the 95 % interval "
        "over documents of the pool. Columns: task, and number of texts fitted on. The oracle is the ceiling."
    )
    said = f"A random order earns {number(float(summary['chance'].mean()))}."
    return Section(
        "Which selector finds text like the task's?",
        said,
        (_dots(summary, means),),
        (Table("planted_recall", caption, frame, tuple(columns)),),
    )


def _interval(at: int, low: int) -> Cell:
    return lambda row: f"{number(row[at])} ({number(row[low], 2)} to {number(row[low + 1], 2)})"


def _dots(summary: pd.DataFrame, means: pd.Series) -> Figure:
    """A dot a task and fit size for each selector, its interval a line, the mean a bar."""
    selectors = list(means.index[::-1])

    def paint(axes: "Axes") -> None:
        for height, selector in enumerate(selectors):
            own = summary[summary["selector"] == selector]
            heights = height + np.linspace(-0.25, 0.25, len(own)) if len(own) > 1 else np.array([float(height)])
            axes.hlines(heights, own["low"], own["high"], color=COLOURS["rule"], linewidth=1.2, zorder=1)
            colour = COLOURS["random" if selector == "random" else "base" if selector == ORACLE else "dana"]
            axes.scatter(own["precision_at_r"], heights, s=18, color=colour, zorder=3)
            axes.plot([means[selector]] * 2, [height - 0.35, height + 0.35], color=colour, linewidth=2.4, zorder=2)
        axes.set_yticks(range(len(selectors)), selectors)
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 1)
        axes.set_xlabel("precision at R (dot: a task and fit size, line: its interval; bar: the mean)")

    alt = f"Precision at R by task and fit size for each of: {', '.join(means.index)}."
    return Figure("planted-recall", alt, (6.2, 0.9 + 0.42 * len(selectors)), paint)


def _kept(table: pd.DataFrame, budgets: list[str]) -> Section:
    told = table[(table["detail"] == "") & table["budget"].isin(budgets)]
    frame = told.pivot_table(values="value", index=["budget", "selector"], columns="metric", sort=False).reset_index()
    columns = [
        Column("budget", lambda row: row.budget, numeric=False),
        Column("selector", lambda row: row.selector, numeric=False),
    ]
    for metric, said in OF_KEPT.items():
        if metric in frame:
            columns.append(Column(said, _number_of(metric)))
    ceiling = ""
    if "precision_ceiling" in frame:
        best = frame.groupby("budget", sort=False)[["precision_ceiling", "recall_ceiling"]].mean()
        ceiling = " ".join(
            f"At {budget} at most {percent(row['precision_ceiling'])} of a choice can be plants, and it can hold "
            f"{percent(row['recall_ceiling'])} of them at most."
            for budget, row in best.iterrows()
        )
    caption = (
        "Means over tasks, fit sizes and seeds. KL reduction: on hashed n-grams, how much nearer the kept text is to "
        "held-out task text than random text of as many documents. Perplexity: of held-out task text under a 3-gram "
        "model of the kept text."
    )
    return Section("What is kept at each budget?", ceiling, (), (Table("kept", caption, frame, tuple(columns)),))


def _number_of(name: str) -> Cell:
    return lambda row: number(getattr(row, name), 1 if name == "perplexity" else 3)


def _sources(table: pd.DataFrame, budget: str) -> Section:
    told = table[(table["metric"] == "source_share") & (table["budget"] == budget)]
    detail = told["detail"].where(~told["detail"].str.endswith("(planted)"), "planted")
    frame = told.assign(source=detail).groupby(["source", "selector"], sort=False)["value"].mean().unstack()
    frame = frame.sort_values(frame.columns[-1], ascending=False, kind="stable").reset_index()
    columns = [Column("source", lambda row: row[0], numeric=False)]
    columns += [Column(str(name), _percent_at(at)) for at, name in enumerate(frame.columns[1:], start=1)]
    caption = f"Share of the kept documents by source at {budget}, mean over tasks, fit sizes and seeds."
    return Section("Where does it come from?", "", (), (Table("sources", caption, frame, tuple(columns)),))


def _overlap(table: pd.DataFrame, budget: str) -> Section:
    told = table[(table["metric"] == "overlap") & (table["budget"] == budget)]
    question, said = "How alike are the choices?", "" if len(told) else "There is one selector."
    frame = told.pivot_table(values="value", index="selector", columns="detail", sort=False).reset_index()
    columns = [Column("selector", lambda row: row[0], numeric=False)]
    columns += [Column(str(name), _percent_at(at)) for at, name in enumerate(frame.columns[1:], start=1)]
    caption = f"Documents that both keep over those that either keeps, at {budget}; mean over tasks, fits and seeds."
    return Section(question, said, (), (Table("overlap", caption, frame, tuple(columns)),))


def _percent_at(at: int) -> Cell:
    return lambda row: percent(row[at])


def _cost(summary: pd.DataFrame) -> Section:
    question = "What does it cost?"
    if "fit_seconds" not in summary:
        return Section(question, "The scores were made elsewhere.")
    frame = summary.dropna(subset=["fit_seconds"]).groupby("selector", sort=False)
    costs = frame[["fit_seconds", "seconds_per_million"]].mean().reset_index()
    columns = (
        Column("selector", lambda row: row.selector, numeric=False),
        Column("fit (s)", lambda row: number(row.fit_seconds, 2)),
        Column("score a million documents (s)", lambda row: number(row.seconds_per_million, 0)),
    )
    caption = "CPU seconds, means over tasks and fit sizes; embeddings that were in the store already are not counted."
    return Section(question, "", (), (Table("cost", caption, costs, columns),))
