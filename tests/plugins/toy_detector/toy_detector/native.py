"""A detector of dana's own protocol."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from dana.detectors.base import OnDevice, check_rows


@dataclass(frozen=True)
class FittedToy(OnDevice):
    """A point."""

    centre: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Distance from the point."""
        check_rows(embeddings, self.centre.numel())
        return (embeddings.double() - self.centre).norm(dim=1)


@dataclass(frozen=True)
class Toy:
    """Distance from the mean times a factor nobody needs; higher = more anomalous."""

    factor: float = 1.0
    fitted_type: ClassVar[type] = FittedToy

    def fit(self, embeddings: Tensor, seed: int) -> FittedToy:
        """Take the mean."""
        check_rows(embeddings, at_least=2)
        return FittedToy(self.factor * embeddings.double().mean(0))
