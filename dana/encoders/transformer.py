"""Any Hugging Face encoder: pooled hidden states, in length-sorted batches under a token budget.

Sorting by length before batching is what makes this fast: padding a random batch to its longest member
wastes two thirds of the work on sentence-sized text (see ``docs/results``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.config import require
from dana.encoders.checkpoint import checkpoint_identity
from dana.errors import DataError

POOLINGS = ("mean", "cls")
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class TransformerEncoder:
    """The mean over a text's real tokens (or the first token) of one hidden layer.

    Attributes:
        model: A Hub name or a folder with safetensors weights.
        pooling: ``mean`` over every non-padding token, or ``cls``, the first token.
        layer: Hidden layer; -1 is the last.
        max_tokens: Longer texts are cut here, special tokens included.
        batch_tokens: Most tokens (padding included) in one forward pass.
        device: ``auto`` takes CUDA when there is one.
        dtype: ``float32``, or ``bfloat16`` by autocast: several times as fast on GPUs and on CPUs that have it;
            vectors then differ by about 1e-2 of their length.

    References:
        DANA section 3.1 embeds with a general pre-trained BERT; pooling is A-D05 of the requirements.
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
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.model)

    @cached_property
    def _network(self) -> Any:
        from dana.encoders.checkpoint import load_backbone

        network = load_backbone(self.model)
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        return network.to(device).eval()

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.encoders.base.Encoder`. A folder is known by the digest of its weights."""
        return {
            "encoder": "transformer",
            "weights": checkpoint_identity(self.model),
            "pooling": self.pooling,
            "layer": self.layer,
            "max_tokens": self.max_tokens,
            **({} if self.dtype == "float32" else {"dtype": self.dtype}),
        }

    def encode(self, texts: Sequence[str]) -> Tensor:
        """See :class:`dana.encoders.base.Encoder`.

        Raises:
            DataError: If a text has no token at all.
        """
        network = self._network
        if not texts:
            return torch.zeros(0, network.config.hidden_size)
        device = next(network.parameters()).device
        ids = self.tokenizer(list(texts), truncation=True, max_length=self.max_tokens, verbose=False)["input_ids"]
        lengths = np.array([len(tokens) for tokens in ids], dtype=np.int64)
        if lengths.min() == 0:
            raise DataError(f"text {int(lengths.argmin())} of the batch has no token: {texts[int(lengths.argmin())]!r}")
        vectors = torch.empty(len(ids), network.config.hidden_size, device=device)
        with torch.no_grad():
            for rows in batches_by_length(lengths, self.batch_tokens):
                vectors[torch.as_tensor(rows, device=device)] = self._pool(network, [ids[row] for row in rows], device)
        return vectors

    def _pool(self, network: Any, ids: list[list[int]], device: torch.device) -> Tensor:
        """Pooled vectors (batch, dims) of one padded batch."""
        width = max(len(tokens) for tokens in ids)
        pad = self.tokenizer.pad_token_id or 0
        tokens = torch.full((len(ids), width), pad, dtype=torch.long)
        mask = torch.zeros(len(ids), width, dtype=torch.long)
        for row, sequence in enumerate(ids):
            tokens[row, : len(sequence)] = torch.tensor(sequence)
            mask[row, : len(sequence)] = 1
        tokens, mask = tokens.to(device), mask.to(device)
        needs_layers = self.layer != -1
        with torch.autocast(device.type, torch.bfloat16, enabled=self.dtype == "bfloat16"):
            output = network(input_ids=tokens, attention_mask=mask, output_hidden_states=needs_layers)
        hidden = output.hidden_states[self.layer] if needs_layers else output.last_hidden_state
        hidden = hidden.float()  # sums of bfloat16 would lose what is left
        if self.pooling == "cls":
            return hidden[:, 0]
        real = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * real).sum(1) / real.sum(1)


def batches_by_length(lengths: np.ndarray, batch_tokens: int) -> Iterator[np.ndarray]:
    """Row indices in batches of similar length, longest first, each at most `batch_tokens` with padding.

    Longest first, so that memory peaks at once and the time left is not underestimated.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        rows = max(1, batch_tokens // int(lengths[order[start]]))
        yield order[start : start + rows]
        start += rows
