"""Clusters against domains that are known: purity, confusions, outliers; baselines that see no vector."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics.cluster import contingency_matrix

from dana.core.errors import ConfigError, DataError
from dana.core.rng import derive_seed
from dana.studies.clusters.domains import (
    confusion,
    contingency,
    domain_purity,
    majority,
    outlier_examples,
    outlier_table,
    random_clusters,
    surface_of,
    topic_clusters,
    true_domains,
)
from tests.stages.two_topics import CELLS, COURTS, one_document

CLUSTERS = np.array([0, 0, 0, 1, 1, 2, 2, 2])
DOMAINS = np.array([0, 0, 1, 1, 1, 0, 2, 0])  # majorities: 0, 1, 0


def test_purity_by_hand():
    counts = contingency(CLUSTERS, DOMAINS, 3, 3)
    assert counts.tolist() == [[2, 1, 0], [0, 2, 0], [2, 0, 1]]
    assert majority(counts).tolist() == [0, 1, 0]
    assert domain_purity(counts) == 6 / 8
    assert confusion(counts).tolist() == [[4, 0, 0], [1, 2, 0], [1, 0, 0]]


def test_a_tie_goes_to_the_first_domain_and_an_empty_cluster_counts_nothing():
    counts = contingency(np.array([0, 0]), np.array([1, 0]), 2, 3)
    assert majority(counts).tolist() == [0, 0]
    assert domain_purity(counts) == 0.5
    assert confusion(counts).sum() == 2


LABELS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=60)


@given(LABELS)
def test_purity_is_that_of_scikit_learns_contingency_matrix_and_never_below_the_largest_domains_share(pairs):
    clusters, domains = np.array(pairs).T
    counts = contingency(clusters, domains, 5, 4)
    expected = contingency_matrix(domains, clusters).max(0).sum() / len(pairs)
    assert domain_purity(counts) == pytest.approx(expected)
    assert np.bincount(domains).max() / len(pairs) - 1e-12 <= domain_purity(counts) <= 1
    right = np.trace(confusion(counts)) / len(pairs)
    assert right == pytest.approx(domain_purity(counts)), "the accuracy of the majority map"


@pytest.mark.parametrize(("k", "expected"), [(5, 0.211), (10, 0.216), (15, 0.220)])
def test_a_random_assignment_lies_above_the_floor_that_the_paper_prints_less_than(k, expected):
    random = np.random.default_rng(0)
    domains = np.repeat(np.arange(5), 2000)
    found = [domain_purity(contingency(random.integers(0, k, 10_000), domains, k, 5)) for _ in range(20)]
    assert np.mean(found) == pytest.approx(expected, abs=0.002)
    assert min(found) > 0.2


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
    sample = pd.DataFrame({"text": ["a", "b", "b", "c", "d"], "nearness": [-3.0, -1.0, -2.0, 0.0, 9.0]})
    examples = outlier_examples(sample, true, assigned, 2)
    assert examples[["true", "assigned"]].to_numpy().tolist() == [[0, 1], [0, 1], [1, 0]]
    assert examples.index.tolist() == [1, 0, 3]
    assert outlier_examples(sample, true, assigned, 1).index.tolist() == [1, 3]


def test_true_domains_are_sources_of_the_text():
    sources = {"law": {}, "bio": {}, "web": {}}
    assert true_domains([], sources) == []
    assert true_domains(["all"], sources) == ["bio", "law", "web"]
    assert true_domains(["web", "law"], sources) == ["law", "web"]
    with pytest.raises(ConfigError, match="true_domains='lwa': no source of the text; did you mean 'law'"):
        true_domains(["law", "lwa"], sources)
    with pytest.raises(ConfigError, match="true_domains='law': one domain"):
        true_domains(["all"], {"law": {}})


TOPICS = np.arange(200) % 2


@pytest.fixture(scope="module")
def texts():
    random = np.random.default_rng(0)
    return [one_document((CELLS, COURTS)[domain], random, 2) for domain in TOPICS]


def _purity(clusters, k):
    return domain_purity(contingency(clusters, TOPICS, k, 2))


def test_topics_are_those_of_scikit_learn(texts):
    found = topic_clusters(texts, 3, seed=5)
    counts = CountVectorizer(token_pattern=r"(?u)\b\w\w+\b").fit_transform(texts)
    model = LatentDirichletAllocation(3, random_state=derive_seed(5, "topics") % 2**32)
    assert found.tolist() == model.fit_transform(counts).argmax(1).tolist()


def test_a_topic_model_finds_two_topics_and_chance_does_not(texts):
    assert _purity(topic_clusters(texts, 2, seed=0), 2) > 0.95
    assert _purity(random_clusters(200, 2, seed=0), 2) < 0.65


def test_a_text_without_words_is_of_the_first_topic(texts):
    assert topic_clusters(["12 + 7", *texts], 2, seed=0)[0] == 0
    with pytest.raises(DataError, match="k=2: no topics without words: none of the 2 texts has one"):
        topic_clusters(["12", "?"], 2, seed=0)


def test_seeds_differ_and_repeat(texts):
    for find in (lambda seed: random_clusters(1000, 5, seed), lambda seed: topic_clusters(texts, 4, seed)):
        assert np.array_equal(find(1), find(1))
        assert not np.array_equal(find(1), find(2))


def test_every_cluster_is_equally_likely():
    clusters = random_clusters(100_000, 5, seed=0)
    np.testing.assert_allclose(np.bincount(clusters), 20_000, rtol=0.03)
