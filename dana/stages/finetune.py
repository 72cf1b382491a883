"""``dana finetune``: fine-tune a checkpoint on a labelled task, over seeds and folds; write metrics and predictions."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dana.core.artifacts import Artifact, read_json
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger
from dana.finetuning.results import METRICS, results_table
from dana.finetuning.settings import FinetuneSettings
from dana.stages.baselines import baseline_scores
from dana.stages.finetune_seed import Finetuning, check_model_folder
from dana.stages.finetune_steps import TaskRun, refuse_mixed_precision
from dana.stages.join import join_stage, seed_folder
from dana.stages.steps.run import Run
from dana.stages.steps.runner import execute
from dana.stages.steps.step import Step
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import fold_count, read_splits
from dana.tasks.tables import collapse_warning
from dana.train.run import check_trackers

log = get_logger(__name__)


@dataclass(frozen=True)
class FinetuningPlan:
    """The fine-tunings of one checkpoint on one task.

    Attributes:
        out: Folder of the joined result.
        steps: The steps, most of which train one seed.
        parts: Folders of the seeds by fold; by 0 for a task without folds.
    """

    out: Path
    steps: list[Step]
    parts: dict[int, list[Path]]


def plan_finetuning(
    model: str,
    card: str,
    settings: FinetuneSettings,
    out: Path,
    data: str | None = None,
    labels: Mapping[str, str] | None = None,
    remake: bool = False,
) -> FinetuningPlan:
    """Plan the steps that :func:`finetune_stage` runs.

    Args:
        model: See :func:`finetune_stage`.
        card: See :func:`finetune_stage`.
        settings: See :func:`finetune_stage`.
        out: See :func:`finetune_stage`.
        data: See :func:`finetune_stage`.
        labels: Columns of the table of results that say what the result stands for.
        remake: Whether results of other settings will be replaced instead of refused.

    Raises:
        ConfigError: See :func:`finetune_stage`.
        ArtifactError: If the folder of the model that ``save`` keeps holds something else.
    """
    check_trackers(settings.trackers)
    shared = Finetuning.from_settings(model, card, settings, out, data)
    seeds = shared.preset.seed_list
    task = shared.task
    folds = on_rank_0(lambda: fold_count(task, data))
    has_folds = folds > 1
    on_rank_0(lambda: _check_data(task, data, 0 if has_folds else None))
    tuning = TaskRun(model, card, settings, out, f"{task.name}/{out.name}", data, labels)
    if settings.save and not has_folds and not remake:
        check_model_folder(tuning.model_folder(0, is_repeated=False), shared)
    steps: list[Step] = []
    parts: dict[int, list[Path]] = {}
    for index in range(folds if has_folds else 1):
        seeds_of_fold = [seed + index * (max(seeds) + 1) for seed in seeds]
        steps += tuning.steps(index, seeds_of_fold, has_folds, is_repeated=has_folds)
        parts[index] = [seed_folder(out, index, seed) for seed in seeds_of_fold]
    return FinetuningPlan(out, steps, parts)


def _check_data(task: TaskCard, data: str | None, fold: int | None) -> None:
    """Read a task's data once before any step begins, so that bad data leaves nothing behind.

    Raises:
        DataError: If the data is missing or does not fit the card.
    """
    read_splits(task, data, fold)


def finetune_stage(
    model: str,
    card: str,
    settings: FinetuneSettings,
    out: Path,
    data: str | None = None,
    with_baselines: bool = False,
    remake: bool = False,
    jobs: int = 1,
) -> Artifact:
    """Fine-tune over seeds, and over the folds of a card that has some; under several processes they share the seeds.

    Every seed is a step of its own (:func:`dana.stages.finetune_seed.seed_stage`) in ``OUT-seeds``,
    so a rerun, also for more seeds, makes only the missing ones.

    Args:
        model: Folder with safetensors, or Hub name.
        card: A task card's name or YAML file.
        settings: Preset and overrides.
        out: Folder for ``metrics.json`` (one row per seed; mean, std with ddof 1, n) and
            ``predictions.parquet`` (one row per seed and test example: seed, id, label, prediction
            and further columns of the card's kind). With ``save``, the model of the seed with the
            best development score goes to ``OUT-model``; with folds one to ``OUT-seeds/FOLD-model``.
        data: Folder with the card's data.
        with_baselines: Add ``baselines`` to ``metrics.json``: what simple models score
            (:mod:`dana.stages.baselines`).
        remake: Whether seeds of other settings are replaced instead of refused.
        jobs: Number of steps that run in parallel, each in a process of its own.

    Raises:
        ConfigError: If the card or preset is unknown, or the model is too small for ``max_tokens``.
        DataError: If the data is missing or does not fit the card.
        ArtifactError: If the model cannot be used, or `out` holds something else.
        Preemption: If a signal asked to stop; finished seeds are kept.
    """
    plan = plan_finetuning(model, card, settings, out, data, remake=remake)
    run = Run(out.with_name(f"{out.name}-seeds"), tuple(plan.steps))
    refuse_mixed_precision(run)
    execute(run, jobs, remake=remake)
    task = settings.fields_of(load_card(card))

    def baselines() -> dict[str, float]:
        if not with_baselines:
            return {}
        indices = list(plan.parts) if len(plan.parts) > 1 else [None]
        splits = [read_splits(task, data, index) for index in indices]
        return baseline_scores(task, splits, settings.max_train)

    result = on_rank_0(lambda: join_stage(plan.parts, out, baselines))
    metrics = read_json(out / METRICS)
    warning = collapse_warning(metrics)
    if warning and metrics["n"] > 1:  # of one seed, the seed has said it
        log.warning("finetune  %s", warning)
    return result


def seed_rows(result: Artifact) -> list[dict[str, Any]]:
    """Read a result of :func:`finetune_stage` as one row per seed: score, every metric, seconds."""
    rows: list[dict[str, Any]] = read_json(result.path / METRICS)["seeds"]
    return rows


def finetune_text(result: Artifact) -> str:
    """Format a result of :func:`finetune_stage` as text: one row per seed, mean and standard deviation."""
    return results_table(read_json(result.path / METRICS))
