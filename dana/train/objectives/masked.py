"""Masked language modelling: mask tokens or whole words of a batch for prediction. Devlin et al. 2019, section 3.1.

A batch is flat: the tokens of all examples end to end, with offsets, without padding. Masks are a
pure function of (seed, epoch, example id, position): they do not depend on padding, the order of
the examples, workers or ranks. Word boundaries are read from the spelling of the vocabulary's
entries.
"""

import json
import unicodedata
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, ClassVar

import numpy as np

from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.rng import derive_seed, epoch_keys, hash_uniform, unit_keys_of
from dana.core.scripts import begins_unspaced
from dana.models.embeddings import token_range, unused_ids
from dana.train.examples import Batch, ExampleSet, SpecialTokens
from dana.train.objectives.architectures import is_masked_model, refuse_architecture
from dana.train.objectives.base import Collator, ModelCardTerms, Objective
from dana.train.objectives.batch import IGNORED, StepBatch

# Devlin et al. 2019, section 3.1: 80 % become [MASK], 10 % another token, 10 % stay as they are.
AS_MASK_TOKEN = 0.8
AS_MASK_OR_OTHER = 0.9


@dataclass(frozen=True)
class Masking:
    """How tokens are masked.

    Attributes:
        mask_token: Id of the mask token.
        special: bool of shape (vocabulary,), ids that are never masked and never replace a token.
        seed: Masks of two seeds are independent.
        rate: Probability that a token is masked.
        parts: Shape (vocabulary,), from :func:`word_parts`: whole words are masked with the same
            probability, so the expected share of tokens is the same. None masks single tokens.
    """

    mask_token: int
    special: np.ndarray
    seed: int
    rate: float = 0.15
    parts: np.ndarray | None = None

    def __post_init__(self) -> None:
        require(0 < self.rate <= 1, "mask_rate", self.rate, "in (0, 1]")

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Any, seed: int, rate: float = 0.15, whole_word: bool = False
    ) -> "Masking":
        """Set up masking for a Hugging Face tokenizer.

        Raises:
            ConfigError: If the tokenizer has no mask token, or, for whole words, does not mark
                where words begin.
        """
        if tokenizer.mask_token_id is None:
            raise ConfigError(
                f"tokenizer {type(tokenizer).__name__} has no mask token; use a masked language model"
            )
        special = np.zeros(token_range(tokenizer), dtype=bool)
        special[tokenizer.all_special_ids] = True
        special[unused_ids(tokenizer)] = True  # no text has them: they replace no token
        parts = word_parts(tokenizer) if whole_word else None
        return cls(tokenizer.mask_token_id, special, seed, rate, parts)


def mask(
    tokens: np.ndarray,
    offsets: np.ndarray,
    ids: np.ndarray,
    epochs: np.ndarray | int,
    masking: Masking,
) -> tuple[np.ndarray, np.ndarray]:
    """Mask tokens of a flat batch; at least one in every example that has an ordinary token.

    Args:
        tokens: int of shape (tokens,), special tokens included.
        offsets: Shape (examples + 1,); example i is ``tokens[offsets[i]:offsets[i + 1]]``, never
            empty.
        ids: uint64 of shape (examples,).
        epochs: Shape (examples,) or one for all; masks change with it.
        masking: Masking rule.

    Returns:
        The model's input tokens, and the labels: the original token where it is masked, elsewhere
        :data:`IGNORED`; both of shape (tokens,).
    """
    lengths = np.diff(offsets)
    positions = np.arange(tokens.size) - np.repeat(offsets[:-1], lengths)
    keys = unit_keys_of(np.repeat(epoch_keys(ids, epochs), lengths), positions)
    chance = hash_uniform(derive_seed(masking.seed, "mask", "choose"), keys)
    if masking.parts is not None:
        # A word's chance is that of its first token.
        edges = (positions == 0) | masking.special[tokens]
        chance = chance[word_starts(tokens, masking.parts, edges)]
    chance[masking.special[tokens]] = np.inf
    lowest = np.repeat(np.minimum.reduceat(chance, offsets[:-1]), lengths)
    is_masked = ((chance < masking.rate) | (chance == lowest)) & np.isfinite(chance)

    where = np.flatnonzero(is_masked)
    fate = hash_uniform(derive_seed(masking.seed, "mask", "fate"), keys[where])
    ordinary = np.flatnonzero(~masking.special)
    draw = hash_uniform(derive_seed(masking.seed, "mask", "token"), keys[where])
    inputs = tokens.copy()
    inputs[where[fate < AS_MASK_TOKEN]] = masking.mask_token
    is_random = (fate >= AS_MASK_TOKEN) & (fate < AS_MASK_OR_OTHER)
    inputs[where[is_random]] = ordinary[(draw[is_random] * ordinary.size).astype(np.int64)]
    return inputs, np.where(is_masked, tokens, IGNORED)


