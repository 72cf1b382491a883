"""Tables and page of a comparison: the measures of all cells to two CSV files, and to sections with tables."""

from pathlib import Path
from typing import Any

import pandas as pd

from dana.core.artifacts import read_json, write_text
from dana.core.logging import get_logger
from dana.core.registry import package_versions
from dana.report.page import Column, Report, Section, Table, decimals, number, percent, text_columns
from dana.stages.grid.grid import Grid
from dana.studies.comparison.measures import COST, MEASURES, RANKED, precision_interval
from dana.studies.comparison.planting import PLANTED
from dana.studies.comparison.settings import ORACLE

log = get_logger(__name__)

CSV, SUMMARY = "comparison.csv", "summary.csv"
CELL = ["task", "fit", "selector"]
COLUMNS = ["task", "fit", "seed", "selector", "budget", "metric", "detail", "value"]


def write_comparison(grid: Grid) -> Path:
    """Write ``comparison.csv``, a row a task, fit size, seed, selector, budget and metric, and ``summary.csv``.

    The first holds what :func:`dana.studies.comparison.measures.measure_stage` measured.
    The summary has a row a task, fit size and selector: means over seeds, and what fitting and scoring cost. ``low``
    and ``high`` are the 95 % interval of the mean P@R over documents of the pool
    (:func:`dana.studies.comparison.measures.precision_interval`). Seconds are of CPU time: the median fit; of scoring
    the least, because the first selector of a pool embeds it for all, and per million documents.

    Returns:
        The path of ``comparison.csv``.
    """
    tables, cells = [], []
    for cell in grid.cells:
        if cell.name.startswith("measure/"):
            folder, labels = Path(str(cell.settings["folder"])), cell.labels
            key: dict[str, Any] = {**labels, "fit": int(labels["fit"]), "seed": int(labels["seed"])}
            measures = pd.read_csv(folder / MEASURES, dtype={"budget": str}, keep_default_na=False)
            tables.append(measures.assign(**key))
            cost = folder.with_name(COST)
            ranked = pd.read_parquet(folder / RANKED)
            cells.append({**key, "documents": ranked, **(read_json(cost) if cost.is_file() else {})})
    table = pd.concat(tables, ignore_index=True)[COLUMNS]
    write_text(grid.folder / CSV, table.to_csv(index=False))
    write_text(grid.folder / SUMMARY, _summary(table, pd.DataFrame(cells)).to_csv(index=False))
    log.info("%-9s written  %s  (%d rows)", "compare", grid.folder / CSV, len(table))
    return grid.folder / CSV


