"""Word boundaries from the spelling of a tokenizer's vocabulary, for whole-word masking."""

import json
import unicodedata
from typing import Any

import numpy as np

from dana.core.errors import ConfigError

BEGINS, GOES_ON, STANDS_ALONE = 0, 1, 2
MARKS = ("\u0120", "\u2581")  # what byte-level BPE (Ġ) and SentencePiece (▁) write for the space before a word


def word_parts(tokenizer: Any) -> np.ndarray:
    """Which part of a word each entry of a vocabulary is, from its spelling.

    WordPiece writes ## before what goes on. The others mark what follows a space, so that punctuation, which follows
    none, is told by its characters and stands alone; a letter behind it begins a word.

    Args:
        tokenizer: A fast Hugging Face tokenizer.

    Returns:
        int8 of shape (vocabulary,): :data:`BEGINS`, :data:`GOES_ON` or :data:`STANDS_ALONE`.

    Raises:
        ConfigError: If its vocabulary does not say where words begin.
    """
    kind = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    parts = np.full(len(pieces), BEGINS, dtype=np.int8)
    if kind["type"] == "WordPiece":
        prefix = kind["continuing_subword_prefix"]
        parts[[piece.startswith(prefix) and piece != prefix for piece in pieces]] = GOES_ON
        return parts
    mark = next((mark for mark in MARKS if any(piece.startswith(mark) for piece in pieces)), None)
    if mark is None:
        raise ConfigError(f"whole_word=True: {type(tokenizer).__name__}'s vocabulary does not tell where words begin")
    texts = [_bytes_to_text(piece) for piece in pieces] if mark == MARKS[0] else pieces
    for place, (piece, text) in enumerate(zip(pieces, texts, strict=True)):
        if all(unicodedata.category(character)[0] in "PSZC" for character in text.replace(mark, "").strip()):
            parts[place] = STANDS_ALONE
        elif not piece.startswith(mark):
            parts[place] = GOES_ON
    return parts


def word_starts(tokens: np.ndarray, parts: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The first token of the word that each token of a flat batch is in.

    Args:
        tokens: Shape (tokens,).
        parts: From :func:`word_parts`.
        edges: bool of shape (tokens,): a word ends before such a token and begins after it, as special ones are; and
            the first token of each example.

    Returns:
        int64 of shape (tokens,), places in the batch.
    """
    kind = parts[tokens]
    begins = (kind != GOES_ON) | edges
    begins[1:] |= edges[:-1] | (kind[:-1] == STANDS_ALONE)
    begins[:1] = True
    return np.maximum.accumulate(np.where(begins, np.arange(tokens.size), 0))


def _bytes_to_text(piece: str) -> str:
    """The text that a piece of byte-level BPE stands for; part of a character becomes a letter."""
    from tokenizers.decoders import ByteLevel

    return ByteLevel().decode([piece]).replace("\ufffd", "x")
