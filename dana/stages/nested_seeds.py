"""Nested seeds: results of one seed each, of models selected and adapted with seeds of their own, to one result.

With ``nested`` seeds the spread over seeds is that of the whole way from scores to fine-tuning, not of fine-tuning a
model that happens to be there (Dodge et al. 2020; Sellam et al. 2022, The MultiBERTs).
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dana.core.artifacts import Artifact, Draft, canonical, make, open_artifact, read_manifest
from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.schemas import NESTED
from dana.finetuning.results import join_results
from dana.stages.settings import RunSettings


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
