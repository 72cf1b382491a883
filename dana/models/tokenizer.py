"""Tokenizers: one that takes all text as text, and a digest of what decides the tokens."""

import json
from typing import Any

from dana.core.artifacts import fingerprint
from dana.core.errors import ConfigError


def tokenizer_identity(tokenizer: Any, special_tokens: str) -> str:
    """Hex digest of what decides the tokens of a text: the content of a tokenizer, wherever it was loaded from.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        special_tokens: What the caller takes "[MASK]" in a text for, in words.

    Raises:
        ConfigError: If the tokenizer is slow.
    """
    return fingerprint({"tokenizer": uncut(tokenizer).to_str(), "special tokens": special_tokens})


def uncut(tokenizer: Any) -> Any:
    """A copy of a tokenizer's core (``tokenizers.Tokenizer``) that neither cuts nor pads, and takes all text as text.

    Who writes "[MASK]" gets a bracket, a word and a bracket, never the special token: it is no word of the text.

    Raises:
        ConfigError: If the tokenizer is slow: it does not know where its tokens end.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(f"tokenizer {type(tokenizer).__name__} has no character offsets; a fast one is needed")
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.backend_tokenizer.to_str())
    if state["model"]["type"] == "Unigram":  # its pieces are looked up in the text, special ones too: rename those
        special = {token["content"] for token in state["added_tokens"] if token["special"]}
        vocabulary = state["model"]["vocab"]
        state["model"]["vocab"] = [
            ["\uffff" + piece if piece in special else piece, odds] for piece, odds in vocabulary
        ]
    copy = Tokenizer.from_str(json.dumps(state, ensure_ascii=False))
    copy.encode_special_tokens = True
    copy.no_truncation()
    copy.no_padding()
    return copy
