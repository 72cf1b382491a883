"""``dana topic-gap``: topics x n x arms x seeds as a grid of cells, to tables and a page of what topic costs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dana.core.artifacts import MANIFEST, open_artifact
from dana.core.config import require
from dana.core.errors import ConfigError, suggestion
from dana.core.files import slug
from dana.models.folder import check_checkpoint
from dana.report.page import write_page
from dana.scoring.settings import Selection
from dana.stages.finetune import seed_rows
from dana.stages.grid.cell import Cell, Made, call_stage
from dana.stages.grid.grid import Grid
from dana.stages.grid.runner import run_grid
from dana.stages.settings import FinetuneSettings, RunSettings
from dana.studies.topic_gap.arms import TOPIC_GAP_ARMS
from dana.studies.topic_gap.cells import DOCUMENTS, POOL, open_documents
from dana.studies.topic_gap.documents import DegenerateTopic, SetSizes, Window, require_enough, split_by_topic
from dana.studies.topic_gap.page import gap_report
from dana.studies.topic_gap.settings import ALL
from dana.studies.topics.stage import MODEL, TOPICS, fitted_topics
from dana.tasks.card import TaskCard, load_card
from dana.tasks.kinds import DEFAULT

GRID = "grid"  # folder of what the cells make, beside the tables and the page
CELLS = "dana.studies.topic_gap.cells"
FIELDS = ("text_field", "label_field", "id_field")


def run_topic_gap(card: str, settings: RunSettings) -> Path:
    """Measure what a classifier loses where the topic of its training texts is not that of the test texts.

    Writes into the run's folder ``topic_gap.html`` and ``.md``, its figure, and ``tables/``: ``results.csv`` (a row a
    topic, n, arm and seed), ``gap.csv`` (a row a topic and n) and ``summary.csv`` (a row an n and arm: its difference
    from off topic, with tests over topics); what they are made from is in ``grid/``. What was made before is reused.

    Args:
        card: A task card's name or YAML file, of one label a text.
        settings: Of the run: ``topic_gap``, ``topics``, ``finetune``, ``model``, ``general``, ``data``, ``out``, ...

    Returns:
        The page.

    Raises:
        ConfigError: If a name or number is not one that there is.
        DataError: If there are too few documents, nothing is left of a label, or a named topic is degenerate.
        DanaError: Of cells that failed, when all others are done.
    """
    _check(card, settings)
    prepared = prepare_shares(card, settings, _sizes(settings))
    grid, left_out = _planned(card, settings)
    _refuse_changed(grid, prepared)
    made = run_grid(grid, settings.jobs)
    counts = open_artifact(Path(settings.out) / GRID / "pool", POOL).manifest["counts"]
    table = pd.read_csv(_topic_model(settings) / TOPICS, keep_default_na=False)
    words = dict(zip(table["topic"].astype(int), table["words"], strict=True))
    results = _results(grid, made, words)
    report = gap_report(load_card(card).name, str(settings.model), results, counts, left_out, words)
    return write_page(report, Path(settings.out), "topic_gap")


def _refuse_changed(grid: Grid, prepared: dict[str, str]) -> None:
    """Refuse other settings than those of what is there before any training, by one error that names the flag.

    All sets are made; and the first cell that is fine-tuned already is asked for again with its task, as all have the
    same settings.

    Raises:
        Contradiction: If they differ.
        DataError: If a label has too few documents.
    """
    made, by_name = dict(prepared), {cell.name: cell for cell in grid.cells}
    wanted = [name for name in by_name if name.startswith("split/")]
    tuned = (cell for cell in grid.cells if cell.name.startswith("finetune/"))
    if done := next((cell for cell in tuned if (Path(cell.settings["out"]) / MANIFEST).is_file()), None):
        wanted += [done.settings["task"].cell, done.name]
    for name in wanted:
        made[name], _ = call_stage(by_name[name].stage, by_name[name].arguments(made))


def prepare_shares(card: str, settings: RunSettings, every: Sequence[SetSizes]) -> dict[str, str]:
    """Read the task, fit topics and say how much of each document is of each; nothing is trained.

    Args:
        card: A task card's name or YAML file.
        settings: Of the run.
        every: Sizes that each label must have documents for.

    Returns:
        Folders of ``pool`` and ``shares``, for :func:`dana.studies.topic_gap.cells.open_documents`.

    Raises:
        DataError: If there are too few documents.
    """
    made: dict[str, str] = {}
    for cell in _prepared(card, settings):
        made[cell.name], _ = call_stage(cell.stage, cell.arguments(made))
        if cell.name == "pool":  # before topics are fitted, which takes longer
            labels = pd.read_parquet(Path(made["pool"]) / DOCUMENTS, columns=["label"])["label"]
            for sizes in every:
                require_enough(labels, sizes)
    return made


def plan_topic_gap(card: str, settings: RunSettings) -> Grid:
    """All cells that are known: which topics there are, and are not degenerate, is known when documents have shares."""
    _check(card, settings)
    return _planned(card, settings)[0]


def check_task_of_topics(card: str, settings: RunSettings) -> TaskCard:
    """Look up, before any text is read, the names of a task, its labels and the topics.

    Raises:
        ConfigError: If one is not there, or the task is not of one label a text.
    """
    gap, task = settings.section("topic_gap"), load_card(card)
    require(task.kind == DEFAULT, "kind", task.kind, f"{DEFAULT}: the topic gap is of one label a text")
    require(task.text_pair is None, "text_pair", task.text_pair, "left out: a window is of one text")
    for label in gap.labels:
        if label not in task.labels:
            raise ConfigError(f"labels: {label!r} is no label of {task.name}{suggestion(label, task.labels)}")
    settings.section("topics").identity()
    if gap.topics_of:
        fitted_topics(Path(gap.topics_of))
    return task


def _check(card: str, settings: RunSettings) -> None:
    """Look every name up before any text is read."""
    gap, task = settings.section("topic_gap"), check_task_of_topics(card, settings)
    require(bool(settings.model), "--model", settings.model, "the checkpoint to fine-tune: a folder or a Hub name")
    check_checkpoint(str(settings.model))
    for arm in gap.arms:
        TOPIC_GAP_ARMS.create(arm)
    names = [slug(arm) for arm in gap.arms]
    require(len(set(names)) == len(names), "arms", gap.arms, "told apart by letters, digits, _ . and -")
    _finetune(settings, task)


def _finetune(settings: RunSettings, task: TaskCard) -> FinetuneSettings:
    """The fine-tuning of a cell: the card's preset with what differs; the best epoch, unless another is asked for."""
    given = settings.finetune if settings.finetune.evaluate else replace(settings.finetune, evaluate="best")
    return FinetuneSettings(**asdict(given.resolve(task)))


