"""Compute language-model logits at selected positions only, those where a token is predicted.

With 15 % of the tokens masked, the vocabulary projection runs on one position in seven. Architectures without an entry
in :data:`HEADS` compute the logits of all positions and select from them.
"""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from dana.models.folder import running

ROBERTA = ("roberta", "xlm-roberta", "camembert", "mpnet")  # and related models
HEADS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    **dict.fromkeys(ROBERTA, lambda model, states: model.lm_head(states)),
    "bert": lambda model, states: model.cls.predictions(states),
    "electra": lambda model, states: model.generator_lm_head(model.generator_predictions(states)),
    "modernbert": lambda model, states: model.decoder(model.head(states)),
    "distilbert": lambda model, states: model.vocab_projector(
        model.vocab_layer_norm(model.activation(model.vocab_transform(states)))
    ),
}

RESERVED_POSITIONS = dict.fromkeys(ROBERTA, 2)  # before the first token


def positions_of(config: Any) -> int:
    """Return the longest text in tokens that a model has positions for; `sys.maxsize` if there is no limit."""
    positions = getattr(config, "max_position_embeddings", None) or -1  # -1 for XLNet, whose positions are relative
    return positions - RESERVED_POSITIONS.get(config.model_type, 0) if positions > 0 else sys.maxsize


class SelectedLogits(nn.Module):
    """A language model that returns logits at selected positions.

    It is a module, not a function, because data parallelism and ZeRO hook into ``forward``.

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
        """Compute logits of shape (selected, vocabulary).

        Args:
            input_ids: Shape (rows, width).
            where: int64 of shape (selected,), positions in the flattened (rows · width) batch.
            attention: Arguments from :func:`dana.train.layout.lay_out`.
        """
        autocast = torch.autocast(input_ids.device.type, torch.bfloat16) if self.bf16 else nullcontext()
        with running(self.model), autocast:
            return self.answer(input_ids, where, attention)

    def answer(self, input_ids: Tensor, where: Tensor, attention: dict[str, Any]) -> Any:
        """Compute the result of :meth:`forward`; modules with further heads override it."""
        head = HEADS.get(self.config.model_type)
        if head is None:
            return self.model(input_ids=input_ids, **attention).logits.flatten(0, 1)[where]
        return head(self.model, self.model.base_model(input_ids=input_ids, **attention)[0].flatten(0, 1)[where])
