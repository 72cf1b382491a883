"""Words that set clusters apart, and sentences that stand for them."""

import numpy as np
import pytest

from dana.studies.clusters.names import cluster_names, cluster_words
from dana.studies.clusters.neighbours import mean_distances, nearest_clusters
from dana.studies.clusters.representatives import log_density_of_own, representatives
from tests.studies.clusters.toy_mixtures import round_mixture

COURT = ["the judge ruled", "the judge asked the jury", "a judge and the jury", "the jury don't rule"]
CELL = ["the cell divides", "the cell and the enzyme", "a cell grows", "the enzyme binds the cell"]


def test_weights_are_class_based_tf_idf():
    words = cluster_words([*COURT, *CELL], np.repeat([0, 1], 4), 2)
    judge = words[words["word"] == "judge"].iloc[0]
    here, there = 16, 15  # words of two letters or more
    assert judge["weight"] == pytest.approx((3 / here) ** 0.5 * np.log(1 + (here + there) / 2 / 3))
    assert judge["units"] == 3
    assert np.isinf(judge["lift"])


def test_a_name_is_of_words_that_come_three_times_as_often_as_elsewhere_in_three_units():
    texts = [*COURT, *CELL, "the the the the the the the cell"]
    words = cluster_words(texts, np.repeat([0, 1], [4, 5]), 2)
    assert words.groupby("cluster")["word"].agg(list).to_dict() == {0: ["judge", "jury"], 1: ["cell"]}
    assert cluster_names(words, 2) == ["judge, jury", "cell"]
    assert words["rank"].tolist() == [1, 2, 1]


def test_equal_weights_are_in_the_order_of_the_alphabet():
    texts = ["zinc iron"] * 3 + ["pear plum"] * 3
    words = cluster_words(texts, np.repeat([0, 1], 3), 2)
    assert words["word"].tolist() == ["iron", "zinc", "pear", "plum"]


def test_clusters_without_words_are_called_by_their_number():
    assert cluster_names(cluster_words(["1 2 3", "!?"], np.array([0, 1]), 2), 2) == ["cluster 0", "cluster 1"]
    alone = cluster_words(["iron zinc"] * 4, np.array([0, 0, 0, 1]), 3)
    assert cluster_names(alone, 3) == ["cluster 0", "cluster 1", "cluster 2"], "as frequent elsewhere, or no text"


def _sentence(word):
    return f"This is a sentence of eight words with {word}"


def test_representatives_are_the_lowest_of_each_cluster_and_readable():
    texts = [_sentence("a"), "Yes.", _sentence("b"), _sentence("c"), _sentence("a"), _sentence("d")]
    documents = ["p", "q", "r", "s", "t", "r"]
    clusters = np.array([0, 0, 0, 1, 0, 0])
    order = np.array([3.0, 0.0, 1.0, 5.0, 2.0, 0.5])
    assert representatives(texts, documents, clusters, order, 2) == {0: [5, 4], 1: [3]}
    assert representatives(texts, documents, clusters, order, 9) == {0: [5, 4], 1: [3]}, "each document, each text once"
    fragments = representatives(["Yes.", "No."], ["p", "q"], np.array([0, 1]), np.zeros(2), 1)
    assert fragments == {0: [0], 1: [1]}, "of a cluster without sentences what it has"
    nameless = representatives(texts, [""] * 6, clusters, order, 9)
    assert nameless == {0: [5, 2, 4], 1: [3]}


def test_nearness_is_the_density_of_the_own_component():
    mixture = round_mixture([[0.0, 0.0], [3.0, 0.0]], weights=[0.4, 0.6])
    points = np.array([[0.0, 0.0], [1.4, 0.0], [2.9, 1.0]])
    found = mixture.assign(points)
    own = log_density_of_own(found.log_densities, found.responsibilities[np.arange(3), found.clusters])
    np.testing.assert_allclose(own, mixture.joint(points)[np.arange(3), found.clusters])


def test_neighbours_are_the_nearest_means():
    distances = mean_distances(round_mixture([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]]))
    assert distances[0].tolist() == pytest.approx([0, 5, 34**0.5])
    assert nearest_clusters(distances).tolist() == [1, 2, 1]
