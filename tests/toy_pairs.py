"""A task of text pairs that a tiny model can read: a card, its data, and a checkpoint that joins two texts."""

from pathlib import Path
from typing import Any

import toy_task
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    """A premise and a hypothesis; the label is the hypothesis's topic."""
    first, second = toy_task.rows(count, seed), toy_task.rows(count, seed + 50)
    order = [*range(1, count), 0]
    return [
        {
            "uid": row["id"],
            "premise": first[other]["text"],
            "hypothesis": row["text"],
            "label": row["label"],
        }
        for row, other in zip(second, order, strict=True)
    ]


def write_task(folder: Path, **changes: Any) -> Path:
    """A card with 48 training, 15 development and 24 test pairs beside it."""
    fields = {"text": "premise", "text_pair": "hypothesis", "id": "uid"}
    splits = {"train": 48, "dev": 15, "test": 24}
    card = toy_task.write_task(folder, **{**fields, "splits": splits, **changes})
    for seed, (split, count) in enumerate(splits.items(), 1):
        toy_task.write_split(folder / "toy", split, rows(count, seed))
    return card


def write_checkpoint(folder: Path, **config: Any) -> Path:
    """The toy's checkpoint; its tokenizer puts a separator between two texts, and says which is which."""
    toy_task.write_checkpoint(folder, **config)
    names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer = AutoTokenizer.from_pretrained(folder, model_input_names=names)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save_pretrained(folder)
    return folder
