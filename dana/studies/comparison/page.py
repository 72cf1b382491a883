"""Collect the measures of a comparison in two CSV files and build its page."""

import math
from pathlib import Path
from typing import Any

import pandas as pd

from dana.core.artifacts import read_json, write_text
from dana.core.logging import get_logger
from dana.core.registry import package_versions
from dana.core.text_table import csv_text
from dana.report.page import Column, Report, Section, Table, decimals, number, percent, text_columns
from dana.stages.steps.run import Run
from dana.studies.comparison.measures import COST, MEASURES, RANKED, precision_interval
from dana.studies.comparison.planting import PLANTED
from dana.studies.comparison.settings import ORACLE

log = get_logger(__name__)

CSV = "comparison.csv"
SUMMARY = "summary.csv"
GROUP = ["task", "fit", "selector"]
COLUMNS = ["task", "fit", "seed", "selector", "budget", "metric", "detail", "value"]


def write_comparison(run: Run) -> Path:
    """Collect all measures in ``comparison.csv`` and their means in ``summary.csv``.

    ``comparison.csv`` has one row per task, fit size, seed, selector, budget and metric
    (:func:`dana.studies.comparison.measures.measure_stage`). ``summary.csv`` has one row per task,
    fit size and selector: means over seeds, ``low`` and ``high`` of
    :func:`dana.studies.comparison.measures.precision_interval`, and CPU seconds: the median of
    fitting, and of scoring the minimum, per million documents, because the first selector of a pool
    embeds it for all. They are missing where scoring was interrupted.

    Returns:
        The path of ``comparison.csv``.
    """
    tables = []
    costs = []
    for step in run.steps:
        if not step.name.startswith("measure/"):
            continue
        folder = Path(str(step.settings["folder"]))
        labels = step.labels
        key: dict[str, Any] = {**labels, "fit": int(labels["fit"]), "seed": int(labels["seed"])}
        measures = pd.read_csv(folder / MEASURES, dtype={"budget": str}, keep_default_na=False)
        tables.append(measures.assign(**key))
        cost = {"fit_seconds": math.nan, "score_seconds": math.nan}
        cost_file = folder.with_name(COST)  # the oracle has none, nor has an interrupted selector
        if cost_file.is_file():
            cost = read_json(cost_file)
        costs.append({**key, "documents": pd.read_parquet(folder / RANKED), **cost})
    table = pd.concat(tables, ignore_index=True)[COLUMNS]
    write_text(run.folder / CSV, csv_text(table))
    write_text(run.folder / SUMMARY, csv_text(_summary(table, pd.DataFrame(costs))))
    log.info("%-9s wrote %s  (%d rows)", "compare", run.folder / CSV, len(table))
    return run.folder / CSV


def _summary(table: pd.DataFrame, costs: pd.DataFrame) -> pd.DataFrame:
    """Average the measures over seeds, with intervals and costs; see :func:`write_comparison`.

    Args:
        table: ``comparison.csv``.
        costs: One row per task, fit size, seed and selector: documents (its table of documents),
            fit_seconds, score_seconds.
    """
    measures = table[table["detail"] == ""]
    names = (measures["metric"] + "@" + measures["budget"]).str.removesuffix("@")
    measures = measures.assign(name=names)
    means = measures.pivot_table(values="value", index=GROUP, columns="name", sort=False)
    means = means.reset_index()
    rows = []
    for group, seeds in costs.groupby(GROUP, sort=False):
        is_plant = seeds["documents"].iloc[0]["planted"].to_numpy()
        scores = [documents["score"].to_numpy() for documents in seeds["documents"]]
        low, high = precision_interval(scores, is_plant)
        fit_seconds = seeds["fit_seconds"].median()
        seconds_per_million = 1e6 * seeds["score_seconds"].min() / is_plant.size
        rows.append((*group, len(seeds), low, high, fit_seconds, seconds_per_million))
    columns = [*GROUP, "seeds", "low", "high", "fit_seconds", "seconds_per_million"]
    return means.merge(pd.DataFrame(rows, columns=columns), on=GROUP)


def summary_text(comparison: Path) -> str:
    """Format precision at R by selector, task and fit size."""
    frame = pd.read_csv(comparison.with_name(SUMMARY), keep_default_na=False, na_values=[""])
    table = frame.pivot_table(
        values="precision_at_r", index="selector", columns=["task", "fit"], sort=False
    )
    return f"precision_at_r, mean over seeds\n{table.to_string(float_format='{:.3f}'.format)}"