def _sizes(settings: RunSettings) -> list[SetSizes]:
    gap = settings.section("topic_gap")
    return [SetSizes(n, gap.test, gap.validation) for n in gap.n]


def _topic_model(settings: RunSettings) -> Path:
    """Folder of the topic model."""
    named = settings.section("topic_gap").topics_of
    return (Path(named) if named else Path(settings.out) / GRID / "topics") / MODEL


def _prepared(card: str, settings: RunSettings) -> Iterator[Cell]:
    """Cells that read the task, fit topics and say how much of each document is of each."""
    folder, gap, seed = Path(settings.out) / GRID, settings.section("topic_gap"), settings.selection.seed
    read = replace(FinetuneSettings(), **{name: getattr(settings.finetune, name) for name in FIELDS})
    pool = {"card": card, "folder": folder / "pool", "window": Window(gap.window, gap.short, seed)}
    yield Cell("pool", f"{CELLS}:gap_pool_stage", {**pool, "labels": gap.labels, "read": read, "data": settings.data})
    if not gap.topics_of:
        of = RunSettings(general=[str(folder / "pool" / DOCUMENTS)])
        if settings.general:
            of = replace(of, general=settings.general, inputs=settings.inputs, on_bad_record=settings.on_bad_record)
        seeded = replace(Selection(), seed=seed)
        of = replace(of, out=str(folder / "topics"), selection=seeded, **{"topics": settings.section("topics")})
        after = () if settings.general else ("pool",)
        yield Cell("topics", "dana.studies.topics.stage:run_topic_fit", {"settings": of}, after)
    shares = {"pool": Made("pool"), "topics": _topic_model(settings), "folder": folder / "shares"}
    yield Cell("shares", f"{CELLS}:shares_stage", shares, after=() if gap.topics_of else ("topics",))


def _planned(card: str, settings: RunSettings) -> tuple[Grid, dict[int, str]]:
    """All cells, and the topics that are left out with the reason."""
    folder, left_out = Path(settings.out) / GRID, dict[int, str]()
    every, topics = _sizes(settings), _wanted(settings)
    if (folder / "shares" / MANIFEST).is_file():
        left_out = degenerate_topics(*open_documents(folder / "pool", folder / "shares"), topics, every, settings)
    cells = list(_prepared(card, settings))
    for topic in topics:
        if topic not in left_out:
            for sizes in every:
                cells += _of_topic(card, settings, topic, sizes)
    return Grid(folder, tuple(cells)), left_out


