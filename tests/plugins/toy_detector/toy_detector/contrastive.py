"""Contrastive detector of dana's own protocol: told at fit what pool text looks like."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from dana.detectors.base import OnDevice, check_classes, check_rows


@dataclass(frozen=True)
class FittedAxis(OnDevice):
    """A direction, shape (dims,)."""

    axis: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Places along the direction, float64 of shape (units,)."""
        check_rows(embeddings, self.axis.numel())
        return embeddings.double() @ self.axis


@dataclass(frozen=True)
class Axis:
    """Place along the line from the target's mean to that of pool units; higher = more anomalous."""

    background: ClassVar[int] = 1000
    fitted_type: ClassVar[type] = FittedAxis

    def fit(self, embeddings: Tensor, seed: int, background: Tensor) -> FittedAxis:
        """Subtract the means."""
        check_classes(embeddings, background)
        return FittedAxis(background.double().mean(0) - embeddings.double().mean(0))
