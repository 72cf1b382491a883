"""Vectors of an encoder to clusters: each row for itself to the bit, and as scikit-learn would have it."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from dana.core.errors import DataError
from dana.studies.clusters.fit import fit_candidates
from dana.studies.clusters.model import BLOCK, FittedClusters, Space, fit_space
from dana.studies.clusters.settings import ClusterSettings

SETTINGS = ClusterSettings(k=[3], pca=5, seeds=1)


def _vectors(units, dims=24, seed=0):
    random = torch.Generator().manual_seed(seed)
    topics = torch.randint(0, 3, (units, 1), generator=random)
    return torch.randn(units, dims, generator=random) + topics


def _fitted(vectors, geometry="center+l2", pca=5):
    space = fit_space(vectors, geometry, pca)
    (candidate,) = fit_candidates(space.place(vectors), [3], SETTINGS, seed=0)
    return FittedClusters(space, candidate.mixture)


@pytest.mark.parametrize(("geometry", "pca"), [("center+l2", 5), ("none", 0), ("whiten:8", 3)])
def test_a_unit_has_the_same_bits_in_a_batch_of_any_size(geometry, pca):
    vectors = _vectors(BLOCK + 200)
    fitted = _fitted(vectors, geometry, pca)
    together = fitted.assign(vectors)
    for size in (1, 7, 64, 500):
        batches = [fitted.assign(batch) for batch in vectors[:128].split(size)]
        for name in ("clusters", "responsibilities", "log_densities"):
            in_batches = np.concatenate([getattr(batch, name) for batch in batches])
            assert np.array_equal(in_batches, getattr(together, name)[:128]), (name, size)
    other_way = fitted.assign(vectors.flip(0))
    assert np.array_equal(other_way.responsibilities[::-1], together.responsibilities)


def test_no_vectors_have_no_clusters():
    fitted = _fitted(_vectors(100))
    assert fitted.assign(torch.zeros(0, 24)).responsibilities.shape == (0, 3)


def test_points_are_scikit_learns_principal_components():
    vectors = _vectors(200)
    placed = fit_space(vectors, "none", 4, skip_first=2).place(vectors)
    expected = PCA(6, svd_solver="full").fit_transform(vectors.double().numpy())[:, 2:]
    np.testing.assert_allclose(np.abs(placed), np.abs(expected), atol=1e-8)


def test_without_pca_the_points_are_the_vectors():
    vectors = _vectors(50)
    assert np.array_equal(fit_space(vectors, "none", 0).place(vectors), vectors.double().numpy())


def test_more_components_than_there_are_is_refused():
    with pytest.raises(DataError, match=r"pca=9: 10 units of 8 dims span at most 8 components; keep fewer"):
        fit_space(_vectors(10, 8), "none", 9)
    with pytest.raises(DataError, match=r"pca=3 and skip_first=2: 5 units of 8 dims span at most 4 components"):
        fit_space(_vectors(5, 8), "none", 3, skip_first=2)


@pytest.mark.parametrize("pca", [5, 0])
def test_what_was_saved_gives_the_same_bits(tmp_path, pca):
    vectors = _vectors(300)
    fitted = _fitted(vectors, pca=pca)
    fitted.save(tmp_path)
    loaded = FittedClusters.load(tmp_path)
    assert (loaded.space.reduction is None) == (pca == 0)
    assert np.array_equal(loaded.assign(vectors).responsibilities, fitted.assign(vectors).responsibilities)
    assert isinstance(loaded.space, Space)


def test_a_vector_that_is_not_finite_is_named():
    vectors = _vectors(100)
    fitted = _fitted(vectors)
    vectors[7, 3] = float("nan")
    with pytest.raises(DataError, match=r"vector 7 of 100 is not finite \(1 in all\)"):
        fitted.assign(vectors)
