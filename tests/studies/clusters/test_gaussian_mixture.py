"""Densities and responsibilities are those of the mixture's definition, and scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

from dana.studies.clusters.mixture import Mixture
from dana.studies.clusters.settings import COVARIANCES


def _clouds(units=300, dims=4, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(units, dims)) + 3 * random.integers(0, 2, (units, 1))


def test_two_components_by_hand():
    mixture = Mixture(*map(torch.tensor, ([0.25, 0.75], [[0.0], [2.0]], [[[1.0]], [[4.0]]])))
    mixture = Mixture(*(part.double() for part in (mixture.weights, mixture.means, mixture.covariances)))
    one = 0.25 * np.exp(-0.5) / np.sqrt(2 * np.pi)
    other = 0.75 * np.exp(-1 / 8) / np.sqrt(2 * np.pi * 4)
    found = mixture.assign(np.array([[1.0]]))
    np.testing.assert_allclose(found.responsibilities, [[one / (one + other), other / (one + other)]], rtol=1e-12)
    np.testing.assert_allclose(found.log_densities, [np.log(one + other)], rtol=1e-12)
    assert found.clusters.tolist() == [1]


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_it_equals_scikit_learn_whatever_the_shape(covariance):
    points = _clouds()
    fitted = GaussianMixture(3, covariance_type=covariance, random_state=0).fit(points)
    mixture = Mixture.of_fitted(fitted)
    found = mixture.assign(points * 1.5)
    order = np.argsort(-fitted.weights_)
    assert mixture.weights.tolist() == sorted(fitted.weights_, reverse=True)
    np.testing.assert_allclose(found.responsibilities, fitted.predict_proba(points * 1.5)[:, order], atol=1e-10)
    np.testing.assert_allclose(found.log_densities, fitted.score_samples(points * 1.5), rtol=1e-10)
    assert order[found.clusters].tolist() == fitted.predict(points * 1.5).tolist()


def test_what_was_saved_gives_the_same_bits(tmp_path):
    points = _clouds()
    mixture = Mixture.of_fitted(GaussianMixture(3, random_state=0).fit(points))
    mixture.save(tmp_path)
    loaded = Mixture.load(tmp_path)
    assert loaded.k == 3
    assert np.array_equal(loaded.assign(points).responsibilities, mixture.assign(points).responsibilities)


def test_a_component_without_weight_gets_nothing():
    zero = torch.zeros(2, 1, dtype=torch.float64)
    mixture = Mixture(torch.tensor([0.0, 1.0]).double(), zero, torch.ones(2, 1, 1, dtype=torch.float64))
    assert mixture.assign(np.zeros((1, 1))).responsibilities.tolist() == [[0, 1]]
