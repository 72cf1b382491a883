"""``dana topic-gap``: topics x n x arms x seeds as a grid of cells, and what each of them makes, to a page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from dana.core.artifacts import MANIFEST, Artifact, Draft, make, open_artifact
from dana.core.config import require
from dana.core.errors import ConfigError, suggestion
from dana.core.files import slug, write_packed_lines
from dana.core.registry import origin_of
from dana.corpus.documents import source_digests
from dana.models.folder import check_checkpoint
from dana.report.page import write_page
from dana.scoring.settings import Selection
from dana.stages.finetune import seed_rows
from dana.stages.grid.cell import Cell, call_stage
from dana.stages.grid.grid import Grid
from dana.stages.grid.runner import run_grid
from dana.stages.settings import FinetuneSettings, RunSettings
from dana.studies.augmentation.synthetic import LabelledText
from dana.studies.topic_gap.arms import TOPIC_GAP_ARMS, TopicCase, checked_texts
from dana.studies.topic_gap.documents import (
    DegenerateTopic,
    TopicSplit,
    Window,
    pool_documents,
    require_enough,
    split_by_topic,
)
from dana.studies.topic_gap.page import gap_report
from dana.studies.topic_gap.settings import ALL
from dana.studies.topics.model import Topics
from dana.studies.topics.stage import MODEL, TOPICS, open_topics, run_topic_fit
from dana.tasks.card import SPLITS, TaskCard, load_card
from dana.tasks.examples import read_split
from dana.tasks.kinds import DEFAULT

GRID = "grid"  # folder of what the cells make, beside the tables and the page
FIELDS = ("text_field", "label_field", "id_field")
POOL, SHARES, TASK = "topic-gap-pool", "topic-gap-shares", "topic-gap-task"
DOCUMENTS, THETA = "documents.parquet", "theta.parquet"
CARD, DATA = "card.yaml", "data"
METRIC = "macro_f1"
AT_ONCE = 4096  # documents whose words are counted together


def run_topic_gap(card: str, settings: RunSettings) -> Path:
    """Measure what a classifier loses where the topic of its training texts is not that of the test texts.

    Writes into the run's folder ``topic_gap.html`` and ``.md``, and ``tables/``: ``results.csv`` (a row a
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
    splits, asked = topic_splits(settings), settings.section("topic_gap").topics
    folder = prepare_shares(card, settings, splits)
    topics, left_out = measured_topics(*open_documents(folder), asked, splits)
    cells = [cell for topic in topics for split in splits for cell in cells_of_topic(card, settings, topic, split)]
    grid = Grid(folder, tuple(cells))
    _refuse_changed(grid)
    made = run_grid(grid, settings.jobs)
    counts = open_artifact(folder / "pool", POOL).manifest["counts"]
    table = pd.read_csv(_topic_model(settings) / TOPICS, keep_default_na=False)
    words = dict(zip(table["topic"].astype(int), table["words"], strict=True))
    results = _results(grid, made, words)
    report = gap_report(load_card(card).name, str(settings.model), results, counts, left_out, words)
    return write_page(report, Path(settings.out), "topic_gap")


def _refuse_changed(grid: Grid) -> None:
    """Refuse other settings than those of what is there before any training, by one error that names the flag.

    The first cell that is fine-tuned already is asked for again with its task, as all have the same settings.

    Raises:
        Contradiction: If they differ.
    """
    tuned = (cell for cell in grid.cells if cell.name.startswith("finetune/"))
    done = next((cell for cell in tuned if (Path(cell.settings["out"]) / MANIFEST).is_file()), None)
    for cell in grid.cells if done else ():
        if done and cell.name in (*done.needs, done.name):
            call_stage(cell.stage, cell.arguments({}))


def prepare_shares(card: str, settings: RunSettings, splits: Sequence[TopicSplit]) -> Path:
    """Read the task, fit topics and say how much of each document is of each; nothing is trained.

    Args:
        card: A task card's name or YAML file.
        settings: Of the run.
        splits: What each label must have documents for.

    Returns:
        The grid's folder, for :func:`open_documents`.

    Raises:
        DataError: If there are too few documents.
    """
    folder, gap, seed = Path(settings.out) / GRID, settings.section("topic_gap"), settings.selection.seed
    read = replace(FinetuneSettings(), **{name: getattr(settings.finetune, name) for name in FIELDS})
    window = Window(gap.window, gap.short, seed)
    pool = gap_pool_stage(card, folder / "pool", window, gap.labels, read, settings.data).path
    labels = pd.read_parquet(pool / DOCUMENTS, columns=["label"])["label"]
    for split in splits:
        require_enough(labels, split)
    if not gap.topics_of:
        of = RunSettings(general=[str(pool / DOCUMENTS)])
        if settings.general:
            of = replace(of, general=settings.general, inputs=settings.inputs, on_bad_record=settings.on_bad_record)
        of = replace(of, out=str(folder / "topics"), selection=replace(Selection(), seed=seed))
        run_topic_fit(replace(of, **{"topics": settings.section("topics")}))
    shares_stage(pool, _topic_model(settings), folder / "shares")
    return folder


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
        open_topics(Path(gap.topics_of))
    return task


