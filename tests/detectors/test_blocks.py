"""Scoring in blocks bounds memory and changes neither scores nor fits."""

import pytest
import torch

from dana.core.registry import DETECTORS
from dana.detectors import base
from dana.detectors.base import blocks, fit_detector

SPECS = ["iforest:trees=20", "lof", "ocsvm", "knn", "pca", "robust_covariance", "pyod:PCA", "cosine"]
SPECS += ["distance", "lda", "density_ratio", "contrastive_knn", "svm"]


def _rows(rows, dims, seed):
    return torch.randn(rows, dims, generator=torch.Generator().manual_seed(seed))


def test_a_block_holds_as_many_rows_as_fit(monkeypatch):
    monkeypatch.setattr(base, "CPU_BLOCK", 100)
    assert [len(block) for block in blocks(torch.zeros(7, 2), 30)] == [3, 3, 1]
    assert [len(block) for block in blocks(torch.zeros(2, 2), 1000)] == [1, 1]  # never none


def _fit(spec, inside):
    """A fit; contrastive ones get as many rows of another cloud."""
    return fit_detector(DETECTORS.create(spec), inside, 0, _rows(*inside.shape, 2) + 1)


@pytest.mark.parametrize("spec", SPECS)
def test_block_size_changes_no_score(spec, monkeypatch):
    inside, queries = _rows(90, 8, 0), _rows(50, 8, 1)
    whole = _fit(spec, inside).score(queries)
    monkeypatch.setattr(base, "CPU_BLOCK", 1000)
    in_parts = _fit(spec, inside).score(queries)
    torch.testing.assert_close(in_parts, whole, rtol=1e-5, atol=1e-9)


# Trees only compare and then add float64. Elsewhere the order in which a matrix product sums may depend on
# how many rows it is given, so the last bits of float32 may differ, and with them the scores by this much at most.
TOLERANCE = {"iforest:trees=20": 1e-14}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_row_scores_the_same_alone_and_in_a_batch_of_any_size(spec, size):
    inside, queries = _rows(200, 96, 0), _rows(130, 96, 1)
    fitted = _fit(spec, inside)
    together = fitted.score(queries)
    in_batches = torch.cat([fitted.score(batch) for batch in queries.split(size)])
    tolerance = TOLERANCE.get(spec, 2e-6)
    torch.testing.assert_close(in_batches, together, rtol=tolerance, atol=tolerance * float(together.abs().max()))


@pytest.mark.parametrize("spec", ["lof", "knn", "contrastive_knn", "pyod:KNN"])
def test_later_changes_to_the_rows_do_not_reach_the_fit(spec):
    inside, queries = _rows(40, 4, 0), _rows(10, 4, 1)
    fitted = _fit(spec, inside)
    before = fitted.score(queries)
    inside += 100
    assert torch.equal(fitted.score(queries), before)
