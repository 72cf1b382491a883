"""The flat picture of a mixture: where points lie, and ellipses of the components themselves."""

import numpy as np
import pytest
from matplotlib.patches import Ellipse

from dana.studies.clusters.plane import ellipse_of, plane_of
from tests.studies.clusters.toy_mixtures import round_mixture


def test_an_ellipse_by_hand():
    assert ellipse_of(np.diag([4.0, 1.0])) == pytest.approx({"width": 4 * 2**0.5, "height": 2 * 2**0.5, "angle": 0})
    turned = ellipse_of(np.array([[2.5, 1.5], [1.5, 2.5]]))  # variances 4 and 1, turned by 45 degrees
    assert turned == pytest.approx({"width": 4 * 2**0.5, "height": 2 * 2**0.5, "angle": 45})
    assert ellipse_of(np.array([[2.5, -1.5], [-1.5, 2.5]]))["angle"] == pytest.approx(135)


def test_an_ellipse_holds_the_share_of_its_component_that_is_said():
    covariance = np.array([[3.0, 1.2], [1.2, 1.0]])
    points = np.random.default_rng(0).multivariate_normal([0, 0], covariance, 20_000)
    drawn = ellipse_of(covariance)
    patch = Ellipse((0, 0), drawn["width"], drawn["height"], angle=drawn["angle"])
    inside = patch.get_path().contains_points(patch.get_patch_transform().inverted().transform(points))
    assert inside.mean() == pytest.approx(1 - np.exp(-1), abs=0.01)


def test_points_and_components_are_seen_from_the_same_side():
    means = [[0.0, 0.0, 5.0], [9.0, 0.0, 5.0]]
    mixture = round_mixture(means, variances=[1.0, 4.0])
    random = np.random.default_rng(0)
    points = np.concatenate([random.normal(means[0], 1, (500, 3)), random.normal(means[1], 2, (500, 3))])
    plane = plane_of(points, mixture)
    halves = plane.points[:500].mean(0), plane.points[500:].mean(0)
    np.testing.assert_allclose(plane.ellipses[["x", "y"]].to_numpy(), halves, atol=0.2)
    assert plane.ellipses["width"].tolist() == pytest.approx([8**0.5, 2 * 8**0.5])
    assert plane.ellipses["height"].tolist() == pytest.approx([8**0.5, 2 * 8**0.5])
    assert plane.ellipses["cluster"].tolist() == [0, 1]
    assert 1 > plane.variance[0] > plane.variance[1] > 0
    total = np.var(points, axis=0).sum()
    assert plane.variance[0] == pytest.approx(np.var(plane.points[:, 0]) / total)
