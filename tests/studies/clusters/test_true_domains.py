"""Clusters against domains that are known: purity, confusions, outliers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.cluster import contingency_matrix

from dana.core.errors import ConfigError
from dana.studies.clusters.domains import (
    confusion,
    contingency,
    domain_purity,
    majority,
    outlier_table,
    surface_of,
    true_domains,
)

CLUSTERS = np.array([0, 0, 0, 1, 1, 2, 2, 2])
DOMAINS = np.array([0, 0, 1, 1, 1, 0, 2, 0])  # majorities: 0, 1, 0


def test_purity_by_hand():
    counts = contingency(CLUSTERS, DOMAINS, 3, 3)
    assert counts.tolist() == [[2, 1, 0], [0, 2, 0], [2, 0, 1]]
    assert majority(counts).tolist() == [0, 1, 0]
    assert domain_purity(counts) == 6 / 8
    assert confusion(counts).tolist() == [[4, 0, 0], [1, 2, 0], [1, 0, 0]]
    counts = contingency(np.array([0, 0]), np.array([1, 0]), 2, 3)
    assert majority(counts).tolist() == [0, 0], (
        "a tie goes to the first domain, an empty cluster counts nothing"
    )
    assert (domain_purity(counts), confusion(counts).sum()) == (0.5, 2)


LABELS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=60)


@given(LABELS)
def test_purity_is_that_of_scikit_learns_contingency_matrix_and_never_below_the_largest_domains_share(
    pairs,
):
    clusters, domains = np.array(pairs).T
    counts = contingency(clusters, domains, 5, 4)
    reference = contingency_matrix(domains, clusters).max(0).sum() / len(pairs)
    assert domain_purity(counts) == pytest.approx(reference)
    assert np.bincount(domains).max() / len(pairs) - 1e-12 <= domain_purity(counts) <= 1
    right = np.trace(confusion(counts)) / len(pairs)
    assert right == pytest.approx(domain_purity(counts)), "the accuracy of the majority map"


def test_surface_by_hand():
    measures = surface_of(
        ["We saw 3 cells.", "Cells divide", "Why, though?", "Its R2 value: 0.5", "Wet hens."]
    )
    assert measures["tokens"].tolist() == [5, 2, 4, 7, 3]
    assert measures["digits"].tolist() == [True, False, False, True, False]
    assert measures["conversational"].tolist() == [True, False, True, True, False]
    assert surface_of(["I'm here", "THEY’RE there", "Isn't so"])["conversational"].tolist() == [
        True,
        True,
        False,
    ]


def test_outliers_are_told_by_the_domain_that_attracts_them():
    true, cluster_domains = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 0, 2])
    surface = surface_of(["a b c d", "you there 7", "one two", "nine 9", "z"])
    table = outlier_table(true, cluster_domains, ["law", "it", "koran"], surface)
    assert table["domain"].tolist() == ["law", "it", "koran", "all outliers", "all units"]
    assert table["units"].tolist() == [2, 1, 0, 3, 5]
    assert table["share"].tolist() == [0.4, 0.2, 0, 0.6, 1]
    assert table["tokens"].tolist()[:2] == [2, 3]
    assert np.isnan(table["tokens"][2])
    assert table["tokens"].tolist()[3:] == [pytest.approx(7 / 3), 2.4]
    assert table["digits"].tolist()[3:] == [pytest.approx(2 / 3), 0.4]
    assert table["conversational"].tolist()[3:] == [pytest.approx(1 / 3), 0.2]


def test_true_domains_are_sources_of_the_text():
    sources = {"law": {}, "bio": {}, "web": {}}
    assert true_domains([], sources) == []
    assert true_domains(["all"], sources) == ["bio", "law", "web"]
    assert true_domains(["web", "law"], sources) == ["law", "web"]
    with pytest.raises(ConfigError, match=r"true_domains='lwa': .*did you mean 'law'"):
        true_domains(["law", "lwa"], sources)
    with pytest.raises(ConfigError, match="true_domains='law'"):
        true_domains(["all"], {"law": {}})
