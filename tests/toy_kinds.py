"""Tasks of every kind that a tiny model can learn, and a run of one: what tests of the kinds share."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import toy_task

from dana.stages.finetune import FinetuneSettings, finetune_stage

COUNTS = {"train": 120, "dev": 30, "test": 60}


def multi_label_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """The labels are the topics whose words are in the text: none to all of them."""
    random, made = np.random.default_rng(seed), []
    for number in range(count):
        topics = [topic for place, topic in enumerate(toy_task.SIGNS) if number >> place & 1]
        words = list(random.choice(toy_task.FILLERS, random.integers(2, 6)))
        words += [word for topic in topics for word in random.choice(toy_task.SIGNS[topic], 2)]
        random.shuffle(words)
        made.append({"id": f"{seed}-{number}", "text": " ".join(words), "label": topics})
    return made


def regression_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """How many of six words are of metals, in a unit that is far from 1."""
    random, made = np.random.default_rng(seed), []
    for number in range(count):
        metals = number % 7
        words = [*random.choice(toy_task.SIGNS["metal"], metals), *random.choice(toy_task.SIGNS["bird"], 6 - metals)]
        random.shuffle(words)
        made.append({"id": f"{seed}-{number}", "text": " ".join(words), "label": 500 + 40.0 * metals})
    return made


def token_label_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Spans of one or two birds or metals among fillers, with BIO tags."""
    random, made = np.random.default_rng(seed), []
    for number in range(count):
        tokens, tags = [], []
        for _ in range(random.integers(2, 5)):
            topic, size = random.choice(["bird", "metal"]), int(random.integers(1, 3))
            tokens += [
                *random.choice(toy_task.FILLERS, random.integers(1, 3)),
                *toy_task.SIGNS[topic][:size],
            ]
            tags += ["O"] * (len(tokens) - len(tags) - size) + [f"B-{topic}", f"I-{topic}"][:size]
        made.append({"id": f"{seed}-{number}", "tokens": list(map(str, tokens)), "tags": tags})
    return made


ROWS = {"multi_label": multi_label_rows, "regression": regression_rows, "token_labels": token_label_rows}
CHANGES: dict[str, dict[str, Any]] = {
    "multi_label": {
        "metric": "micro_f1",
        "presets": {"quick": {**toy_task.PRESET, "epochs": 14, "learning_rate": 3e-3}},
    },
    "token_labels": {
        "metric": "span_f1",
        "text": "tokens",
        "label": "tags",
        "labels": ["O", "B-bird", "I-bird", "B-metal", "I-metal"],
    },
    "regression": {"metric": "mae", "labels": None},
}


def write_task(place: Path, kind: str, **changes: Any) -> Path:
    """A card of a kind with 120 training, 30 development and 60 test examples beside it."""
    given = {"kind": kind, **CHANGES[kind], **changes}
    dropped = [name for name, value in given.items() if value is None]
    card = toy_task.write_task(place, **{name: value for name, value in given.items() if value is not None})
    if dropped:
        import yaml

        values = yaml.safe_load(card.read_text(encoding="utf-8"))
        card.write_text(yaml.safe_dump({name: value for name, value in values.items() if name not in dropped}))
    for seed, (split, count) in enumerate(COUNTS.items(), 1):
        toy_task.write_split(place / "toy", split, ROWS[kind](count, seed))
    return card


def finetuned(checkpoint: str, folder: Path, kind: str, **settings: Any) -> Path:
    """A fine-tuning in ``folder/finetune/toy/dana``, its model beside it; the card is in ``folder/tasks``."""
    card = write_task(folder / "tasks", kind)
    out = folder / "finetune" / "toy" / "dana"
    given = {"preset": "quick", "seeds": 1, "save": True, **settings}
    finetune_stage(checkpoint, str(card), FinetuneSettings(**given), out)
    return out


def metrics(out: Path) -> dict[str, Any]:
    """What ``metrics.json`` says."""
    return json.loads((out / "metrics.json").read_text(encoding="utf-8"))
