"""``dana finetune`` of several checkpoints or tasks: rank them in a leaderboard and a report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.artifacts import read_json, read_manifest, write_json, write_text
from dana.core.config import require
from dana.core.files import slug
from dana.core.launch import on_rank_0
from dana.core.statistics import mean_interval
from dana.core.text_table import csv_text, tabulate
from dana.finetuning.results import METRICS
from dana.models.folder import check_checkpoint
from dana.report.arm_results import read_arm_result
from dana.stages.finetune import FinetuningPlan, plan_finetuning
from dana.stages.finetune_steps import (
    baseline_step,
    cards_by_name,
    refuse_mixed_precision,
)
from dana.stages.join import join_stage
from dana.stages.report import report_stage
from dana.stages.settings import RunSettings
from dana.stages.steps.run import Run
from dana.stages.steps.runner import execute
from dana.stages.steps.step import Step
from dana.tasks.card import load_card
from dana.tasks.examples import fold_count
from dana.tasks.kinds import is_error

if TYPE_CHECKING:
    import pandas as pd

LEADERBOARD = "leaderboard"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on the leaderboard.

    Attributes:
        name: Name of its row.
        model: Folder or Hub name.
        origin: Name of the model in the table; None for the folder or Hub name.
    """

    name: str
    model: str
    origin: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Checkpoint":
        """Parse ``NAME=MODEL``, or ``MODEL``, which is named by the last part of its path."""
        name, separator, model = ("", "", text) if Path(text).exists() else text.partition("=")
        return cls(name, model) if separator else cls(slug(Path(text).name), text)


def run_evaluate(
    checkpoints: Sequence[Checkpoint], settings: RunSettings, remake: bool = False
) -> "pd.DataFrame":
    """Fine-tune every checkpoint on every card, once per seed, and rank them; existing results are reused.

    Writes into the run's folder ``leaderboard.csv`` (one row per checkpoint and task),
    ``leaderboard.json`` (the same with provenance), ``report.html`` (paired comparisons),
    ``results.csv`` and ``finetune/TASK/NAME``.

    Args:
        checkpoints: Checkpoints with distinct names; one named ``base`` is compared with all
            others.
        settings: Settings of the run; ``cards``, ``finetune``, ``data``, ``jobs`` and ``out`` are
            used.
        remake: Whether results of other settings are replaced instead of refused.

    Returns:
        One row per checkpoint and task, the input of :func:`leaderboard`.

    Raises:
        ConfigError: If a checkpoint or card is unknown or named twice, before anything is run.
        DanaError: If steps failed, after all others are done.
    """
    plans = plan_evaluate(checkpoints, settings, remake)
    steps = [step for plan in plans for step in plan.steps]
    run = Run(Path(settings.out), (*steps, *_baseline_steps(settings)))
    refuse_mixed_precision(run)
    execute(run, settings.jobs, remake=remake)
    origins = {checkpoint.name: checkpoint.origin or checkpoint.model for checkpoint in checkpoints}

    def collect() -> "pd.DataFrame":
        for plan in plans:
            join_stage(plan.parts, plan.out)
        return _collect(run.folder, plans, origins)

    return on_rank_0(collect)


def plan_evaluate(
    checkpoints: Sequence[Checkpoint], settings: RunSettings, remake: bool = False
) -> list[FinetuningPlan]:
    """Plan the fine-tuning of every checkpoint on every card; see :func:`run_evaluate`."""
    names = [checkpoint.name for checkpoint in checkpoints]
    require(bool(names), "checkpoints", names, "at least one")
    require(
        len(names) == len(set(names)),
        "checkpoints",
        names,
        "of different names; NAME=MODEL gives one",
    )
    require(bool(settings.cards), "tasks", settings.cards, "at least one task card")
    for checkpoint in checkpoints:
        good = bool(checkpoint.model) and checkpoint.name == slug(str(checkpoint.name))
        require(
            good,
            "checkpoints",
            checkpoint.name,
            "MODEL or NAME=MODEL, the name of letters, digits, _ . and -",
        )
        check_checkpoint(checkpoint.model)
    plans = []
    for task, card in cards_by_name(settings.cards).items():
        for checkpoint in checkpoints:
            out = Path(settings.out) / "finetune" / task / checkpoint.name
            labels = {"task": task, "checkpoint": checkpoint.name}
            plans.append(
                plan_finetuning(
                    checkpoint.model,
                    card,
                    settings.finetune,
                    out,
                    settings.data,
                    labels,
                    remake,
                )
            )
    return plans


