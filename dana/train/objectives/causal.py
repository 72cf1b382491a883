"""Causal language modelling: predict each token of a text from those before it. Radford et al. 2018, section 3.1.

Every token but an example's first is predicted. Weights, denominators and the cut into
micro-batches are those of all objectives (:mod:`dana.train.objectives.batch`). Logits are computed
in chunks.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dana.core.config import require
from dana.models.heads import ChunkedLosses
from dana.train.examples import Batch, SpecialTokens
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
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as DECODERS,
        )
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_MASKED_LM_MAPPING_NAMES as ENCODERS,
        )

        # transformers also makes decoders of encoders such as BERT, and of halves of others.
        kind = config.model_type
        may_be_encoder = kind in {*ENCODERS, "bert-generation", "xlnet"}
        is_encoder = may_be_encoder and not getattr(config, "is_decoder", False)
        is_decoder = kind in DECODERS and not is_encoder and not config.is_encoder_decoder
        allowed = f"masked for a model of type {kind}: it also sees what follows"
        require(is_decoder, "objective", "causal", allowed)
        return AutoModelForCausalLM

    def collator(self, tokenizer: Any, seed: int) -> CausalCollator:
        return CausalCollator(SpecialTokens.from_tokenizer(tokenizer))

    def heldout_collator(self, tokenizer: Any) -> CausalCollator:
        return CausalCollator(SpecialTokens.from_tokenizer(tokenizer))

    def module(self, model: Any, bf16: bool = False) -> ChunkedLosses:
        return ChunkedLosses(model, bf16)

    def card_terms(self) -> ModelCardTerms:
        return ModelCardTerms("next token", "token", "text-generation", "AutoModelForCausalLM")
