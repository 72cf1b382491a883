"""Latent Dirichlet allocation behind the protocol: parity with scikit-learn, planted topics, files."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.decomposition import LatentDirichletAllocation

from dana.core.errors import ArtifactError, ConfigError
from dana.core.rng import derive_seed
from dana.studies.topics.model import Bags, Topics, fit_topics
from tests.studies.topics.planted_topics import agreement, known_topics


@pytest.fixture(scope="module")
def topics():
    return fit_topics("lda:epochs=10,batch=100", known_topics()[0], 3, seed=4)


def test_it_is_that_of_scikit_learn(topics):
    bags, _, _ = known_topics()
    seed = derive_seed(4, "lda") % 2**32
    model = LatentDirichletAllocation(3, learning_method="online", batch_size=100, random_state=seed).fit(bags.counts)
    assert np.array_equal(topics.model.components.numpy(), model.components_)
    np.testing.assert_allclose(topics.model.theta(bags.counts), model.transform(bags.counts), atol=1e-6)
    np.testing.assert_allclose(topics.beta.sum(1), 1)


def test_planted_topics_are_found_by_lda(topics):
    bags, theta, beta = known_topics()
    order, cosines = agreement(topics.beta, beta)
    assert sorted(order) == [0, 1, 2]
    assert cosines.min() > 0.97
    assert np.corrcoef(topics.model.theta(bags.counts)[:, order].ravel(), theta.ravel())[0, 1] > 0.9


def test_rows_depend_on_no_other_and_are_equal_without_words(topics):
    bags, _, _ = known_topics()
    theta = topics.model.theta(bags.counts)
    assert np.array_equal(topics.model.theta(bags.counts[5:9]), theta[5:9])
    assert topics.model.theta(csr_matrix((1, 30), dtype=int))[0].tolist() == [pytest.approx(1 / 3)] * 3
    assert topics.model.theta(csr_matrix((0, 30), dtype=int)).shape == (0, 3)


def test_files_give_the_same_model(topics, tmp_path):
    topics.save(tmp_path)
    again = Topics.load(tmp_path)
    counts = known_topics()[0].counts
    assert np.array_equal(again.model.theta(counts), topics.model.theta(counts))
    assert (again.spec, again.words) == (topics.spec, topics.words)
    (tmp_path / "topics.json").write_text('{"parameters": {}}')
    with pytest.raises(ArtifactError, match=r"topics\.json: .*model"):
        Topics.load(tmp_path)


def test_documents_without_words_do_not_count():
    bags, _, _ = known_topics()
    with_empty = Bags(bags.words, csr_matrix(np.vstack([np.zeros((50, 30), dtype=int), bags.counts.toarray()])))
    plain = fit_topics("lda:epochs=1", bags, 3, seed=0)
    assert np.array_equal(fit_topics("lda:epochs=1", with_empty, 3, seed=0).beta, plain.beta)
    few = Bags(bags.words, with_empty.counts[:52])
    with pytest.raises(ConfigError, match="k=3: must be at most 2"):
        fit_topics("lda", few, 3, seed=0)
