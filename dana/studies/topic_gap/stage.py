"""``dana studies topic-gap``: run topics x n x arms x seeds as steps and build the page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from dana.core.artifacts import MANIFEST, Artifact, Draft, make, open_artifact
from dana.core.config import require
from dana.core.errors import ConfigError, suggestion
from dana.core.files import slug, write_gzip_lines
from dana.core.registry import origin_of
from dana.corpus.documents import source_digests
from dana.models.folder import check_checkpoint, load_config
from dana.report.page import write_page
from dana.scoring.settings import Selection
from dana.stages.finetune import seed_rows
from dana.stages.finetune_steps import SEED_STAGE
from dana.stages.settings import FinetuneSettings, RunSettings
from dana.stages.steps.run import Run
from dana.stages.steps.runner import execute
from dana.stages.steps.step import Step, call_stage
from dana.studies.augmentation.synthetic import LabelledText
from dana.studies.topic_gap.arms import TOPIC_GAP_ARMS, TopicCase, check_arm_texts
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
from dana.tasks.settings import Preset

STEPS = "steps"  # folder of the steps' artifacts
FIELDS = ("text_field", "label_field", "id_field")
POOL = "topic-gap-pool"
SHARES = "topic-gap-shares"
TASK = "topic-gap-task"
DOCUMENTS = "documents.parquet"
THETA = "theta.parquet"
CARD = "card.yaml"
DATA = "data"
METRIC = "macro_f1"


def run_topic_gap(card: str, settings: RunSettings, remake: bool = False) -> Path:
    """Measure what a classifier loses if it is trained off the topic that it is tested on.

    Writes ``topic_gap.html`` and ``.md`` to the run's folder, and ``tables/``: ``results.csv`` (one
    row per topic, n, arm and seed), ``gap.csv`` (one row per topic and n) and ``summary.csv`` (one
    row per n and arm: its difference from off topic, with tests over topics). The steps' artifacts
    are in ``steps/``; existing ones are reused.

    Args:
        card: Name or YAML file of a task card, with one label per text.
        settings: Settings of the run: ``topic_gap``, ``topics``, ``finetune``, ``model``,
            ``pool``, ``data``, ...
        remake: Whether steps of other settings are replaced instead of refused.

    Returns:
        Path of the page.

    Raises:
        ConfigError: If a name or number is unknown.
        DataError: If there are too few documents, a label has none left, or a named topic is
            degenerate.
        DanaError: If steps failed; raised when all others are done.
    """
    _check(card, settings)
    splits = topic_splits(settings)
    folder = prepare_shares(card, settings, splits)
    documents, theta = open_documents(folder)
    names = settings.section("topic_gap").topics
    topics, left_out = select_topics(documents, theta, names, splits)
    steps: list[Step] = []
    for topic, split in product(topics, splits):
        steps += steps_of_topic(card, settings, topic, split)
    run = Run(folder, tuple(steps))
    if not remake:
        _refuse_changed(run)
    paths = execute(run, settings.jobs, remake=remake)
    pool = open_artifact(folder / "pool", POOL).manifest
    table = pd.read_csv(_topic_model(settings) / TOPICS, keep_default_na=False)
    words = dict(zip(table["topic"].astype(int), table["words"], strict=True))
    report = gap_report(
        task=load_card(card).name,
        model=str(settings.model),
        results=_results(run, paths, words),
        counts=pool["counts"],
        left_out=left_out,
        words=words,
        labels=len(pool["depends_on"]["taken"]),
    )
    return write_page(report, Path(settings.out), "topic_gap")


def _refuse_changed(run: Run) -> None:
    """Refuse settings that differ from those of existing steps, before any training.

    It runs one finished step again, with its task, as all steps have the same settings: that gives
    one error, which names the flag.

    Raises:
        Contradiction: If the settings differ.
    """
    finished = _finished_step(run)
    if finished is None:
        return
    for step in run.steps:
        if step.name in finished.needs or step.name == finished.name:
            call_stage(step.stage, step.arguments({}))


def _finished_step(run: Run) -> Step | None:
    """Return the first step of fine-tuning that has finished; None if none has."""
    for step in run.steps:
        if step.name.startswith("finetune/") and (Path(step.settings["out"]) / MANIFEST).is_file():
            return step
    return None


def prepare_shares(card: str, settings: RunSettings, splits: Sequence[TopicSplit]) -> Path:
    """Read the task, fit or open topics, and compute the documents' shares; trains no classifier.

    Args:
        card: Name or YAML file of a task card.
        settings: Settings of the run.
        splits: Sets that each label must have enough documents for.

    Returns:
        Folder of the run, for :func:`open_documents`.

    Raises:
        DataError: If there are too few documents.
    """
    folder = Path(settings.out) / STEPS
    gap = settings.section("topic_gap")
    seed = settings.selection.seed
    fields = {name: getattr(settings.finetune, name) for name in FIELDS}
    read = replace(FinetuneSettings(), **fields)
    window = Window(gap.window, gap.short, seed)
    pool = gap_pool_stage(card, folder / "pool", window, gap.labels, read, settings.data).path
    labels = pd.read_parquet(pool / DOCUMENTS, columns=["label"])["label"]
    for split in splits:
        require_enough(labels, split)
    if not gap.topics_of:
        run_topic_fit(_fit_settings(settings, pool, folder / "topics"))
    shares_stage(pool, _topic_model(settings), folder / "shares")
    return folder


def _fit_settings(settings: RunSettings, pool: Path, out: Path) -> RunSettings:
    """Return the settings of the topics' fit: to the run's pool text, or else to the task's."""
    fit = RunSettings(pool=[str(pool / DOCUMENTS)])
    if settings.pool:
        fit = replace(
            fit,
            pool=settings.pool,
            inputs=settings.inputs,
            on_bad_record=settings.on_bad_record,
        )
    selection = replace(Selection(), seed=settings.selection.seed)
    return replace(fit, out=str(out), selection=selection, **{"topics": settings.section("topics")})


