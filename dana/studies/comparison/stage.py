"""``dana compare``: tasks x selectors x budgets as a grid of cells, to one tidy table, before any training."""

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
from dana.stages.grid.cell import Cell, Made
from dana.stages.grid.grid import Grid
from dana.stages.grid.runner import run_grid
from dana.stages.settings import RunSettings
from dana.studies.comparison.page import SUMMARY, comparison_report, write_comparison
from dana.studies.comparison.settings import ORACLE, SOURCE
from dana.tasks.examples import find_task
from dana.tasks.settings import Hygiene

log = get_logger(__name__)

PLANTING, MEASURES = "dana.studies.comparison.planting", "dana.studies.comparison.measures"


def run_compare(settings: RunSettings) -> Path:
    """Make pools and scores, measure, and collect; what was made before is reused.

    Returns:
        The path of ``comparison.csv`` (:func:`dana.studies.comparison.page.write_comparison`); ``report.html`` and
        ``report.md`` beside it show it.

    Raises:
        ConfigError: Before anything is fitted, if a task has fewer texts to fit on than the smallest size wants.
    """
    _check(settings)
    out = Path(settings.out)
    run_grid(Grid(out, tuple(_plantings(settings))), settings.jobs)
    grid = plan_compare(settings)
    run_grid(grid, settings.jobs)
    path = write_comparison(grid)
    table = pd.read_csv(path, dtype={"budget": str}, keep_default_na=False)
    write_page(comparison_report(out.resolve().name, table, pd.read_csv(out / SUMMARY)), out, "report")
    return path


def plan_compare(settings: RunSettings) -> Grid:
    """All cells; before the tasks are read, when nobody knows how much text they have, those that read them."""
    _check(settings)
    cells = list(_plantings(settings))
    for task in _tasks(settings):
        folder = Path(settings.out) / slug(task)
        if (folder / "texts").is_dir():
            cells += _measured(settings, task, open_artifact(folder / "texts", "planting").manifest["counts"]["fit"])
    return Grid(Path(settings.out), tuple(cells))


def _tasks(settings: RunSettings) -> list[str]:
    """The tasks that are compared on: the recipe's own where none is named."""
    return settings.section("compare").tasks or ([settings.task] if settings.task else [])


def _check(settings: RunSettings) -> None:
    """Look up every task and selector before any text is read."""
    tasks = _tasks(settings)
    require(bool(tasks), "tasks", tasks, "at least one")
    require(bool(settings.general), "general", settings.general, "at least one file, folder, glob, URL or hf: name")
    for task in tasks:
        if not task.startswith(SOURCE):
            find_task(task)
    for spec in settings.section("compare").selectors:
        if spec != ORACLE:
            selector = build_selector(spec, settings.detector, settings.selection)
            if "detector" in selector.uses and settings.detector == "auto":
                raise ConfigError(f"selectors={spec!r}: name its detector, for example {spec}:knn")
            selector.identity()
    allowed = "left out: the pool is compared as it is; --out names a new folder"
    require(settings.hygiene == Hygiene(), "hygiene", vars(settings.hygiene), allowed)


def _plantings(settings: RunSettings) -> Iterator[Cell]:
    """Cells that read the texts."""
    out, compare = Path(settings.out), settings.section("compare")
    corpus = {"sources": settings.general, "folder": out / "corpus", "on_bad_record": settings.on_bad_record}
    yield Cell("general", "dana.stages.texts:corpus_stage", {**corpus, "inputs": settings.inputs})
    for task in _tasks(settings):
        folder = out / slug(task)
        arguments = {"task": task, "corpus": Made("general"), "folder": folder / "texts", "plants": compare.plants}
        arguments |= {"data": settings.data, "inputs": settings.inputs}
        yield Cell(f"texts/{slug(task)}", f"{PLANTING}:plant_stage", arguments)
        hidden = {"planting": Made(f"texts/{slug(task)}"), "corpus": Made("general"), "folder": folder / "pool"}
        hidden |= {"others": compare.others, "language": settings.selection.language}
        yield Cell(f"pool/{slug(task)}", f"{PLANTING}:pool_stage", hidden)


def _measured(settings: RunSettings, task: str, texts: int) -> Iterator[Cell]:
    """Cells of one task that fit, score and measure; `texts` is how many there are to fit on."""
    compare, pool = settings.section("compare"), Made(f"pool/{slug(task)}")
    sizes = [size for size in compare.fit if size <= texts]
    if not sizes:
        raise ConfigError(f"fit={compare.fit}: task {task} has {texts} texts to fit on; give a size up to {texts}")
    if len(sizes) < len(compare.fit):
        log.info("compare   %s has %d texts to fit on: no fit of more", task, texts)
    for size, seed in product(sizes, range(compare.seeds)):
        place = f"{slug(task)}/{size}-{seed}"
        folder = Path(settings.out) / place
        fit = {"planting": Made(f"texts/{slug(task)}"), "folder": folder / "task", "size": size, "seed": seed}
        yield Cell(f"fit/{place}", f"{PLANTING}:fit_stage", fit)
        texts_of = {"task": Made(f"fit/{place}"), "pool": pool}
        for spec in compare.selectors:
            name = f"{place}/{slug(spec)}"
            if spec != ORACLE:
                scoring = {"selector": spec, "detector": settings.detector, "folder": folder / slug(spec) / "scores"}
                scoring["selection"] = replace(settings.selection, seed=seed)
                yield Cell(f"score/{name}", f"{MEASURES}:score_pool", texts_of | scoring)
            measured = {"scores": None if spec == ORACLE else Made(f"score/{name}"), "budgets": compare.budgets}
            measured |= {**texts_of, "folder": folder / slug(spec) / "measures"}
            labels = {"task": task, "fit": str(size), "seed": str(seed), "selector": spec}
            yield Cell(f"measure/{name}", f"{MEASURES}:measure_stage", measured, labels=labels)
