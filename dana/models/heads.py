"""Compute language-model logits, and losses, only at positions where a token is predicted.

With 15 % of the tokens masked, the vocabulary projection runs on one position in seven.
Architectures without an entry in :data:`HEADS` compute the logits of all positions and select from
them. Decoders predict at nearly every position: their logits are computed in chunks.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dana.core.errors import ArtifactError
from dana.core.logging import get_logger
from dana.models.folder import running

log = get_logger(__name__)

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

# They number positions from the id of the padding on, 1.
RESERVED = (
    *ROBERTA,
    "data2vec-text",
    "esm",
    "ibert",
    "longformer",
    "luke",
    "markuplm",
    "roberta-prelayernorm",
    "xlm-roberta-xl",
    "xmod",
)
RESERVED_POSITIONS = dict.fromkeys(RESERVED, 2)  # before the first token


def positions_of(config: Any) -> int:
    """Return the longest text in tokens that a model has positions for.

    It is `sys.maxsize` if there is no limit.
    """
    positions: int | None = getattr(config, "max_position_embeddings", None)
    if not positions or positions < 0:  # -1 in XLNet, whose positions are relative
        return sys.maxsize
    return positions - RESERVED_POSITIONS.get(config.model_type, 0)


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute negative log-likelihoods in nats, shape (labels,), in float32.

    Args:
        logits: Shape (labels, vocabulary).
        labels: int64 of shape (labels,).
    """
    return nn.functional.cross_entropy(logits.float(), labels, reduction="none")


class WrappedModel(nn.Module):
    """A transformers model, in a module whose ``forward`` returns what an objective needs.

    It is a module, not a function, because data parallelism and ZeRO hook into ``forward``.

    Args:
        model: The model.
        bf16: Compute in bfloat16 by autocast.
    """

    def __init__(self, model: Any, bf16: bool = False) -> None:
        super().__init__()
        self.model = model
        self.bf16 = bf16
        self.config = model.config  # DeepSpeed reads the hidden size here
        # And FSDP the layers that it cuts at.
        self._no_split_modules = getattr(model, "_no_split_modules", None)

    @contextmanager
    def computing(self, device: torch.device) -> Iterator[None]:
        """Put this around the call of the model: it sets the precision, and explains errors."""
        autocast: AbstractContextManager[Any] = nullcontext()
        if self.bf16:
            autocast = torch.autocast(device.type, torch.bfloat16)
        with autocast, running(self.model):
            yield


class SelectedLogits(WrappedModel):
    """A language model, with its head, that returns logits at selected positions."""

    def forward(
        self, input_ids: Tensor, where: Tensor, labels: Tensor | None = None, **attention: Any
    ) -> Any:
        """Compute logits, or losses of labels, at selected positions.

        Args:
            input_ids: Shape (rows, width).
            where: int64 of shape (selected,), positions in the flattened (rows · width) batch.
            labels: int64 of shape (selected,), tokens to predict; None for the logits.
            attention: Arguments from :func:`dana.train.layout.lay_out`.

        Returns:
            Logits of shape (selected, vocabulary); or losses in nats, of shape (selected,).
        """
        with self.computing(input_ids.device):
            if labels is None:
                return self.answer(input_ids, where, attention)
            return self.losses(input_ids, where, labels, attention)

    def losses(
        self, input_ids: Tensor, where: Tensor, labels: Tensor, attention: dict[str, Any]
    ) -> Tensor:
        """Compute the losses of :meth:`forward`."""
        return token_losses(self.answer(input_ids, where, attention), labels)

    def answer(self, input_ids: Tensor, where: Tensor, attention: dict[str, Any]) -> Any:
        """Compute the result of :meth:`forward`; modules with further heads override it."""
        head = HEADS.get(self.config.model_type)
        if head is None:
            logits = self.model(input_ids=input_ids, **attention).logits
            return logits.flatten(0, 1).index_select(0, where)
        states = self.model.base_model(input_ids=input_ids, **attention)[0]
        return head(self.model, states.flatten(0, 1).index_select(0, where))


CHUNK = 1 << 25  # logits at a time: 128 MB in float32


class ChunkedLosses(SelectedLogits):
    """A decoder that returns the losses of labels without holding all logits.

    They are computed :data:`CHUNK` at a time, and again in the backward pass, so that memory does
    not grow with tokens times vocabulary. An architecture whose logits are not its output embedding
    of the last states, scaled or capped as its configuration says, computes all of them at once.
    """

    def __init__(self, model: Any, bf16: bool = False) -> None:
        super().__init__(model, bf16)
        self.is_plain = _has_plain_head(model)
        if not self.is_plain:
            log.warning(
                "%s: the logits of a micro-batch are computed at once, not in chunks",
                model.config.model_type,
            )

    def losses(
        self, input_ids: Tensor, where: Tensor, labels: Tensor, attention: dict[str, Any]
    ) -> Tensor:
        if not self.is_plain:
            return super().losses(input_ids, where, labels, attention)
        network = self.model.base_model
        all_states = network(input_ids=input_ids, use_cache=False, **attention)[0]
        states = all_states.flatten(0, 1).index_select(0, where)
        rows = max(1, CHUNK // self.model.get_output_embeddings().weight.shape[0])
        losses = []
        for part, part_labels in zip(states.split(rows), labels.split(rows), strict=True):
            losses.append(checkpoint(self._losses_of, part, part_labels, use_reentrant=False))
        return torch.cat(losses)

    def _losses_of(self, states: Tensor, labels: Tensor) -> Tensor:
        return token_losses(decoder_logits(self.model, states), labels)


def decoder_logits(model: Any, states: Tensor) -> Tensor:
    """Compute logits from a decoder's last states.

    Args:
        model: The decoder.
        states: Shape (states, width).

    Returns:
        Shape (states, vocabulary).
    """
    config = model.config.get_text_config()
    logits: Tensor = model.get_output_embeddings()(states)
    factor = getattr(config, "logit_scale", 1.0)  # of Cohere
    divisor = getattr(config, "logits_scaling", 1.0)  # of Granite
    logits = logits * factor / divisor
    cap = getattr(config, "final_logit_softcapping", None)  # of Gemma
    if cap:
        logits = torch.tanh(logits / cap) * cap
    return logits


def _has_plain_head(model: Any) -> bool:
    """Return whether :func:`decoder_logits` are the model's logits, tried on a few tokens."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), running(model):
            ids = torch.arange(4, device=model.device)[None]
            product = decoder_logits(model, model.base_model(input_ids=ids, use_cache=False)[0])
            logits = model(input_ids=ids, use_cache=False).logits
    except ArtifactError:  # its parts do not fit
        return False
    finally:
        model.train(was_training)
    return product.shape == logits.shape and torch.allclose(product, logits, rtol=1e-4, atol=1e-5)