def check_task_of_topics(card: str, settings: RunSettings) -> TaskCard:
    """Check the names of a task, its labels and topics before any text is read.

    Raises:
        ConfigError: If a name is unknown, or the task does not have one label per text.
    """
    gap = settings.section("topic_gap")
    task = load_card(card)
    require(task.kind == DEFAULT, "kind", task.kind, f"{DEFAULT} for the topic gap")
    require(task.text_pair is None, "text_pair", task.text_pair, "empty for the topic gap")
    for label in gap.labels:
        if label not in task.labels:
            raise ConfigError(
                f"labels: unknown label {label!r} of {task.name}{suggestion(label, task.labels)}"
            )
    settings.section("topics").identity()
    if gap.topics_of:
        open_topics(Path(gap.topics_of))
    return task


def _check(card: str, settings: RunSettings) -> None:
    """Check every name before any text is read."""
    task = check_task_of_topics(card, settings)
    remedy = "the checkpoint to fine-tune: a folder or a Hub name"
    require(bool(settings.model), "--model", settings.model, remedy)
    check_checkpoint(str(settings.model))
    for arm in settings.section("topic_gap").arms:
        TOPIC_GAP_ARMS.create(arm)
    _finetune_settings(settings, task)


def _finetune_settings(settings: RunSettings, task: TaskCard) -> FinetuneSettings:
    """Resolve the settings of fine-tuning; by default the best epoch is tested."""
    finetune = settings.finetune
    if not finetune.evaluate:
        finetune = replace(finetune, evaluate="best")
    resolved = finetune.resolve(task, load_config(str(settings.model)))
    return FinetuneSettings(**asdict(resolved))


def topic_splits(settings: RunSettings) -> list[TopicSplit]:
    """Return the sizes of the sets for each n."""
    gap = settings.section("topic_gap")
    return [
        TopicSplit(n, gap.test, gap.validation, gap.draw, settings.selection.seed) for n in gap.n
    ]


def _topic_model(settings: RunSettings) -> Path:
    """Return the folder of the topics that are given, or of those that the run fits."""
    topics_of = settings.section("topic_gap").topics_of
    folder = Path(topics_of) if topics_of else Path(settings.out) / STEPS / "topics"
    return folder / MODEL


