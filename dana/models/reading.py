"""Measure how much of a text the tokenizer of a model can read."""

from collections.abc import Sequence
from typing import Any

from dana.core.scripts import begins_unspaced


def unread_share(tokenizer: Any, texts: Sequence[str]) -> float:
    """Return the share of the letters in texts that a tokenizer reads as unknown, or one by one.

    A model knows little of the words of a language, or of a notation, that its tokenizer cuts into
    single letters. In scripts without spaces between words (:mod:`dana.core.scripts`) that is usual,
    so there only unknown letters count.

    Args:
        tokenizer: A fast tokenizer of transformers.
        texts: The texts.

    Returns:
        Between 0 and 1; 0 if there are no letters.
    """
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    encodings = backend.encode_batch(list(texts), add_special_tokens=False)
    unread = 0
    letters = 0
    for text, encoding in zip(texts, encodings, strict=True):
        letters += sum(character.isalpha() for character in text)
        positions: set[int] = set()  # several pieces may share a letter
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token == tokenizer.unk_token_id or _is_part_of_word(text, start, end):
                positions.update(range(start, end))
        unread += sum(text[position].isalpha() for position in positions)
    return unread / letters if letters else 0.0


def _is_part_of_word(text: str, start: int, end: int) -> bool:
    """Return whether a piece is one letter, or less, of a word that has more, in a script with spaces."""
    if end - start > 1 or begins_unspaced(text[start:end]):
        return False
    neighbours = text[max(0, start - 1) : start] + text[end : end + 1]
    return any(character.isalpha() for character in neighbours)
