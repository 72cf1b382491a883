"""Detectors by nearest neighbours (kNN, LOF, contrastive kNN), with exact search in torch."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dana.core.config import require
from dana.core.logging import get_logger
from dana.detectors.base import (
    OnDevice,
    block_rows,
    blocks,
    check_classes,
    check_rows,
    score_blocks,
)

log = get_logger(__name__)

GROUP = 5  # columns that share a minimum in `smallest`; 4 to 8 are within a tenth of each other


class Neighbours:
    """Exact nearest-neighbour search among fixed rows.

    Attributes:
        reference: float32 (rows, dims).
    """

    def __init__(self, reference: Tensor) -> None:
        self.reference = reference
        self._centre = reference.mean(0)
        self._centred = (reference - self._centre).T
        self._squares = self._centred.square().sum(0)

    def __call__(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Find the k nearest rows of each query, in O(queries · rows · dims).

        Candidates come from the expanded square, which loses digits to cancellation; so rows are
        centred, and the distances of the k nearest are recomputed from differences. A query's
        distances have the same bits in any batch. Rows whose squared distances differ by less than
        about 1e-6 of their squared norms may be exchanged.

        Returns:
            Distances (float32) and row indices, both of shape (queries, k), nearest first.
        """
        squares = torch.addmm(self._squares, queries - self._centre, self._centred, alpha=-2)
        nearest = smallest(squares, k)
        step = block_rows(queries.device, k * queries.shape[1])
        parts = zip(queries.split(step), nearest.split(step), strict=True)
        distance, order = torch.cat([self._distances(*part) for part in parts]).sort(dim=1)
        return distance, nearest.gather(1, order)

    def _distances(self, queries: Tensor, rows: Tensor) -> Tensor:
        nearest = self.reference.index_select(0, rows.flatten()).view(*rows.shape, queries.shape[1])
        return nearest.sub_(queries[:, None, :]).square_().sum(-1).sqrt_()

    @property
    def per_row(self) -> int:
        """Numbers held in memory per query."""
        return len(self.reference) + self.reference.shape[1]


def smallest(values: Tensor, k: int) -> Tensor:
    """Find the columns of the k smallest values of each row, int64 of shape (rows, k), unordered.

    Faster than `topk` over all columns: columns are grouped, and only the k groups with the
    smallest minima (found recursively) are searched, since all values of the other groups are above
    those k minima.
    """
    rows, columns = values.shape
    groups = columns // GROUP
    if groups < 2 * k:
        return values.topk(k, dim=1, largest=False, sorted=False).indices
    minima = values[:, : groups * GROUP].view(rows, GROUP, groups).amin(1)
    best = smallest(minima, k)
    column = torch.arange(columns, device=values.device)
    members = (best[:, None, :] + column[: groups * GROUP : groups, None]).flatten(1)
    members = torch.cat([members, column[groups * GROUP :].expand(rows, -1)], dim=1)
    return members.gather(
        1, values.gather(1, members).topk(k, dim=1, largest=False, sorted=False).indices
    )


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
        """Compute the distance to the k-th nearest fitted row; higher = more anomalous. O(units · rows · dims)."""
        check_rows(embeddings, self.reference.shape[1])
        search = Neighbours(self.reference)
        return score_blocks(embeddings, search.per_row, lambda rows: search(rows, self.k)[0][:, -1])


@dataclass(frozen=True)
class KNearestNeighbours:
    """Distance to the k-th nearest target unit; higher = more anomalous.

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
        """Store the rows; deterministic."""
        check_rows(embeddings, at_least=self.k + 1)
        return FittedKNearestNeighbours(self.k, embeddings.float().clone())


def warn_of_copies(detector: str, copies: int, rows: int) -> None:
    """Warn if the density of some fitted rows divides by zero, because their neighbours are copies of them."""
    if copies:
        log.warning(
            "detector  %s: the density of %s of %s fitted rows divides by zero, because their "
            "neighbours are copies of them; scores near them say nothing. Drop repeats or raise k",
            detector,
            f"{copies:,}",
            f"{rows:,}",
        )


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
        """Compute the mean density of the k nearest fitted rows over the unit's density; higher = more anomalous.

        About 1 inside. O(units · rows · dims).
        """
        check_rows(embeddings, self.reference.shape[1])
        search = Neighbours(self.reference)

        def score(rows: Tensor) -> Tensor:
            distance, nearest = search(rows, self.k)
            density = 1 / (
                torch.maximum(distance.double(), self.k_distance[nearest]).mean(1) + TINY
            )
            return self.density[nearest].mean(1) / density

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
        """Compute each row's density among the others; deterministic. Lowers k if there are fewer than k + 1 rows."""
        check_rows(embeddings, at_least=3)
        reference = embeddings.float().clone()
        k = min(self.k, len(reference) - 1)
        distances = []
        indices = []
        start = 0
        search = Neighbours(reference)
        for block in blocks(reference, search.per_row):
            row = torch.arange(start, start + len(block), device=reference.device)
            start += len(block)
            distance, nearest = search(block, k + 1)
            # A row is its own neighbour; among duplicates it may not be the first, or not be listed
            # at all.
            is_self = (nearest == row[:, None]).double()
            is_self[:, -1] += (is_self.sum(1) == 0).double()
            keep = is_self == 0
            distances.append(distance[keep].view(len(block), k))
            indices.append(nearest[keep].view(len(block), k))
        distance = torch.cat(distances).double()
        nearest = torch.cat(indices)
        k_distance = distance[:, -1].contiguous()
        reachability = torch.maximum(distance, k_distance[nearest]).mean(1)
        warn_of_copies("lof", int((reachability == 0).sum()), len(reference))
        return FittedLocalOutlierFactor(k, reference, k_distance, 1 / (reachability + TINY))


@dataclass(frozen=True)
class FittedContrastiveNeighbours(OnDevice):
    """The fitted rows of both classes.

    Attributes:
        k: Neighbours in each class.
        target: Shape (rows, dims).
        pool: Shape (background rows, dims).
    """

    k: int
    target: Tensor
    pool: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Compute the mean distance to the k nearest task rows minus that to the k nearest background rows.

        Higher = more anomalous; below 0 the task is nearer. O(units · (rows + background) · dims).
        """
        check_rows(embeddings, self.target.shape[1])
        target = Neighbours(self.target)
        pool = Neighbours(self.pool)

        def score(rows: Tensor) -> Tensor:
            return self._mean_distance(rows, target) - self._mean_distance(rows, pool)

        return score_blocks(embeddings, max(target.per_row, pool.per_row), score)

    def _mean_distance(self, rows: Tensor, search: Neighbours) -> Tensor:
        """Compute the mean distance of each row to its k nearest ones."""
        distances, _ = search(rows, min(self.k, len(search.reference)))
        return distances.double().mean(1)


@dataclass(frozen=True)
class ContrastiveNeighbours:
    """Mean distance to the k nearest target units minus that to the k nearest pool units; higher = more anomalous.

    A unit of the background is its own neighbour at distance 0, so its score is too high: score
    background units by a fit without them (:mod:`dana.selectors.build`).

    Both means equal those of scikit-learn's ``NearestNeighbors`` to 1e-5.

    Cost: fit O(1), score O(units · (rows + background) · dims).

    A thousand pool units, and 20 neighbours, because more of either found no more planted text
    and cost time, and fewer neighbours found less (``docs/results/detectors.md``).

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
        """Store the rows of both classes; deterministic."""
        check_classes(embeddings, background)
        return FittedContrastiveNeighbours(
            self.k, embeddings.float().clone(), background.float().clone()
        )
