"""Language-model heads at selected places only: a model's own logits where a token is predicted.

With 15 % of the tokens masked, the vocabulary projection runs on one place in seven. An architecture without an entry
in :data:`HEADS` computes the logits of all places and takes the selected ones.
"""

import sys
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


def positions_of(config: Any) -> int:
    """Tokens of the longest text that a model has positions for; `sys.maxsize` where any length will do."""
    positions = getattr(config, "max_position_embeddings", None) or -1  # XLNet's are relative, and it says -1
    return positions - RESERVED_POSITIONS.get(config.model_type, 0) if positions > 0 else sys.maxsize


class SelectedLogits(nn.Module):
    """A language model that answers with logits at selected places.

    A module, not a function, because data parallelism and ZeRO hook into ``forward``.

    Args:
        model: A transformers model with a language-model head.
        bf16: Compute in bfloat16 by autocast.
    """

    def __init__(self, model: Any, bf16: bool = False) -> None:
        super().__init__()
        self.model = model
        self.bf16 = bf16
        self.config = model.config  # DeepSpeed reads the hidden size here

    def forward(self, input_ids: Tensor, where: Tensor, **attention: Any) -> Any:
        """Logits of shape (selected, vocabulary).

        Args:
            input_ids: Shape (rows, width).
            where: int64 of shape (selected,), places in the flattened (rows · width) batch.
            attention: From :func:`dana.train.layout.lay_out`.
        """
        if self.bf16:
            with torch.autocast(input_ids.device.type, torch.bfloat16):
                return self.answer(input_ids, where, attention)
        return self.answer(input_ids, where, attention)

    def answer(self, input_ids: Tensor, where: Tensor, attention: dict[str, Any]) -> Any:
        """What :meth:`forward` returns; a module with further heads overrides it."""
        head = HEADS.get(self.config.model_type)
        if head is None:
            return self.model(input_ids=input_ids, **attention).logits.flatten(0, 1)[where]
        states = self.model.base_model(input_ids=input_ids, **attention)[0]
        return head(self.model, states.flatten(0, 1)[where])
