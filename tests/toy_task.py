"""A task that a tiny model can learn, and the tiny model: what tests of fine-tuning share."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

SIGNS = {
    "fruit": ["apple", "pear", "plum"],
    "metal": ["iron", "zinc", "lead"],
    "bird": ["wren", "owl", "crow"],
}
FILLERS = [f"word{number}" for number in range(40)]
PRESET = {"epochs": 6, "learning_rate": 2e-3, "batch_size": 8, "seeds": 2, "max_tokens": 24}
WORDS = [*FILLERS, *(word for words in SIGNS.values() for word in words)]


def rows(count: int, seed: int) -> list[dict[str, str]]:
    """Texts of 4 to 20 words; two of them give the label away."""
    random, examples = np.random.default_rng(seed), []
    for number in range(count):
        label = list(SIGNS)[number % len(SIGNS)]
        words = [*random.choice(FILLERS, random.integers(2, 19)), *random.choice(SIGNS[label], 2)]
        random.shuffle(words)
        examples.append({"id": f"{seed}-{number}", "text": " ".join(words), "label": label})
    return examples


def write_task(folder: Path, **changes: Any) -> Path:
    """A card with 120 training, 30 development and 60 test examples beside it."""
    splits = {"train": 120, "dev": 30, "test": 60}
    for seed, (split, count) in enumerate(splits.items(), 1):
        write_split(folder / "toy", split, rows(count, seed))
    card = {
        "name": "toy",
        "title": "What is it about?",
        "version": 1,
        "data": {"local": "toy"},
        "labels": list(SIGNS),
    }
    card |= {"metric": "macro_f1", "splits": splits, "presets": {"quick": PRESET}, **changes}
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump(card), encoding="utf-8")
    return path


def encode_splits(card: Any, checkpoint: str, max_tokens: int = 24) -> dict[str, Any]:
    """The splits of a card, tokenised as for a fine-tuning: test without its labels."""
    from transformers import AutoTokenizer

    from dana.finetuning.encoded_split import EncodedSplit
    from dana.tasks.examples import read_splits

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    examples = read_splits(card)
    encoded = {
        name: EncodedSplit.with_labels(examples[name], tokenizer, max_tokens, card.label_kind)
        for name in ("train", "dev")
    }
    test = EncodedSplit.from_examples(examples["test"], tokenizer, max_tokens)
    return {**encoded, "test": test}


def write_split(folder: Path, split: str, examples: list[dict[str, Any]]) -> Path:
    """One split as JSONL."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{split}.jsonl"
    path.write_text("".join(json.dumps(example) + "\n" for example in examples), encoding="utf-8")
    return path


# Of a tiny model of any architecture over the words of the toy tokenizer.
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
SIZE = {"vocab_size": 54, "max_position_embeddings": 40, "pad_token_id": 0, **SHAPE}


def write_checkpoint(
    folder: Path, seed: int = 0, words: Sequence[str] = WORDS, **config: Any
) -> Path:
    """A BERT of two layers of 32 with a tokenizer that knows some words, by default the task's."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    from dana.core.rng import torch_seed

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    inner = Tokenizer(
        WordLevel({word: at for at, word in enumerate([*special, *words])}, unk_token="[UNK]")
    )
    inner.pre_tokenizer = Whitespace()
    inner.post_processor = TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(
        zip(
            ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True
        )
    )
    PreTrainedTokenizerFast(tokenizer_object=inner, **names).save_pretrained(folder)
    size = {
        "vocab_size": len(special) + len(words),
        "max_position_embeddings": 32,
        **SHAPE,
        **config,
    }
    with torch_seed(seed):
        BertForMaskedLM(BertConfig(**size)).save_pretrained(folder)
    return folder


def write_folds(
    folder: Path,
    count: int = 60,
    folds: int = 3,
    examples: list[dict[str, Any]] | None = None,
    **changes: Any,
) -> Path:
    """A card with folds: labelled texts in one file, equally many of each label in each fold."""
    if examples is None:
        examples = [
            {**row, "fold": number // len(SIGNS) % folds}
            for number, row in enumerate(rows(count, 1))
        ]
    write_split(folder, "texts", examples)
    return write_task(folder, data={"file": "texts"}, folds="fold", splits={}, **changes)


def write_decoder(folder: Path, words: Sequence[str]) -> Path:
    """A Llama of two layers with random weights, and the tokenizer of :func:`write_checkpoint` with a chat template."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from dana.core.rng import torch_seed

    tokenizer = AutoTokenizer.from_pretrained(write_checkpoint(folder / "words", words=words))
    tokenizer.chat_template = "{{ messages }}"
    tokenizer.save_pretrained(folder)
    shape = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    with torch_seed(0):
        LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(folder)
    return folder
