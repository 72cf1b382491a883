"""Fill a hidden word of a text by a model's own head, for people to look at."""

import re
from collections.abc import Sequence
from typing import Any

import torch

from dana.models.folder import brings_head, load_complete, load_config, load_tokenizer
from dana.models.heads import positions_of
from dana.train.objectives.architectures import is_masked_model

WORD = re.compile(r"[^\W\d_]{4,}")
FILLS = 3  # words that are shown


def has_trained_head(model: str) -> bool:
    """Return whether a checkpoint predicts hidden tokens with a head that was trained with it.

    Args:
        model: Folder with safetensors, or Hub name.
    """
    from transformers import AutoModelForMaskedLM

    return is_masked_model(load_config(model)) and brings_head(AutoModelForMaskedLM, model)


def fill_hidden_words(
    model: str, texts: Sequence[str], max_tokens: int
) -> list[dict[str, Any] | None]:
    """Hide the longest word of each text that is a single token, and let the model fill the gap.

    The word depends on text and tokenizer alone, so a model and its adapted copy hide the same one.

    Args:
        model: Folder or Hub name of a checkpoint with a trained head.
        texts: Texts of any length, which are cut as the model reads them.
        max_tokens: Tokens that are read of a text, at most the model's positions.

    Returns:
        For each text the parts ``before`` and ``after`` the hidden ``word``, the model's ``fills``,
        most probable first, and the ``probability`` of the word; None for a text without such a word.
    """
    from transformers import AutoModelForMaskedLM

    _, tokenizer = load_tokenizer(model)
    if not tokenizer.is_fast:  # only fast ones return character offsets
        return [None] * len(texts)
    network = load_complete(AutoModelForMaskedLM, model)
    network.eval()
    longest = min(max_tokens, positions_of(network.config))
    filled: list[dict[str, Any] | None] = []
    for text in texts:
        gap = _choose_word(tokenizer, text)
        if gap is None:
            filled.append(None)
            continue
        start, end, token = gap
        hidden = text[:start] + tokenizer.mask_token + text[end:]
        encoded = tokenizer(hidden, truncation=True, max_length=longest, return_tensors="pt")
        places = (encoded["input_ids"][0] == tokenizer.mask_token_id).nonzero().flatten()
        if len(places) != 1:  # beyond what is read, or the text itself has a mask
            filled.append(None)
            continue
        with torch.inference_mode():
            logits = network(**encoded).logits[0, places[0]].float()
        probabilities = logits.softmax(-1)
        best = probabilities.topk(FILLS).indices.tolist()
        filled.append(
            {
                "before": text[:start],
                "word": text[start:end],
                "after": text[end:],
                "fills": [tokenizer.decode([index]).strip() for index in best],
                "probability": round(float(probabilities[token]), 4),
            }
        )
    return filled


def _choose_word(tokenizer: Any, text: str) -> tuple[int, int, int] | None:
    """Find the longest word of a text that is one token; of equals the first.

    Returns:
        First character, end and token id of the word; None if there is none.
    """
    # The whole text is read, whose length a tokenizer warns of.
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
    tokens = {}
    for index, (start, end) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        while start < end and text[start].isspace():  # a token may begin with the space before
            start += 1
        if index != tokenizer.unk_token_id:
            tokens[start, end] = index
    words = [match.span() for match in WORD.finditer(text)]
    single = [span for span in words if span in tokens]
    if not single:
        return None
    longest = max(single, key=lambda span: span[1] - span[0])
    return (*longest, tokens[longest])
