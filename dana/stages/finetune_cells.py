"""Plan the fine-tuning cells of a grid for ``dana run`` and ``dana finetune``, and join the results of nested seeds.

With ``nested`` seeds, each seed has its own selection, adaptation and fine-tuning, so that the spread over seeds covers
all three and not only fine-tuning (Dodge et al. 2020; Sellam et al. 2022, The MultiBERTs). The results of single seeds
are joined into one.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dana.core.artifacts import Artifact, Draft, canonical, make, open_artifact, read_manifest
from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.launch import processes
from dana.core.schemas import NESTED
from dana.finetuning.results import join_results
from dana.stages.grid.cell import Cell, OutputOf
from dana.stages.grid.grid import Grid
from dana.stages.settings import RunSettings
from dana.tasks.card import load_card
from dana.train.execution import Precision, refuse_precision


def finetune_cell(
    settings: RunSettings,
    card: str,
    task: str,
    name: str,
    model: str | OutputOf,
    labels: Mapping[str, str],
    seed: int | None = None,
) -> Cell:
    """Make the cell ``finetune/TASK/NAME``, whose result is written to the folder of that name.

    The cell of one nested seed is ``finetune/TASK/NAME/SEED``; its result is in ``nested/SEED/finetune/TASK/NAME``.

    Args:
        settings: Settings of the run; ``finetune``, ``data`` and ``out`` are used.
        card: Task card, a name or YAML file.
        task: Name of the task.
        name: Name of the arm or checkpoint.
        model: Folder or Hub name, or the output of a cell.
        labels: Columns of the table of results.
        seed: Index of the nested seed; None for all seeds.
    """
    out, path = Path(settings.out), f"finetune/{task}/{name}"
    arguments = {"model": model, "card": card, "settings": settings.finetune, "data": settings.data}
    stage = "dana.stages.finetune:finetune_stage"
    if seed is None:
        return Cell(path, stage, {**arguments, "out": out / path}, labels=labels)
    return Cell(f"{path}/{seed}", stage, {**arguments, "out": out / NESTED / str(seed) / path}, labels=labels)


def finetune_cells(
    settings: RunSettings, card: str, task: str, arm: str, model: str, labels: Mapping[str, str]
) -> Iterator[Cell]:
    """Make the cell ``finetune/TASK/ARM``; with nested seeds, one cell per seed and one that joins them.

    Args:
        settings: Settings of the run.
        card: Task card, a name or YAML file.
        task: Name of the task.
        arm: Name of the arm.
        model: Cell that makes the model; with nested seeds, the one of the first seed.
        labels: Columns of the table of results.
    """
    seeds = settings.nested_seeds
    if model == "base" or not seeds:
        yield finetune_cell(settings, card, task, arm, OutputOf(model), labels)
        return
    parts = []
    for index, seed in enumerate(seeds):
        only = replace(settings, finetune=replace(settings.finetune, seeds=[seed]), nested=False)
        parts.append(finetune_cell(only, card, task, arm, OutputOf(f"{model}{suffix(index)}"), {}, index))
    yield from parts
    path = f"finetune/{task}/{arm}"
    arguments = {"parts": [part.settings["out"] for part in parts], "folder": Path(settings.out) / path}
    after = tuple(part.name for part in parts)
    yield Cell(path, "dana.stages.finetune_cells:join_seeds_stage", arguments, after, labels)


def cards_by_name(cards: Sequence[str], future_names: Mapping[str, str] | None = None) -> dict[str, str]:
    """Map the names of tasks to their cards.

    Args:
        cards: Names or YAML files.
        future_names: Names of tasks by card, for cards that a cell will write.

    Raises:
        ConfigError: If a card is unknown, or two have one name.
    """
    names = [future_names[card] if future_names and card in future_names else load_card(card).name for card in cards]
    twice = [card for card, name in zip(cards, names, strict=True) if names.count(name) > 1]
    require(not twice, "cards", twice, "of different tasks; these have the same name")
    return dict(zip(names, cards, strict=True))


def refuse_mixed_precision(grid: Grid) -> None:
    """Refuse, before any work, a precision other than that of finished cells: results would not compare.

    Raises:
        ConfigError: Names a finished cell's folder and the environment variable that sets its precision.
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
    require(shares, "jobs", jobs, "1 if several processes were launched: they share the work of each cell")


def with_seed(settings: RunSettings, index: int) -> RunSettings:
    """Shift the seeds of selection and adaptation for one nested seed; the first has those of the run.

    Args:
        settings: Settings of the run.
        index: Index of the nested seed.
    """
    selection = replace(settings.selection, seed=settings.selection.seed + index)
    return replace(settings, selection=selection, adapt=replace(settings.adapt, seed=settings.adapt.seed + index))


def home(out: Path, index: int) -> Path:
    """Return the folder whose ``arms/`` hold the scores, weights and models of one nested seed."""
    return out / NESTED / str(index) if index else out


def check_nested(settings: RunSettings, arms: Iterable[str]) -> None:
    """Refuse, before any work, nested seeds without a number of seeds, or other nesting than finished arms have.

    Args:
        settings: Settings of the run.
        arms: Arms with a model of their own.

    Raises:
        ConfigError: Names the setting or folder and what is allowed.
    """
    has_seeds = not settings.nested or settings.finetune.seeds is not None
    require(has_seeds, "nested", settings.nested, "false without finetune.seeds")
    several = not (settings.nested and settings.finetune.save)
    require(several, "nested", settings.nested, "false with finetune.save, which keeps the model of the best seed")
    for arm in arms:
        for folder in sorted(Path(settings.out).glob(f"finetune/*/{arm}")):
            manifest = read_manifest(folder)
            if manifest and bool(manifest.get("nested")) != settings.nested:
                origin = "without" if settings.nested else "with"
                raise ConfigError(f"nested={settings.nested}: {folder} was made {origin} nested seeds; set another out")


def suffix(index: int) -> str:
    """Return the suffix of the cell names of one nested seed."""
    return f"/{index}" if index else ""


def join_seeds_stage(parts: Sequence[Path], folder: Path) -> Artifact:
    """Join results of one seed each, in order, as if they came from one fine-tuning.

    Args:
        parts: Folders of :func:`dana.stages.finetune.finetune_stage`, of models made alike.
        folder: Folder for ``metrics.json`` and ``predictions.parquet``.

    Raises:
        ArtifactError: If a part is missing.
    """
    artifacts = [open_artifact(Path(part), "finetune") for part in parts]
    first = artifacts[0].manifest["depends_on"]
    models = [part.manifest["depends_on"]["model"] for part in artifacts]
    seeds = [seed for part in artifacts for seed in part.manifest["depends_on"]["preset"]["seeds"]]
    _forget_fewer(folder, models)
    depends_on = {**first, "model": {**first["model"], "nested": models}, "preset": {**first["preset"], "seeds": seeds}}

    def write(draft: Draft) -> None:
        join_results([part.path for part in artifacts], draft.path)
        draft.counts |= artifacts[0].manifest["counts"]
        draft.notes |= {"precision": artifacts[0].manifest["precision"], "nested": True}

    return make(folder, "finetune", depends_on, write)


def _forget_fewer(folder: Path, models: Sequence[dict[str, Any]]) -> None:
    """Remove a join of fewer of these seeds: the parts hold all of it."""
    manifest = read_manifest(folder)
    old_models = manifest.get("depends_on", {}).get("model", {}).get("nested", []) if manifest else []
    if 0 < len(old_models) < len(models) and old_models == json.loads(canonical(models))[: len(old_models)]:
        shutil.rmtree(folder)
