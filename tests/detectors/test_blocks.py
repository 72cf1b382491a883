"""Blocks bound memory and change nothing: neither scores nor fits, nor which of two close rows is nearer."""

import pytest
import torch

from dana.detectors import base
from dana.detectors.base import blocks, neighbours
from dana.registry import DETECTORS


def _rows(rows, dims, seed):
    return torch.randn(rows, dims, generator=torch.Generator().manual_seed(seed))


def test_a_block_holds_as_many_rows_as_fit(monkeypatch):
    monkeypatch.setattr(base, "BLOCK", 100)
    assert [len(block) for block in blocks(torch.zeros(7, 2), 30)] == [3, 3, 1]
    assert [len(block) for block in blocks(torch.zeros(2, 2), 1000)] == [1, 1]  # never none


@pytest.mark.parametrize("spec", ["iforest:trees=20", "lof", "ocsvm", "knn", "pca", "robust_covariance"])
def test_small_blocks_give_the_scores_of_large_ones(spec, monkeypatch):
    inside, queries = _rows(90, 8, 0), _rows(50, 8, 1)
    whole = DETECTORS.create(spec).fit(inside, 0).score(queries)
    monkeypatch.setattr(base, "BLOCK", 1000)
    in_parts = DETECTORS.create(spec).fit(inside, 0).score(queries)
    torch.testing.assert_close(in_parts, whole, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("spec", ["lof", "knn", "pyod:KNN"])
def test_later_changes_to_the_rows_do_not_reach_the_fit(spec):
    inside, queries = _rows(40, 4, 0), _rows(10, 4, 1)
    fitted = DETECTORS.create(spec).fit(inside, 0)
    before, kept = fitted.score(queries), fitted.reference.clone()
    inside += 100
    assert torch.equal(fitted.score(queries), before)
    assert torch.equal(fitted.reference, kept)


def test_neighbours_come_nearest_first_where_float32_squares_cannot_tell():
    # 1,000 away from 0 a float32 square is a multiple of 1/16: it orders none of these distances below 0.02.
    reference = 1000 + 0.02 * torch.rand(64, 1, generator=torch.Generator().manual_seed(0))
    distance, nearest = neighbours(torch.tensor([[1000.0]]), reference, 64)
    exact = (reference - 1000).double().flatten()
    assert torch.equal(distance[0], exact.sort().values)
    assert torch.equal(exact[nearest[0]], distance[0])
