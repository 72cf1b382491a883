"""Exact neighbour search against sorting all distances; blocks of rows, which bound memory, change nothing."""

import pytest
import torch

from dana.detectors import base
from dana.detectors.base import blocks
from dana.detectors.neighbours import GROUP, LocalOutlierFactor, Neighbours, smallest
from tests.detectors.clouds import CONTRASTIVE, ONE_CLASS, cloud, fit

SPECS = ["iforest:trees=20", "pyod:PCA", *ONE_CLASS, *CONTRASTIVE]


def test_neighbours_are_ordered_where_float32_squares_cancel():
    # 1,000 away from 0 a float32 square is a multiple of 1/16: it orders none of these distances
    # below 0.02.
    reference = 1000 + 0.02 * torch.rand(64, 1, generator=torch.Generator().manual_seed(0))
    distance, nearest = Neighbours(reference)(torch.tensor([[1000.0]]), 64)
    exact = (reference - 1000).double().flatten()
    torch.testing.assert_close(distance[0].double(), exact.sort().values, rtol=1e-6, atol=0)
    assert torch.equal(exact[nearest[0]], exact.sort().values)


@pytest.mark.parametrize("offset", [0.0, 300.0])
@pytest.mark.parametrize("k", [1, 7, 40])
def test_the_nearest_are_found_far_from_the_origin(k, offset):
    reference, queries = cloud(1003, 5, 0) + offset, cloud(30, 5, 1) + offset
    distance, nearest = Neighbours(reference)(queries, k)
    exact, order = torch.cdist(queries.double(), reference.double()).sort(dim=1)
    torch.testing.assert_close(distance.double(), exact[:, :k], rtol=1e-5, atol=0)
    assert (
        nearest == order[:, :k]
    ).double().mean() > 0.99  # two rows at the same distance may change places


@pytest.mark.parametrize("columns", [3, 2 * 3 * GROUP - 1, 2 * 3 * GROUP, 500, 1003])
def test_smallest_is_a_full_sort(columns):
    values = cloud(20, columns, columns)
    values[:, 1] = values[:, 0]  # a tie
    lowest = values.gather(1, smallest(values, 3)).sort(dim=1).values
    assert torch.equal(lowest, values.sort(dim=1).values[:, :3])


def test_smallest_may_share_one_group_or_be_outside_groups():
    values = torch.arange(800.0)[None].clone()
    groups = 800 // GROUP
    values[0, 5::groups] -= 1000  # one whole group
    assert smallest(values, GROUP).sort().values.tolist() == [list(range(5, 800, groups))]
    values = torch.zeros(1, 100 * GROUP + 3)
    values[0, -1] = -1
    assert smallest(values, 1).item() == values.shape[1] - 1


def test_a_block_holds_as_many_rows_as_fit(monkeypatch):
    monkeypatch.setattr(base, "CPU_BLOCK", 100)
    assert [len(block) for block in blocks(torch.zeros(7, 2), 30)] == [3, 3, 1]
    assert [len(block) for block in blocks(torch.zeros(2, 2), 1000)] == [1, 1]  # never none


@pytest.mark.parametrize("spec", SPECS)
def test_block_size_changes_no_score(spec, monkeypatch):
    inside, queries = cloud(90, 8, 0), cloud(50, 8, 1)
    at_once = fit(spec, inside).score(queries)
    monkeypatch.setattr(base, "CPU_BLOCK", 1000)
    torch.testing.assert_close(fit(spec, inside).score(queries), at_once, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("spec", SPECS)
def test_a_row_scores_the_same_alone_and_in_a_batch_of_any_size(spec):
    queries = cloud(130, 96, 1)
    model = fit(spec, cloud(200, 96, 0))
    together = model.score(queries)
    # Trees only compare and then add float64. Elsewhere the order in which a matrix product sums
    # may depend on how many rows it is given, so the last bits of float32 may differ, and with them
    # the scores by this much at most.
    tolerance = 1e-14 if spec.startswith("iforest") else 2e-6
    for size in (1, 7, 64):
        in_batches = torch.cat([model.score(batch) for batch in queries.split(size)])
        torch.testing.assert_close(
            in_batches, together, rtol=tolerance, atol=tolerance * float(together.abs().max())
        )


@pytest.mark.parametrize("spec", ["lof", "knn", "contrastive_knn", "pyod:KNN"])
def test_later_changes_to_the_rows_do_not_reach_the_fit(spec):
    inside, queries = cloud(40, 4, 0), cloud(10, 4, 1)
    model = fit(spec, inside)
    before = model.score(queries)
    inside += 100
    assert torch.equal(model.score(queries), before)


def test_a_density_that_divides_by_zero_is_said(caplog):
    rows = cloud(60, 4, 0)
    LocalOutlierFactor(k=5).fit(rows, 0)
    assert not caplog.messages
    copies = torch.cat([rows, rows[:2].repeat(6, 1)])
    fitted = LocalOutlierFactor(k=5).fit(copies, 0)
    assert torch.isfinite(fitted.score(rows)).all()
    [said] = caplog.messages
    assert "lof: the density of 14 of 72 fitted rows divides by zero" in said
    assert "Drop repeats or raise k" in said
