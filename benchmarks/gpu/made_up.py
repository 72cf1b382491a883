"""Make small stand-ins for what pack.py packs, from made-up words, without a download."""

import gzip
import json
from pathlib import Path

import numpy as np

SPECIAL = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}
SYLLABLES = ["ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "su"]
VOCABULARY = 2048
FIRST_WORD = 1000  # ids below are BERT's special and unused ones
TOKENS = 20_000  # of each width


def write_data(folder: Path) -> None:
    """Write rows of token ids, sentences, a task and a tokenizer, as pack.py names them.

    Args:
        folder: Existing folder that takes them.
    """
    random = np.random.default_rng(0)
    words = ["".join(random.choice(SYLLABLES, 3)) for _ in range(500)]
    for width in (128, 512):
        _write_rows(folder / f"rows{width}.npz", width, random)
    _write_tokenizer(folder / "minilm", words)
    sentences = [_sentence(words, random) for _ in range(40)]
    with gzip.open(folder / "sentences.json.gz", "wt", encoding="utf-8") as file:
        json.dump(sentences, file)
    task = {split: _examples(words, random) for split in ("train", "dev", "test")}
    (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")


def _write_rows(path: Path, width: int, random: np.random.Generator) -> None:
    """Write rows of random ids between [CLS] and [SEP], a third as long as the width or longer."""
    lengths = random.integers(width // 3, width, TOKENS // width)
    rows = [[101, *random.integers(FIRST_WORD, VOCABULARY, size - 2), 102] for size in lengths]
    offsets = np.cumsum([0, *lengths])
    tokens = np.concatenate(rows).astype(np.uint16)
    np.savez_compressed(path, tokens=tokens, offsets=offsets.astype(np.int64))


def _write_tokenizer(folder: Path, words: list[str]) -> None:
    """Write a tokenizer that knows the words, and a small encoder's config."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import BertProcessing
    from transformers import BertConfig, PreTrainedTokenizerFast

    vocabulary = {name: index for index, name in SPECIAL.items()}
    for index, word in enumerate(dict.fromkeys(words), FIRST_WORD):
        vocabulary[word] = index
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = BertProcessing(("[SEP]", 102), ("[CLS]", 101))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=512,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(folder)
    BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=48,
    ).save_pretrained(folder)


def _sentence(words: list[str], random: np.random.Generator) -> str:
    return " ".join(random.choice(words, random.integers(5, 20)))


def _examples(words: list[str], random: np.random.Generator) -> list[dict[str, str]]:
    """Make labelled sentences of ChemProt's labels."""
    from dana.tasks.card import load_card

    labels = load_card("chemprot").labels
    return [
        {"text": _sentence(words, random), "label": labels[index % len(labels)]}
        for index in range(48)
    ]
