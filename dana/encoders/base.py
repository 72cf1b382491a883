"""The contract of an encoder: texts in, one float32 vector each out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dana.core.registry import origin_of, plugin_errors

if TYPE_CHECKING:
    from torch import Tensor


class Encoder(Protocol):
    """A frozen dataclass of parameters; weights are loaded on first use.

    The vector of a text must not depend on the other texts of the call beyond 1e-5; by dana's encoders it does not at
    all.
    """

    def encode(self, texts: Sequence[str]) -> "Tensor":
        """Vectors of shape (texts, dims), float32, on the device that computed them, in input order."""
        ...

    def identity(self) -> dict[str, Any]:
        """All that decides the vectors, as plain values: parameters and weight digests, never a path."""
        ...


def encode(encoder: Encoder, texts: Sequence[str], spec: str) -> "Tensor":
    """An encoder's vectors of shape (texts, dims), after a check of type and shape.

    Args:
        encoder: Of dana or of a plug-in.
        texts: One a row.
        spec: How it was named.

    Raises:
        PluginError: If it fails in a way that is not of dana, or gives no row for some text.
    """
    from torch import Tensor

    own = encoder
    while hasattr(own, "encoder"):  # a store's, or that of a memory of vectors
        own = own.encoder
    with plugin_errors("encoder", spec, own):
        found = encoder.encode(texts)
        if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != len(texts):
            shape = tuple(getattr(found, "shape", ()))
            raise ValueError(
                f"{len(texts)} texts became a {type(found).__name__} of shape {shape}, not of one row each"
            )
    return found


def encoder_identity(encoder: Encoder) -> dict[str, Any]:
    """All that decides an encoder's vectors: its own identity and whose code it is."""
    with plugin_errors("encoder", type(encoder).__name__, encoder):
        identity = encoder.identity()
    return identity if "code" in identity else {**identity, "code": origin_of(encoder)}
