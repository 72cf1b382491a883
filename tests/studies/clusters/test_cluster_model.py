"""Clusters of vectors: parity with scikit-learn, batch invariance, the choice of k, names and ellipses."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.rng import derive_seed
from dana.encoders.geometry import parse_geometry
from dana.studies.clusters.description import cluster_names, cluster_plane, ellipse_of
from dana.studies.clusters.model import (
    BLOCK,
    FILE,
    FittedClusters,
    MixtureFits,
    check_vectors,
    choose_k,
    fit_clusters,
    fit_mixtures,
    seed_stability,
)
from dana.studies.clusters.settings import COVARIANCES, ClusterSettings
from tests.studies.clusters.toy_mixtures import round_mixture


def _vectors(units, dims=24, seed=0):
    random = torch.Generator().manual_seed(seed)
    topics = torch.randint(0, 3, (units, 1), generator=random)
    return torch.randn(units, dims, generator=random) + topics


def fit(vectors, geometry="center+l2", pca=5, **changes):
    settings = ClusterSettings(**{"k": [3], "pca": pca, "seeds": 1, **changes})
    return fit_clusters(vectors, geometry, settings, seed=0)[0]


@pytest.mark.parametrize(("geometry", "pca"), [("center+l2", 5), ("none", 0), ("whiten:8", 3)])
def test_a_unit_has_the_same_bits_in_a_batch_of_any_size(geometry, pca):
    vectors = _vectors(BLOCK + 200)
    clusters = fit(vectors, geometry, pca)
    together = clusters.assign(vectors)
    for size in (1, 7, 64, 500):
        batches = [clusters.assign(batch) for batch in vectors[:128].split(size)]
        for name in ("clusters", "responsibilities", "log_densities"):
            in_batches = np.concatenate([getattr(batch, name) for batch in batches])
            assert np.array_equal(in_batches, getattr(together, name)[:128]), (name, size)
    other_way = clusters.assign(vectors.flip(0))
    assert np.array_equal(other_way.responsibilities[::-1], together.responsibilities)


def test_points_are_scikit_learns_principal_components():
    vectors = _vectors(200)
    points = fit(vectors, "none", 4, skip_first=2).project(vectors)
    reference = PCA(6, svd_solver="full").fit_transform(vectors.double().numpy())[:, 2:]
    np.testing.assert_allclose(np.abs(points), np.abs(reference), atol=1e-8)


@pytest.mark.parametrize("pca", [5, 0])
def test_what_was_saved_gives_the_same_bits(tmp_path, pca):
    vectors = _vectors(300)
    clusters = fit(vectors, pca=pca)
    clusters.save(tmp_path)
    copy = FittedClusters.load(tmp_path)
    assert (copy.components is None) == (pca == 0)
    for name in ("clusters", "responsibilities", "log_densities"):
        assert np.array_equal(
            getattr(copy.assign(vectors), name), getattr(clusters.assign(vectors), name)
        )
    copy.save(tmp_path / "again")
    assert (tmp_path / "again" / FILE).read_bytes() == (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(b"cut short")
    with pytest.raises(ArtifactError, match=r"mixture\.safetensors: damaged"):
        FittedClusters.load(tmp_path)


def test_two_components_by_hand():
    one = 0.25 * np.exp(-0.5) / np.sqrt(2 * np.pi)
    other = 0.75 * np.exp(-1 / 8) / np.sqrt(2 * np.pi * 4)
    mixture = round_mixture([[0.0], [2.0]], weights=[0.25, 0.75], variances=[1.0, 4.0])
    assignment = FittedClusters(
        parse_geometry("none").fit(torch.zeros(3, 1)), None, mixture
    ).assign(torch.ones(1, 1))
    np.testing.assert_allclose(
        assignment.responsibilities, [[one / (one + other), other / (one + other)]], rtol=1e-12
    )
    np.testing.assert_allclose(assignment.log_densities, [np.log(one + other)], rtol=1e-12)
    assert assignment.clusters.tolist() == [1]


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_it_equals_scikit_learn_whatever_the_shape(covariance):
    vectors = _vectors(300, 4)
    clusters = fit(vectors, "none", 0, covariance=covariance)
    start = derive_seed(0, "clusters", 0) % 2**32
    with threadpool_limits(1):
        reference = GaussianMixture(3, covariance_type=covariance, max_iter=150, random_state=start)
        reference.fit(vectors.double().numpy())
    order, probes = np.argsort(-reference.weights_), (vectors * 1.5).double().numpy()
    assignment = clusters.assign(vectors * 1.5)
    assert clusters.mixture.weights_.tolist() == sorted(reference.weights_, reverse=True)
    np.testing.assert_allclose(
        assignment.responsibilities, reference.predict_proba(probes)[:, order], atol=1e-6
    )
    np.testing.assert_allclose(assignment.log_densities, reference.score_samples(probes), rtol=1e-6)
    assert order[assignment.clusters].tolist() == reference.predict(probes).tolist()


TOPICS = np.repeat([0, 1, 2], [40, 60, 100])


def _points(apart=8.0):
    return np.random.default_rng(0).normal(size=(200, 2)) + apart * np.eye(3, 2)[TOPICS]


def test_a_fit_is_scikit_learns_of_a_derived_seed():
    points = _points(1.0)
    settings = ClusterSettings(k=[4], seeds=2, covariance="diag", iterations=7)
    fits = fit_mixtures(points, [4], settings, seed=5)
    seed = derive_seed(5, "clusters", 1) % 2**32
    reference = GaussianMixture(4, covariance_type="diag", max_iter=7, random_state=seed).fit(
        points
    )
    fit = fits.table.iloc[1]
    assert fit["bic"] == pytest.approx(reference.bic(points), rel=1e-12)
    assert fit["log_likelihood"] == pytest.approx(reference.score(points), rel=1e-10)
    assert (fit["iterations"], fit["converged"]) == (reference.n_iter_, reference.converged_)
    assert (
        np.argsort(-reference.weights_)[fits.assignments["k4-1"]].tolist()
        == reference.predict(points).tolist()
    )


def test_the_likeliest_fit_is_kept():
    fits = fit_mixtures(_points(1.0), [5], ClusterSettings(k=[5], seeds=4), seed=0)
    likelihoods = fits.table["log_likelihood"]
    assert fits.table["kept"].tolist() == (likelihoods == likelihoods.max()).tolist()
    assert fits.mixtures[5].score(_points(1.0)) == pytest.approx(likelihoods.max())
    assert likelihoods.nunique() > 1


def test_a_fit_that_leaves_a_cluster_empty_is_not_kept(monkeypatch):
    original, mixtures = GaussianMixture.fit, []

    def fit(mixture, points):
        """Of every fit but the second one component is nowhere."""
        mixtures.append(original(mixture, points))
        if len(mixtures) != 2:
            mixture.means_[0] += 1e6
        return mixture

    monkeypatch.setattr(GaussianMixture, "fit", fit)
    fits = fit_mixtures(_points(), [3], ClusterSettings(k=[3], seeds=3), seed=0)
    assert fits.table["kept"].tolist() == [False, True, False]
    no_fits = fit_mixtures(_points(), [3], ClusterSettings(k=[3], seeds=1), seed=0)
    assert no_fits.mixtures == {}
    with pytest.raises(DataError, match="k=3"):
        choose_k(no_fits)
    mixtures.clear()
    k, _, table = choose_k(
        fit_mixtures(_points(), [3, 4], ClusterSettings(k=[3, 4], seeds=2), seed=0)
    )
    assert k == 3
    assert table["bic"].isna().tolist() == [False, True]


def test_the_number_of_threads_changes_no_bit():
    points = np.random.default_rng(1).normal(size=(3000, 20))
    means = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            fits = fit_mixtures(points, [4], ClusterSettings(k=[4], seeds=1, iterations=3), seed=0)
        means.append(fits.mixtures[4].means_.tobytes())
    assert means[0] == means[1]


def _fits(*candidates):
    """Fits of (k, BIC, clusters of every seed)."""
    rows, assignments = [], {}
    for k, bic, *clusters in candidates:
        for seed, labels in enumerate(clusters):
            rows.append(
                {"k": k, "seed": seed, "log_likelihood": -1.0, "bic": bic, "kept": seed == 0}
            )
            assignments[f"k{k}-{seed}"] = labels
    return MixtureFits(pd.DataFrame(rows), pd.DataFrame(assignments), {})


ALIKE = ([0, 0, 1, 1], [1, 1, 0, 0])
UNLIKE = ([0, 0, 1, 1], [0, 1, 0, 1])


def test_stability_is_the_mean_adjusted_rand_index():
    assert seed_stability(ALIKE) == 1
    assert seed_stability(UNLIKE) == pytest.approx(
        -0.5
    )  # 0 pairs shared of 2 and 2: (0 - 2/3) / (2 - 2/3)
    assert seed_stability([ALIKE[0], ALIKE[1], UNLIKE[1]]) == pytest.approx((1 - 0.5 - 0.5) / 3)
    assert np.isnan(seed_stability([[0, 1]]))


def test_the_lowest_criterion_among_the_stable_is_chosen():
    k, reason, table = choose_k(_fits((2, 50.0, *ALIKE), (3, 40.0, *ALIKE), (4, 10.0, *UNLIKE)))
    assert k == 3
    assert table["chosen"].tolist() == [False, True, False]
    assert table["stability"].tolist() == [1, 1, pytest.approx(-0.5)]
    assert reason.startswith(
        "3 clusters, chosen of 3 numbers: of the numbers whose stability is within 0.1"
    )
    assert reason.endswith("(BIC 40, stability 1.00)")


def test_too_little_to_cluster_is_one_line():
    rows = torch.arange(8.0)[:, None].repeat(1, 3)
    check_vectors(rows, 8)
    with pytest.raises(DataError, match="k=9: must be at most 8"):
        check_vectors(rows, 9)
    with pytest.raises(DataError, match="k=8: must be at most 7"):
        check_vectors(torch.cat([rows[:7], rows[:1]]), 8)
    rows[3, 1] = float("inf")
    with pytest.raises(DataError, match=r"vector 3 of 8 .*\(1 in all\)"):
        check_vectors(rows, 2)


OUT_OF_RANGE = [
    {"k": [5, "auto"]},
    {"k": [5, 5]},
    {"skip_first": 1, "pca": 0},
    {"covariance": "round"},
    {"seeds": 1},
]


@pytest.mark.parametrize("changes", OUT_OF_RANGE, ids=str)
def test_settings_out_of_range_are_refused(changes):
    with pytest.raises(ConfigError, match=f"^{next(iter(changes))}="):
        ClusterSettings(**changes)


COURT = [
    "the judge ruled",
    "the judge asked the jury",
    "a judge and the jury",
    "the jury don't rule",
]
CELL = [
    "the cell divides",
    "the cell and the enzyme",
    "a cell grows",
    "the enzyme binds the cell",
    f"{7 * 'the '}cell",
]


@pytest.mark.parametrize(
    ("texts", "clusters", "names"),
    [
        # Words that come three times as often as elsewhere, in three units.
        ([*COURT, *CELL], [0] * 4 + [1] * 5, ["judge, jury", "cell"]),
        # Class-based tf-idf: zinc √(3/7) ln(1 + 4.5/3) = 0.60, iron √(4/7) ln(1 + 4.5/4) = 0.57;
        # equal: by alphabet.
        (
            ["iron zinc", "iron iron zinc", "iron zinc", "pear plum"],
            [0, 0, 0, 1],
            ["zinc, iron", "cluster 1"],
        ),
        (["zinc iron"] * 3 + ["pear plum"] * 3, [0] * 3 + [1] * 3, ["iron, zinc", "pear, plum"]),
        # No words, words as frequent elsewhere, no text.
        (["1 2 3", "!?"], [0, 1], ["cluster 0", "cluster 1"]),
        (["iron zinc"] * 4, [0, 0, 0, 1], ["cluster 0", "cluster 1", "cluster 2"]),
    ],
)
def test_names_of_clusters(texts, clusters, names):
    assert cluster_names(texts, np.array(clusters), len(names)) == names


def test_an_ellipse_by_hand():
    assert ellipse_of(np.diag([4.0, 1.0])) == pytest.approx(
        {"width": 4 * 2**0.5, "height": 2 * 2**0.5, "angle": 0}
    )
    diagonal = ellipse_of(
        np.array([[2.5, 1.5], [1.5, 2.5]])
    )  # variances 4 and 1, turned by 45 degrees
    assert diagonal == pytest.approx({"width": 4 * 2**0.5, "height": 2 * 2**0.5, "angle": 45})
    assert ellipse_of(np.array([[2.5, -1.5], [-1.5, 2.5]]))["angle"] == pytest.approx(135)


def test_points_and_components_are_seen_from_the_same_side():
    means = [[0.0, 0.0, 5.0], [9.0, 0.0, 5.0]]
    mixture = round_mixture(means, variances=[1.0, 4.0])
    random = np.random.default_rng(0)
    points = np.concatenate(
        [random.normal(means[0], 1, (500, 3)), random.normal(means[1], 2, (500, 3))]
    )
    projection, ellipses, variance = cluster_plane(points, mixture)
    halves = projection[:500].mean(0), projection[500:].mean(0)
    np.testing.assert_allclose(ellipses[["x", "y"]].to_numpy(), halves, atol=0.2)
    assert ellipses["width"].tolist() == pytest.approx([8**0.5, 2 * 8**0.5])
    assert ellipses["height"].tolist() == pytest.approx([8**0.5, 2 * 8**0.5])
    assert ellipses["cluster"].tolist() == [0, 1]
    assert 1 > variance[0] > variance[1] > 0
    total = np.var(points, axis=0).sum()
    assert variance[0] == pytest.approx(np.var(projection[:, 0]) / total)
