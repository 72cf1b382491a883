"""Tables and page of a comparison: the measures of all cells to two CSV files, a figure, and sections with tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from dana.core.artifacts import read_json, read_manifest, write_text
from dana.core.logging import get_logger
from dana.core.registry import package_versions
from dana.report.page import Column, Report, Section, Table, number, percent
from dana.report.svg import COLOURS, Figure
from dana.stages.grid.grid import Grid
from dana.studies.comparison.measures import COST, MEASURES, RANKED, best_documents, precision_interval
from dana.studies.comparison.settings import ORACLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

log = get_logger(__name__)

CSV, SUMMARY = "comparison.csv", "summary.csv"
KEY = ["task", "fit", "seed", "selector"]
COLUMNS = [*KEY, "budget", "metric", "detail", "value"]
CELL = ["task", "fit", "selector"]
OF_KEPT = {
    "precision": "plants among the kept",
    "recall": "plants kept",
    "kl_reduction": "KL reduction (nats)",
    "perplexity": "perplexity of task text",
    "length_ratio": "length / pool's",
    "duplicate_share": "duplicates",
}


@dataclass(frozen=True)
class Measured:
    """One measured selector, read back.

    Attributes:
        task: Its name.
        fit: Texts that were fitted on.
        seed: Of the fit.
        selector: Its spec.
        pool: Fingerprint of the pool.
        documents: A row a document of the pool: score, planted, words.
        cost: ``cost.json``; empty where scores were made elsewhere.
    """

    task: str
    fit: int
    seed: int
    selector: str
    pool: str
    documents: pd.DataFrame
    cost: dict[str, float]

    def kept(self, budget: str) -> set[int]:
        """Rows of the documents that are kept."""
        scores, words = (self.documents[name].to_numpy() for name in ("score", "words"))
        return set(best_documents(scores, words, budget).tolist())


def write_comparison(grid: Grid) -> Path:
    """Write ``comparison.csv``, a row a task, fit size, seed, selector, budget and metric, and ``summary.csv``.

    Besides what :func:`dana.studies.comparison.measures.measure_stage` found: ``overlap``, the Jaccard index of the
    documents that two selectors keep at one budget, with the other selector as its detail.

    The summary has a row a task, fit size and selector: means over seeds, and what fitting and scoring cost. ``low``
    and ``high`` are the 95 % interval of the mean P@R over documents of the pool
    (:func:`dana.studies.comparison.measures.precision_interval`). Seconds are of CPU time: the median fit; of scoring
    the least, because the first selector of a pool embeds it for all, and per million documents.

    Returns:
        The path of ``comparison.csv``.
    """
    tables: list[pd.DataFrame] = []
    measured: list[Measured] = []
    for cell in grid.cells:
        if cell.name.startswith("measure/"):
            folder = Path(str(cell.settings["folder"]))
            key = (cell.labels["task"], int(cell.labels["fit"]), int(cell.settings["seed"]), cell.labels["selector"])
            measures = pd.read_csv(folder / MEASURES, dtype={"budget": str}, keep_default_na=False)
            measures[KEY] = key
            tables.append(measures[COLUMNS])
            documents = pq.read_table(folder / RANKED, columns=["score", "planted", "words"]).to_pandas()
            cost = folder.with_name(COST)
            pool = read_manifest(folder)["depends_on"]["pool"]
            measured.append(Measured(*key, pool, documents, read_json(cost) if cost.is_file() else {}))
    table = pd.concat(tables, ignore_index=True)
    overlaps = pd.DataFrame(_overlaps(measured, [budget for budget in table["budget"].unique() if budget]))
    whole = pd.concat([table, overlaps.reindex(columns=COLUMNS)], ignore_index=True)
    write_text(grid.folder / CSV, whole.to_csv(index=False))
    write_text(grid.folder / SUMMARY, _summary(table, measured).to_csv(index=False))
    log.info("%-9s written  %s  (%d rows)", "compare", grid.folder / CSV, len(whole))
    return grid.folder / CSV


def _overlaps(measured: list[Measured], budgets: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of the Jaccard index of what two selectors keep, both ways, for each pool, fit, seed and budget."""
    for one, other in combinations(measured, 2):
        if (one.task, one.fit, one.seed, one.pool) == (other.task, other.fit, other.seed, other.pool):
            about = {"task": one.task, "fit": one.fit, "seed": one.seed, "metric": "overlap"}
            for budget in budgets:
                kept, others = one.kept(budget), other.kept(budget)
                about |= {"budget": budget, "value": len(kept & others) / len(kept | others)}
                yield {**about, "selector": one.selector, "detail": other.selector}
                yield {**about, "selector": other.selector, "detail": one.selector}


