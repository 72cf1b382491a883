"""The language-model head on hidden positions only: most of the cost of training a small encoder, saved.

With 15 % of the tokens hidden, the vocabulary projection runs on one position in seven. The result is the
model's own logits at those positions; an architecture without an entry here pays for all of them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

HEADS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "bert": lambda model, states: model.cls.predictions(states),
    "roberta": lambda model, states: model.lm_head(states),
    "xlm-roberta": lambda model, states: model.lm_head(states),
    "camembert": lambda model, states: model.lm_head(states),
    "mpnet": lambda model, states: model.lm_head(states),
    "electra": lambda model, states: model.generator_lm_head(model.generator_predictions(states)),
    "modernbert": lambda model, states: model.decoder(model.head(states)),
    "distilbert": lambda model, states: model.vocab_projector(
        model.vocab_layer_norm(model.activation(model.vocab_transform(states)))
    ),
}

# Positions that RoBERTa and its kin keep for padding: theirs start behind it.
RESERVED_POSITIONS = {"roberta": 2, "xlm-roberta": 2, "camembert": 2, "mpnet": 2}


class MaskedLogits(nn.Module):
    """A ``...ForMaskedLM`` model that answers only where it is asked.

    A module, not a function, because data parallelism and ZeRO hook into ``forward``.

    Args:
        model: The model.
        bf16: Compute in bfloat16 by autocast.
    """

    def __init__(self, model: Any, bf16: bool = False) -> None:
        super().__init__()
        self.model = model
        self.bf16 = bf16
        self.config = model.config  # DeepSpeed reads the hidden size here

    def forward(self, input_ids: Tensor, where: Tensor, **attention: Any) -> Tensor:
        """Logits of shape (asked, vocabulary).

        Args:
            input_ids: Shape (rows, width).
            where: int64 of shape (asked,), positions in the flattened (rows · width) batch.
            attention: From :meth:`dana.mlm.layout.Arrangement.attention`.
        """
        if self.bf16:
            with torch.autocast(input_ids.device.type, torch.bfloat16):
                return self._answer(input_ids, where, attention)
        return self._answer(input_ids, where, attention)

    def _answer(self, input_ids: Tensor, where: Tensor, attention: dict[str, Any]) -> Any:
        head = HEADS.get(self.config.model_type)
        if head is None:
            return self.model(input_ids=input_ids, **attention).logits.flatten(0, 1)[where]
        states = self.model.base_model(input_ids=input_ids, **attention)[0]
        return head(self.model, states.flatten(0, 1)[where])


class PairedLogits(MaskedLogits):
    """A ``BertForPreTraining`` model that also says of every pair whether its second half follows the first.

    Given ``token_type_ids`` it answers with two tensors, logits of shape (asked, vocabulary) and of shape (rows, 2);
    without them, as its base does.
    """

    def _answer(self, input_ids: Tensor, where: Tensor, attention: dict[str, Any]) -> Any:
        if "token_type_ids" not in attention:
            return super()._answer(input_ids, where, attention)
        states, pooled = self.model.base_model(input_ids=input_ids, **attention)[:2]
        return self.model.cls(states.flatten(0, 1)[where], pooled)
