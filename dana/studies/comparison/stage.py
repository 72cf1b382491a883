"""``dana studies compare``: run tasks x selectors x budgets as steps and collect one tidy table."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pandas as pd

from dana.core.artifacts import open_artifact
from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.files import slug
from dana.core.logging import get_logger
from dana.report.page import write_page
from dana.scoring.scoring import build_selector
from dana.stages.settings import RunSettings
from dana.stages.steps.run import Run
from dana.stages.steps.runner import execute
from dana.stages.steps.step import OutputOf, Step
from dana.studies.comparison.page import SUMMARY, comparison_report, write_comparison
from dana.studies.comparison.settings import ORACLE, SOURCE
from dana.tasks.examples import find_task
from dana.tasks.settings import Hygiene

log = get_logger(__name__)

# Modules with the stages of the steps.
PLANTING = "dana.studies.comparison.planting"
MEASURES = "dana.studies.comparison.measures"


def run_compare(settings: RunSettings, remake: bool = False) -> Path:
    """Run a comparison: make pools, score and measure them, and collect the table.

    Existing steps are reused.

    Args:
        settings: Settings of the study.
        remake: Whether steps of other settings are replaced instead of refused.

    Returns:
        Path of ``comparison.csv`` (:func:`dana.studies.comparison.page.write_comparison`), with
        ``report.html`` and ``report.md`` beside it.

    Raises:
        ConfigError: If a task has fewer texts to fit on than the smallest size; raised before any
            fit.
    """
    _check(settings)
    out = Path(settings.out)
    execute(Run(out, tuple(_plantings(settings))), settings.jobs, remake=remake)
    run = _plan(settings)
    execute(run, settings.jobs, remake=remake)
    path = write_comparison(run)
    table = pd.read_csv(path, dtype={"budget": str}, keep_default_na=False)
    # A task may be called NA; an empty cell is a number that is missing.
    summary = pd.read_csv(out / SUMMARY, keep_default_na=False, na_values=[""])
    report = comparison_report(out.resolve().name, table, summary)
    write_page(report, out, "report")
    return path


def plan_compare(settings: RunSettings) -> Run:
    """Plan all steps.

    Tasks that are not read yet have only their reading steps, as their sizes are unknown.
    """
    _check(settings)
    return _plan(settings)


def _plan(settings: RunSettings) -> Run:
    """Plan as :func:`plan_compare`, of settings that are checked."""
    steps = list(_plantings(settings))
    for task in _tasks(settings):
        folder = Path(settings.out) / slug(task)
        if (folder / "texts").is_dir():
            size = open_artifact(folder / "texts", "planting").manifest["counts"]["fit"]
            steps += _measurements(settings, task, size)
    return Run(Path(settings.out), tuple(steps))


def _tasks(settings: RunSettings) -> list[str]:
    """Return the tasks to compare on, by default the recipe's."""
    tasks: list[str] = settings.section("compare").tasks
    if not tasks and settings.task:
        return [settings.task]
    return tasks


def _check(settings: RunSettings) -> None:
    """Check every task and selector before any text is read."""
    tasks = _tasks(settings)
    require(bool(tasks), "tasks", tasks, "at least one")
    remedy = "at least one file, folder, glob, URL or hf: name"
    require(bool(settings.pool), "pool", settings.pool, remedy)
    for task in tasks:
        if not task.startswith(SOURCE):
            find_task(task)
    for spec in settings.section("compare").selectors:
        if spec == ORACLE:
            continue
        selector = build_selector(spec, settings.detector, settings.selection)
        if "detector" in selector.uses and settings.detector == "auto":
            raise ConfigError(f"selectors={spec!r}: must name a detector, for example {spec}:knn")
        selector.identity()
    remedy = "the default: a comparison uses the pool as it is; choose a new folder by --out"
    require(settings.hygiene == Hygiene(), "hygiene", vars(settings.hygiene), remedy)


def _plantings(settings: RunSettings) -> Iterator[Step]:
    """Yield the steps that read texts and make pools."""
    out = Path(settings.out)
    compare = settings.section("compare")
    pool = {
        "sources": settings.pool,
        "folder": out / "pool",
        "on_bad_record": settings.on_bad_record,
        "inputs": settings.inputs,
    }
    yield Step("pool", "dana.stages.texts:pool_stage", pool)
    for task in _tasks(settings):
        name = slug(task)
        texts = {
            "task": task,
            "pool": OutputOf("pool"),
            "folder": out / name / "texts",
            "plants": compare.plants,
            "data": settings.data,
            "inputs": settings.inputs,
        }
        yield Step(f"texts/{name}", f"{PLANTING}:plant_stage", texts)
        planted_pool = {
            "planting": OutputOf(f"texts/{name}"),
            "pool": OutputOf("pool"),
            "folder": out / name / "pool",
            "others": compare.others,
            "language": settings.selection.language,
        }
        yield Step(f"pool/{name}", f"{PLANTING}:planted_pool_stage", planted_pool)


def _measurements(settings: RunSettings, task: str, texts: int) -> Iterator[Step]:
    """Yield the steps of one task that fit, score and measure.

    Args:
        settings: Settings of the study.
        task: The task.
        texts: Number of its texts to fit on.

    Raises:
        ConfigError: If they are fewer than the smallest size.
    """
    compare = settings.section("compare")
    sizes = [size for size in compare.fit if size <= texts]
    if not sizes:
        raise ConfigError(
            f"fit={compare.fit}: must be at most {texts}, the texts of task {task} to fit on"
        )
    if len(sizes) < len(compare.fit):
        log.info("compare   %s has %d texts to fit on; larger sizes are skipped", task, texts)
    for size, seed in product(sizes, range(compare.seeds)):
        draw = f"{slug(task)}/{size}-{seed}"
        folder = Path(settings.out) / draw
        fit = {
            "planting": OutputOf(f"texts/{slug(task)}"),
            "folder": folder / "target",
            "size": size,
            "seed": seed,
        }
        yield Step(f"fit/{draw}", f"{PLANTING}:fit_stage", fit)
        inputs = {"target": OutputOf(f"fit/{draw}"), "pool": OutputOf(f"pool/{slug(task)}")}
        for spec in compare.selectors:
            name = f"{draw}/{slug(spec)}"
            scores = None
            if spec != ORACLE:
                scores = OutputOf(f"score/{name}")
                scoring = {
                    **inputs,
                    "selector": spec,
                    "detector": settings.detector,
                    "folder": folder / slug(spec) / "scores",
                    "selection": replace(settings.selection, seed=seed),
                }
                yield Step(scores.step, f"{MEASURES}:score_pool", scoring)
            measuring = {
                **inputs,
                "scores": scores,
                "budgets": compare.budgets,
                "folder": folder / slug(spec) / "measures",
            }
            labels = {"task": task, "fit": str(size), "seed": str(seed), "selector": spec}
            yield Step(f"measure/{name}", f"{MEASURES}:measure_stage", measuring, labels=labels)
