"""Cells of fine-tuning: a model and a task card to one cell of a grid, for ``dana run`` and ``dana evaluate``."""

from collections.abc import Mapping
from pathlib import Path

from dana.core.config import require
from dana.core.launch import processes
from dana.experiments.cell import Cell, Made
from dana.stages.settings import RunSettings


def finetune_cell(
    settings: RunSettings, card: str, task: str, name: str, model: str | Made, labels: Mapping[str, str]
) -> Cell:
    """The cell ``finetune/TASK/NAME``, whose result lies in a folder of that name below the run's.

    Args:
        settings: Of the run; ``finetune``, ``data`` and ``out`` are looked at.
        card: The task card, as it was named.
        task: The card's name.
        name: Of the arm or checkpoint.
        model: Folder or Hub name, or the cell that makes it.
        labels: Columns of the table of results.
    """
    place = f"finetune/{task}/{name}"
    given = {"model": model, "card": card, "settings": settings.finetune, "data": settings.data}
    stage = "dana.stages.finetune:finetune_stage"
    return Cell(place, stage, {**given, "out": Path(settings.out) / place}, labels=labels)


def require_shared_cells(jobs: int) -> None:
    """Refuse jobs side by side where several processes were launched: they share each cell's work.

    Raises:
        ConfigError: Naming ``jobs``.
    """
    shares = processes() == 1 or jobs == 1
    require(shares, "jobs", jobs, "1 where several processes were launched: they share each cell's work")
