"""Contrastive k nearest neighbours: mean distance to nearby task rows minus that to nearby general rows."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from dana.core.config import require
from dana.detectors.base import OnDevice, check_classes, check_rows, score_blocks
from dana.detectors.neighbours import Neighbours


@dataclass(frozen=True)
class FittedContrastiveNeighbours(OnDevice):
    """The fitted rows of both classes.

    Attributes:
        k: Neighbours in each class.
        task: Shape (rows, dims).
        general: Shape (background rows, dims).
    """

    k: int
    task: Tensor
    general: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Mean distance to the k nearest task rows minus that to the k nearest background rows.

        Higher = more anomalous; below 0 the task is nearer. O(units · (rows + background) · dims).
        """
        check_rows(embeddings, self.task.shape[1])
        task, general = Neighbours(self.task), Neighbours(self.general)

        def score(rows: Tensor) -> Tensor:
            near, far = (search(rows, min(self.k, len(search.reference)))[0].double() for search in (task, general))
            return near.mean(1) - far.mean(1)

        return score_blocks(embeddings, max(task.per_row, general.per_row), score)


@dataclass(frozen=True)
class ContrastiveNeighbours:
    """Mean distance to the k nearest task units minus that to the k nearest general units; higher = more anomalous.

    A unit that is itself in the background is its own neighbour at distance 0 and scores as more foreign than it is:
    units of the background have to be scored by a fit without them.

    Both means equal those of scikit-learn's ``NearestNeighbors`` to 1e-5.

    Cost: fit O(1), score O(units · (rows + background) · dims).

    A thousand general units, and 20 neighbours, because more of either found no more planted text and cost time, and
    fewer neighbours found less (``docs/results/detectors.md``).

    Attributes:
        k: Neighbours in each class; fewer where a class has fewer rows.

    References:
        Loftsgaarden and Quesenberry 1965, A nonparametric estimate of a multivariate density function: the logarithm of
        the distance to a neighbour is minus that of the density but for factors. The ratio of two such distances is the
        estimate of Wang, Kulkarni and Verdú 2009, Divergence estimation for multidimensional densities.
    """

    k: int = 20
    version: ClassVar[int] = 1
    background: ClassVar[int] = 1000
    fitted_type: ClassVar[type] = FittedContrastiveNeighbours

    def __post_init__(self) -> None:
        require(self.k >= 1, "k", self.k, "at least 1")

    def fit(self, embeddings: Tensor, seed: int, background: Tensor) -> FittedContrastiveNeighbours:
        """Keep the rows of both classes; nothing is random."""
        check_classes(embeddings, background)
        return FittedContrastiveNeighbours(self.k, embeddings.float().clone(), background.float().clone())
