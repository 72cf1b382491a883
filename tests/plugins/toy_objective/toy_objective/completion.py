"""Completion: a text's beginning is read, and each token of the rest predicted from those before it."""

from dataclasses import dataclass

import numpy as np

from dana.core.config import require
from dana.models.heads import ChunkedLosses
from dana.train.examples import SpecialTokens
from dana.train.objectives.base import Collator, ModelCardTerms, Objective
from dana.train.objectives.batch import IGNORED, StepBatch


@dataclass(frozen=True)
class NextTokens(Collator):
    """Labels the places of a text, after a share of them, with the token behind each."""

    special_tokens: SpecialTokens
    after: float

    def step_batch(self, batch, epochs, denominator):
        lengths = np.diff(batch.offsets)
        place = np.arange(batch.tokens.size) - np.repeat(batch.offsets[:-1], lengths)
        labels = np.append(batch.tokens[1:], IGNORED)
        labels[batch.offsets[1:] - 1] = IGNORED  # nothing follows the last token of an example
        labels[place + 1 < self.after * np.repeat(lengths, lengths)] = IGNORED
        return StepBatch.from_examples(batch, batch.tokens, labels, denominator)


@dataclass(frozen=True)
class Completion(Objective):
    """Predict the rest of a text from its beginning."""

    after: float = 0.5

    def __post_init__(self):
        require(0 <= self.after < 1, "after", self.after, "in [0, 1)")

    def auto_class(self, config):
        from transformers import AutoModelForCausalLM

        kind = config.model_type
        require(
            kind in ("gpt2", "llama"),
            "objective",
            "completion",
            f"masked for a model of type {kind}",
        )
        return AutoModelForCausalLM

    def collator(self, tokenizer, seed):
        return NextTokens(SpecialTokens.from_tokenizer(tokenizer), self.after)

    def heldout_collator(self, tokenizer):
        return NextTokens(SpecialTokens.from_tokenizer(tokenizer), 0.0)

    def module(self, model, bf16=False):
        return ChunkedLosses(model, bf16)

    def card_terms(self):
        return ModelCardTerms("rest of a text", "token", "text-generation", "AutoModelForCausalLM")
