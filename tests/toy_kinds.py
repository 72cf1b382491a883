"""Tasks of every kind that a tiny model can learn, and a run of one: what tests of the kinds share."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import toy_task
import yaml
from toy_task import FILLERS, SIGNS

from dana.stages.finetune import FinetuneSettings, finetune_stage

COUNTS = {"train": 120, "dev": 30, "test": 60}


def multi_label_row(number: int, random: np.random.Generator) -> dict[str, Any]:
    """The labels are the topics whose words are in the text: none to all of them."""
    topics = [topic for index, topic in enumerate(SIGNS) if number >> index & 1]
    words = list(random.choice(FILLERS, random.integers(2, 6)))
    words += [word for topic in topics for word in random.choice(SIGNS[topic], 2)]
    random.shuffle(words)
    return {"text": " ".join(words), "label": topics}


def regression_row(number: int, random: np.random.Generator) -> dict[str, Any]:
    """How many of six words are of metals, in a unit that is far from 1."""
    metals = number % 7
    words = [*random.choice(SIGNS["metal"], metals), *random.choice(SIGNS["bird"], 6 - metals)]
    random.shuffle(words)
    return {"text": " ".join(words), "label": 500 + 40.0 * metals}


def token_label_row(number: int, random: np.random.Generator) -> dict[str, Any]:
    """Spans of one or two birds or metals among fillers, with BIO tags."""
    tokens, tags = [], []
    for _ in range(random.integers(2, 5)):
        topic, size = random.choice(["bird", "metal"]), int(random.integers(1, 3))
        tokens += [*random.choice(FILLERS, random.integers(1, 3)), *SIGNS[topic][:size]]
        tags += ["O"] * (len(tokens) - len(tags) - size) + [f"B-{topic}", f"I-{topic}"][:size]
    return {"tokens": list(map(str, tokens)), "tags": tags}


KINDS = {
    "multi_label": multi_label_row,
    "regression": regression_row,
    "token_labels": token_label_row,
}
PRESET = {**toy_task.PRESET, "epochs": 14, "learning_rate": 3e-3}
TAGS = ["O", "B-bird", "I-bird", "B-metal", "I-metal"]
CHANGES: dict[str, dict[str, Any]] = {
    "multi_label": {"metric": "micro_f1", "presets": {"quick": PRESET}},
    "token_labels": {"metric": "span_f1", "text": "tokens", "label": "tags", "labels": TAGS},
    "regression": {"metric": "mae", "labels": None},
}


def rows(kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Draw rows of a kind."""
    random = np.random.default_rng(seed)
    return [{"id": f"{seed}-{number}", **KINDS[kind](number, random)} for number in range(count)]


ROWS = {kind: partial(rows, kind) for kind in KINDS}


def write_task(folder: Path, kind: str, **changes: Any) -> Path:
    """A card of a kind with 120 training, 30 development and 60 test examples beside it; None removes a key."""
    card = toy_task.write_task(folder, **{"kind": kind, **CHANGES[kind], **changes})
    values = yaml.safe_load(card.read_text(encoding="utf-8"))
    card.write_text(
        yaml.safe_dump({key: value for key, value in values.items() if value is not None})
    )
    for seed, (split, count) in enumerate(COUNTS.items(), 1):
        toy_task.write_split(folder / "toy", split, rows(kind, count, seed))
    return card


def finetuned(checkpoint: str, folder: Path, kind: str, **settings: Any) -> Path:
    """A fine-tuning in ``folder/finetune/toy/dana``, its model beside it; the card is in ``folder/tasks``."""
    card, out = write_task(folder / "tasks", kind), folder / "finetune" / "toy" / "dana"
    finetune_stage(
        checkpoint,
        str(card),
        FinetuneSettings(**{"preset": "quick", "seeds": 1, "save": True, **settings}),
        out,
    )
    return out


def metrics(out: Path) -> dict[str, Any]:
    """What ``metrics.json`` says."""
    return json.loads((out / "metrics.json").read_text(encoding="utf-8"))
