"""Causal language modelling: predict each token of a text from those before it. Radford et al. 2018, section 3.1.

Every token but an example's first is predicted. Weights, denominators and the cut into
micro-batches are those of all objectives (:mod:`dana.train.objectives.batch`). Logits are computed
in chunks.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dana.models.heads import ChunkedLosses
from dana.train.examples import Batch, SpecialTokens
from dana.train.objectives.architectures import is_decoder, refuse_architecture
from dana.train.objectives.base import Collator, ModelCardTerms, Objective
from dana.train.objectives.batch import IGNORED, StepBatch


@dataclass(frozen=True)
class CausalCollator(Collator):
    """Labels the position of each token with the token behind it."""

    special_tokens: SpecialTokens

    def step_batch(self, batch: Batch, epochs: np.ndarray | int, denominator: str) -> StepBatch:
        labels = np.append(batch.tokens[1:], IGNORED)
        labels[batch.offsets[1:] - 1] = IGNORED  # nothing follows the last token of an example
        return StepBatch.from_examples(batch, batch.tokens, labels, denominator)


@dataclass(frozen=True)
class Causal(Objective):
    """Predict the next token."""

    version: ClassVar[int] = 1

    def auto_class(self, config: Any) -> Any:
        from transformers import AutoModelForCausalLM

        if not is_decoder(config):
            refuse_architecture("causal", config, "also sees what follows a token")
        return AutoModelForCausalLM

    def collator(self, tokenizer: Any, seed: int) -> CausalCollator:
        return CausalCollator(SpecialTokens.from_tokenizer(tokenizer))

    def heldout_collator(self, tokenizer: Any) -> CausalCollator:
        return CausalCollator(SpecialTokens.from_tokenizer(tokenizer))

    def module(self, model: Any, bf16: bool = False) -> ChunkedLosses:
        return ChunkedLosses(model, bf16)

    def card_terms(self) -> ModelCardTerms:
        return ModelCardTerms("next token", "token", "text-generation", "AutoModelForCausalLM")