def _summary(table: pd.DataFrame, measured: list[Measured]) -> pd.DataFrame:
    rows = []
    for cell in dict.fromkeys((one.task, one.fit, one.selector) for one in measured):
        seeds = [one for one in measured if (one.task, one.fit, one.selector) == cell]
        row: dict[str, Any] = {**dict(zip(CELL, cell, strict=True)), "seeds": len(seeds)}
        measures = table[(table[CELL] == list(cell)).all(axis=1) & (table["detail"] == "")]
        names = (measures["metric"] + "@" + measures["budget"]).str.removesuffix("@")
        row |= {str(name): value for name, value in measures.groupby(names, sort=False)["value"].mean().items()}
        if (planted := seeds[0].documents["planted"].to_numpy()).any():
            scores = [one.documents["score"].to_numpy() for one in seeds]
            row["low"], row["high"] = precision_interval(scores, planted)
        if costs := [one.cost for one in seeds if one.cost]:
            row["fit_seconds"] = float(np.median([cost["fit_seconds"] for cost in costs]))
            row["seconds_per_million"] = 1e6 * min(cost["score_seconds"] for cost in costs) / len(planted)
        rows.append(row)
    return pd.DataFrame(rows)


def summary_text(comparison: Path) -> str:
    """What ``dana compare`` prints: precision at R (without plants, the divergence) by selector, task and fit size."""
    frame = pd.read_csv(comparison.with_name(SUMMARY))
    metric = "precision_at_r" if "precision_at_r" in frame else str(frame.filter(like="kl_reduction").columns[0])
    shown = frame.pivot_table(values=metric, index="selector", columns=["task", "fit"], sort=False)
    return f"{metric}, mean over seeds\n{shown.to_string(float_format='{:.3f}'.format)}"


def comparison_report(name: str, table: pd.DataFrame, summary: pd.DataFrame) -> Report:
    """Everything the page says.

    Args:
        name: Of the comparison.
        table: ``comparison.csv``, budgets as text.
        summary: ``summary.csv``.
    """
    budgets = [budget for budget in table["budget"].unique() if budget]
    sections = [_kept(table, budgets), _sources(table, budgets[0]), _overlap(table, budgets[0]), _cost(summary)]
    verdict = "The scores of runs, compared without planted text."
    if "precision_at_r" in summary:
        # Of each selector over tasks and fit sizes, the best first; of those measured everywhere.
        cells = summary.groupby("selector")["precision_at_r"].agg(["mean", "size"])
        means = cells[cells["size"] == cells["size"].max()]["mean"].sort_values(ascending=False, kind="stable")
        tasks, fits = summary["task"].nunique(), summary["fit"].nunique()
        best, *others = means.drop(ORACLE, errors="ignore").items()  # the oracle is no contestant: the ceiling
        over = f"over {tasks} task{'s' * (tasks > 1)} and {fits} fit size{'s' * (fits > 1)}"
        verdict = f"{best[0]} finds most planted task text: mean precision at R {number(best[1])} {over}"
        verdict += f"; next is {others[0][0]} with {number(others[0][1])}." if others else "."
        sections.insert(0, _recall(summary, means))
    return Report(name, verdict, [], sections, package_versions())


def _recall(summary: pd.DataFrame, means: pd.Series) -> Section:
    wide = summary.pivot(index="selector", columns=["task", "fit"], values=["precision_at_r", "low", "high"])
    frame = means.rename("mean").reset_index()
    columns = [Column("selector", lambda row: row[0], numeric=False), Column("mean", lambda row: number(row[1]))]
    for task, fit in summary[["task", "fit"]].drop_duplicates().itertuples(index=False, name=None):
        for metric, end in (("precision_at_r", ""), ("low", " low"), ("high", " high")):
            frame[f"{task} {fit}{end}"] = wide[metric, task, fit].reindex(means.index).to_numpy()
        columns.append(_interval_column(f"{task}, {fit}", len(frame.columns) - 3))
    caption = (
        "Share of plants among the best R documents, R = number of plants: mean over fit seeds, with the 95 % interval "
        "over documents of the pool. Columns: task, and number of texts fitted on. The oracle is the ceiling."
    )
    answer = f"A random order earns {number(float(summary['chance'].mean()))}."
    table = Table("planted_recall", caption, frame, tuple(columns))
    return Section("Which selector finds text like the task's?", answer, (_dots(summary, means),), (table,))


