"""Causal language modelling: text in, the next token to predict at each place. Radford et al. 2018, section 3.1."""

from dataclasses import dataclass

import numpy as np

from dana.core.config import require
from dana.train.examples import SpecialTokens
from dana.train.objectives.base import Collator, ModelCardTerms, Objective
from dana.train.objectives.batch import IGNORED, StepBatch


@dataclass(frozen=True)
class NextTokens(Collator):
    """Labels each token's place with the token behind it."""

    special_tokens: SpecialTokens

    def step_batch(self, batch, epochs, denominator):
        labels = np.append(batch.tokens[1:], IGNORED)
        labels[batch.offsets[1:] - 1] = IGNORED  # nothing follows the last token of an example
        return StepBatch.of(batch, batch.tokens, labels, denominator)


@dataclass(frozen=True)
class Causal(Objective):
    """Predict the next token."""

    layouts = ("padded",)

    def auto_class(self, config):
        from transformers import AutoModelForCausalLM

        kind = config.model_type
        require(kind == "gpt2", "objective", "causal", f"masked for a model of type {kind}: it also sees what follows")
        return AutoModelForCausalLM

    def collator(self, tokenizer, seed):
        return NextTokens(SpecialTokens.of(tokenizer))

    def heldout_collator(self, tokenizer):
        return NextTokens(SpecialTokens.of(tokenizer))

    def card_terms(self):
        return ModelCardTerms("next token", "token", "text-generation", "AutoModelForCausalLM")
