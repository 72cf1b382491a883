"""Transformer encoder: pooled hidden states of any Hugging Face encoder, in batches of similar length and fixed shapes.

Padding a random batch to its longest text wastes two thirds of the work on sentences (``docs/results``). With shapes
that depend on a text's own length only, its vector does not depend on the batch, to the last bit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.core.device import device_named
from dana.core.errors import ConfigError, DataError
from dana.core.logging import tick
from dana.models.folder import load_own_tokenizer, model_identity
from dana.models.heads import positions_of

POOLINGS = ("mean", "cls")
DTYPES = ("float32", "bfloat16")
CPU_TOKENS = 512  # of a batch on a CPU: more is no faster there, and small batches need fewer fillers


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
        device = next(network.parameters()).device
        longest = min(self.max_tokens, positions_of(network.config))
        ids = self.tokenizer(list(texts), truncation=True, max_length=longest, verbose=False)["input_ids"]
        lengths = np.array([len(tokens) for tokens in ids], dtype=np.int64)
        if lengths.min() == 0:
            raise DataError(f"text {int(lengths.argmin())} of the batch has no token: {texts[int(lengths.argmin())]!r}")
        vectors = torch.empty(len(ids), network.config.hidden_size, device=device)
        with torch.no_grad():
            most = min(self.batch_tokens, CPU_TOKENS) if device.type == "cpu" else self.batch_tokens
            for rows, size, width in fixed_batches(lengths, longest, most):
                filled = [ids[row] for row in rows] + [ids[rows[0]]] * (size - len(rows))
                pooled = self._pool(network, filled, width, device)
                vectors[torch.as_tensor(rows, device=device)] = pooled[: len(rows)]
                tick(len(rows))
        return vectors

    def _pool(self, network: Any, ids: list[list[int]], width: int, device: torch.device) -> Tensor:
        """Pooled vectors (batch, dims) of one padded batch."""
        tokens, mask = (part.to(device) for part in padded_batch(ids, width, self.tokenizer.pad_token_id or 0))
        needs_layers = self.layer != -1
        with torch.autocast(device.type, torch.bfloat16, enabled=self.dtype == "bfloat16"):
            output = network(input_ids=tokens, attention_mask=mask, output_hidden_states=needs_layers)
        hidden = output.hidden_states[self.layer] if needs_layers else output.last_hidden_state
        hidden = hidden.float()  # sums of bfloat16 would lose what is left
        if self.pooling == "cls":
            places = 0 if self._cls_place == 0 else mask.sum(1) - 1
            return hidden[torch.arange(len(hidden), device=device), places]
        real = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * real).sum(1) / real.sum(1)


def padded_batch(ids: Sequence[Sequence[int]], width: int, pad: int) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask, both int64 of shape (texts, width).

    Args:
        ids: Token ids of each text, at most `width`.
        width: Tokens of a row.
        pad: Token id to pad with.
    """
    tokens = torch.full((len(ids), width), pad, dtype=torch.long)
    mask = torch.zeros(len(ids), width, dtype=torch.long)
    for row, sequence in enumerate(ids):
        tokens[row, : len(sequence)] = torch.tensor(sequence)
        mask[row, : len(sequence)] = 1
    return tokens, mask


def batch_width(length: int, max_tokens: int) -> int:
    """Tokens to which a text of some length is padded: the next multiple of 8 up to 64, of 16 up to 128, then of 32."""
    step = 8 if length <= 64 else 16 if length <= 128 else 32
    return min(-(-length // step) * step, max(length, max_tokens))


def fixed_batches(lengths: np.ndarray, max_tokens: int, batch_tokens: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Row indices in batches whose shape follows from a text's own length alone, longest first.

    So neither the others of a batch nor their number can move a vector, not even its last bit. Longest first, so that
    memory peaks at once and the time left is not underestimated.

    Args:
        lengths: Tokens of each text.
        max_tokens: No width is above it.
        batch_tokens: Most tokens of a batch, fillers included, where one row has no more.

    Yields:
        Rows, how many the batch must be filled up to, and its width.
    """
    widths = np.array([batch_width(int(length), max_tokens) for length in lengths], dtype=np.int64)
    for width in np.unique(widths)[::-1].tolist():
        rows = np.flatnonzero(widths == width)
        size = max(1, batch_tokens // width)
        for start in range(0, rows.size, size):
            yield rows[start : start + size], size, width
