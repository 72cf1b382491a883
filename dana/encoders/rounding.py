"""Rounding of stored vectors: float32 to rows of bytes and back, as float16 or as int8 with a scale a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dana.core.errors import DataError
from dana.encoders.base import Encoder, encoder_identity

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = ("float16", "int8")
SCALE = 4  # bytes of an int8 row's float32 scale, behind its numbers


def row_bytes(dims: int, dtype: str) -> int:
    """Bytes of one packed vector."""
    return 2 * dims if dtype == "float16" else dims + SCALE


def pack_vectors(vectors: "Tensor", dtype: str) -> np.ndarray:
    """Round to a packed row a vector.

    float16 rounds to 11 significant bits. int8 divides by the row's largest absolute number over 127, so no number
    moves by more than 1/254 of the largest.

    Args:
        vectors: Shape (texts, dims).
        dtype: One of :data:`DTYPES`.

    Returns:
        uint8 of shape (texts, :func:`row_bytes`), little-endian.

    Raises:
        DataError: If a vector is not finite, or too large for the dtype.
    """
    exact = vectors.detach().cpu().float().contiguous().numpy()
    with np.errstate(over="ignore"):  # what overflows is refused below
        scales = np.abs(exact).max(1, initial=0, keepdims=True) / np.float32(127)
        kept = exact.astype("<f2") if dtype == "float16" else scales.astype("<f4")
    finite = np.isfinite(exact).all(1) & np.isfinite(kept).all(1)
    if not finite.all():
        raise DataError(f"vector {int(finite.argmin())} of the batch is not finite in {dtype}")
    if dtype == "float16":
        return kept.view(np.uint8)
    numbers = np.rint(exact / np.where(scales > 0, scales, 1)).clip(-127, 127).astype(np.int8)
    return np.concatenate([numbers.view(np.uint8), kept.view(np.uint8)], axis=1)


def unpack_vectors(rows: np.ndarray, dtype: str) -> "Tensor":
    """The vectors that :func:`pack_vectors` rounded to: float32 of shape (rows, dims)."""
    import torch

    rows = np.ascontiguousarray(rows)
    if dtype == "float16":
        return torch.from_numpy(rows.view("<f2").astype(np.float32))
    scales = np.ascontiguousarray(rows[:, -SCALE:]).view("<f4").astype(np.float32)
    return torch.from_numpy(rows[:, :-SCALE].view(np.int8) * scales)


def error_bound(vectors: "Tensor", dtype: str) -> "Tensor":
    """How far :func:`pack_vectors` may move each number, of the vectors' shape."""
    if dtype == "float16":
        return vectors.abs() * 2.0**-11 + 2.0**-25  # half a unit in the last place; subnormals have fixed steps
    return vectors.abs().max(1, keepdim=True).values.expand_as(vectors) * ((1 + 1e-5) / 254) + 1e-44


@dataclass(frozen=True)
class RoundedEncoder:
    """An encoder whose vectors are rounded as a store rounds them, without a store: the same bits, the same identity.

    Attributes:
        encoder: Whose vectors these are.
        dtype: One of :data:`DTYPES`.
    """

    encoder: Encoder
    dtype: str

    def identity(self) -> dict[str, Any]:
        """See :func:`stored_identity`."""
        return stored_identity(encoder_identity(self.encoder), self.dtype)

    def encode(self, texts: Sequence[str]) -> "Tensor":
        """See :class:`dana.encoders.base.Encoder`.

        Raises:
            DataError: If a vector is not finite in the dtype.
        """
        vectors = self.encoder.encode(texts)
        return unpack_vectors(pack_vectors(vectors, self.dtype), self.dtype).to(vectors.device)


def stored_identity(encoder: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Identity of an encoder whose vectors are rounded."""
    return {**encoder, "stored": dtype}