WORD_START = 0
CONTINUATION = 1
SYMBOL = 2
# Byte-level BPE (Ġ) and SentencePiece (▁) write these for the space before a word.
MARKS = ("\u0120", "\u2581")


def word_parts(tokenizer: Any) -> np.ndarray:
    """Classify each entry of a vocabulary by its spelling: start of a word, continuation, or symbol.

    WordPiece marks continuations by ##. Other tokenizers mark the space before a word, which
    punctuation lacks, so punctuation is recognised by its characters; a letter after it begins a
    word. In scripts without spaces (:mod:`dana.core.scripts`) each piece begins a word, or a whole
    clause would be one.

    Args:
        tokenizer: A fast Hugging Face tokenizer.

    Returns:
        int8 of shape (vocabulary,): :data:`WORD_START`, :data:`CONTINUATION` or :data:`SYMBOL`.

    Raises:
        ConfigError: If the vocabulary does not mark where words begin.
    """
    kind = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    pieces = [""] * token_range(tokenizer)
    for piece, number in tokenizer.get_vocab().items():
        pieces[number] = piece
    parts = np.full(len(pieces), WORD_START, dtype=np.int8)
    if kind["type"] == "WordPiece":
        prefix = kind["continuing_subword_prefix"]
        for index, piece in enumerate(pieces):
            rest = piece.removeprefix(prefix)
            if piece.startswith(prefix) and rest and not begins_unspaced(rest):
                parts[index] = CONTINUATION
        return parts
    mark = next((mark for mark in MARKS if any(piece.startswith(mark) for piece in pieces)), None)
    if mark is None:
        raise ConfigError(
            f"whole_word=True: {type(tokenizer).__name__}'s vocabulary does not mark where words begin"
        )
    is_bytes = mark == MARKS[0]
    for index, piece in enumerate(pieces):
        text = _bytes_to_text(piece) if is_bytes else piece
        characters = text.replace(mark, "").strip()
        if all(unicodedata.category(character)[0] in "PSZC" for character in characters):
            parts[index] = SYMBOL
        elif not (piece.startswith(mark) or _begins_unspaced(piece, is_bytes)):
            parts[index] = CONTINUATION
    return parts


def _begins_unspaced(piece: str, is_bytes: bool) -> bool:
    """Return True if a piece begins with a character of a script without spaces, perhaps with a part of one."""
    if not is_bytes:
        return begins_unspaced(piece)
    number_of = byte_numbers()
    if not all(character in number_of for character in piece):  # a special token
        return False
    return starts_unspaced_character(bytes(number_of[character] for character in piece[:4]))


@cache
def byte_numbers() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {character: number for number, character in bytes_to_unicode().items()}


@cache
def starts_unspaced_character(beginning: bytes) -> bool:
    """Return True if bytes of UTF-8 begin with a character of a script without spaces.

    Of a character that is cut off it is True if most that begin so are of such a script: the first
    byte alone tells Han, the first two tell Thai from the scripts of India.

    Args:
        beginning: The first bytes of a piece, at most four.
    """
    size = next((size for size, first in _SIZES.items() if beginning[:1] >= first), 0)
    if len(beginning) >= size:
        return begins_unspaced(beginning[:size].decode("utf-8", "replace"))
    if size - len(beginning) > 2:
        return False
    endings = product(range(0x80, 0xC0), repeat=size - len(beginning))
    whole = [(beginning + bytes(ending)).decode("utf-8", "replace") for ending in endings]
    return 2 * sum(map(begins_unspaced, whole)) > len(whole)


# Bytes of a character, by its least first byte, the longest first. A byte that begins none has 1.
_SIZES = {4: b"\xf0", 3: b"\xe0", 2: b"\xc2", 1: b""}