def _check(card: str, settings: RunSettings) -> None:
    """Look every name up before any text is read."""
    gap, task = settings.section("topic_gap"), check_task_of_topics(card, settings)
    require(bool(settings.model), "--model", settings.model, "the checkpoint to fine-tune: a folder or a Hub name")
    check_checkpoint(str(settings.model))
    for arm in gap.arms:
        TOPIC_GAP_ARMS.create(arm)
    _finetune(settings, task)


def _finetune(settings: RunSettings, task: TaskCard) -> FinetuneSettings:
    """The fine-tuning of a cell: the card's preset with what differs; the best epoch, unless another is asked for."""
    given = settings.finetune if settings.finetune.evaluate else replace(settings.finetune, evaluate="best")
    return FinetuneSettings(**asdict(given.resolve(task)))


def topic_splits(settings: RunSettings) -> list[TopicSplit]:
    """How documents are shared out, of each n."""
    gap = settings.section("topic_gap")
    return [TopicSplit(n, gap.test, gap.validation, gap.draw, settings.selection.seed) for n in gap.n]


def _topic_model(settings: RunSettings) -> Path:
    """Folder of the topic model."""
    named = settings.section("topic_gap").topics_of
    return (Path(named) if named else Path(settings.out) / GRID / "topics") / MODEL


def measured_topics(
    documents: pd.DataFrame, theta: np.ndarray, asked: Sequence[Any], splits: Sequence[TopicSplit]
) -> tuple[list[int], dict[int, str]]:
    """The topics that are asked for, and those of them that do not tell the documents of a label apart, and why.

    Args:
        documents: Of :func:`open_documents`.
        theta: Their shares, of there too.
        asked: Numbers of topics, or ``all``: then those that tell none apart are left out.
        splits: How documents are shared out.

    Raises:
        ConfigError: If a topic is not one that there is.
        DegenerateTopic: If a topic that was named does not tell documents apart, or none of all does.
    """
    count, left_out = theta.shape[1], dict[int, str]()
    topics = list(range(count)) if asked == [ALL] else list(asked)
    require(max(topics) < count, "topics", topics, f"numbers of topics, which are 0 to {count - 1}")
    for topic, split in product(topics, splits):
        try:
            split_by_topic(documents, theta[:, topic], split)
        except DegenerateTopic as error:
            if asked != [ALL]:
                raise DegenerateTopic(f"topic {topic}, n={split.n}: {error}") from error
            left_out[topic] = f"n={split.n}: {error}"
    if len(left_out) == len(topics):
        raise DegenerateTopic(f"topics=all: none is left. topic {topics[0]}, {left_out[topics[0]]}")
    return [topic for topic in topics if topic not in left_out], left_out


def cells_of_topic(card: str, settings: RunSettings, topic: int, split: TopicSplit) -> Iterator[Cell]:
    """The cells of one topic and n: every arm's task, every seed's score."""
    grid, place, before = Path(settings.out) / GRID, f"topic-{topic}/n{split.n}", dict[str, tuple[str, ...]]()
    task = load_card(card)
    finetune = _finetune(settings, task)
    for arm, own in product(settings.section("topic_gap").arms, finetune.resolve(task).seed_list):
        is_seeded = TOPIC_GAP_ARMS.create(arm).seeded
        seeded = f"/seed-{own}" if is_seeded else ""
        made = f"arm/{place}/{slug(arm)}{seeded}"
        if before.get(seeded) != (made,):  # an arm that is not seeded is made once for all seeds
            about = {"grid": grid, "topics": _topic_model(settings), "arm": arm, "topic": topic, "split": split}
            about |= {"folder": grid / made, "seed": own if is_seeded else None, "work": grid / f"work/{place}{seeded}"}
            # One after the other, because they may share what lies in `work`.
            yield Cell(made, f"{__name__}:arm_stage", about, before.get(seeded, ()))
            before[seeded] = (made,)
        name = f"finetune/{place}/{slug(arm)}/seed-{own}"
        tuned = {"model": settings.model, "card": grid / made / CARD, "settings": replace(finetune, seeds=[own])}
        labels = {"topic": str(topic), "texts": str(split.n), "arm": arm}
        stage = "dana.stages.finetune:finetune_stage"
        yield Cell(name, stage, {**tuned, "out": grid / name}, (made,), labels, amount=float(split.n))


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
        row |= {"collapsed": seed["degenerate"], **{part: counts[part] for part in SPLITS}}
        rows.append(row)
    return pd.DataFrame(rows)