def _summary(table: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    measures = table[table["detail"] == ""]
    measures = measures.assign(name=(measures["metric"] + "@" + measures["budget"]).str.removesuffix("@"))
    means = measures.pivot_table(values="value", index=CELL, columns="name", sort=False).reset_index()
    rows = []
    for cell, seeds in measured.groupby(CELL, sort=False):
        planted = seeds["documents"].iloc[0]["planted"].to_numpy()
        low, high = precision_interval([ranked["score"].to_numpy() for ranked in seeds["documents"]], planted)
        fitting, scoring = seeds["fit_seconds"].median(), 1e6 * seeds["score_seconds"].min() / planted.size
        rows.append((*cell, len(seeds), low, high, fitting, scoring))
    columns = [*CELL, "seeds", "low", "high", "fit_seconds", "seconds_per_million"]
    return means.merge(pd.DataFrame(rows, columns=columns), on=CELL)


def summary_text(comparison: Path) -> str:
    """What ``dana compare`` prints: precision at R by selector, task and fit size."""
    frame = pd.read_csv(comparison.with_name(SUMMARY))
    shown = frame.pivot_table(values="precision_at_r", index="selector", columns=["task", "fit"], sort=False)
    return f"precision_at_r, mean over seeds\n{shown.to_string(float_format='{:.3f}'.format)}"


def comparison_report(name: str, table: pd.DataFrame, summary: pd.DataFrame) -> Report:
    """Everything the page says.

    Args:
        name: Of the comparison.
        table: ``comparison.csv``, budgets as text.
        summary: ``summary.csv``.
    """
    budgets = [budget for budget in table["budget"].unique() if budget]
    means = summary.groupby("selector")["precision_at_r"].mean().sort_values(ascending=False, kind="stable")
    tasks, fits = summary["task"].nunique(), summary["fit"].nunique()
    best, *others = means.drop(ORACLE, errors="ignore").items()  # the oracle is no contestant: the ceiling
    over = f"over {tasks} task{'s' * (tasks > 1)} and {fits} fit size{'s' * (fits > 1)}"
    verdict = f"{best[0]} finds most planted task text: mean precision at R {number(best[1])} {over}"
    verdict += f"; next is {others[0][0]} with {number(others[0][1])}." if others else "."
    sections = [_recall(summary, means), _kept(table, budgets), _sources(table, budgets[0])]
    return Report(name, verdict, [], sections, package_versions())


def _recall(summary: pd.DataFrame, means: pd.Series) -> Section:
    costs = summary.groupby("selector")[["fit_seconds", "seconds_per_million"]].mean().reindex(means.index)
    frame = costs.assign(mean=means).reset_index()
    columns = (*text_columns("selector"), *decimals(3, "mean"), *decimals(2, "fit_seconds"))
    caption = (
        "Share of plants among the best R documents, R = number of plants: mean over tasks, fit sizes and seeds. The "
        "oracle is the ceiling. Cost: CPU seconds of a fit, and of scoring a million documents; embeddings that were "
        "in the store already are not counted."
    )
    recall = Table("planted_recall", caption, frame, (*columns, *decimals(0, "seconds_per_million")))
    caption = "The same by task and number of texts fitted on, with the 95 % interval over documents of the pool."
    columns = (*text_columns("task"), *decimals(0, "fit"), *text_columns("selector"))
    columns += (*decimals(3, "precision_at_r"), *decimals(2, "low", "high"))
    by_task = Table("planted_recall_by_task", caption, summary[[*CELL, "precision_at_r", "low", "high"]], columns)
    answer = f"A random order earns {number(float(summary['chance'].mean()))}."
    return Section("Which selector finds text like the task's?", answer, (), (recall, by_task))


def _kept(table: pd.DataFrame, budgets: list[str]) -> Section:
    measures = table[(table["detail"] == "") & table["budget"].isin(budgets)]
    frame = measures.pivot_table(values="value", index=["budget", "selector"], columns="metric", sort=False)
    ceilings = frame.groupby("budget", sort=False)[["precision_ceiling", "recall_ceiling"]].mean()
    answer = " ".join(
        f"At {budget} at most {percent(row['precision_ceiling'])} of a choice can be plants, and it can hold "
        f"{percent(row['recall_ceiling'])} of them at most."
        for budget, row in ceilings.iterrows()
    )
    caption = (
        "Means over tasks, fit sizes and seeds. Precision and recall are of the plants, length is relative to the "
        "pool's, perplexity that of held-out task text under a 3-gram model of the kept text."
    )
    columns = text_columns("budget", "selector") + decimals(3, "precision", "recall", "length_ratio", "perplexity")
    kept = Table("kept", caption, frame.reset_index(), columns)
    return Section("What is kept at each budget?", answer, (), (kept,))


def _sources(table: pd.DataFrame, budget: str) -> Section:
    shares = table[(table["metric"] == "source_share") & (table["budget"] == budget)]
    source = shares["detail"].where(~shares["detail"].str.endswith(PLANTED), "planted")
    frame = shares.assign(source=source).groupby(["source", "selector"], sort=False)["value"].mean().unstack()
    frame = frame.sort_values(frame.columns[-1], ascending=False, kind="stable").reset_index()
    caption = f"Share of the kept documents by source at {budget}, mean over tasks, fit sizes and seeds."

    def percentage(place: int) -> Column:  # by place, as a spec is no attribute of a row
        return Column(str(frame.columns[place]), lambda row: percent(row[place]))

    columns = (*text_columns("source"), *map(percentage, range(1, frame.shape[1])))
    return Section("Where does it come from?", "", (), (Table("sources", caption, frame, columns),))
