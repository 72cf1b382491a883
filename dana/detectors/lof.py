"""Local outlier factor: density of the nearest fitted rows over that of the unit, by exact search in torch."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dana.core.config import require
from dana.detectors.base import OnDevice, blocks, check_rows, score_blocks
from dana.detectors.neighbours import Neighbours

# Added to reachabilities, as in scikit-learn: those of duplicated rows are 0.
TINY = 1e-10


@dataclass(frozen=True)
class FittedLocalOutlierFactor(OnDevice):
    """The fitted rows and their densities.

    Attributes:
        k: Neighbours.
        reference: Shape (rows, dims).
        k_distance: float64 (rows,), each row's distance to its k-th nearest other row.
        density: float64 (rows,), local reachability density.
    """

    k: int
    reference: Tensor
    k_distance: Tensor
    density: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Mean density of the k nearest fitted rows over the unit's own; higher = more anomalous.

        About 1 inside. O(units · rows · dims).
        """
        check_rows(embeddings, self.reference.shape[1])
        search = Neighbours(self.reference)

        def score(rows: Tensor) -> Tensor:
            distance, nearest = search(rows, self.k)
            own = 1 / (torch.maximum(distance.double(), self.k_distance[nearest]).mean(1) + TINY)
            return self.density[nearest].mean(1) / own

        return score_blocks(embeddings, search.per_row, score)


@dataclass(frozen=True)
class LocalOutlierFactor:
    """Local outlier factor in novelty mode; higher = more anomalous.

    Scores equal scikit-learn's to 1e-5.

    Cost: fit O(rows² · dims), score O(units · rows · dims).

    Attributes:
        k: Neighbours. DANA gives no value; 20 is the default of scikit-learn.

    References:
        Breunig, Kriegel, Ng and Sander 2000, LOF: identifying density-based local outliers, definitions 5-7.
        DANA section 3.1 (LOF).
    """

    k: int = 20
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedLocalOutlierFactor

    def __post_init__(self) -> None:
        require(self.k >= 1, "k", self.k, "at least 1")

    def fit(self, embeddings: Tensor, seed: int) -> FittedLocalOutlierFactor:
        """Densities of the rows among themselves; nothing is random. Fewer rows than k + 1 lower k."""
        check_rows(embeddings, at_least=3)
        reference = embeddings.float().clone()
        k = min(self.k, len(reference) - 1)
        distances, indices = [], []
        start = 0
        search = Neighbours(reference)
        for block in blocks(reference, search.per_row):
            own = torch.arange(start, start + len(block), device=reference.device)
            start += len(block)
            distance, nearest = search(block, k + 1)
            # A row is its own neighbour; among duplicates it may not be the first, or not be listed at all.
            own_place = (nearest == own[:, None]).double()
            own_place[:, -1] += (own_place.sum(1) == 0).double()
            keep = own_place == 0
            distances.append(distance[keep].view(len(block), k))
            indices.append(nearest[keep].view(len(block), k))
        distance, nearest = torch.cat(distances).double(), torch.cat(indices)
        k_distance = distance[:, -1].contiguous()
        density = 1 / (torch.maximum(distance, k_distance[nearest]).mean(1) + TINY)
        return FittedLocalOutlierFactor(k, reference, k_distance, density)
