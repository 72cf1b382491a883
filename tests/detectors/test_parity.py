"""Each detector against its reference library, and against numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from dana.core.errors import ConfigError, DataError
from dana.core.registry import DETECTORS
from dana.detectors.components import FittedComponentDistance, PrincipalComponents
from dana.detectors.iforest import IsolationForest, average_path
from dana.detectors.kernel import OneClassSVM
from dana.detectors.neighbours import KNearestNeighbours, LocalOutlierFactor
from dana.detectors.pyod import FittedConvention, pyod_detector
from dana.detectors.robust_covariance import RobustCovariance, spatial_median


def _rows(rows, dims, seed):
    return torch.randn(rows, dims, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=["random", "low-dim"])
def clouds(request):
    """Fitted rows and queries: 24 free dimensions, or 3 free ones seen in 24."""
    if request.param == "random":
        return _rows(400, 24, 0), _rows(60, 24, 1) * 2
    mixing = _rows(3, 24, 2)
    return _rows(400, 3, 0) @ mixing, (_rows(60, 3, 1) * 2) @ mixing + 0.01 * _rows(60, 24, 3)


def test_average_path_by_hand():
    # c(2) = 2 H(1) - 2 * 1/2 = 1; c(5) = 2 (ln 4 + gamma) - 8/5; c(256) of Liu et al. is 10.244
    assert average_path(np.array([0, 1, 2])).tolist() == [0.0, 0.0, 1.0]
    assert average_path(np.array([5]))[0] == pytest.approx(2 * (math.log(4) + 0.5772156649) - 1.6)
    assert average_path(np.array([256]))[0] == pytest.approx(10.244, abs=1e-3)


@pytest.mark.parametrize("seed", [0, 11])
def test_iforest_is_scikit_learns_with_the_same_seed(clouds, seed):
    from sklearn.ensemble import IsolationForest as Forest

    inside, queries = clouds
    reference = Forest(n_estimators=60, max_samples=128, random_state=seed).fit(inside.numpy())
    ours = IsolationForest(trees=60, samples=128).fit(inside, seed).score(queries)
    np.testing.assert_allclose(ours.numpy(), -reference.score_samples(queries.numpy()), rtol=1e-9)


def test_iforest_with_one_cut_by_hand():
    # Two rows, one tree: every query is isolated after one cut, and c(2) = 1, so s = 2^(-1/1)
    fitted = IsolationForest(trees=1, samples=2).fit(torch.tensor([[0.0], [1.0]]), 0)
    assert fitted.score(torch.tensor([[-5.0], [9.0]])).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("k", [1, 5, 20])
def test_lof_is_scikit_learns(clouds, k):
    from sklearn.neighbors import LocalOutlierFactor as Reference

    inside, queries = clouds
    reference = Reference(n_neighbors=k, novelty=True).fit(inside.double().numpy())
    ours = LocalOutlierFactor(k).fit(inside, 0).score(queries)
    np.testing.assert_allclose(ours.numpy(), -reference.score_samples(queries.double().numpy()), rtol=1e-5)


def test_lof_by_hand():
    # Rows 0, 1, 3; k = 1. k-distances 1, 1, 2; densities 1/max(1, 1) = 1, 1 and 1/max(2, 1) = 1/2.
    fitted = LocalOutlierFactor(k=1).fit(torch.tensor([[0.0], [1.0], [3.0]]), 0)
    np.testing.assert_allclose(fitted.k_distance.numpy(), [1, 1, 2])
    np.testing.assert_allclose(fitted.density.numpy(), [1, 1, 0.5], rtol=1e-9)
    # -4: nearest is 0, reachability 4, own density 1/4: LOF 4. 7: nearest is 3, reachability 4: LOF 0.5 * 4.
    np.testing.assert_allclose(fitted.score(torch.tensor([[-4.0], [7.0]])).numpy(), [4, 2], rtol=1e-9)


def test_lof_with_duplicates_is_finite():
    from sklearn.neighbors import LocalOutlierFactor as Reference

    inside = torch.cat([torch.zeros(30, 4), torch.ones(30, 4), _rows(60, 4, 5)])
    queries = torch.cat([torch.zeros(1, 4), _rows(20, 4, 6) + 3])
    ours = LocalOutlierFactor(20).fit(inside, 0)
    assert torch.isfinite(ours.density).all()
    assert ours.density[:60].min() == pytest.approx(1e10)  # 1 / TINY: thirty copies are at distance 0
    reference = Reference(n_neighbors=20, novelty=True).fit(inside.double().numpy())
    expected = -reference.score_samples(queries.double().numpy())
    np.testing.assert_allclose(ours.score(queries).numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("k", [1, 5])
def test_knn_is_pyods(clouds, k):
    from pyod.models.knn import KNN

    inside, queries = clouds
    reference = KNN(n_neighbors=k, method="largest").fit(inside.double().numpy())
    ours = KNearestNeighbours(k).fit(inside, 0).score(queries)
    np.testing.assert_allclose(ours.numpy(), reference.decision_function(queries.double().numpy()), rtol=1e-5)


def test_knn_by_hand_far_from_the_origin():
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    assert KNearestNeighbours(2).fit(rows, 0).score(torch.zeros(1, 2)).tolist() == [5.0]
    # 1,000 away from 0 the expanded square has no digits left for a distance of 0.01
    close = torch.tensor([[1000.0, 0.0], [1000.015625, 0.0], [1000.0625, 0.0]])
    fitted = KNearestNeighbours(1).fit(close, 0)
    assert fitted.score(torch.tensor([[1001.0, 0.0]])).tolist() == [0.9375]


@pytest.mark.parametrize(("nu", "gamma"), [(0.1, None), (0.5, 0.02)])
def test_ocsvm_is_scikit_learns(clouds, nu, gamma):
    from sklearn.svm import OneClassSVM as Reference

    inside, queries = clouds
    reference = Reference(nu=nu, gamma=gamma or "scale").fit(inside.double().numpy())
    ours = OneClassSVM(nu, gamma).fit(inside, 0).score(queries)
    expected = -reference.decision_function(queries.double().numpy())
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_ocsvm_keeps_digits_that_cancel():
    # Rows of length 1 in many dimensions all score close to 0, far below the sums whose difference a score is.
    from sklearn.svm import OneClassSVM as Reference

    inside, queries = (torch.nn.functional.normalize(_rows(n, 384, n), dim=1) for n in (1500, 200))
    expected = -Reference(nu=0.1, gamma="scale").fit(inside.numpy()).decision_function(queries.numpy())
    fitted = OneClassSVM().fit(inside, 0)
    assert abs(expected).max() < fitted.offset / 100
    np.testing.assert_allclose(fitted.score(queries).numpy(), expected, rtol=0, atol=1e-5 * abs(expected).max())


def test_ocsvm_of_a_long_row_is_the_offset():
    fitted = OneClassSVM().fit(_rows(50, 4, 0), 0)
    assert fitted.score(torch.full((1, 4), 1e9)).item() == fitted.offset


@pytest.mark.parametrize("variance", [0.3, 0.8])
def test_pca_is_scikit_learns_reconstruction_error(clouds, variance):
    from sklearn.decomposition import PCA

    inside, queries = (rows.double().numpy() for rows in clouds)
    reference = PCA(n_components=variance, svd_solver="full").fit(inside)
    rebuilt = reference.inverse_transform(reference.transform(queries))
    fitted = PrincipalComponents(variance).fit(clouds[0], 0)
    assert fitted.directions.shape[1] == reference.n_components_
    expected = np.square(queries - rebuilt).sum(1)
    np.testing.assert_allclose(fitted.score(clouds[1]).numpy(), expected, rtol=0, atol=1e-5 * expected.max())


def test_pca_by_hand():
    rows = torch.tensor([[2.0, 1.0], [-2.0, 1.0], [0.0, 1.5], [0.0, 0.5]])  # mean (0, 1), first axis leads
    fitted = PrincipalComponents(0.5).fit(rows, 0)
    assert fitted.score(torch.tensor([[7.0, 1.0], [0.0, 4.0]])).tolist() == pytest.approx([0.0, 9.0], abs=1e-9)


def _pyod_pca(inside, queries):
    from pyod.models.pca import PCA

    return PCA().fit(inside.double().numpy()).decision_function(queries.double().numpy())


@pytest.mark.parametrize("rows", [400, 15], ids=["more rows than dims", "fewer"])
@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_component_distance_is_pyods_pca(rows, offset):
    inside, queries = _rows(rows, 24, 0) + offset, _rows(60, 24, 1) * 2 + offset
    scores = pyod_detector("PCA").fit(inside, 0).score(queries)
    np.testing.assert_allclose(scores.numpy(), _pyod_pca(inside, queries), rtol=1e-5)


def test_component_distance_of_dead_dimensions_is_pyods():
    # MiniLM has three: a constant and rounding noise, which standardising blows up to unit variance.
    inside, queries = _rows(400, 24, 0), _rows(60, 24, 1)
    for rows in (inside, queries):
        rows[:, 3] = 0.0625 + 1e-8 * rows[:, 3]
        rows[:, 7] *= 1e-33
        rows[:, 9] = 0.5
    scores = pyod_detector("PCA").fit(inside, 0).score(queries).numpy()
    expected = _pyod_pca(inside, queries)
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    assert spearmanr(scores, expected)[0] > 0.9999


def test_component_distance_of_a_row_out_of_float32s_range_is_finite():
    inside = _rows(50, 4, 0) * 1e-33
    assert torch.isfinite(pyod_detector("PCA").fit(inside, 0).score(torch.ones(1, 4))).all()


def test_component_distance_by_hand():
    # Standardised rows are (±1, ±1) with axes (1, 1)/√2 and (1, -1)/√2 and shares 3/4 and 1/4 of the variance;
    # from the mean, each tip is at distance 1: 1/(3/4) + 1/(1/4).
    inside = torch.tensor([[1.0, 1.0], [-1.0, -1.0]]).repeat(3, 1)
    inside = torch.cat([inside, torch.tensor([[1.0, -1.0], [-1.0, 1.0]])])
    assert pyod_detector("pca").fit(inside, 0).score(torch.zeros(1, 2)).item() == pytest.approx(4 / 3 + 4, rel=1e-6)


@pytest.mark.parametrize("spec", ["knn", "lof", "ocsvm"])
def test_distances_keep_digits_far_from_the_origin(spec):
    # 1/128 steps, so that moving the cloud by 4,096 rounds nothing: the scores must not move either.
    inside, queries = ((_rows(n, 24, n) * 128).round() / 128 for n in (300, 60))
    near = DETECTORS.create(spec).fit(inside, 0).score(queries)
    far = DETECTORS.create(spec).fit(inside + 4096, 0).score(queries + 4096)
    torch.testing.assert_close(far, near, rtol=1e-5, atol=1e-5 * float(near.abs().max()))


def test_robust_covariance_ranks_like_min_cov_det():
    from sklearn.covariance import MinCovDet

    clean = _rows(450, 5, 0) @ _rows(5, 5, 1)
    inside = torch.cat([clean, _rows(50, 5, 2) + 8])
    queries = torch.cat([_rows(200, 5, 3) @ _rows(5, 5, 1), _rows(20, 5, 4) + 8])
    reference = MinCovDet(random_state=0, support_fraction=0.75).fit(inside.double().numpy())
    ours = RobustCovariance().fit(inside, 0).score(queries)
    assert spearmanr(ours.numpy(), reference.mahalanobis(queries.double().numpy()))[0] > 0.95
    assert ours[200:].min() > ours[:200].median() * 4  # the outliers did not draw the bulk towards them


def test_robust_covariance_of_all_rows_is_ledoit_wolf(clouds):
    from sklearn.covariance import LedoitWolf

    inside, queries = clouds[0][:300], clouds[1]
    expected = LedoitWolf().fit(inside.double().numpy()).mahalanobis(queries.double().numpy())
    np.testing.assert_allclose(RobustCovariance(1.0).fit(inside, 0).score(queries).numpy(), expected, rtol=1e-5)


def test_the_spatial_median_resists_outliers():
    rows = torch.cat([torch.zeros(3, 2), torch.full((2, 2), 100.0)]).double()
    torch.testing.assert_close(spatial_median(rows), torch.zeros(2).double(), rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("spec", "parameter"),
    [
        *[("iforest", "trees=0"), ("iforest", "samples=1"), ("knn", "k=0"), ("lof", "k=0"), ("ocsvm", "nu=0")],
        *[("ocsvm", "gamma=-1.0"), ("pca", "variance=1.0"), ("robust_covariance", "support=0.2")],
        *[("lda", "shrinkage=1.5"), ("density_ratio", "c=0"), ("contrastive_knn", "k=0"), ("svm", "c=0")],
    ],
)
def test_parameters_out_of_range_are_refused(spec, parameter):
    with pytest.raises(ConfigError, match=parameter):
        DETECTORS.create(f"{spec}:{parameter}")


def test_too_few_rows_are_refused_or_lower_k():
    with pytest.raises(DataError, match="5 rows"):
        KNearestNeighbours(5).fit(_rows(5, 3, 0), 0)
    assert LocalOutlierFactor(k=20).fit(_rows(8, 3, 0), 0).k == 7


def test_only_pyods_default_pca_is_computed_by_dana():
    assert pyod_detector("PCA").fitted_type is FittedComponentDistance
    assert pyod_detector("PCA", n_components=2).fitted_type is FittedConvention
