"""Descriptions of clusters: the words that set them apart, and the flat picture of a mixture."""

import numpy as np
import pytest

from dana.studies.clusters.description import cluster_names, cluster_plane, ellipse_of
from tests.studies.clusters.toy_mixtures import round_mixture

COURT = ["the judge ruled", "the judge asked the jury", "a judge and the jury", "the jury don't rule"]
CELL = ["the cell divides", "the cell and the enzyme", "a cell grows", "the enzyme binds the cell"]


def test_a_name_is_of_words_that_come_three_times_as_often_as_elsewhere_in_three_units():
    texts = [*COURT, *CELL, "the the the the the the the cell"]
    assert cluster_names(texts, np.repeat([0, 1], [4, 5]), 2) == ["judge, jury", "cell"]


def test_words_are_in_the_order_of_their_class_based_tf_idf():
    texts = ["iron zinc", "iron iron zinc", "iron zinc", "pear plum"]
    zinc, iron = ((times / 7) ** 0.5 * np.log(1 + 4.5 / times) for times in (3, 4))
    assert zinc > iron
    assert cluster_names(texts, np.array([0, 0, 0, 1]), 2) == ["zinc, iron", "cluster 1"]


def test_equal_weights_are_in_the_order_of_the_alphabet():
    texts = ["zinc iron"] * 3 + ["pear plum"] * 3
    assert cluster_names(texts, np.repeat([0, 1], 3), 2) == ["iron, zinc", "pear, plum"]


def test_clusters_without_words_are_called_by_their_number():
    assert cluster_names(["1 2 3", "!?"], np.array([0, 1]), 2) == ["cluster 0", "cluster 1"]
    alone = cluster_names(["iron zinc"] * 4, np.array([0, 0, 0, 1]), 3)
    assert alone == ["cluster 0", "cluster 1", "cluster 2"], "as frequent elsewhere, or no text"


def test_an_ellipse_by_hand():
    assert ellipse_of(np.diag([4.0, 1.0])) == pytest.approx({"width": 4 * 2**0.5, "height": 2 * 2**0.5, "angle": 0})
    diagonal = ellipse_of(np.array([[2.5, 1.5], [1.5, 2.5]]))  # variances 4 and 1, turned by 45 degrees
    assert diagonal == pytest.approx({"width": 4 * 2**0.5, "height": 2 * 2**0.5, "angle": 45})
    assert ellipse_of(np.array([[2.5, -1.5], [-1.5, 2.5]]))["angle"] == pytest.approx(135)


def test_points_and_components_are_seen_from_the_same_side():
    means = [[0.0, 0.0, 5.0], [9.0, 0.0, 5.0]]
    mixture = round_mixture(means, variances=[1.0, 4.0])
    random = np.random.default_rng(0)
    points = np.concatenate([random.normal(means[0], 1, (500, 3)), random.normal(means[1], 2, (500, 3))])
    projection, ellipses, variance = cluster_plane(points, mixture)
    halves = projection[:500].mean(0), projection[500:].mean(0)
    np.testing.assert_allclose(ellipses[["x", "y"]].to_numpy(), halves, atol=0.2)
    assert ellipses["width"].tolist() == pytest.approx([8**0.5, 2 * 8**0.5])
    assert ellipses["height"].tolist() == pytest.approx([8**0.5, 2 * 8**0.5])
    assert ellipses["cluster"].tolist() == [0, 1]
    assert 1 > variance[0] > variance[1] > 0
    total = np.var(points, axis=0).sum()
    assert variance[0] == pytest.approx(np.var(projection[:, 0]) / total)
