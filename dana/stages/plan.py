"""Say what a grid of cells will do: the state of each cell, and how much its trainings read."""

from collections import Counter
from collections.abc import Iterable

from dana.stages.grid.cell import Cell
from dana.stages.grid.grid import Grid
from dana.train.settings import TrainSettings


def plan_text(grid: Grid) -> str:
    """List the cells of a grid with their states, and sum up those that are ahead."""
    states = grid.states()
    lines = [f"{states[cell.name]:<8} {cell.name}" for cell in grid.cells]
    return "\n".join([*lines, summary_text(grid), "dry run   nothing was written"])


def summary_text(grid: Grid) -> str:
    """Count in one line the cells of a grid that are not done, and the tokens that they train on."""
    states = grid.states()
    ahead = [cell for cell in grid.cells if states[cell.name] != "done"]
    parts = [f"{len(ahead)} of {len(grid.cells)} cells, into {grid.folder}", *_trainings(ahead)]
    return f"plan      {'; '.join(parts)}"


def _trainings(cells: Iterable[Cell]) -> list[str]:
    """Describe the trainings of language models by their length, and count the fine-tunings."""
    lengths: Counter[str] = Counter()
    finetunings = 0
    for cell in cells:
        function = cell.stage.rpartition(":")[2]
        if function == "adapt_stage":
            lengths[training_length(cell.settings["settings"])] += 1
        elif function == "base_model" and cell.settings["model"] is None:
            lengths[training_length(cell.settings["pretrain"])] += 1
        elif function == "seed_stage":
            finetunings += 1
    parts = [f"{count} × training on {length}" for length, count in lengths.items()]
    if finetunings:
        parts.append(f"{finetunings} × fine-tuning")
    return parts


def training_length(settings: TrainSettings) -> str:
    """Say how long a training is, in the unit in which it was set: tokens, steps or epochs."""
    if settings.steps is not None:
        return f"{settings.steps:,} steps"
    if settings.tokens is not None:
        return f"{settings.tokens:,} tokens"
    return f"{settings.epochs or 1:g} × the text"
