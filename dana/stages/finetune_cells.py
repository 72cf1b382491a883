"""Plan the fine-tuning cells of a grid for ``dana run`` and ``dana finetune``.

A run repeats each arm: adaptation 0, 1, ... has a selection, an adaptation and fine-tunings of its
own, so that the spread over seeds covers all three (Dodge et al. 2020; Sellam et al. 2022, The
MultiBERTs). With a card that has folds, the index is that of the fold that is tested.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dana.core.artifacts import read_manifest
from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.launch import processes
from dana.core.schemas import NESTED
from dana.finetuning.settings import FinetuneSettings
from dana.stages.grid.cell import Cell, OutputOf
from dana.stages.grid.grid import Grid
from dana.stages.join import part_folder
from dana.stages.settings import RunSettings
from dana.stages.texts import held_out_folders
from dana.tasks.card import find_card, load_card
from dana.tasks.examples import fold_count
from dana.train.execution import Precision, refuse_precision


def finetune_cell(
    settings: RunSettings,
    card: str,
    task: str,
    name: str,
    model: str | OutputOf,
    labels: Mapping[str, str],
) -> Cell:
    """Make the cell ``finetune/TASK/NAME``, whose result is written to the folder of that name.

    Args:
        settings: Settings of the run; ``finetune``, ``data`` and ``out`` are used.
        card: Task card, a name or YAML file.
        task: Name of the task.
        name: Name of the arm or checkpoint.
        model: Folder or Hub name, or the output of a cell.
        labels: Columns of the table of results.
    """
    out, path = Path(settings.out), f"finetune/{task}/{name}"
    arguments = {"model": model, "card": card, "settings": settings.finetune, "data": settings.data}
    return Cell(
        path, "dana.stages.finetune:finetune_stage", {**arguments, "out": out / path}, labels=labels
    )


def loss_cells(
    settings: RunSettings, arm: str, model: str | OutputOf, index: int
) -> Iterator[Cell]:
    """Yield the cells ``loss/TEXT/ARM/INDEX`` that measure one adaptation of an arm on text without labels.

    Args:
        settings: Settings of the run; ``adapt`` and ``out`` are used.
        arm: Name of the arm.
        model: Folder or Hub name, or the output of a cell.
        index: Index of the adaptation.
    """
    out = Path(settings.out)
    for task, texts in zip(("task", "general"), held_out_folders(out), strict=True):
        folder = part_folder(out / "finetune" / task / arm, index)
        arguments: dict[str, Any] = {
            "model": model,
            "texts": texts,
            "task": f"{task} text",
            "settings": settings.adapt,
        }
        arguments |= {"index": index, "out": folder}
        labels = {"task": task, "arm": arm}
        yield Cell(
            f"loss/{task}/{arm}/{index}", "dana.stages.losses:loss_stage", arguments, labels=labels
        )


def floor_cell(
    settings: RunSettings, name: str, card: str, folds: int | None, after: tuple[str, ...] = ()
) -> Cell:
    """Make the cell ``floors/TASK`` of the floors of a task, tested on its first folds, or on its test texts."""
    texts = {
        name: getattr(settings.finetune, name)
        for name in ("max_train", "text_field", "label_field", "id_field")
    }
    arguments = {
        "card": card,
        "out": Path(settings.out) / "floors" / name,
        "settings": FinetuneSettings(**texts),
    }
    arguments |= {
        "names": settings.floor_names,
        "encoder": settings.selection.encoder,
        "data": settings.data,
    }
    return Cell(
        f"floors/{name}", "dana.stages.floors:floors_stage", {**arguments, "folds": folds}, after
    )


def repeated_cell(cell: Cell, settings: RunSettings, index: int, has_folds: bool) -> Cell:
    """Make the cell ``finetune/TASK/ARM/INDEX`` of one adaptation, whose result :func:`join_run` joins with the others.

    Args:
        cell: Cell of the arm.
        settings: Settings of the run.
        index: Index of the adaptation.
        has_folds: Whether the task has folds: the index is that of the fold that is tested.
    """
    repeat = replace(settings.finetune, seeds=settings.seeds.of(index))
    arguments = {
        **cell.settings,
        "settings": repeat,
        "out": part_folder(cell.settings["out"], index),
    }
    arguments |= {"fold": index} if has_folds else {}
    return replace(cell, name=f"{cell.name}/{index}", settings=arguments)


def count_folds(settings: RunSettings) -> dict[str, int]:
    """Count the folds of the task and of each card, by name or file; those without folds are left out.

    Raises:
        ConfigError: If two cards have different numbers of folds.
    """
    names = [*([] if settings.harvest else [settings.task]), *settings.cards]
    cards = {name: card for name in names if name and (card := find_card(name))}
    counts = {name: fold_count(card, settings.data) for name, card in cards.items()}
    counts = {name: count for name, count in counts.items() if count > 1}  # one is a fixed split
    require(len({*counts.values()}) <= 1, "cards", counts, "of one number of folds")
    return counts


def cards_by_name(
    cards: Sequence[str], future_names: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Map the names of tasks to their cards.

    Args:
        cards: Names or YAML files.
        future_names: Names of tasks by card, for cards that a cell will write.

    Raises:
        ConfigError: If a card is unknown, or two have one name.
    """
    names = [
        future_names[card] if future_names and card in future_names else load_card(card).name
        for card in cards
    ]
    twice = [card for card, name in zip(cards, names, strict=True) if names.count(name) > 1]
    require(not twice, "cards", twice, "of different tasks; these have the same name")
    return dict(zip(names, cards, strict=True))


