"""Attend over examples packed end to end in one row, each to itself only; in decoders each token to those before it.

:func:`register` adds it to transformers' attention implementations, so that every architecture that
uses that registry can run without padding. It uses torch's kernel if the device has one; elsewhere
only queries, keys and values are padded for the product, and the rest of the layer still computes
without padding.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

NAME = "dana_varlen"
UNABLE = (
    "softcap",
    "s_aux",
    "position_bias",
)  # arguments that change the product: Gemma 2, GPT-OSS, T5


def register() -> None:
    """Register :data:`NAME` with transformers; may be repeated."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attention)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention, with the signature of transformers' attention implementations.

    Args:
        module: The attention layer.
        query: Shape (1, heads, tokens, dims).
        key: Likewise, with as many heads or fewer, each for several of the query's.
        value: Like `key`.
        attention_mask: Ignored.
        scaling: Factor of the products; 1 / √dims if None.
        dropout: Probability, 0 in evaluation.
        kwargs: ``cu_seq_lens_q``, int32 of shape (examples + 1,), starts of the examples and the
            end; ``max_length_q``; and ``sliding_window`` of layers that have one: number of
            positions attended to either side, plus 1, as for flash attention in transformers.

    Returns:
        Shape (1, tokens, heads, dims), and no attention weights.

    Raises:
        ValueError: If the architecture changes the product in a way that neither the kernel nor
            this file can.
    """
    if more := [name for name in UNABLE if kwargs.get(name) is not None]:
        raise ValueError(f"attention with {', '.join(more)} needs padded rows")
    bounds, longest = kwargs["cu_seq_lens_q"], kwargs["max_length_q"]
    window = (kwargs.get("sliding_window") or 0) - 1
    is_causal = bool(kwargs.get("is_causal") or getattr(module, "is_causal", False))
    sides, groups = (window, 0 if is_causal else window), query.shape[1] // key.shape[1]
    key, value = (
        part.repeat_interleave(groups, 1) if groups > 1 else part for part in (key, value)
    )
    if (
        dropout == 0.0
        and query.dtype in (torch.float16, torch.bfloat16)
        and has_kernel(query.device)
    ):
        from torch.nn.attention.varlen import varlen_attn

        q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
        result: Any = varlen_attn(
            q, k, v, bounds, bounds, longest, longest, scale=scaling, window_size=sides
        )
        return result.unsqueeze(0), None
    return padded_attention(query, key, value, bounds, longest, scaling, dropout, sides), None


def has_kernel(device: torch.device) -> bool:
    """Return True if torch has a variable-length kernel for a device: CUDA only, for half precision."""
    return device.type == "cuda" and find_spec("torch.nn.attention.varlen") is not None


def padded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    longest: int,
    scaling: float | None = None,
    dropout: float = 0.0,
    sides: tuple[int, int] = (-1, -1),
) -> Tensor:
    """Compute the same as the kernel by a product over padded examples, on any device.

    `sides` are the most positions that a token attends to before and after it; -1 is no limit.
    """
    lengths, columns = bounds.diff(), torch.arange(longest, device=query.device)
    real = columns < lengths[:, None]
    positions, mask = torch.where(real, bounds[:-1, None] + columns, 0), real[:, None, None, :]
    for limit, distance in zip(
        sides, (columns[:, None] - columns, columns - columns[:, None]), strict=True
    ):
        if 0 <= limit < longest - 1:
            # Padding attends to itself: its result is dropped, but 0 / 0 would make gradients NaN.
            mask = (mask & (distance <= limit)) | (distance == 0)
    # (1, heads, tokens, dims) -> (examples, heads, longest, dims)
    q, k, v = (part[0][:, positions].transpose(0, 1) for part in (query, key, value))
    result = nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, scale=scaling
    )
    return result.transpose(1, 2)[real].unsqueeze(0)
