"""Which tokens are hidden: a pure function of (seed, epoch, example id, position), never of the batch.

A batch comes flat: every example's tokens end to end, with offsets. Padding does not exist here, so it
cannot matter; nor can the order of examples, the number of workers or the number of ranks.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.config import require
from dana.errors import ConfigError
from dana.rng import derive_seed, hash_uniform

# Devlin et al. 2019, section 3.1: 80 % become [MASK], 10 % another token, 10 % stay as they are.
HIDDEN_AS_MASK = 0.8
HIDDEN_OR_REPLACED = 0.9
# Two unrelated odd strides, so that an example's (position, epoch) pairs all have keys of their own.
POSITION_STRIDE = np.uint64(0x9E3779B97F4A7C15)
EPOCH_STRIDE = np.uint64(0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True)
class Masking:
    """How tokens are hidden.

    Attributes:
        mask_token: Id of the mask token.
        special: Shape (vocabulary,), true for ids that are never hidden and never put in place of another.
        seed: Masks of two seeds are independent.
        rate: Probability that a token is hidden.
    """

    mask_token: int
    special: np.ndarray
    seed: int
    rate: float = 0.15

    def __post_init__(self) -> None:
        require(0 < self.rate <= 1, "mask_rate", self.rate, "in (0, 1]")

    @classmethod
    def of(cls, tokenizer: Any, seed: int, rate: float = 0.15) -> "Masking":
        """Masking over a Hugging Face tokenizer's vocabulary.

        Raises:
            ConfigError: If the tokenizer has no mask token.
        """
        if tokenizer.mask_token_id is None:
            raise ConfigError(f"tokenizer {type(tokenizer).__name__} has no mask token")
        special = np.zeros(len(tokenizer), dtype=bool)
        special[tokenizer.all_special_ids] = True
        return cls(tokenizer.mask_token_id, special, seed, rate)


@dataclass(frozen=True)
class Masked:
    """A flat batch with tokens hidden.

    Attributes:
        inputs: Shape (tokens,), what the model reads.
        hidden: Shape (tokens,), true where the model must say what stood there.
        counts: Shape (examples,), hidden tokens of each example.
    """

    inputs: np.ndarray
    hidden: np.ndarray
    counts: np.ndarray


def mask(
    tokens: np.ndarray, offsets: np.ndarray, ids: np.ndarray, epochs: np.ndarray | int, masking: Masking
) -> Masked:
    """Hide tokens of a flat batch; at least one in every example that has an ordinary token.

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
    chance[masking.special[tokens]] = np.inf
    least = np.repeat(np.minimum.reduceat(chance, offsets[:-1]), lengths)
    hidden = ((chance < masking.rate) | (chance == least)) & np.isfinite(chance)

    where = np.flatnonzero(hidden)
    fate = hash_uniform(derive_seed(masking.seed, "mask", "fate"), keys[where])
    ordinary = np.flatnonzero(~masking.special)
    draw = hash_uniform(derive_seed(masking.seed, "mask", "token"), keys[where])
    inputs = tokens.copy()
    inputs[where[fate < HIDDEN_AS_MASK]] = masking.mask_token
    replaced = (fate >= HIDDEN_AS_MASK) & (fate < HIDDEN_OR_REPLACED)
    inputs[where[replaced]] = ordinary[(draw[replaced] * ordinary.size).astype(np.int64)]
    return Masked(inputs, hidden, np.add.reduceat(hidden, offsets[:-1], dtype=np.int64))
