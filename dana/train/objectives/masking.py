"""Random masking of tokens or whole words: a flat batch in, a pure function of (seed, epoch, example id, position).

A batch comes flat: every example's tokens end to end, with offsets, without padding. So masks depend neither on
padding nor on the order of the examples, the number of workers or the number of ranks.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.rng import derive_seed, hash_uniform
from dana.train.objectives.words import word_parts, word_starts

# Devlin et al. 2019, section 3.1: 80 % become [MASK], 10 % another token, 10 % stay as they are.
AS_MASK_TOKEN = 0.8
AS_MASK_OR_OTHER = 0.9
# Two unrelated odd strides, so that an example's (position, epoch) pairs all have keys of their own.
POSITION_STRIDE = np.uint64(0x9E3779B97F4A7C15)
EPOCH_STRIDE = np.uint64(0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True)
class Masking:
    """How tokens are masked.

    Attributes:
        mask_token: Id of the mask token.
        special: Shape (vocabulary,), true for ids that are never masked and never put in place of another.
        seed: Masks of two seeds are independent.
        rate: Probability that a token is masked.
        parts: Shape (vocabulary,), :func:`dana.train.objectives.words.word_parts`: words are masked whole, each with
            that probability, so that the expected share of tokens is the same. None masks tokens one by one.
    """

    mask_token: int
    special: np.ndarray
    seed: int
    rate: float = 0.15
    parts: np.ndarray | None = None

    def __post_init__(self) -> None:
        require(0 < self.rate <= 1, "mask_rate", self.rate, "in (0, 1]")

    @classmethod
    def of(cls, tokenizer: Any, seed: int, rate: float = 0.15, whole_word: bool = False) -> "Masking":
        """Masking over a Hugging Face tokenizer's vocabulary.

        Raises:
            ConfigError: If the tokenizer has no mask token, or is to mask whole words and does not mark them.
        """
        if tokenizer.mask_token_id is None:
            raise ConfigError(f"tokenizer {type(tokenizer).__name__} has no mask token")
        special = np.zeros(len(tokenizer), dtype=bool)
        special[tokenizer.all_special_ids] = True
        return cls(tokenizer.mask_token_id, special, seed, rate, word_parts(tokenizer) if whole_word else None)


@dataclass(frozen=True)
class MaskedBatch:
    """A flat batch with some of its tokens masked.

    Attributes:
        inputs: Shape (tokens,), what the model reads.
        masked: Shape (tokens,), true where the model predicts the token that stood there.
    """

    inputs: np.ndarray
    masked: np.ndarray


def mask(
    tokens: np.ndarray, offsets: np.ndarray, ids: np.ndarray, epochs: np.ndarray | int, masking: Masking
) -> MaskedBatch:
    """Mask tokens of a flat batch; at least one in every example that has an ordinary token.

    Args:
        tokens: int of shape (tokens,), special tokens included.
        offsets: Shape (examples + 1,); example i is ``tokens[offsets[i]:offsets[i + 1]]``, never empty.
        ids: uint64 of shape (examples,).
        epochs: Shape (examples,) or one for all; masks change with it.
        masking: How.
    """
    lengths = np.diff(offsets)
    positions = np.arange(tokens.size) - np.repeat(offsets[:-1], lengths)
    with np.errstate(over="ignore"):
        examples = ids.astype(np.uint64) + np.asarray(epochs).astype(np.uint64) * EPOCH_STRIDE
        keys = np.repeat(examples, lengths) + positions.astype(np.uint64) * POSITION_STRIDE
    chance = hash_uniform(derive_seed(masking.seed, "mask", "choose"), keys)
    if masking.parts is not None:  # a word's chance is that of its first token
        chance = chance[word_starts(tokens, masking.parts, (positions == 0) | masking.special[tokens])]
    chance[masking.special[tokens]] = np.inf
    least = np.repeat(np.minimum.reduceat(chance, offsets[:-1]), lengths)
    masked = ((chance < masking.rate) | (chance == least)) & np.isfinite(chance)

    where = np.flatnonzero(masked)
    fate = hash_uniform(derive_seed(masking.seed, "mask", "fate"), keys[where])
    ordinary = np.flatnonzero(~masking.special)
    draw = hash_uniform(derive_seed(masking.seed, "mask", "token"), keys[where])
    inputs = tokens.copy()
    inputs[where[fate < AS_MASK_TOKEN]] = masking.mask_token
    replaced = (fate >= AS_MASK_TOKEN) & (fate < AS_MASK_OR_OTHER)
    inputs[where[replaced]] = ordinary[(draw[replaced] * ordinary.size).astype(np.int64)]
    return MaskedBatch(inputs, masked)
