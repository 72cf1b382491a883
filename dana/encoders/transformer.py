"""Transformer encoder: pooled hidden states of any Hugging Face encoder, in batches of similar length and fixed shapes.

Padding a random batch to its longest text wastes two thirds of the work on sentences (``docs/results``). With shapes
that depend on a text's own length only, its vector does not depend on the batch, to the last bit
(:mod:`dana.encoders.batches`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from dana.core.config import require
from dana.core.device import device_named
from dana.core.errors import ConfigError
from dana.core.logging import tick
from dana.encoders.batches import TokenBatch, batches_on
from dana.models.folder import load_own_tokenizer, model_identity
from dana.models.heads import positions_of

POOLINGS = ("mean", "cls")
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class TransformerEncoder:
    """The mean over a text's real tokens (or its classification token) of one hidden layer.

    Any ``AutoModel`` will do, of encoders and decoders. Texts are filled up on the right whatever the tokenizer does by
    itself: no real token sees a filler, and positions begin at the first one.

    Attributes:
        model: A Hub name or a folder with safetensors weights.
        pooling: ``mean`` over every non-padding token, special ones too, or ``cls``, the tokenizer's classification
            token: the first of BERT, the last of XLNet; a tokenizer without one, as GPT-2's, is refused.
        layer: Hidden layer, 0 for the embeddings; -1 is the last.
        max_tokens: Longer texts are cut here, special tokens included, or where the model's positions end.
        batch_tokens: Most tokens (padding included) in one forward pass; on a CPU 512 at most.
        device: ``auto`` takes CUDA when there is one.
        dtype: ``float32``, or ``bfloat16`` by autocast: several times as fast on GPUs and on CPUs that have it;
            vectors then differ by about 1e-2 of their length.

    References:
        DANA section 3.1 embeds with a general pre-trained BERT and does not say how it pools.
    """

    model: str
    pooling: str = "mean"
    layer: int = -1
    max_tokens: int = 256
    batch_tokens: int = 8192
    device: str = "auto"
    dtype: str = "float32"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(self.pooling in POOLINGS, "pooling", self.pooling, f"one of {', '.join(POOLINGS)}")
        require(self.dtype in DTYPES, "dtype", self.dtype, f"one of {', '.join(DTYPES)}")
        require(self.max_tokens >= 3, "max_tokens", self.max_tokens, "at least 3")
        require(self.batch_tokens >= self.max_tokens, "batch_tokens", self.batch_tokens, "at least max_tokens")

    @cached_property
    def tokenizer(self) -> Any:
        """The model's fast tokenizer."""
        return load_own_tokenizer(self.model)

    @cached_property
    def _network(self) -> Any:
        from dana.models.folder import load_backbone

        return load_backbone(self.model).to(device_named(self.device)).eval()

    @cached_property
    def _cls_place(self) -> int:
        """Where in its text the classification token stands: 0, or -1 for the last."""
        token, alone = self.tokenizer.cls_token_id, self.tokenizer("")["input_ids"]
        if token is None or token not in (alone[:1] + alone[-1:]):
            raise ConfigError(f"pooling='cls': {self.model} marks no text with a classification token; take mean")
        return 0 if alone[0] == token else -1

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.encoders.base.Encoder`. A folder is known by the digest of its weights."""
        return {
            "encoder": "transformer",
            "weights": model_identity(self.model),
            "pooling": self.pooling,
            "layer": self.layer,
            "max_tokens": self.max_tokens,
            **({} if self.dtype == "float32" else {"dtype": self.dtype}),
        }

    def encode(self, texts: Sequence[str]) -> Tensor:
        """See :class:`dana.encoders.base.Encoder`.

        Raises:
            ConfigError: If the model has no such layer, or its tokenizer no token to pool by.
            DataError: If a text has no token at all.
        """
        network = self._network
        layers = network.config.num_hidden_layers
        allowed = f"from {-layers - 1} to {layers}, of the embeddings (0) and {layers} layers"
        require(-layers - 1 <= self.layer <= layers, "layer", self.layer, allowed)
        if not texts:
            return torch.zeros(0, network.config.hidden_size)
        place = self._cls_place if self.pooling == "cls" else None  # before a thread uses the tokenizer
        device = next(network.parameters()).device
        longest = min(self.max_tokens, positions_of(network.config))
        vectors = torch.empty(len(texts), network.config.hidden_size, device=device)
        with torch.no_grad(), batches_on(device, self.tokenizer, texts, longest, self.batch_tokens) as batches:
            for batch in batches:
                vectors[batch.rows] = self._pool(network, batch, place)[: len(batch.rows)]
                tick(len(batch.rows))
        return vectors

    def _pool(self, network: Any, batch: TokenBatch, place: int | None) -> Tensor:
        """Pooled vectors (size, dims) of one batch: of the token at a place, or the mean over all of a text."""
        needs_layers = self.layer != -1
        with torch.autocast(batch.tokens.device.type, torch.bfloat16, enabled=self.dtype == "bfloat16"):
            output = network(input_ids=batch.tokens, attention_mask=batch.mask, output_hidden_states=needs_layers)
        hidden = output.hidden_states[self.layer] if needs_layers else output.last_hidden_state
        hidden = hidden.float()  # sums of bfloat16 would lose what is left
        if place is not None:
            places = 0 if place == 0 else batch.mask.sum(1) - 1
            return hidden[torch.arange(len(hidden), device=hidden.device), places]
        real = batch.mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * real).sum(1) / real.sum(1)
