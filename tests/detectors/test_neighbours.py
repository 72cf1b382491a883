"""Exact neighbour search against sorting all distances, with and without cancellation in float32 squares."""

import pytest
import torch

from dana.detectors.neighbours import GROUP, Neighbours, smallest


def _rows(rows, dims, seed):
    return torch.randn(rows, dims, generator=torch.Generator().manual_seed(seed))


def test_neighbours_are_ordered_where_float32_squares_cancel():
    # 1,000 away from 0 a float32 square is a multiple of 1/16: it orders none of these distances below 0.02.
    reference = 1000 + 0.02 * torch.rand(64, 1, generator=torch.Generator().manual_seed(0))
    distance, nearest = Neighbours(reference)(torch.tensor([[1000.0]]), 64)
    exact = (reference - 1000).double().flatten()
    torch.testing.assert_close(distance[0].double(), exact.sort().values, rtol=1e-6, atol=0)
    assert torch.equal(exact[nearest[0]], exact.sort().values)


@pytest.mark.parametrize("offset", [0.0, 300.0])
@pytest.mark.parametrize("k", [1, 7, 40])
def test_the_nearest_are_found_far_from_the_origin(k, offset):
    reference, queries = _rows(1003, 5, 0) + offset, _rows(30, 5, 1) + offset
    distance, nearest = Neighbours(reference)(queries, k)
    exact, order = torch.cdist(queries.double(), reference.double()).sort(dim=1)
    torch.testing.assert_close(distance.double(), exact[:, :k], rtol=1e-5, atol=0)
    assert (nearest == order[:, :k]).double().mean() > 0.99  # two rows at the same distance may change places


@pytest.mark.parametrize("columns", [3, 2 * 3 * GROUP - 1, 2 * 3 * GROUP, 500, 1003])
def test_smallest_is_a_full_sort(columns):
    values = _rows(20, columns, columns)
    values[:, 1] = values[:, 0]  # a tie
    found = values.gather(1, smallest(values, 3)).sort(dim=1).values
    assert torch.equal(found, values.sort(dim=1).values[:, :3])


def test_smallest_may_share_one_group_or_be_outside_groups():
    values = torch.arange(800.0)[None].clone()
    groups = 800 // GROUP
    values[0, 5::groups] -= 1000  # one whole group
    assert smallest(values, GROUP).sort().values.tolist() == [list(range(5, 800, groups))]
    values = torch.zeros(1, 100 * GROUP + 3)
    values[0, -1] = -1
    assert smallest(values, 1).item() == values.shape[1] - 1
