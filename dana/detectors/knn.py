"""k nearest neighbours: distance to the k-th nearest fitted row, by exact search in torch."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from dana.core.config import require
from dana.detectors.base import OnDevice, check_rows, score_blocks
from dana.detectors.neighbours import Neighbours


@dataclass(frozen=True)
class FittedKNearestNeighbours(OnDevice):
    """The fitted rows.

    Attributes:
        k: Neighbours.
        reference: Shape (rows, dims).
    """

    k: int
    reference: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Distance to the k-th nearest fitted row; higher = more anomalous. O(units · rows · dims)."""
        check_rows(embeddings, self.reference.shape[1])
        search = Neighbours(self.reference)
        return score_blocks(embeddings, search.per_row, lambda rows: search(rows, self.k)[0][:, -1])


@dataclass(frozen=True)
class KNearestNeighbours:
    """Distance to the k-th nearest task unit; higher = more anomalous.

    Scores equal those of PyOD's ``KNN(method="largest")`` to 1e-5.

    Cost: fit O(1), score O(units · rows · dims).

    Attributes:
        k: Neighbours. DANA gives no value; 5 is the default of PyOD.

    References:
        Ramaswamy, Rastogi and Shim 2000, Efficient algorithms for mining outliers from large data sets.
        DANA section 3.1 (kNN).
    """

    k: int = 5
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedKNearestNeighbours

    def __post_init__(self) -> None:
        require(self.k >= 1, "k", self.k, "at least 1")

    def fit(self, embeddings: Tensor, seed: int) -> FittedKNearestNeighbours:
        """Keep the rows; nothing is random."""
        check_rows(embeddings, at_least=self.k + 1)
        return FittedKNearestNeighbours(self.k, embeddings.float().clone())
