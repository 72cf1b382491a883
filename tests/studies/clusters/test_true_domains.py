"""Clusters against domains that are known: purity, confusions, outliers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.cluster import contingency_matrix

from dana.studies.clusters.outliers import outlier_examples, outlier_table, surface_of
from dana.studies.clusters.purity import (
    confusion,
    contingency,
    domain_purity,
    majority,
    mean_and_deviation,
    purity_floor,
)

CLUSTERS = np.array([0, 0, 0, 1, 1, 2, 2, 2])
DOMAINS = np.array([0, 0, 1, 1, 1, 0, 2, 0])  # majorities: 0, 1, 0


def test_purity_by_hand():
    counts = contingency(CLUSTERS, DOMAINS, 3, 3)
    assert counts.tolist() == [[2, 1, 0], [0, 2, 0], [2, 0, 1]]
    assert majority(counts).tolist() == [0, 1, 0]
    assert domain_purity(counts) == 6 / 8
    assert purity_floor(counts) == 4 / 8
    assert confusion(counts).tolist() == [[4, 0, 0], [1, 2, 0], [1, 0, 0]]


def test_a_tie_goes_to_the_first_domain_and_an_empty_cluster_counts_nothing():
    counts = contingency(np.array([0, 0]), np.array([1, 0]), 2, 3)
    assert majority(counts).tolist() == [0, 0]
    assert domain_purity(counts) == 0.5
    assert confusion(counts).sum() == 2


LABELS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=60)


@given(LABELS)
def test_purity_is_that_of_scikit_learns_contingency_matrix_and_never_below_its_floor(pairs):
    clusters, domains = np.array(pairs).T
    counts = contingency(clusters, domains, 5, 4)
    expected = contingency_matrix(domains, clusters).max(0).sum() / len(pairs)
    assert domain_purity(counts) == pytest.approx(expected)
    assert purity_floor(counts) - 1e-12 <= domain_purity(counts) <= 1
    right = np.trace(confusion(counts)) / len(pairs)
    assert right == pytest.approx(domain_purity(counts)), "the accuracy of the majority map"


@pytest.mark.parametrize(("k", "expected"), [(5, 0.211), (10, 0.216), (15, 0.220)])
def test_a_random_assignment_lies_above_the_floor_that_the_paper_prints_less_than(k, expected):
    random = np.random.default_rng(0)
    domains = np.repeat(np.arange(5), 2000)
    found = [domain_purity(contingency(random.integers(0, k, 10_000), domains, k, 5)) for _ in range(20)]
    assert np.mean(found) == pytest.approx(expected, abs=0.002)
    assert min(found) > 0.2


def test_the_deviation_is_that_of_a_sample():
    assert mean_and_deviation([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))
    mean, deviation = mean_and_deviation([0.7])
    assert mean == 0.7
    assert np.isnan(deviation)


def test_surface_by_hand():
    found = surface_of(["We saw 3 cells.", "Cells divide", "Why, though?", "Its R2 value: 0.5", "Wet hens."])
    assert found["tokens"].tolist() == [5, 2, 4, 7, 3]
    assert found["digits"].tolist() == [True, False, False, True, False]
    assert found["conversational"].tolist() == [True, False, True, True, False]


def test_contractions_hold_their_pronoun():
    assert surface_of(["I'm here", "THEY’RE there", "Isn't so"])["conversational"].tolist() == [True, True, False]


def test_outliers_are_told_by_the_domain_that_attracts_them():
    true, assigned = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 0, 2])
    surface = surface_of(["a b c d", "you there 7", "one two", "nine 9", "z"])
    table = outlier_table(true, assigned, ["law", "it", "koran"], surface)
    assert table["domain"].tolist() == ["law", "it", "koran", "all outliers", "all units"]
    assert table["units"].tolist() == [2, 1, 0, 3, 5]
    assert table["share"].tolist() == [0.4, 0.2, 0, 0.6, 1]
    assert table["tokens"].tolist()[:2] == [2, 3]
    assert np.isnan(table["tokens"][2])
    assert table["tokens"].tolist()[3:] == [pytest.approx(7 / 3), 2.4]
    assert table["digits"].tolist()[3:] == [pytest.approx(2 / 3), 0.4]
    assert table["conversational"].tolist()[3:] == [pytest.approx(1 / 3), 0.2]


def test_examples_are_the_outliers_nearest_to_the_wrong_centre():
    true, assigned = np.array([0, 0, 0, 1, 0]), np.array([1, 1, 1, 0, 0])
    nearness = np.array([-3.0, -1.0, -2.0, 0.0, 9.0])
    texts = ["a", "b", "b", "c", "d"]
    assert outlier_examples(true, assigned, nearness, texts, 2) == {(0, 1): [1, 0], (1, 0): [3]}
    assert outlier_examples(true, assigned, nearness, texts, 1) == {(0, 1): [1], (1, 0): [3]}