def _baseline_steps(settings: RunSettings) -> Iterator[Step]:
    """Yield the steps of the baselines, one per card."""
    if not settings.baseline_names:
        return
    for task, card in cards_by_name(settings.cards).items():
        folds = fold_count(load_card(card), settings.data)
        yield baseline_step(settings, task, card, folds if folds > 1 else None)


def _collect(
    run: Path, plans: Sequence[FinetuningPlan], origins: Mapping[str, str]
) -> "pd.DataFrame":
    """Write the leaderboard from the joined results, and the report."""
    import pandas as pd

    rows = []
    provenance = []
    for plan in plans:
        task, name = plan.out.parts[-2:]
        metrics = read_json(plan.out / METRICS)
        manifest = read_manifest(plan.out)
        result = read_arm_result(plan.out / METRICS, name)
        scores = {str(row["seed"]): row["score"] for row in metrics["seeds"]}
        low, high = result.interval
        rows.append(
            {
                "task": task,
                "checkpoint": name,
                "model": origins[name],
                "metric": metrics["metric"],
                "mean": metrics["mean"],
                "std": mean_interval(list(scores.values())).std,
                "low": low,
                "high": high,
                "n": len(scores),
                "collapsed": sum(row["degenerate"] for row in metrics["seeds"]),
            }
        )
        identity = {key: manifest[key] for key in ("fingerprint", "depends_on", "versions")}
        provenance.append({"task": task, "checkpoint": name, **identity, "scores": scores})
    table = pd.DataFrame(rows)
    write_text(run / f"{LEADERBOARD}.csv", csv_text(table))
    write_json(run / f"{LEADERBOARD}.json", {"results": provenance})
    report_stage(run)
    return table


def leaderboard(table: "pd.DataFrame") -> str:
    """Format the leaderboard as text: one line per checkpoint, best mean over tasks first, ± standard deviation.

    If the metric of a task is an error, means over tasks are meaningless: checkpoints are sorted by
    mean rank.

    Args:
        table: One row per checkpoint and task, with ``metric``, ``mean``, ``std`` (ddof 1) and
            ``collapsed``.
    """
    errors = table["metric"].map(is_error)
    by_rank, scores = bool(errors.any()), table["mean"]
    if by_rank:
        scores = scores.where(errors, -scores).groupby(table["task"]).rank()
    means = (
        scores.groupby(table["checkpoint"], sort=False)
        .mean()
        .sort_values(ascending=by_rank, kind="stable")
    )
    texts = table.apply(_format_score, axis="columns")
    table = table.assign(column=table["task"] + " (" + table["metric"] + ")", shown=texts)
    board = table.pivot(index="checkpoint", columns="column", values="shown")
    board = board.loc[means.index, table["column"].unique()]
    board.insert(
        0,
        "mean rank" if by_rank else "mean",
        means.map("{:.1f}".format if by_rank else "{:.4f}".format),
    )
    return tabulate(board.reset_index().to_dict("records"))  # type: ignore[arg-type]


def _format_score(row: Mapping[Any, Any]) -> str:
    spread = f" ± {row['std']:.4f}" if row["n"] > 1 else ""
    warning = f" ({row['collapsed']} of {row['n']} collapsed)" if row["collapsed"] else ""
    return f"{row['mean']:.4f}{spread}{warning}"