def select_topics(
    documents: pd.DataFrame, theta: np.ndarray, names: Sequence[Any], splits: Sequence[TopicSplit]
) -> tuple[list[int], dict[int, str]]:
    """Select the topics that separate the documents of every label.

    Args:
        documents: Documents, from :func:`open_documents`.
        theta: Their shares of the topics.
        names: Numbers of topics, or ``["all"]`` to leave out degenerate ones.
        splits: Sizes of the sets.

    Returns:
        Numbers of the topics, and those left out with the reason.

    Raises:
        ConfigError: If a topic does not exist.
        DegenerateTopic: If a named topic, or every topic, does not separate the documents.
    """
    count = theta.shape[1]
    topics = list(range(count)) if names == [ALL] else list(names)
    require(max(topics) < count, "topics", topics, f"numbers of topics from 0 to {count - 1}")
    left_out: dict[int, str] = {}
    for topic, split in product(topics, splits):
        try:
            split_by_topic(documents, theta[:, topic], split)
        except DegenerateTopic as error:
            if names != [ALL]:
                raise DegenerateTopic(f"topic {topic}, n={split.n}: {error}") from error
            left_out[topic] = f"n={split.n}: {error}"
    if len(left_out) == len(topics):
        raise DegenerateTopic(f"topics=all: none is left; topic {topics[0]}, {left_out[topics[0]]}")
    return [topic for topic in topics if topic not in left_out], left_out


def steps_of_topic(
    card: str, settings: RunSettings, topic: int, split: TopicSplit
) -> Iterator[Step]:
    """Yield the steps of one topic and n: every arm's task, and its fine-tuning with every seed."""
    steps = Path(settings.out) / STEPS
    folder = f"topic-{topic}/n{split.n}"
    finetune = _finetune_settings(settings, load_card(card))
    seeds = replace(Preset(), seeds=finetune.seeds or 1).seed_list
    # The last step that wrote a task with a seed, or with none: arms with one seed run one after
    # the other, as they share `work`.
    last_step: dict[str, str] = {}
    for arm, seed in product(settings.section("topic_gap").arms, seeds):
        is_seeded = TOPIC_GAP_ARMS.create(arm).seeded
        seed_folder = f"/seed-{seed}" if is_seeded else ""
        task_step = f"arm/{folder}/{slug(arm)}{seed_folder}"
        previous = last_step.get(seed_folder)
        if previous != task_step:  # an arm that is not seeded is made once for all seeds
            arguments = {
                "steps": steps,
                "topics": _topic_model(settings),
                "arm": arm,
                "topic": topic,
                "split": split,
                "folder": steps / task_step,
                "seed": seed if is_seeded else None,
                "work": steps / f"work/{folder}{seed_folder}",
            }
            needs = () if previous is None else (previous,)
            yield Step(task_step, f"{__name__}:arm_stage", arguments, needs)
            last_step[seed_folder] = task_step
        name = f"finetune/{folder}/{slug(arm)}/seed-{seed}"
        tuning = {
            "model": settings.model,
            "card": steps / task_step / CARD,
            "settings": replace(finetune, seeds=None),
            "seed": seed,
            "out": steps / name,
        }
        labels = {"topic": str(topic), "texts": str(split.n), "arm": arm}
        yield Step(name, SEED_STAGE, tuning, (task_step,), labels, is_alone=True)


def _results(run: Run, paths: dict[str, str], words: dict[int, str]) -> pd.DataFrame:
    """Tabulate the scores, one row per topic, n, arm and seed."""
    rows: list[dict[str, Any]] = []
    for step in run.steps:
        if not step.name.startswith("finetune/"):
            continue
        result = open_artifact(Path(paths[step.name]), "finetune")
        topic = int(step.labels["topic"])
        [seed] = seed_rows(result)
        row = {
            "topic": topic,
            "words": words[topic],
            "n": int(step.labels["texts"]),
            "arm": step.labels["arm"],
            "seed": seed["seed"],
            "score": seed["score"],
            "dev_score": seed["dev_score"],
            "epoch": seed["epoch"],
            "collapsed": seed["degenerate"],
        }
        row |= {part: result.manifest["counts"][part] for part in SPLITS}
        rows.append(row)
    return pd.DataFrame(rows)


def gap_pool_stage(
    card: str,
    folder: Path,
    window: Window,
    labels: list[str],
    read: FinetuneSettings,
    data: str | None = None,
) -> Artifact:
    """Read all splits of a task as one pool of documents.

    See :func:`dana.studies.topic_gap.documents.pool_documents`.

    Args:
        card: Name or YAML file of a task card.
        folder: Folder of ``documents.parquet``: id, label, text, whole, stripped.
        window: Window of a document.
        labels: Labels to use; empty for all.
        read: Names of fields, if they differ from the card's.
        data: Folder of the card's data.

    Raises:
        DataError: If the data is bad, the window is longer than every text, or a label has no
            documents left.
    """
    task = read.fields_of(load_card(card))
    identity = {
        "name": task.name,
        **task.text_identity,
        "labels": task.labels,
        "label": task.label,
        "data": source_digests(task.files(data, SPLITS)),
    }
    labels_used = [label for label in task.labels if not labels or label in labels]
    depends_on = {"task": identity, "window": asdict(window), "taken": labels_used}

    def write(draft: Draft) -> None:
        splits = {split: read_split(task, split, data) for split in SPLITS}
        documents, draft.counts = pool_documents(splits, task.labels, labels_used, window)
        documents.to_parquet(draft.path / DOCUMENTS, compression="zstd", index=False)

    return make(folder, POOL, depends_on, write)


