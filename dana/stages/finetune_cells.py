"""Cells of fine-tuning: a model and a task card to cells of a grid, for ``dana run`` and ``dana evaluate``.

With ``nested`` seeds the spread over seeds is that of the whole way from scores to fine-tuning, not of fine-tuning a
model that happens to be there (Dodge et al. 2020; Sellam et al. 2022, The MultiBERTs). Each seed has models of its own,
and the results of one seed each are joined to one.
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
from dana.stages.grid.cell import Cell, Made
from dana.stages.grid.grid import Grid
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
    yield Cell(joined, "dana.stages.finetune_cells:join_seeds_stage", arguments, after, labels)


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
    now = Precision.of().name
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


def with_seed(settings: RunSettings, place: int) -> RunSettings:
    """The settings of the selection and adaptation of one seed of fine-tuning; the first has those of the run.

    Args:
        settings: Of the run.
        place: Which of the seeds, from 0.
    """
    selection = replace(settings.selection, seed=settings.selection.seed + place)
    return replace(settings, selection=selection, adapt=replace(settings.adapt, seed=settings.adapt.seed + place))


def home(out: Path, place: int) -> Path:
    """The folder whose ``arms/`` hold the scores, weights and models of one seed of fine-tuning."""
    return out / NESTED / str(place) if place else out


def check_nested(settings: RunSettings, arms: Iterable[str]) -> None:
    """Refuse, before any work, nested seeds that nobody counted, or another choice than finished arms were made with.

    Args:
        settings: Of the run.
        arms: Those that have a model of their own.

    Raises:
        ConfigError: Says what is there and what is allowed.
    """
    counted = not settings.nested or settings.finetune.seeds is not None
    require(counted, "nested", settings.nested, "false where finetune.seeds does not say how many seeds there are")
    several = not (settings.nested and settings.finetune.save)
    require(several, "nested", settings.nested, "false where finetune.save keeps the best seed's model")
    for arm in arms:
        for folder in sorted(Path(settings.out).glob(f"finetune/*/{arm}")):
            manifest = read_manifest(folder)
            if manifest and bool(manifest.get("nested")) != settings.nested:
                made = "without" if settings.nested else "with"
                raise ConfigError(
                    f"nested={settings.nested}: {folder} was made {made} nested seeds; remove it, or name another out"
                )


def suffix(place: int) -> str:
    """What the names of such a seed's cells end with."""
    return f"/{place}" if place else ""


def join_seeds_stage(parts: Sequence[Path], folder: Path) -> Artifact:
    """Put results of one seed each together, in their order, as if one fine-tuning had given them.

    Args:
        parts: Folders of :func:`dana.stages.finetune.finetune_stage`, of models made alike.
        folder: Where ``metrics.json`` and ``predictions.parquet`` go.

    Raises:
        ArtifactError: If a part is missing.
    """
    opened = [open_artifact(Path(part), "finetune") for part in parts]
    first = opened[0].manifest["depends_on"]
    models = [part.manifest["depends_on"]["model"] for part in opened]
    seeds = [seed for part in opened for seed in part.manifest["depends_on"]["preset"]["seeds"]]
    _forget_fewer(folder, models)
    depends_on = {**first, "model": {**first["model"], "nested": models}, "preset": {**first["preset"], "seeds": seeds}}

    def write(draft: Draft) -> None:
        join_results([part.path for part in opened], draft.path)
        draft.counts |= opened[0].manifest["counts"]
        draft.notes |= {"precision": opened[0].manifest["precision"], "nested": True}

    return make(folder, "finetune", depends_on, write)


def _forget_fewer(folder: Path, models: Sequence[dict[str, Any]]) -> None:
    """Remove what was put together of the first of these seeds alone: all of it is in the parts."""
    manifest = read_manifest(folder)
    there = manifest.get("depends_on", {}).get("model", {}).get("nested", []) if manifest else []
    if 0 < len(there) < len(models) and there == json.loads(canonical(models))[: len(there)]:
        shutil.rmtree(folder)