def word_starts(tokens: np.ndarray, parts: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Find the first token of each token's word in a flat batch.

    Args:
        tokens: Shape (tokens,).
        parts: From :func:`word_parts`.
        edges: bool of shape (tokens,): special tokens, and the first token of each example. A word
            ends before such a token, and another begins after it.

    Returns:
        int64 of shape (tokens,), positions in the batch.
    """
    kind = parts[tokens]
    begins = (kind != CONTINUATION) | edges
    begins[1:] |= edges[:-1] | (kind[:-1] == SYMBOL)
    return np.maximum.accumulate(np.where(begins, np.arange(tokens.size), 0))


def _bytes_to_text(piece: str) -> str:
    """Decode a piece of byte-level BPE; an incomplete character becomes a letter."""
    from tokenizers.decoders import ByteLevel

    return ByteLevel().decode([piece]).replace("\ufffd", "x")


HELDOUT_RATE = 0.15  # the same for every run, so that losses can be compared
HELDOUT_SEED = 20211


@dataclass(frozen=True)
class MaskedCollator(Collator):
    """Masks the examples of a step; the labels are the masked tokens.

    Attributes:
        masking: Masking rule.
        special_tokens: Special tokens of every example.
    """

    masking: Masking
    special_tokens: SpecialTokens

    def step_batch(self, batch: Batch, epochs: np.ndarray | int, denominator: str) -> StepBatch:
        inputs, labels = mask(batch.tokens, batch.offsets, batch.ids, epochs, self.masking)
        return StepBatch.from_examples(batch, inputs, labels, denominator)

    def warnings(self, examples: ExampleSet) -> list[str]:
        """Warn if whole words mask many more tokens than asked for, as where few words make an example."""
        if self.masking.parts is None:
            return []
        rate = measured_rate(examples, self.masking)
        if rate <= TOO_HIGH * self.masking.rate:
            return []
        return [
            f"whole_word=true masks {rate:.0%} of the tokens, {self.masking.rate:.0%} were asked "
            "for: the texts have few words, as the tokenizer marks them, and one of each is masked. "
            "Take whole_word=false, or longer texts"
        ]


MEASURED = 1000  # examples on which the rate of whole words is measured
TOO_HIGH = 1.3  # times the rate that was asked for


def measured_rate(examples: ExampleSet, masking: Masking) -> float:
    """Measure the share of ordinary tokens that are masked, on 1,000 examples from all of the text."""
    rows = np.linspace(0, len(examples) - 1, min(MEASURED, len(examples))).astype(np.int64)
    batch = examples.take(rows)
    _, labels = mask(batch.tokens, batch.offsets, batch.ids, 0, masking)
    ordinary = int((~masking.special[batch.tokens]).sum())
    return int((labels != IGNORED).sum()) / max(1, ordinary)


@dataclass(frozen=True)
class MaskedTokens(Objective):
    """Predict masked tokens.

    Attributes:
        mask_rate: Share of the tokens to mask.
        whole_word: Mask whole words; the share of tokens is the same, but for texts of a few words,
            of which one is masked: a measured share above 1.3 times `mask_rate` is warned of. In
            scripts without spaces a word is a piece of the vocabulary.
    """

    mask_rate: float = 0.15
    whole_word: bool = False
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(0 < self.mask_rate < 1, "mask_rate", self.mask_rate, "in (0, 1)")

    def auto_class(self, config: Any) -> Any:
        from transformers import AutoModelForMaskedLM

        if not is_masked_model(config):
            refuse_architecture("masked", config, "has no head for masked tokens")
        return AutoModelForMaskedLM

    def collator(self, tokenizer: Any, seed: int) -> MaskedCollator:
        masking = Masking.from_tokenizer(tokenizer, seed, self.mask_rate, self.whole_word)
        return MaskedCollator(masking, SpecialTokens.from_tokenizer(tokenizer))

    def heldout_collator(self, tokenizer: Any) -> MaskedCollator:
        masking = Masking.from_tokenizer(tokenizer, HELDOUT_SEED, HELDOUT_RATE)
        return MaskedCollator(masking, SpecialTokens.from_tokenizer(tokenizer))

    def card_terms(self) -> ModelCardTerms:
        what = "masked whole words" if self.whole_word else "masked tokens"
        unit = f"masked token at fixed masks ({HELDOUT_RATE:.0%})"
        return ModelCardTerms(
            f"{what}, mask rate {self.mask_rate:g}", unit, "fill-mask", "AutoModelForMaskedLM"
        )
