"""Words to token ids, and the place of each word's first token."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from dana.core.errors import ArtifactError


def tokenise_words(
    words: Sequence[Sequence[str]], tokenizer: Any, max_tokens: int
) -> tuple[list[list[int]], list[np.ndarray]]:
    """Tokenise texts of given words, each cut to `max_tokens`.

    The words are joined by spaces, and a token is of the word that its last character is in. So any fast tokenizer will
    do, whatever it makes of spaces.

    Args:
        words: Of each text.
        tokenizer: The checkpoint's.
        max_tokens: Special tokens included.

    Returns:
        Token ids of each text; and of each text the place of each word's first token, int64 of shape (words,), -1 of a
        word that was cut off or has no token.

    Raises:
        ArtifactError: If the tokenizer is a slow one, which does not say where its tokens are from.
    """
    if not tokenizer.is_fast:
        raise ArtifactError(f"{type(tokenizer).__name__}: a slow tokenizer; labels of words need a fast one")
    texts = [" ".join(own) for own in words]
    made = tokenizer(texts, truncation=True, max_length=max_tokens, return_offsets_mapping=True)
    places = []
    for own, offsets in zip(words, made["offset_mapping"], strict=True):
        starts = np.cumsum([0, *(len(word) + 1 for word in own[:-1])]).tolist()
        found = np.full(len(own), -1, dtype=np.int64)
        for place, (start, end) in enumerate(offsets):
            if end > start:
                word = bisect_right(starts, end - 1) - 1
                found[word] = place if found[word] < 0 else found[word]
        places.append(found)
    return made["input_ids"], places