def comparison_report(name: str, table: pd.DataFrame, summary: pd.DataFrame) -> Report:
    """Build the page.

    Args:
        name: Name of the comparison.
        table: ``comparison.csv``, with budgets as text.
        summary: ``summary.csv``.
    """
    budgets = [budget for budget in table["budget"].unique() if budget]
    means = summary.groupby("selector")["precision_at_r"].mean()
    means = means.sort_values(ascending=False, kind="stable")
    sections = [_recall(summary, means), _budgets(table, budgets), _sources(table, budgets[0])]
    return Report(name, _verdict(summary, means), [], sections, package_versions())


def _verdict(summary: pd.DataFrame, means: pd.Series) -> str:
    """Name the selectors with the highest mean precision, of `means`, and the next."""
    # The oracle is the ceiling, not a selector.
    (best, precision), *others = means.drop(ORACLE, errors="ignore").items()
    tasks = _count_of(summary["task"].nunique(), "task")
    fits = _count_of(summary["fit"].nunique(), "fit size")
    verdict = (
        f"{best} finds the most planted target text: mean precision at R {number(precision)}"
        f" over {tasks} and {fits}"
    )
    if not others:
        return f"{verdict}."
    second, second_precision = others[0]
    return f"{verdict}; next is {second} with {number(second_precision)}."


def _count_of(count: int, noun: str) -> str:
    return f"{count} {noun}s" if count > 1 else f"{count} {noun}"


def _recall(summary: pd.DataFrame, means: pd.Series) -> Section:
    costs = summary.groupby("selector")[["fit_seconds", "seconds_per_million"]].mean()
    frame = costs.reindex(means.index).assign(mean=means).reset_index()
    columns = (
        *text_columns("selector"),
        *decimals(3, "mean"),
        *decimals(2, "fit_seconds"),
        *decimals(0, "seconds_per_million"),
    )
    caption = (
        "Share of plants among the best R documents, R = number of plants: mean over tasks, fit"
        " sizes and seeds. The oracle is the ceiling. Cost: CPU seconds of a fit, and of scoring a"
        " million documents, without cached embeddings."
    )
    recall = Table("planted_recall", caption, frame, columns)
    frame = summary[[*GROUP, "precision_at_r", "low", "high"]]
    columns = (
        *text_columns("task"),
        *decimals(0, "fit"),
        *text_columns("selector"),
        *decimals(3, "precision_at_r"),
        *decimals(2, "low", "high"),
    )
    caption = (
        "By task and number of texts fitted on, with the 95 % interval over documents of the pool."
    )
    by_task = Table("planted_recall_by_task", caption, frame, columns)
    answer = f"A random order gets {number(float(summary['chance'].mean()))}."
    return Section("Which selector finds text like the task's?", answer, (), (recall, by_task))


def _budgets(table: pd.DataFrame, budgets: list[str]) -> Section:
    measures = table[(table["detail"] == "") & table["budget"].isin(budgets)]
    frame = measures.pivot_table(
        values="value", index=["budget", "selector"], columns="metric", sort=False
    )
    ceilings = frame.groupby("budget", sort=False)[["precision_ceiling", "recall_ceiling"]].mean()
    sentences = []
    for budget, row in ceilings.iterrows():
        precision = percent(row["precision_ceiling"])
        recall = percent(row["recall_ceiling"])
        sentences.append(
            f"At {budget}, precision is at most {precision} and recall at most {recall}."
        )
    caption = (
        "Means over tasks, fit sizes and seeds. Precision and recall of the plants, length relative"
        " to the pool's, perplexity of held-out target text under a 3-gram model of the selected"
        " text."
    )
    columns = (
        *text_columns("budget", "selector"),
        *decimals(3, "precision", "recall", "length_ratio", "perplexity"),
    )
    amounts = Table("selected", caption, frame.reset_index(), columns)
    return Section("What is selected at each budget?", " ".join(sentences), (), (amounts,))


def _sources(table: pd.DataFrame, budget: str) -> Section:
    shares = table[(table["metric"] == "source_share") & (table["budget"] == budget)]
    source = shares["detail"].where(~shares["detail"].str.endswith(PLANTED), "planted")
    by_source = shares.assign(source=source).groupby(["source", "selector"], sort=False)
    frame = by_source["value"].mean().unstack()
    frame = frame.sort_values(frame.columns[-1], ascending=False, kind="stable").reset_index()
    caption = (
        f"Share of the selected documents by source at {budget}, mean over tasks, fit sizes and"
        " seeds."
    )

    def percentage(column: int) -> Column:  # by position: the name of a column is a spec
        return Column(str(frame.columns[column]), lambda row: percent(row[column]))

    columns = (*text_columns("source"), *map(percentage, range(1, frame.shape[1])))
    table_of_sources = Table("sources", caption, frame, columns)
    return Section("Where does it come from?", "", (), (table_of_sources,))
