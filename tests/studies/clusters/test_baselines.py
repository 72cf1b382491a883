"""Baselines: a topic model finds topics of words, chance does not; parity with scikit-learn."""

import numpy as np
import pytest
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer

from dana.core.errors import DataError
from dana.core.rng import derive_seed
from dana.studies.clusters.baselines import random_clusters, topic_clusters
from dana.studies.clusters.purity import contingency, domain_purity
from tests.stages.two_topics import CELLS, COURTS, one_document

DOMAINS = np.arange(200) % 2


@pytest.fixture(scope="module")
def texts():
    random = np.random.default_rng(0)
    return [one_document((CELLS, COURTS)[domain], random, 2) for domain in DOMAINS]


def _purity(clusters, k):
    return domain_purity(contingency(clusters, DOMAINS, k, 2))


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