def refuse_mixed_precision(grid: Grid) -> None:
    """Refuse, before any work, a precision other than that of finished cells: results would not compare.

    Raises:
        ConfigError: Names a finished cell's folder and the environment variable that sets its
            precision.
    """
    states = {name: state for name, state in grid.states().items() if name.startswith("finetune/")}
    if "done" not in states.values() or set(states.values()) == {"done"}:
        return
    now = Precision.of().name
    for cell in grid.cells:
        if states.get(cell.name) == "done" and cell.stage.endswith(":finetune_stage"):
            folder = Path(cell.settings["out"])
            refuse_precision(folder, (read_manifest(folder) or {}).get("precision", now), now)


def require_shared_cells(jobs: int) -> None:
    """Refuse parallel jobs if several processes were launched: they share the work of each cell.

    Raises:
        ConfigError: Names ``jobs``.
    """
    shares = processes() == 1 or jobs == 1
    require(
        shares,
        "jobs",
        jobs,
        "1 if several processes were launched: they share the work of each cell",
    )


def with_seed(settings: RunSettings, index: int) -> RunSettings:
    """Shift the seeds of selection and adaptation for one adaptation; the first has those of the run.

    Args:
        settings: Settings of the run.
        index: Index of the adaptation.
    """
    selection = replace(settings.selection, seed=settings.selection.seed + index)
    return replace(
        settings,
        selection=selection,
        adapt=replace(settings.adapt, seed=settings.adapt.seed + index),
    )


def home(out: Path, index: int) -> Path:
    """Return the folder whose ``arms/`` hold the scores, weights and models of one adaptation."""
    return out / NESTED / str(index) if index else out


def check_results(settings: RunSettings) -> None:
    """Refuse, before any work, seeds in ``finetune``, and results in the folders where this run will join its own.

    Raises:
        ConfigError: Names the setting or folder and what to do.
    """
    seeds = settings.finetune.seeds
    require(seeds is None, "finetune.seeds", seeds, "left out: set seeds.finetunings")
    for arm in ("base", *(arm.name for arm in settings.described_arms)):
        for folder in sorted(Path(settings.out).glob(f"finetune/*/{arm}")):
            manifest = read_manifest(folder)
            if manifest and "parts" not in manifest:
                raise ConfigError(
                    f"{folder}: was made by dana finetune, not by dana run; remove it or set another out"
                )


def suffix(index: int) -> str:
    """Return the suffix of the cell names of one adaptation."""
    return f"/{index}" if index else ""