def degenerate_topics(
    documents: pd.DataFrame,
    theta: np.ndarray,
    topics: Sequence[int],
    every: Sequence[SetSizes],
    settings: RunSettings,
) -> dict[int, str]:
    """Topics that do not tell the documents of a label apart, to be left out, and why.

    Raises:
        ConfigError: If a topic is not one that there is.
        DegenerateTopic: If such a topic was named, or none is left.
    """
    gap, left_out = settings.section("topic_gap"), dict[int, str]()
    numbers = f"numbers of topics, which are 0 to {theta.shape[1] - 1}"
    require(max(topics) < theta.shape[1], "topics", topics, numbers)
    for topic, sizes in product(topics, every):
        try:
            split_by_topic(documents, theta[:, topic], sizes, gap.draw, settings.selection.seed)
        except DegenerateTopic as error:
            if gap.topics != [ALL]:
                raise DegenerateTopic(f"topic {topic}, n={sizes.n}: {error}") from error
            left_out[topic] = f"n={sizes.n}: {error}"
    if len(left_out) == len(topics):
        raise DegenerateTopic(f"topics=all: none is left. topic {topics[0]}, {left_out[topics[0]]}")
    return left_out


def _wanted(settings: RunSettings) -> list[int]:
    """The topics asked for; of ``all``, before it is known how many there are, those of the only number asked for."""
    asked = settings.section("topic_gap").topics
    if asked != [ALL]:
        return [int(topic) for topic in asked]
    table = _topic_model(settings) / TOPICS
    if table.is_file():
        return list(range(len(pd.read_csv(table))))
    return list(range(settings.section("topics").k[0])) if len(settings.section("topics").k) == 1 else []


def _of_topic(card: str, settings: RunSettings, topic: int, sizes: SetSizes) -> Iterator[Cell]:
    """The cells of one topic and n: its sets, every arm's task, every seed's score."""
    gap, folder, seed = settings.section("topic_gap"), Path(settings.out) / GRID, settings.selection.seed
    place, task = f"topic-{topic}/n{sizes.n}", load_card(card)
    given = {"pool": folder / "pool", "shares": Made("shares")}
    split = {**given, "folder": folder / "split" / place, "topic": topic, "sizes": sizes}
    yield Cell(f"split/{place}", f"{CELLS}:split_stage", {**split, "draw": gap.draw, "seed": seed})
    finetune, before = _finetune(settings, task), dict[str, tuple[str, ...]]()
    for arm, own in product(gap.arms, finetune.resolve(task).seed_list):
        seeded = f"/seed-{own}" if TOPIC_GAP_ARMS.create(arm).seeded else ""
        made = f"arm/{place}/{slug(arm)}{seeded}"
        if before.get(seeded) != (made,):  # an arm that is not seeded is made once for all seeds
            about = {**given, "split": Made(f"split/{place}"), "topics": _topic_model(settings), "arm": arm}
            about |= {"folder": folder / made, "seed": own if seeded else 0, "work": folder / f"work/{place}{seeded}"}
            # One after the other, because they may share what lies in `work`.
            yield Cell(made, f"{CELLS}:arm_stage", about, before.get(seeded, ()))
            before[seeded] = (made,)
        name = f"finetune/{place}/{slug(arm)}/seed-{own}"
        tuned = {"model": settings.model, "task": Made(made), "settings": finetune, "seed": own, "out": folder / name}
        labels = {"topic": str(topic), "texts": str(sizes.n), "arm": arm}
        yield Cell(name, f"{CELLS}:tune_stage", tuned, labels=labels, amount=float(sizes.n))


def _results(grid: Grid, made: dict[str, str], words: dict[int, str]) -> pd.DataFrame:
    """A row a topic, n, arm and seed."""
    rows: list[dict[str, Any]] = []
    for cell in grid.cells:
        if not cell.name.startswith("finetune/"):
            continue
        result, topic = open_artifact(Path(made[cell.name]), "finetune"), int(cell.labels["topic"])
        [seed], counts = seed_rows(result), result.manifest["counts"]
        row = {"topic": topic, "words": words[topic], "n": int(cell.labels["texts"]), "arm": cell.labels["arm"]}
        row |= {"seed": seed["seed"], "score": seed["score"], "dev_score": seed["dev_score"], "epoch": seed["epoch"]}
        rows.append(
            row | {"collapsed": seed["degenerate"], **{part: counts[part] for part in ("train", "dev", "test")}}
        )
    return pd.DataFrame(rows)
