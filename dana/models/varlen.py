"""Variable-length attention: queries, keys, values of examples end to end in one row in, each attends to itself only.

Registered with transformers as an attention implementation, so that every architecture that asks its registry
for one can run without padding. Where the device has a kernel for it the kernel is used; elsewhere queries, keys
and values alone are padded for the product, and everything else of the layer still sees no padding.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

NAME = "dana_varlen"


def register() -> None:
    """Make :data:`NAME` known to transformers; harmless when repeated."""
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
    """The signature that transformers asks of an attention implementation.

    Args:
        module: The attention layer.
        query: Shape (1, heads, tokens, dims), like `key` and `value`.
        key: See query.
        value: See query.
        attention_mask: Plays no part.
        scaling: Factor of the products; 1 / √dims if None.
        dropout: Probability, 0 in evaluation.
        kwargs: ``cu_seq_lens_q``, int32 of shape (examples + 1,), where each begins, and ``max_length_q``; and
            ``sliding_window`` from layers that have one: how many places to either side are seen, plus 1, as
            transformers counts it for flash attention.

    Returns:
        Shape (1, tokens, heads, dims), and no attention weights.
    """
    bounds, longest = kwargs["cu_seq_lens_q"], kwargs["max_length_q"]
    window = (kwargs.get("sliding_window") or 0) - 1  # -1 sees everything
    if dropout == 0.0 and query.dtype in (torch.float16, torch.bfloat16) and has_kernel(query.device):
        from torch.nn.attention.varlen import varlen_attn

        q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
        found: Any = varlen_attn(q, k, v, bounds, bounds, longest, longest, scale=scaling, window_size=(window, window))
        return found.unsqueeze(0), None
    return padded(query, key, value, bounds, longest, scaling, dropout, window), None


def has_kernel(device: torch.device) -> bool:
    """Whether torch can attend over variable lengths on a device: its kernel takes half precision on CUDA only."""
    return device.type == "cuda" and find_spec("torch.nn.attention.varlen") is not None


def padded(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    longest: int,
    scaling: float | None = None,
    dropout: float = 0.0,
    window: int = -1,
) -> Tensor:
    """What the kernel computes, by a product over padded examples; for devices without the kernel, and for tests."""
    lengths = bounds.diff()
    columns = torch.arange(longest, device=query.device)
    real = columns < lengths[:, None]
    places = torch.where(real, bounds[:-1, None] + columns, 0)
    seen = real[:, None, None, :]
    if 0 <= window < longest - 1:
        # A place of padding may see nothing then: its answer is dropped, but 0 / 0 would spoil gradients.
        near = (columns[:, None] - columns).abs() <= window
        seen = (seen & near) | (columns[:, None] == columns)
    # (1, heads, tokens, dims) -> (examples, heads, longest, dims)
    q, k, v = (part[0][:, places].transpose(0, 1) for part in (query, key, value))
    found = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=dropout, scale=scaling)
    return found.transpose(1, 2)[real].unsqueeze(0)
