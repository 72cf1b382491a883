"""Cells of the topic gap: a task to a pool of documents, their topics, one topic's sets, an arm's task, its score."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from dana.core.artifacts import Artifact, Draft, make, open_artifact, write_text
from dana.core.files import write_packed_lines
from dana.core.origin import origin_of
from dana.corpus.documents import source_digests
from dana.stages.finetune import finetune_stage
from dana.stages.settings import FinetuneSettings
from dana.studies.augmentation.keywords import LabelledText
from dana.studies.topic_gap.arms import TOPIC_GAP_ARMS, TopicCase, checked_texts
from dana.studies.topic_gap.documents import SETS, UNUSED, SetSizes, Window, pool_documents, split_by_topic
from dana.studies.topics.model import Topics
from dana.studies.topics.stage import MODEL
from dana.tasks.card import SPLITS, load_card
from dana.tasks.examples import read_split

POOL, SHARES, SPLIT, TASK = "topic-gap-pool", "topic-gap-shares", "topic-gap-split", "topic-gap-task"
DOCUMENTS, THETA, SETS_TABLE = "documents.parquet", "theta.parquet", "sets.csv"
CARD, DATA = "card.yaml", "data"
METRIC = "macro_f1"
AT_ONCE = 4096  # documents whose words are counted together


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

    def write(draft: Draft) -> None:
        splits = {split: read_split(task, split, data) for split in SPLITS}
        documents, draft.counts = pool_documents(splits, task.labels, labels or task.labels, window)
        columns = {name: pa.array(documents[name], pa.string()) for name in documents}
        pq.write_table(pa.table(columns), draft.path / DOCUMENTS, compression="zstd")

    return make(folder, POOL, {"task": about, "window": asdict(window), "taken": labels}, write)


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


def open_documents(pool: Path, shares: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """The documents of a pool, and float32 of shape (documents, topics): how much of each is of each topic."""
    open_artifact(pool, POOL)
    open_artifact(shares, SHARES)
    return pd.read_parquet(pool / DOCUMENTS), np.stack(pq.read_table(shares / THETA)["theta"].to_numpy())


def split_stage(pool: Path, shares: Path, folder: Path, topic: int, sizes: SetSizes, draw: str, seed: int) -> Artifact:
    """Share the documents of a pool out by one topic; see :func:`dana.studies.topic_gap.documents.split_by_topic`.

    Args:
        pool: Of :func:`gap_pool_stage`.
        shares: Of :func:`shares_stage`.
        folder: Where ``sets.csv`` goes: id, label, set, share; a document of no set has no row.
        topic: Its number.
        sizes: Of the sets.
        draw: ``ranks`` or ``random``.
        seed: Of a random draw.
    """
    opened = open_artifact(shares, SHARES)
    depends_on = {"shares": opened.fingerprint, "topic": topic, "sizes": asdict(sizes), "draw": draw}
    if draw != "ranks":
        depends_on["seed"] = seed

    def write(draft: Draft) -> None:
        documents, theta = open_documents(pool, shares)
        share = theta[:, topic]
        sets = split_by_topic(documents, share, sizes, draw, seed)
        rows = documents[["id", "label"]].assign(set=sets, share=share.astype(np.float64))
        table = pd.concat([rows[rows["set"] == name] for name in SETS])
        write_text(draft.path / SETS_TABLE, table.to_csv(index=False))
        draft.counts = {name: int((sets == name).sum()) for name in (*SETS, UNUSED)}

    return make(folder, SPLIT, depends_on, write)


def _open_case(pool: Path, shares: Path, split: Path, topics: Path) -> TopicCase:
    """What an arm is given of one topic and n."""
    about = open_artifact(split, SPLIT).manifest["depends_on"]
    documents, theta = open_documents(pool, shares)
    table = pd.read_csv(split / SETS_TABLE, dtype={"id": str}, keep_default_na=False).set_index("id")
    documents = documents.assign(share=theta[:, about["topic"]], set=documents["id"].map(table["set"]).fillna(UNUSED))
    return TopicCase(about["topic"], about["sizes"]["n"], documents, topics)


def arm_stage(
    pool: Path, shares: Path, split: Path, topics: Path, folder: Path, arm: str, seed: int, work: Path
) -> Artifact:
    """Make the task of one arm on one topic: what it trains on, the topic's validation and test sets.

    Args:
        pool: Of :func:`gap_pool_stage`.
        shares: Of :func:`shares_stage`.
        split: Of :func:`split_stage`.
        topics: Folder of the topic model.
        folder: Where ``card.yaml`` and ``data/`` go; ``dana finetune --task-card`` takes the card.
        arm: Its spec.
        seed: Root seed of what it draws.
        work: Where arms of this topic, n and seed may keep what they share.

    Raises:
        DataError: If the arm gives a test text, or none.
    """
    component, opened = TOPIC_GAP_ARMS.create(arm), open_artifact(split, SPLIT)
    depends_on: dict[str, Any] = {"split": opened.fingerprint, "arm": component.identity()}
    depends_on |= {"code": origin_of(component), "seed": seed if component.seeded else None}

    def write(draft: Draft) -> None:
        case = _open_case(pool, shares, split, topics)
        given = checked_texts(arm, case, component.texts(case, seed, work))
        dev = case.texts("validation") if given.validation is None else given.validation
        splits = {"train": given.train, "dev": dev, "test": case.texts("test")}
        labels = labels_taken(open_artifact(pool, POOL))
        _write_task(draft.path, f"topic-{case.topic}-n{case.n}-{arm}", labels, splits)
        draft.counts = {name: len(texts) for name, texts in splits.items()}

    return make(folder, TASK, depends_on, write)


def labels_taken(pool: Artifact) -> list[str]:
    """The labels of a pool, in the card's order."""
    about = pool.manifest["depends_on"]
    return [label for label in about["task"]["labels"] if label in (about["taken"] or about["task"]["labels"])]


def tune_stage(model: str, task: Path, settings: FinetuneSettings, out: Path, seed: int) -> Artifact:
    """Fine-tune on an arm's task with one seed; see :func:`dana.stages.finetune.finetune_stage`."""
    return finetune_stage(model, str(task / CARD), replace(settings, seeds=[seed]), out)


def _write_task(folder: Path, name: str, labels: Sequence[str], splits: Mapping[str, Sequence[LabelledText]]) -> None:
    """Write ``card.yaml`` and ``data/{train,dev,test}.jsonl.gz``; the same texts give the same bytes."""
    (folder / DATA).mkdir()
    for split, texts in splits.items():
        write_packed_lines(folder / DATA / f"{split}.jsonl.gz", map(asdict, texts))
    card = {"name": name, "title": f"Texts of {name}", "version": 1, "data": {"local": DATA}, "labels": list(labels)}
    card |= {"metric": METRIC, "splits": {split: len(texts) for split, texts in splits.items()}}
    (folder / CARD).write_text(yaml.safe_dump(card, sort_keys=False, allow_unicode=True), encoding="utf-8")
