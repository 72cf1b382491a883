"""What an encoder is: texts in, one float32 vector each out."""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor


class Encoder(Protocol):
    """A frozen dataclass of parameters; weights are loaded on first use.

    The vector of a text must not depend on the other texts of the call beyond 1e-5 (floating-point
    order of a padded batch).
    """

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Vectors of shape (texts, dims), float32, on the device that computed them, in input order."""
        ...

    def identity(self) -> dict[str, Any]:
        """All that decides the vectors, as plain values: parameters and weight digests, never a path."""
        ...
