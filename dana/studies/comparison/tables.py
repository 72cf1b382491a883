"""Tables of a comparison: the measures of all cells to one tidy CSV, and to a summary with intervals over documents."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from dana.core.artifacts import read_json, read_manifest, write_text
from dana.core.logging import get_logger
from dana.stages.grid.cell import Cell
from dana.stages.grid.grid import Grid
from dana.studies.comparison.measure import COST, MEASURES, RANKED
from dana.studies.comparison.recall import DocumentBudget, precision_interval

log = get_logger(__name__)

CSV, SUMMARY = "comparison.csv", "summary.csv"
COLUMNS = ["task", "fit", "seed", "selector", "budget", "metric", "detail", "value"]


@dataclass(frozen=True)
class Measured:
    """One measured selector, read back.

    Attributes:
        key: Task, texts that were fitted on, seed.
        selector: Its spec.
        pool: Fingerprint of the pool.
        measures: ``measures.csv``.
        scores: Shape (documents,), float64.
        planted: Shape (documents,), bool.
        words: Shape (documents,), int64.
        cost: ``cost.json``; empty where scores were made elsewhere.
    """

    key: tuple[str, int, int]
    selector: str
    pool: str
    measures: pd.DataFrame
    scores: np.ndarray
    planted: np.ndarray
    words: np.ndarray
    cost: dict[str, float]

    @classmethod
    def of(cls, cell: Cell) -> "Measured":
        """Read what a cell measured."""
        folder = Path(str(cell.settings["folder"]))
        key = (cell.labels["task"], int(cell.labels["fit"]), int(cell.settings["seed"]))
        ranked = pq.read_table(folder / RANKED)
        scores, planted, words = (ranked[name].to_numpy() for name in ("score", "planted", "words"))
        cost = folder.with_name(COST)
        return cls(
            key,
            cell.labels["selector"],
            read_manifest(folder)["depends_on"]["pool"],
            pd.read_csv(folder / MEASURES, dtype={"budget": str}, keep_default_na=False),
            scores,
            planted,
            words,
            read_json(cost) if cost.is_file() else {},
        )

    def kept(self, budget: str) -> set[int]:
        """Rows of the documents that are kept."""
        order = np.argsort(self.scores, kind="stable")
        return set(order[: DocumentBudget.parse(budget).count(self.words[order])].tolist())


def write_comparison(grid: Grid) -> Path:
    """Write ``comparison.csv``, a row a task, fit size, seed, selector, budget and metric, and ``summary.csv``.

    Besides what :func:`dana.studies.comparison.measure.measure_stage` found: ``overlap``, the Jaccard index of the
    documents that two selectors keep at one budget, with the other selector as its detail.

    Returns:
        The path of ``comparison.csv``.
    """
    every = [Measured.of(cell) for cell in grid.cells if cell.name.startswith("measure/")]
    rows = []
    for one in every:
        task, fit, seed = one.key
        rows.append(one.measures.assign(task=task, fit=fit, seed=seed, selector=one.selector)[COLUMNS])
    table = pd.concat([*rows, pd.DataFrame(overlaps(every), columns=COLUMNS)], ignore_index=True)
    write_text(grid.folder / CSV, table.to_csv(index=False))
    write_text(grid.folder / SUMMARY, summary_frame(every).to_csv(index=False))
    log.info("%-9s written  %s  (%d rows)", "compare", grid.folder / CSV, len(table))
    return grid.folder / CSV


def overlaps(every: list[Measured]) -> Iterator[tuple[object, ...]]:
    """Rows of the Jaccard index of what two selectors keep, both ways, for each pool, fit, seed and budget."""
    for one, two in combinations(every, 2):
        if (one.key, one.pool) != (two.key, two.pool):
            continue
        for budget in one.measures["budget"].unique():
            if budget:
                mine, others = one.kept(budget), two.kept(budget)
                jaccard = len(mine & others) / len(mine | others)
                yield (*one.key, one.selector, budget, "overlap", two.selector, jaccard)
                yield (*one.key, two.selector, budget, "overlap", one.selector, jaccard)


def summary_frame(every: list[Measured]) -> pd.DataFrame:
    """A row a task, fit size and selector: means over seeds, and what fitting and scoring cost.

    ``low`` and ``high`` are the 95 % interval of the mean P@R over documents of the pool
    (:func:`dana.studies.comparison.recall.precision_interval`). Seconds are of CPU time: the median fit; of scoring the
    least, because the first selector of a pool embeds it for all, and per million documents.
    """
    groups: dict[tuple[str, int, str], list[Measured]] = {}
    for one in every:
        groups.setdefault((*one.key[:2], one.selector), []).append(one)
    rows = []
    for (task, fit, selector), seeds in groups.items():
        row: dict[str, object] = {"task": task, "fit": fit, "selector": selector, "seeds": len(seeds)}
        told = pd.concat([one.measures for one in seeds])
        told = told[told["detail"] == ""]
        names = (told["metric"] + "@" + told["budget"]).str.removesuffix("@")
        row |= {str(name): value for name, value in told.groupby(names, sort=False)["value"].mean().items()}
        if seeds[0].planted.any():
            row["low"], row["high"] = precision_interval([one.scores for one in seeds], seeds[0].planted)
        if costs := [one.cost for one in seeds if one.cost]:
            row["fit_seconds"] = float(np.median([cost["fit_seconds"] for cost in costs]))
            least = min(cost["score_seconds"] for cost in costs)
            row["seconds_per_million"] = 1e6 * least / seeds[0].scores.size
        rows.append(row)
    return pd.DataFrame(rows)


def summary_text(comparison: Path) -> str:
    """What ``dana compare`` prints: precision at R (without plants, the divergence) by selector, task and fit size."""
    frame = pd.read_csv(comparison.with_name(SUMMARY))
    metric = "precision_at_r" if "precision_at_r" in frame else str(frame.filter(like="kl_reduction").columns[0])
    shown = frame.pivot_table(values=metric, index="selector", columns=["task", "fit"], sort=False)
    return f"{metric}, mean over seeds\n{shown.to_string(float_format='{:.3f}'.format)}"
