"""Attend over examples packed end to end in one row, each to itself only; in decoders each token to those before it.

:func:`register` adds it to transformers' attention implementations, so that every architecture that
uses that registry can run without padding. On a GPU it is torch's flash attention for rows of
variable length, in half precision; elsewhere only queries, keys and values are padded for the
product, and the rest of the layer still computes without padding. :data:`calls` counts both.
"""

from collections import Counter
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

NAME = "dana_varlen"
UNABLE = (
    "softcap",
    "s_aux",
    "position_bias",
)  # arguments that change the product: Gemma 2, GPT-OSS, T5
HALF = (torch.float16, torch.bfloat16)  # the kernel has no other precision
WIDEST_HEAD = 256  # of the kernel, in dimensions
HEAD_STEP = 8  # the kernel takes heads of multiples of so many dimensions
AMPERE = (8, 0)  # the first GPUs that the kernel runs on

calls: Counter[str] = Counter()  # of "kernel" and of "product" in this process


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
    query, key, value = in_run_precision(query, key, value)
    takes_kernel = query.dtype in HALF and query.shape[-1] <= WIDEST_HEAD
    has_it = takes_kernel and has_kernel(query.device)
    attend = kernel_attention if has_it else padded_attention
    if not torch.compiler.is_compiling():  # a count would be a reason to compile again
        calls["kernel" if has_it else "product"] += 1
    return attend(query, key, value, bounds, longest, scaling, dropout, sides), None


def in_run_precision(*parts: Tensor) -> tuple[Tensor, ...]:
    """Cast queries, keys and values to autocast's dtype, if it is on.

    Rotary positions leave queries and keys in float32 under autocast, which the kernel does not
    take.
    """
    kind = parts[0].device.type
    if not torch.is_autocast_enabled(kind):
        return parts
    dtype = torch.get_autocast_dtype(kind)
    return tuple(part.to(dtype) for part in parts)


@cache
def has_kernel(device: torch.device) -> bool:
    """Return True if torch has a variable-length kernel for a device: GPUs from Ampere on, for half precision."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= AMPERE


def kernel_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    longest: int,
    scaling: float | None = None,
    dropout: float = 0.0,
    sides: tuple[int, int] = (-1, -1),
) -> Tensor:
    """Compute attention by torch's kernel, arguments as of :func:`padded_attention`.

    It is the operator that torch's own attention over nested tensors calls: the public
    ``varlen_attn`` has no dropout, is missing before torch 2.10 and has no scale in it.
    """
    dims = query.shape[-1]
    scale = dims**-0.5 if scaling is None else scaling
    fill = -dims % HEAD_STEP  # zeros, which change no product
    q, k, v = (
        nn.functional.pad(part[0].transpose(0, 1), (0, fill)) if fill else part[0].transpose(0, 1)
        for part in (query, key, value)
    )
    before, after = sides
    output, *_ = torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        bounds,
        bounds,
        longest,
        longest,
        dropout,
        sides == (-1, 0),  # causal
        False,
        scale=scale,
        window_size_left=before,
        window_size_right=after,
    )
    result: Tensor = output[..., :dims]
    return result.unsqueeze(0)


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
    """Compute attention by a product over padded examples, on any device.

    Args:
        query: Shape (1, heads, tokens, dims).
        key: Likewise.
        value: Likewise.
        bounds: int32 of shape (examples + 1,), starts of the examples and the end.
        longest: Tokens of the longest example.
        scaling: Factor of the products; 1 / √dims if None.
        dropout: Probability, 0 in evaluation.
        sides: The most positions that a token attends to before and after it; -1 is no limit.

    Returns:
        Shape (1, tokens, heads, dims).
    """
    device = query.device
    tokens = query.shape[2]
    lengths, columns = bounds.diff(), torch.arange(longest, device=device)
    real = columns < lengths[:, None]
    positions, mask = torch.where(real, bounds[:-1, None] + columns, 0), real[:, None, None, :]
    for limit, distance in zip(
        sides, (columns[:, None] - columns, columns - columns[:, None]), strict=True
    ):
        if 0 <= limit < longest - 1:
            # Padding attends to itself: its result is dropped, but 0 / 0 would make gradients NaN.
            mask = (mask & (distance <= limit)) | (distance == 0)
    # (1, heads, tokens, dims) -> (examples, heads, longest, dims)
    shape = positions.shape
    q, k, v = (
        part[0].index_select(1, positions.flatten()).unflatten(1, shape).transpose(0, 1)
        for part in (query, key, value)
    )
    result = nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, scale=scaling
    )
    # The row of each token in the padded result: a mask would make the CPU wait for the device.
    owners = torch.repeat_interleave(lengths, output_size=tokens)
    rows = owners * longest + torch.arange(tokens, device=device) - bounds[owners]
    return result.transpose(1, 2).flatten(0, 1).index_select(0, rows).unsqueeze(0)
