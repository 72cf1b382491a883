"""Distance detector of dana's own protocol: saved as tensors, scored on the embeddings' device."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from dana.detectors.base import OnDevice, check_rows


@dataclass(frozen=True)
class FittedToy(OnDevice):
    """A point, shape (dims,)."""

    centre: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Distances from the point, float64 of shape (units,)."""
        check_rows(embeddings, self.centre.numel())
        return (embeddings.double() - self.centre).norm(dim=1)


@dataclass(frozen=True)
class Toy:
    """Distance from the mean of the target's embeddings times a factor; higher = more anomalous."""

    factor: float = 1.0
    fitted_type: ClassVar[type] = FittedToy

    def fit(self, embeddings: Tensor, seed: int) -> FittedToy:
        """Take the mean."""
        check_rows(embeddings, at_least=2)
        return FittedToy(self.factor * embeddings.double().mean(0))
