"""Cells of fine-tuning: a model and a task card to one cell of a grid, for ``dana run`` and ``dana evaluate``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dana.core.artifacts import read_manifest
from dana.core.config import require
from dana.core.launch import processes
from dana.core.schemas import NESTED
from dana.stages.grid.cell import Cell, Made
from dana.stages.grid.grid import Grid
from dana.stages.nested_seeds import suffix
from dana.stages.settings import RunSettings
from dana.tasks.card import load_card
from dana.train.execution import Precision, refuse_precision


def finetune_cell(
    settings: RunSettings,
    card: str,
    task: str,
    name: str,
    model: str | Made,
    labels: Mapping[str, str],
    seed: int | None = None,
) -> Cell:
    """The cell ``finetune/TASK/NAME``, whose result lies in a folder of that name below the run's.

    Of one nested seed it is ``finetune/TASK/NAME/SEED``, whose result lies in ``nested/SEED/finetune/TASK/NAME``.

    Args:
        settings: Of the run; ``finetune``, ``data`` and ``out`` are looked at.
        card: The task card, as it was named.
        task: The card's name.
        name: Of the arm or checkpoint.
        model: Folder or Hub name, or the cell that makes it.
        labels: Columns of the table of results.
        seed: Which of the nested seeds, from 0; None for all seeds together.
    """
    out, place = Path(settings.out), f"finetune/{task}/{name}"
    given = {"model": model, "card": card, "settings": settings.finetune, "data": settings.data}
    stage = "dana.stages.finetune:finetune_stage"
    if seed is None:
        return Cell(place, stage, {**given, "out": out / place}, labels=labels)
    return Cell(f"{place}/{seed}", stage, {**given, "out": out / NESTED / str(seed) / place}, labels=labels)


def finetune_cells(
    settings: RunSettings, card: str, task: str, arm: str, model: str, labels: Mapping[str, str]
) -> Iterator[Cell]:
    """The cell ``finetune/TASK/ARM``; of an adapted arm with nested seeds, a cell a seed and one that joins them.

    Args:
        settings: Of the run.
        card: The task card, as it was named.
        task: The card's name.
        arm: The arm's name.
        model: The cell that makes its model; with nested seeds, that of the first of them.
        labels: Columns of the table of results.
    """
    seeds = settings.nested_seeds
    if model == "base" or not seeds:
        yield finetune_cell(settings, card, task, arm, Made(model), labels)
        return
    parts = []
    for place, seed in enumerate(seeds):
        only = replace(settings, finetune=replace(settings.finetune, seeds=[seed]), nested=False)
        parts.append(finetune_cell(only, card, task, arm, Made(f"{model}{suffix(place)}"), {}, place))
    yield from parts
    joined = f"finetune/{task}/{arm}"
    arguments = {"parts": [part.settings["out"] for part in parts], "folder": Path(settings.out) / joined}
    after = tuple(part.name for part in parts)
    yield Cell(joined, "dana.stages.nested_seeds:join_seeds_stage", arguments, after, labels)


def cards_by_name(cards: Sequence[str], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Names of tasks to their cards as they were given.

    Args:
        cards: Names or YAML files.
        known: Names of tasks whose cards are not made yet.

    Raises:
        ConfigError: If there is no such card, or two are of one name.
    """
    names = [known[card] if known and card in known else load_card(card).name for card in cards]
    twice = [card for card, name in zip(cards, names, strict=True) if names.count(name) > 1]
    require(not twice, "cards", twice, "of different tasks; these are called alike")
    return dict(zip(names, cards, strict=True))


def refuse_mixed_precision(grid: Grid) -> None:
    """Refuse, before any work, to fine-tune in another precision than finished cells: nothing could be compared.

    Raises:
        ConfigError: Naming a finished cell's folder and the environment variable that keeps to its precision.
    """
    states = {name: state for name, state in grid.states().items() if name.startswith("finetune/")}
    if "done" not in states.values() or set(states.values()) == {"done"}:
        return
    now = Precision.here().name
    for cell in grid.cells:
        if states.get(cell.name) == "done" and cell.stage.endswith(":finetune_stage"):
            folder = Path(cell.settings["out"])
            refuse_precision(folder, (read_manifest(folder) or {}).get("precision", now), now)


def require_shared_cells(jobs: int) -> None:
    """Refuse jobs side by side where several processes were launched: they share each cell's work.

    Raises:
        ConfigError: Naming ``jobs``.
    """
    shares = processes() == 1 or jobs == 1
    require(shares, "jobs", jobs, "1 where several processes were launched: they share each cell's work")