def _interval_column(header: str, at: int) -> Column:
    """A number with the two ends of its interval, which stand behind it in the row."""
    return Column(header, lambda row: f"{number(row[at])} ({number(row[at + 1], 2)} to {number(row[at + 2], 2)})")


def _dots(summary: pd.DataFrame, means: pd.Series) -> Figure:
    """A dot a task and fit size for each selector, its interval a line, the mean a bar."""
    selectors = list(means.index[::-1])

    def paint(axes: "Axes") -> None:
        for height, selector in enumerate(selectors):
            cells = summary[summary["selector"] == selector]
            heights = height + np.linspace(-0.25, 0.25, len(cells)) if len(cells) > 1 else np.array([float(height)])
            axes.hlines(heights, cells["low"], cells["high"], color=COLOURS["rule"], linewidth=1.2, zorder=1)
            colour = COLOURS["random" if selector == "random" else "base" if selector == ORACLE else "dana"]
            axes.scatter(cells["precision_at_r"], heights, s=18, color=colour, zorder=3)
            axes.plot([means[selector]] * 2, [height - 0.35, height + 0.35], color=colour, linewidth=2.4, zorder=2)
        axes.set_yticks(range(len(selectors)), selectors)
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 1)
        axes.set_xlabel("precision at R (dot: a task and fit size, line: its interval; bar: the mean)")

    alt = f"Precision at R by task and fit size for each of: {', '.join(means.index)}."
    return Figure("planted-recall", alt, (6.2, 0.9 + 0.42 * len(selectors)), paint)


def _kept(table: pd.DataFrame, budgets: list[str]) -> Section:
    measures = table[(table["detail"] == "") & table["budget"].isin(budgets)]
    frame = measures.pivot_table(values="value", index=["budget", "selector"], columns="metric", sort=False)
    frame = frame.reset_index()
    columns = [
        Column("budget", lambda row: row.budget, numeric=False),
        Column("selector", lambda row: row.selector, numeric=False),
    ]
    columns += [_measure_column(metric, header) for metric, header in OF_KEPT.items() if metric in frame]
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


def _measure_column(metric: str, header: str) -> Column:
    return Column(header, lambda row: number(getattr(row, metric), 1 if metric == "perplexity" else 3))


def _sources(table: pd.DataFrame, budget: str) -> Section:
    shares = table[(table["metric"] == "source_share") & (table["budget"] == budget)]
    source = shares["detail"].where(~shares["detail"].str.endswith("(planted)"), "planted")
    frame = shares.assign(source=source).groupby(["source", "selector"], sort=False)["value"].mean().unstack()
    frame = frame.sort_values(frame.columns[-1], ascending=False, kind="stable").reset_index()
    caption = f"Share of the kept documents by source at {budget}, mean over tasks, fit sizes and seeds."
    return Section("Where does it come from?", "", (), (_percentages("sources", caption, frame),))


def _overlap(table: pd.DataFrame, budget: str) -> Section:
    overlaps = table[(table["metric"] == "overlap") & (table["budget"] == budget)]
    frame = overlaps.pivot_table(values="value", index="selector", columns="detail", sort=False).reset_index()
    caption = f"Documents that both keep over those that either keeps, at {budget}; mean over tasks, fits and seeds."
    answer = "" if len(overlaps) else "There is one selector."
    return Section("How alike are the choices?", answer, (), (_percentages("overlap", caption, frame),))


def _percentages(name: str, caption: str, frame: pd.DataFrame) -> Table:
    """A table whose first column names the row, and all others are shares."""

    def percent_column(header: str, at: int) -> Column:
        return Column(header, lambda row: percent(row[at]))

    columns = [percent_column(str(header), at) for at, header in enumerate(frame.columns[1:], start=1)]
    first = Column(str(frame.columns[0]), lambda row: row[0], numeric=False)
    return Table(name, caption, frame, (first, *columns))


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
