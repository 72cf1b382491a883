"""Masked language modelling: text in, the masked tokens to predict out. Devlin et al. 2019, section 3.1."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dana.core.config import require
from dana.train.objectives.base import Collator, ModelCardTerms, Objective
from dana.train.objectives.batch import IGNORED, StepBatch
from dana.train.objectives.masking import Masking, mask
from dana.train.sequences.examples import Batch, SpecialTokens

HELDOUT_RATE = 0.15  # the same whatever a run trains with, so that losses compare
HELDOUT_SEED = 20211
MARGIN = 1.1  # times the mask rate: by chance a micro-batch has more masked tokens than the average


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

    def largest(self) -> "MaskedCollator":
        """With more masked tokens than a training step or a held-out text has."""
        rate = min(0.99, MARGIN * max(self.masking.rate, HELDOUT_RATE))
        return replace(self, masking=replace(self.masking, rate=rate))


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
        """Masks by the seed; see :class:`dana.train.objectives.masking.Masking` for what a tokenizer must have."""
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
