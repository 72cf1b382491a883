"""``dana probe``: probe the frozen vectors of several checkpoints on several tasks, and compare them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dana.core.config import require
from dana.core.files import slug
from dana.core.launch import on_rank_0
from dana.core.text_table import tabulate
from dana.report.page import interval_text, number
from dana.report.probes import read_probes
from dana.report.tables import probe_difference_table, probe_table
from dana.stages.evaluate import Checkpoint
from dana.stages.finetune_steps import cards_by_name
from dana.stages.probe import check_probed, refuse_kind
from dana.stages.probe_steps import probe_step
from dana.stages.report import report_stage
from dana.stages.settings import RunSettings
from dana.stages.steps.run import Run
from dana.stages.steps.runner import execute
from dana.tasks.card import load_card
from dana.tasks.examples import fold_count, read_splits

if TYPE_CHECKING:
    import pandas as pd


def plan_probe(checkpoints: Sequence[Checkpoint], settings: RunSettings) -> Run:
    """Plan the steps of :func:`run_probe`, after checking checkpoints, cards and data.

    Raises:
        ConfigError: If a checkpoint or card is unknown or named twice, or each word of a task has a
            label.
        DataError: If the data is missing or does not fit the card.
    """
    names = [checkpoint.name for checkpoint in checkpoints]
    require(bool(names), "checkpoints", names, "at least one")
    distinct = len(names) == len(set(names))
    require(distinct, "checkpoints", names, "of different names; NAME=MODEL gives one")
    require(bool(settings.cards), "tasks", settings.cards, "at least one task card")
    for checkpoint in checkpoints:
        good = bool(checkpoint.model) and checkpoint.name == slug(checkpoint.name)
        what = "MODEL or NAME=MODEL, the name of letters, digits, _ . and -"
        require(good, "checkpoints", checkpoint.name, what)
        check_probed(checkpoint.model)
    steps = []
    for task, card in cards_by_name(settings.cards).items():
        fields = settings.finetune.fields_of(load_card(card))
        refuse_kind(fields)
        folds = fold_count(fields, settings.data)
        read_splits(fields, settings.data, 0 if folds > 1 else None)
        for checkpoint in checkpoints:
            for fold in range(max(folds, 1)):
                index = fold if folds > 1 else None
                steps.append(
                    probe_step(
                        settings, task, card, checkpoint.name, checkpoint.model, index, index
                    )
                )
    return Run(Path(settings.out), tuple(steps))


def run_probe(
    checkpoints: Sequence[Checkpoint], settings: RunSettings, remake: bool = False
) -> "pd.DataFrame":
    """Probe every checkpoint on every card; existing results are reused.

    Writes into the run's folder ``probe/TASK/NAME/FOLD``, ``report.html`` and its tables.

    Args:
        checkpoints: Checkpoints with distinct names; the others are compared with one named ``base``.
        settings: Settings of the run; ``cards``, ``probe``, ``finetune`` (names of fields and
            ``max_train``), ``data``, ``jobs`` and ``out`` are used.
        remake: Whether results of other settings are replaced instead of refused.

    Returns:
        One row per task, checkpoint and measure: ``metric``, ``labels``, ``draws``, ``mean``, ``low``
        and ``high`` (95 % interval over test texts, and folds) …

    Raises:
        ConfigError: See :func:`plan_probe`.
        DanaError: If steps failed, after all others are done.
    """
    run = plan_probe(checkpoints, settings)
    execute(run, settings.jobs, remake=remake)
    on_rank_0(lambda: report_stage(run.folder))
    return probe_table(read_probes(run.folder)).frame


def probe_text(folder: Path) -> str:
    """Format the probes in a run's folder as text: a line per task, checkpoint and measure, then the differences."""
    probes = read_probes(folder)
    rows = [
        {
            "task": row["task"],
            "model": row["arm"],
            "measure": row["measure"],
            row["metric"]: number(row["mean"], 4),
            "95 % interval": interval_text(row["low"], row["high"], sign=False),
        }
        for row in probe_table(probes).frame.to_dict("records")
    ]
    text = tabulate(_same_columns(rows))
    differences = probe_difference_table(probes)
    if differences is None:
        return text
    pairs = [
        {
            "task": row["task"],
            "difference": f"{row['arm']} - {row['other']}",
            "measure": row["measure"],
            "mean": number(row["mean"], 4, sign=True),
            "95 % interval": interval_text(row["low"], row["high"]),
        }
        for row in differences.frame.to_dict("records")
    ]
    return f"{text}\n\n{tabulate(pairs)}"


def _same_columns(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Give all rows the columns of all: tasks may have different metrics."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    names.sort(key=lambda name: name == "95 % interval")
    return [{name: row.get(name, "") for name in names} for row in rows]
