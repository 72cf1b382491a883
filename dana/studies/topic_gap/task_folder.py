"""A topic's sets as a task: texts by split to a folder with a card, which ``dana finetune`` takes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from dana.core.files import write_packed_lines
from dana.studies.topic_gap.arm import TrainingText

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
        rows = ({**one.about, "id": one.id, "text": one.text, "label": one.label} for one in texts)
        write_packed_lines(folder / DATA / f"{split}.jsonl.gz", rows)
    card = {"name": name, "title": f"Texts of {name}", "version": 1, "data": {"local": DATA}, "labels": list(labels)}
    card |= {"metric": METRIC, "splits": {split: len(texts) for split, texts in splits.items()}}
    (folder / CARD).write_text(yaml.safe_dump(card, sort_keys=False, allow_unicode=True), encoding="utf-8")