def shares_stage(pool: Path, topics: Path, folder: Path) -> Artifact:
    """Compute the topic shares of every whole document of a pool.

    Args:
        pool: Artifact of :func:`gap_pool_stage`.
        topics: Folder ``topic-model`` of a run.
        folder: Folder of ``theta.parquet``: id, theta.
    """
    depends_on = {
        "pool": open_artifact(pool, POOL).fingerprint,
        "topics": open_artifact(topics, MODEL).fingerprint,
    }

    def write(draft: Draft) -> None:
        documents = pd.read_parquet(pool / DOCUMENTS)
        theta = Topics.load(topics).theta(documents["text"].tolist())
        shares = pd.DataFrame({"id": documents["id"], "theta": list(theta)})
        shares.to_parquet(draft.path / THETA, compression="zstd", index=False)

    return make(folder, SHARES, depends_on, write)


def open_documents(steps: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Open the documents of a pool and their topic shares, float32 of shape (documents, topics)."""
    open_artifact(steps / "pool", POOL)
    open_artifact(steps / "shares", SHARES)
    theta = pd.read_parquet(steps / "shares" / THETA)["theta"]
    return pd.read_parquet(steps / "pool" / DOCUMENTS), np.stack(theta.tolist())


def arm_stage(
    steps: Path,
    topics: Path,
    folder: Path,
    arm: str,
    topic: int,
    split: TopicSplit,
    seed: int | None,
    work: Path,
) -> Artifact:
    """Write the task of one arm on one topic: training texts, validation set and test set.

    Args:
        steps: Folder with the artifacts of :func:`gap_pool_stage` and :func:`shares_stage`.
        topics: Folder of the topic model.
        folder: Folder of ``card.yaml`` and ``data/``, for ``dana finetune --task``.
        arm: Spec of the arm.
        topic: Number of the topic.
        split: Sizes of the sets.
        seed: Root seed of the arm; None if it draws nothing.
        work: Folder that arms of this topic, n and seed share.

    Raises:
        DataError: If the arm returns a test text, or no text.
    """
    component = TOPIC_GAP_ARMS.create(arm)
    depends_on = {
        "shares": open_artifact(steps / "shares", SHARES).fingerprint,
        "topic": topic,
        "split": asdict(split),
        "arm": component.identity(),
        "code": origin_of(component),
        "seed": seed,
    }

    def write(draft: Draft) -> None:
        documents, theta = open_documents(steps)
        share = theta[:, topic]
        documents = documents.assign(share=share, set=split_by_topic(documents, share, split))
        case = TopicCase(topic, split.n, documents, topics)
        train = component.texts(case, seed or 0, work)
        check_arm_texts(arm, case, train)
        splits = {"train": train, "dev": case.texts("validation"), "test": case.texts("test")}
        labels = open_artifact(steps / "pool", POOL).manifest["depends_on"]["taken"]
        _write_task(draft.path, f"topic-{topic}-n{split.n}-{arm}", labels, splits)
        draft.counts = {name: len(texts) for name, texts in splits.items()}

    return make(folder, TASK, depends_on, write)


def _write_task(
    folder: Path, name: str, labels: Sequence[str], splits: Mapping[str, Sequence[LabelledText]]
) -> None:
    """Write ``card.yaml`` and ``data/{train,dev,test}.jsonl.gz``."""
    (folder / DATA).mkdir()
    for split, texts in splits.items():
        write_gzip_lines(folder / DATA / f"{split}.jsonl.gz", map(asdict, texts))
    card = {
        "name": name,
        "title": f"Texts of {name}",
        "version": 1,
        "data": {"local": DATA},
        "labels": list(labels),
        "metric": METRIC,
        "splits": {split: len(texts) for split, texts in splits.items()},
    }
    text = yaml.safe_dump(card, sort_keys=False, allow_unicode=True)
    (folder / CARD).write_text(text, encoding="utf-8")
