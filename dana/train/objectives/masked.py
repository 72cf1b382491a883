"""Masked language modelling: text in, masked tokens or whole words to predict out. Devlin et al. 2019, section 3.1.

A batch comes flat: every example's tokens end to end, with offsets, without padding. Its masks are a pure function of
(seed, epoch, example id, position): they depend neither on padding nor on the order of the examples, the number of
workers or the number of ranks. Where words begin is read off the spelling of the tokenizer's vocabulary.
"""

import json
import unicodedata
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.rng import derive_seed, hash_uniform
from dana.train.examples import Batch, SpecialTokens
from dana.train.objectives.base import Collator, ModelCardTerms, Objective
from dana.train.objectives.batch import IGNORED, StepBatch

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
        parts: Shape (vocabulary,), :func:`word_parts`: words are masked whole, each with
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


HELDOUT_RATE = 0.15  # the same whatever a run trains with, so that losses compare
HELDOUT_SEED = 20211


@dataclass(frozen=True)
class MaskedCollator(Collator):
    """Masks the examples of a step.

    Attributes:
        masking: How.
        special_tokens: Of each example.
    """

    masking: Masking
    special_tokens: SpecialTokens

    def step_batch(self, batch: Batch, epochs: np.ndarray | int, denominator: str) -> StepBatch:
        """Labels are the masked tokens."""
        found = mask(batch.tokens, batch.offsets, batch.ids, epochs, self.masking)
        return StepBatch.of(batch, found.inputs, np.where(found.masked, batch.tokens, IGNORED), denominator)


@dataclass(frozen=True)
class MaskedTokens(Objective):
    """Predict masked tokens.

    Attributes:
        mask_rate: Share of the tokens to mask.
        whole_word: Mask words with all their tokens, the same share of tokens.
    """

    mask_rate: float = 0.15
    whole_word: bool = False
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(0 < self.mask_rate < 1, "mask_rate", self.mask_rate, "in (0, 1)")

    def auto_class(self, config: Any) -> Any:
        """``AutoModelForMaskedLM``."""
        from transformers import AutoModelForMaskedLM

        return AutoModelForMaskedLM

    def collator(self, tokenizer: Any, seed: int) -> MaskedCollator:
        """Masks by the seed; see :class:`Masking` for what a tokenizer must have."""
        masking = Masking.of(tokenizer, seed, self.mask_rate, self.whole_word)
        return MaskedCollator(masking, SpecialTokens.of(tokenizer))

    def heldout_collator(self, tokenizer: Any) -> MaskedCollator:
        """Masks token by token at 15 %, never others."""
        return MaskedCollator(Masking.of(tokenizer, HELDOUT_SEED, HELDOUT_RATE), SpecialTokens.of(tokenizer))

    def card_terms(self) -> ModelCardTerms:
        """The words of a model card."""
        what = "masked whole words" if self.whole_word else "masked tokens"
        unit = f"masked token at fixed masks ({HELDOUT_RATE:.0%})"
        return ModelCardTerms(f"{what}, mask rate {self.mask_rate:g}", unit, "fill-mask", "AutoModelForMaskedLM")
