"""Exact nearest-neighbour search among fixed rows, by a matrix product; used by the detectors by neighbours."""

import torch
from torch import Tensor

from dana.detectors.base import block_rows

GROUP = 5  # columns that share a minimum in `smallest`; 4 to 8 are within a tenth of each other


class Neighbours:
    """Search among fixed rows.

    Attributes:
        reference: float32 (rows, dims).
    """

    def __init__(self, reference: Tensor) -> None:
        self.reference = reference
        self._centre = reference.mean(0)
        self._centred = (reference - self._centre).T
        self._squares = self._centred.square().sum(0)

    def __call__(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Distances to the k nearest rows, float32, and their indices, both (queries, k), nearest first.

        O(queries · rows · dims). Candidates are found by the expanded square, which loses digits to cancellation
        far from the origin and where points are close; so rows are centred for it, and the distances of the k nearest
        are computed again from the differences. So a query's distances have the same bits whatever stands beside it.
        Rows whose squared distances differ by less than about 1e-6 of their squared norms may be exchanged.
        """
        squares = torch.addmm(self._squares, queries - self._centre, self._centred, alpha=-2)
        nearest = smallest(squares, k)
        step = block_rows(queries.device, k * queries.shape[1])
        parts = zip(queries.split(step), nearest.split(step), strict=True)
        distance, order = torch.cat([self._distances(*part) for part in parts]).sort(dim=1)
        return distance, nearest.gather(1, order)

    def _distances(self, queries: Tensor, rows: Tensor) -> Tensor:
        found = self.reference.index_select(0, rows.flatten()).view(*rows.shape, queries.shape[1])
        return found.sub_(queries[:, None, :]).square_().sum(-1).sqrt_()

    @property
    def per_row(self) -> int:
        """Numbers of memory per query."""
        return len(self.reference) + self.reference.shape[1]


def smallest(values: Tensor, k: int) -> Tensor:
    """Columns of the k smallest values of each row, int64 (rows, k), in any order.

    Faster than `topk` over all columns: columns are put into groups, and only the k groups with the smallest minima,
    found in the same way, are searched. A value of any other group is above those k minima.
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
    return members.gather(1, values.gather(1, members).topk(k, dim=1, largest=False, sorted=False).indices)