def gap_pool_stage(
    card: str, folder: Path, window: Window, labels: list[str], read: FinetuneSettings, data: str | None = None
) -> Artifact:
    """Read all splits of a task as one pool of documents; see :func:`~dana.studies.topic_gap.documents.pool_documents`.

    Args:
        card: A task card's name or YAML file.
        folder: Where ``documents.parquet`` goes: id, label, text, whole, stripped.
        window: How documents are cut.
        labels: Those to take; empty takes all.
        read: Names the fields, where they are not the card's.
        data: Folder of the card's data.

    Raises:
        DataError: If the data is bad, the window is longer than every text, or nothing is left of a label.
    """
    task = read.fields_of(load_card(card))
    about = {"name": task.name, **task.text_identity, "labels": task.labels, "label": task.label}
    about["data"] = source_digests(task.files(data, SPLITS))
    taken = [label for label in task.labels if label in (labels or task.labels)]

    def write(draft: Draft) -> None:
        splits = {split: read_split(task, split, data) for split in SPLITS}
        documents, draft.counts = pool_documents(splits, task.labels, taken, window)
        columns = {name: pa.array(documents[name], pa.string()) for name in documents}
        pq.write_table(pa.table(columns), draft.path / DOCUMENTS, compression="zstd")

    return make(folder, POOL, {"task": about, "window": asdict(window), "taken": taken}, write)


def shares_stage(pool: Path, topics: Path, folder: Path) -> Artifact:
    """Say of every whole document of a pool how much of it is of each topic.

    Args:
        pool: Of :func:`gap_pool_stage`.
        topics: Folder ``topic-model`` of a run.
        folder: Where ``theta.parquet`` goes: id, theta.
    """
    opened, model = open_artifact(pool, POOL), open_artifact(topics, MODEL)

    def write(draft: Draft) -> None:
        documents, fitted = pd.read_parquet(pool / DOCUMENTS), Topics.load(topics)
        texts = documents["text"].tolist()
        parts = [fitted.theta(texts[begin : begin + AT_ONCE]) for begin in range(0, len(texts), AT_ONCE)]
        rows = pa.array(list(np.concatenate(parts)), pa.list_(pa.float32()))
        table = pa.table({"id": pa.array(documents["id"], pa.string()), "theta": rows})
        pq.write_table(table, draft.path / THETA, compression="zstd")

    return make(folder, SHARES, {"pool": opened.fingerprint, "topics": model.fingerprint}, write)


def open_documents(grid: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """The documents of a pool, and float32 of shape (documents, topics): how much of each is of each topic."""
    open_artifact(grid / "pool", POOL)
    open_artifact(grid / "shares", SHARES)
    theta = pq.read_table(grid / "shares" / THETA)["theta"].to_numpy()
    return pd.read_parquet(grid / "pool" / DOCUMENTS), np.stack(theta)


def arm_stage(
    grid: Path, topics: Path, folder: Path, arm: str, topic: int, split: TopicSplit, seed: int | None, work: Path
) -> Artifact:
    """Make the task of one arm on one topic: what it trains on, the topic's validation and test sets.

    Args:
        grid: With the outcome of :func:`gap_pool_stage` and :func:`shares_stage`.
        topics: Folder of the topic model.
        folder: Where ``card.yaml`` and ``data/`` go; ``dana finetune --task-card`` takes the card.
        arm: Its spec.
        topic: Its number.
        split: How its documents are shared out.
        seed: Root seed of what the arm draws; None of one that draws nothing.
        work: Where arms of this topic, n and seed may keep what they share.

    Raises:
        DataError: If the arm gives a test text, or none.
    """
    component, shares = TOPIC_GAP_ARMS.create(arm), open_artifact(grid / "shares", SHARES)
    depends_on = {"shares": shares.fingerprint, "topic": topic, "split": asdict(split), "arm": component.identity()}
    depends_on |= {"code": origin_of(component), "seed": seed}

    def write(draft: Draft) -> None:
        documents, theta = open_documents(grid)
        share = theta[:, topic]
        documents = documents.assign(share=share, set=split_by_topic(documents, share, split))
        case = TopicCase(topic, split.n, documents, topics)
        given = checked_texts(arm, case, component.texts(case, seed or 0, work))
        dev = case.texts("validation") if given.validation is None else given.validation
        splits = {"train": given.train, "dev": dev, "test": case.texts("test")}
        labels = open_artifact(grid / "pool", POOL).manifest["depends_on"]["taken"]
        _write_task(draft.path, f"topic-{topic}-n{split.n}-{arm}", labels, splits)
        draft.counts = {name: len(texts) for name, texts in splits.items()}

    return make(folder, TASK, depends_on, write)


def _write_task(folder: Path, name: str, labels: Sequence[str], splits: Mapping[str, Sequence[LabelledText]]) -> None:
    """Write ``card.yaml`` and ``data/{train,dev,test}.jsonl.gz``; the same texts give the same bytes."""
    (folder / DATA).mkdir()
    for split, texts in splits.items():
        write_packed_lines(folder / DATA / f"{split}.jsonl.gz", map(asdict, texts))
    card = {"name": name, "title": f"Texts of {name}", "version": 1, "data": {"local": DATA}, "labels": list(labels)}
    card |= {"metric": METRIC, "splits": {split: len(texts) for split, texts in splits.items()}}
    (folder / CARD).write_text(yaml.safe_dump(card, sort_keys=False, allow_unicode=True), encoding="utf-8")
