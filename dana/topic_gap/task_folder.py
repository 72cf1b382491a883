"""A topic's sets as a task: texts by split to a folder with a card, which ``dana finetune`` takes."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from dana.topic_gap.arm import TrainingText

CARD, DATA = "card.yaml", "data"
METRIC = "macro_f1"


def write_task(folder: Path, name: str, labels: Sequence[str], splits: Mapping[str, Sequence[TrainingText]]) -> None:
    """Write ``card.yaml`` and ``data/{train,dev,test}.jsonl.gz``; the same texts give the same bytes.

    Args:
        folder: Where.
        name: Of the task.
        labels: In the order of the logits.
        splits: Texts of train, dev and test.
    """
    (folder / DATA).mkdir()
    for split, texts in splits.items():
        path = folder / DATA / f"{split}.jsonl.gz"
        with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as stream:
            for one in texts:
                row = {**one.about, "id": one.id, "text": one.text, "label": one.label}
                stream.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
    card = {"name": name, "title": f"Texts of {name}", "version": 1, "data": {"local": DATA}, "labels": list(labels)}
    card |= {"metric": METRIC, "splits": {split: len(texts) for split, texts in splits.items()}}
    (folder / CARD).write_text(yaml.safe_dump(card, sort_keys=False, allow_unicode=True), encoding="utf-8")
