"""Attend over examples packed end to end in one row, each to itself only.

In decoders each token attends to those before it. :func:`register` adds it to transformers'
attention implementations, so that every architecture that uses that registry can run without
padding. On a GPU it is torch's flash attention for rows of variable length, in half precision;
elsewhere only queries, keys and values are padded for the product, and the rest of the layer still
computes without padding. :data:`calls` counts both.
"""

from collections import Counter
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

NAME = "dana_varlen"
# Arguments that change the product: of Gemma 2, GPT-OSS, T5.
UNABLE = ("softcap", "s_aux", "position_bias")
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
    unable = [name for name in UNABLE if kwargs.get(name) is not None]
    if unable:
        raise ValueError(f"attention with {', '.join(unable)} needs padded rows")
    bounds = kwargs["cu_seq_lens_q"]
    longest = kwargs["max_length_q"]
    window = (kwargs.get("sliding_window") or 0) - 1  # -1 is no limit
    is_causal = bool(kwargs.get("is_causal") or getattr(module, "is_causal", False))
    sides = (window, 0 if is_causal else window)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key = key.repeat_interleave(groups, 1)
        value = value.repeat_interleave(groups, 1)
    query, key, value = in_run_precision(query, key, value)
    fits_kernel = query.dtype in HALF and query.shape[-1] <= WIDEST_HEAD
    uses_kernel = fits_kernel and has_kernel(query.device)
    attend = kernel_attention if uses_kernel else padded_attention
    if not torch.compiler.is_compiling():  # a count would be a reason to compile again
        calls["kernel" if uses_kernel else "product"] += 1
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
    """Return True if torch has a variable-length kernel for a device: GPUs from Ampere on."""
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
    before, after = sides
    output, *_ = torch.ops.aten._flash_attention_forward(
        _as_kernel_takes(query),
        _as_kernel_takes(key),
        _as_kernel_takes(value),
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


def _as_kernel_takes(part: Tensor) -> Tensor:
    """Return (1, heads, tokens, dims) as (tokens, heads, dims), with dims that the kernel takes."""
    by_token = part[0].transpose(0, 1)
    fill = -part.shape[-1] % HEAD_STEP
    if not fill:
        return by_token
    return nn.functional.pad(by_token, (0, fill))  # zeros, which change no product


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
    lengths = bounds.diff()
    columns = torch.arange(longest, device=device)
    real = columns < lengths[:, None]
    positions = torch.where(real, bounds[:-1, None] + columns, 0)
    mask = real[:, None, None, :]
    distances = (columns[:, None] - columns, columns - columns[:, None])  # to before, to behind
    for limit, distance in zip(sides, distances, strict=True):
        if 0 <= limit < longest - 1:
            # Padding attends to itself: its result is dropped, but 0 / 0 would make gradients NaN.
            mask = (mask & (distance <= limit)) | (distance == 0)
    result = nn.functional.scaled_dot_product_attention(
        _by_example(query, positions),
        _by_example(key, positions),
        _by_example(value, positions),
        attn_mask=mask,
        dropout_p=dropout,
        scale=scaling,
    )
    # The row of each token in the padded result: a mask would make the CPU wait for the device.
    owners = torch.repeat_interleave(lengths, output_size=tokens)
    rows = owners * longest + torch.arange(tokens, device=device) - bounds[owners]
    return result.transpose(1, 2).flatten(0, 1).index_select(0, rows).unsqueeze(0)


def _by_example(part: Tensor, positions: Tensor) -> Tensor:
    """Return (1, heads, tokens, dims) as (examples, heads, longest, dims).

    Args:
        part: Queries, keys or values.
        positions: Shape (examples, longest), the token at each place of the result.
    """
    tokens = part[0].index_select(1, positions.flatten())
    examples: Tensor = tokens.unflatten(1, positions.shape).transpose(0, 1)
    return examples
