"""Fits of several sizes and beginnings, the choice among them, and what cannot be clustered."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from dana.core.errors import ConfigError, DataError
from dana.core.rng import derive_seed
from dana.studies.clusters import fit as fit_module
from dana.studies.clusters.choice import choose, seed_stability
from dana.studies.clusters.fit import Candidate, Fit, check_vectors, fit_candidates
from dana.studies.clusters.mixture import Mixture
from dana.studies.clusters.settings import ClusterSettings

TOPICS = np.repeat([0, 1, 2], [40, 60, 100])


def _points(apart=8.0):
    return np.random.default_rng(0).normal(size=(200, 2)) + apart * np.eye(3, 2)[TOPICS]


def test_planted_clusters_are_found_from_every_beginning():
    (candidate,) = fit_candidates(_points(), [3], ClusterSettings(k=[3], seeds=3), seed=0)
    assert seed_stability([fit.clusters for fit in candidate.fits] + [TOPICS]) == 1
    assert candidate.mixture.weights.tolist() == pytest.approx([0.5, 0.3, 0.2], abs=1e-4)
    assert [fit.seed for fit in candidate.fits] == [0, 1, 2]
    assert all(fit.converged for fit in candidate.fits)


def test_a_fit_is_scikit_learns_of_a_derived_seed():
    points = _points(1.0)
    settings = ClusterSettings(k=[4], seeds=2, covariance="diag", iterations=7)
    (candidate,) = fit_candidates(points, [4], settings, seed=5)
    seed = derive_seed(5, "clusters", 1) % 2**32
    expected = GaussianMixture(4, covariance_type="diag", max_iter=7, random_state=seed).fit(points)
    fit = candidate.fits[1]
    assert fit.bic == pytest.approx(expected.bic(points), rel=1e-12)
    assert fit.log_likelihood == pytest.approx(expected.score(points), rel=1e-10)
    assert (fit.iterations, fit.converged) == (expected.n_iter_, expected.converged_)
    assert np.argsort(-expected.weights_)[fit.clusters].tolist() == expected.predict(points).tolist()


def test_the_likeliest_fit_is_kept():
    (candidate,) = fit_candidates(_points(1.0), [5], ClusterSettings(k=[5], seeds=4), seed=0)
    likelihoods = [fit.log_likelihood for fit in candidate.fits]
    assert candidate.best == int(np.argmax(likelihoods))
    assert len(set(likelihoods)) > 1
    kept = candidate.mixture.assign(_points(1.0)).log_densities.mean()
    assert kept == pytest.approx(max(likelihoods))


def test_a_fit_that_leaves_a_cluster_empty_is_not_kept(monkeypatch):
    original = fit_module._fit

    def emptied(points, k, settings, seed, number):
        fit, mixture = original(points, k, settings, seed, number)
        if number != 1:
            fit = replace(fit, clusters=np.zeros_like(fit.clusters), log_likelihood=99.0)
        return fit, mixture

    monkeypatch.setattr(fit_module, "_fit", emptied)
    (candidate,) = fit_candidates(_points(), [3], ClusterSettings(k=[3], seeds=3), seed=0)
    assert candidate.best == 1
    (none_left,) = fit_candidates(_points(), [3], ClusterSettings(k=[3], seeds=1), seed=0)
    assert (none_left.best, none_left.mixture) == (-1, None)
    with pytest.raises(DataError, match="k=3: every fit leaves a cluster empty; ask for fewer clusters"):
        choose([none_left])
    assert choose([none_left, replace(candidate, k=4)]).k == 4


def test_the_number_of_threads_changes_no_bit():
    points = np.random.default_rng(1).normal(size=(3000, 20))
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            (candidate,) = fit_candidates(points, [4], ClusterSettings(k=[4], seeds=1, iterations=3), seed=0)
        found.append(candidate.mixture.means.numpy().tobytes())
    assert found[0] == found[1]


MIXTURE = Mixture(*(torch.zeros(1) for _ in range(3)))


def _candidate(k, bic, *clusters):
    fits = [Fit(seed, -1.0, bic, 3, True, np.array(labels)) for seed, labels in enumerate(clusters)]
    return Candidate(k, tuple(fits), MIXTURE, 0)


ALIKE = ([0, 0, 1, 1], [1, 1, 0, 0])
UNLIKE = ([0, 0, 1, 1], [0, 1, 0, 1])


def test_stability_is_the_mean_adjusted_rand_index():
    assert seed_stability(ALIKE) == 1
    assert seed_stability(UNLIKE) == pytest.approx(-0.5)  # 0 pairs shared of 2 and 2: (0 - 2/3) / (2 - 2/3)
    assert seed_stability([ALIKE[0], ALIKE[1], UNLIKE[1]]) == pytest.approx((1 - 0.5 - 0.5) / 3)
    assert np.isnan(seed_stability([[0, 1]]))


def test_the_lowest_criterion_among_the_stable_is_chosen():
    chosen = choose([_candidate(2, 50.0, *ALIKE), _candidate(3, 40.0, *ALIKE), _candidate(4, 10.0, *UNLIKE)])
    assert chosen.k == 3
    assert chosen.table["chosen"].tolist() == [False, True, False]
    assert chosen.table["stability"].tolist() == [1, 1, pytest.approx(-0.5)]
    assert chosen.reason.startswith("3 clusters, chosen of 3 numbers: of the numbers whose stability is within 0.1")
    assert chosen.reason.endswith("(BIC 40, stability 1.00)")


def test_a_single_number_is_not_said_to_be_chosen():
    assert choose([_candidate(2, 50.0, [0, 1])]).reason == "2 clusters (BIC 50)"


def test_too_little_to_cluster_is_one_line():
    rows = torch.arange(8.0)[:, None].repeat(1, 3)
    check_vectors(rows, 8)
    with pytest.raises(DataError, match="k=9: there are 8 distinct units to fit on; ask for at most so many"):
        check_vectors(rows, 9)
    with pytest.raises(DataError, match="k=8: the units have 7 distinct vectors; nothing tells so many"):
        check_vectors(torch.cat([rows[:7], rows[:1]]), 8)
    with pytest.raises(DataError, match="k=2: all units have the same vector"):
        check_vectors(torch.ones(9, 3), 2)
    rows[3, 1] = float("inf")
    with pytest.raises(DataError, match=r"vector 3 of 8 is not finite \(1 in all\)"):
        check_vectors(rows, 2)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"k": [1]}, "k=\\[1\\]: must be auto, or whole numbers of at least 2"),
        ({"k": []}, "k="),
        ({"k": ["many"]}, "k="),
        ({"k": [5, "auto"]}, "k="),
        ({"k": [5, 5]}, "distinct"),
        ({"pca": -1}, "pca"),
        ({"skip_first": -1}, "skip_first"),
        ({"pca": 0, "skip_first": 1}, "skip_first=1: must be 0 without PCA"),
        ({"covariance": "round"}, "covariance='round': must be one of full, tied, diag, spherical"),
        ({"iterations": 0}, "iterations"),
        ({"seeds": 1}, "seeds=1: must be at least 2 to choose k"),
        ({"k": [5], "seeds": 0}, "seeds=0: must be at least 1"),
        ({"fit": 1}, "fit"),
    ],
)
def test_settings_that_are_refused(changes, says):
    with pytest.raises(ConfigError, match=says):
        ClusterSettings(**changes)


def test_candidates_ascend_and_true_domains_change_no_cluster():
    assert ClusterSettings(k=[15, 5]).candidates == (5, 15)
    assert ClusterSettings().candidates[0] == 2
    assert ClusterSettings(k=[5], seeds=1).seeds == 1
    assert ClusterSettings(true_domains=["all"]).identity() == ClusterSettings().identity()
