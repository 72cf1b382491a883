"""The embedded topic model: its bound by hand and dense, planted topics found, the same bits, vectors given."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from torch.distributions import Normal, kl_divergence

from dana.core import logging
from dana.core.errors import ConfigError, DataError
from dana.encoders.words import WordVectors
from dana.studies.topics.etm import EmbeddedTopics, FittedEmbeddedTopics, elbo
from dana.studies.topics.model import Topics, fit_topics
from tests.studies.topics.planted_topics import agreement, planted

SMALL = {"dims": 20, "hidden": 48, "batch": 100, "epochs": 50}


@pytest.fixture(scope="module")
def fitted():
    bags, _, _ = planted()
    return EmbeddedTopics(**SMALL).fit(bags, 3, seed=0)


def _random_parameters(words, topics, width, dims, seed=0):
    random = torch.Generator().manual_seed(seed)
    shapes = {"first": (words, width), "first_bias": (width,), "second": (width, width), "second_bias": (width,)}
    shapes |= {
        f"{name}{rest}": (topics, width)[: 2 - bool(rest)]
        for name in ("mean", "log_variance")
        for rest in ("", "_bias")
    }
    shapes |= {"words": (words, dims), "topics": (topics, dims)}
    return FittedEmbeddedTopics(**{name: torch.randn(*shape, generator=random) for name, shape in shapes.items()})


def test_the_bound_of_one_document_by_hand():
    """Two words, two topics; the document has the first word once and the second thrice, shares 1/4 and 3/4."""
    one = torch.ones(1, 1)
    parameters = FittedEmbeddedTopics(
        first=torch.tensor([[4.0], [0.0]]),  # hidden: 4 · 1/4 = 1, then 2 · 1 = 2
        first_bias=torch.zeros(1),
        second=2 * one,
        second_bias=torch.zeros(1),
        mean=torch.tensor([[0.5], [0.0]]),  # μ = (1, 0)
        mean_bias=torch.zeros(2),
        log_variance=torch.tensor([[0.0], [0.5]]),  # log σ² = (0, 1)
        log_variance_bias=torch.zeros(2),
        words=torch.tensor([[np.log(3.0)], [0.0]], dtype=torch.float32),
        topics=torch.tensor([[1.0], [0.0]]),  # β = (3/4, 1/4), (1/2, 1/2)
    )
    likelihood, divergence = elbo(parameters, csr_matrix([[1, 3]]), torch.tensor([[-1.0, 2.0]]))
    delta = np.array([1.0 - 1.0, 0.0 + 2.0 * np.exp(0.5)])
    theta = np.exp(delta) / np.exp(delta).sum()
    first, second = theta @ [[0.75, 0.25], [0.5, 0.5]]
    assert likelihood.item() == pytest.approx(np.log(first) + 3 * np.log(second), rel=1e-6)
    assert divergence.item() == pytest.approx(0.5 * ((1 + 1 - 0 - 1) + (0 + np.e - 1 - 1)), rel=1e-6)


def test_the_sparse_bound_is_the_dense_one():
    parameters = _random_parameters(7, 3, 5, 4)
    counts = np.array([[2, 0, 1, 0, 0, 3, 0], [0] * 7, [1, 1, 1, 1, 1, 1, 1], [0, 9, 0, 0, 0, 0, 0]])
    noise = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    likelihood, divergence = elbo(parameters, csr_matrix(counts), noise)
    dense = torch.tensor(counts, dtype=torch.float32)
    hidden = torch.relu(dense / dense.sum(1, keepdim=True).clamp(min=1) @ parameters.first + parameters.first_bias)
    hidden = torch.relu(hidden @ parameters.second.T + parameters.second_bias)
    mean = hidden @ parameters.mean.T + parameters.mean_bias
    deviation = ((hidden @ parameters.log_variance.T + parameters.log_variance_bias) / 2).exp()
    theta = (mean + noise * deviation).softmax(1)
    beta = (parameters.topics @ parameters.words.T).softmax(1)
    torch.testing.assert_close(likelihood, (dense * (theta @ beta).log()).sum(1), rtol=1e-4, atol=1e-5)
    expected = kl_divergence(Normal(mean, deviation), Normal(0.0, 1.0)).sum(1)
    torch.testing.assert_close(divergence, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(parameters.beta, beta.numpy(), rtol=1e-5)


def test_planted_topics_are_found(fitted):
    bags, theta, beta = planted()
    places, cosines = agreement(fitted.beta, beta)
    assert sorted(places) == [0, 1, 2]
    assert cosines.min() > 0.97
    found = fitted.theta(bags.counts)[:, places]
    clear = theta.max(1) > 0.8
    assert (found.argmax(1) == theta.argmax(1))[clear].mean() > 0.97
    assert np.corrcoef(found.ravel(), theta.ravel())[0, 1] > 0.9


def test_the_bound_rises_and_beats_one_topic(fitted):
    bags, _, _ = planted()
    likelihood, divergence = elbo(fitted, bags.counts, torch.zeros(bags.counts.shape[0], 3))
    frequencies = np.asarray(bags.counts.sum(0)).ravel() / bags.counts.sum()
    one_topic = float((bags.counts @ np.log(frequencies)).mean())
    assert (likelihood - divergence).mean().item() > one_topic + 10


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(0, 9), min_size=7, max_size=7), min_size=1, max_size=5))
def test_shares_sum_to_one_and_do_not_depend_on_other_documents(rows):
    parameters = _random_parameters(7, 3, 5, 4)
    counts = csr_matrix(np.array(rows))
    theta = parameters.theta(counts)
    np.testing.assert_allclose(theta.sum(1), 1, atol=1e-6)
    assert theta.dtype == np.float32
    for row in range(len(rows)):
        assert np.array_equal(parameters.theta(counts[row : row + 1])[0], theta[row])


def test_a_document_alone_has_the_bits_it_has_among_others():
    """In layers so wide that a product with one row sums in another order than one with many."""
    parameters = _random_parameters(40, 5, 300, 4)
    parameters = replace(parameters, second=parameters.second / 17, mean=parameters.mean / 17)
    counts = csr_matrix(np.random.default_rng(0).poisson(0.5, (700, 40)))
    theta = parameters.theta(counts)
    for row, rows in ((0, 1), (3, 1), (5, 7), (300, 350), (699, 1)):
        assert np.array_equal(parameters.theta(counts[row : row + rows]), theta[row : row + rows])


def test_rows_do_not_depend_on_the_blocks(fitted):
    bags, _, _ = planted()
    theta = fitted.theta(bags.counts)
    assert np.array_equal(fitted.theta(bags.counts[300:599]), theta[300:599])
    np.testing.assert_allclose(fitted.beta.sum(1), 1, atol=1e-5)


def test_a_document_without_words_has_equal_shares(fitted):
    assert fitted.theta(csr_matrix((2, 30), dtype=int)).tolist() == [[pytest.approx(1 / 3)] * 3] * 2
    assert fitted.theta(csr_matrix((0, 30), dtype=int)).shape == (0, 3)


def test_the_same_seed_gives_the_same_bits_in_any_number_of_threads():
    bags, _, _ = planted()
    model = EmbeddedTopics(**SMALL | {"epochs": 2})
    one = model.fit(bags, 3, seed=1)
    torch.set_num_threads(2)
    try:
        again = model.fit(bags, 3, seed=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    other = model.fit(bags, 3, seed=2)
    for field in fields(one):
        assert torch.equal(getattr(one, field.name), getattr(again, field.name))
        assert not torch.equal(getattr(one, field.name), getattr(other, field.name))


def test_the_weight_of_the_divergence_grows_to_one():
    model = EmbeddedTopics(annealing=0.5)
    assert [model._weight(step, 8) for step in range(8)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert EmbeddedTopics(annealing=0.0)._weight(0, 8) == 1.0


def test_given_vectors_are_kept_and_limit_the_vocabulary(tmp_path):
    bags, _, _ = planted()
    path = tmp_path / "vectors.txt"
    vectors = torch.randn(31, 6, generator=torch.Generator().manual_seed(0))
    WordVectors(("unused", *(word.upper() for word in reversed(bags.words))), vectors).save(path)
    model = EmbeddedTopics(vectors=str(path), **SMALL | {"epochs": 1})
    assert set(model.known_words) == {"unused", *bags.words}
    fitted = model.fit(bags, 3, seed=0)
    assert torch.equal(fitted.words, vectors[1:].flip(0))
    assert fitted.topics.shape == (3, 6)
    assert EmbeddedTopics().known_words is None


def test_a_file_of_vectors_is_known_by_its_bytes(tmp_path):
    path, other = tmp_path / "a.txt", tmp_path / "b.txt"
    for file in (path, other):
        file.write_text("apple 1 2\n")
    assert EmbeddedTopics(vectors=str(path)).identity() == EmbeddedTopics(vectors=str(other), dims=5).identity()
    other.write_text("apple 1 3\n")
    assert EmbeddedTopics(vectors=str(path)).identity() != EmbeddedTopics(vectors=str(other)).identity()
    assert EmbeddedTopics().identity() != EmbeddedTopics(epochs=7).identity()
    with pytest.raises(ConfigError, match=r"no\.txt'?: must be a file of word vectors"):
        EmbeddedTopics(vectors=str(tmp_path / "no.txt")).identity()
    path.write_text("apple 1 nan\n")
    with pytest.raises(DataError, match=r"a\.txt:1: a number is not finite"):
        _ = EmbeddedTopics(vectors=str(path)).known_words


@pytest.mark.parametrize("wrong", ["epochs=0", "batch=0", "learning_rate=0.0", "weight_decay=-1.0", "annealing=1.5"])
def test_settings_outside_their_range_are_refused(wrong):
    bags, _, _ = planted()
    with pytest.raises(ConfigError, match=wrong):
        fit_topics(f"etm:{wrong}", bags, 3, seed=0)


def test_a_saved_model_gives_the_same_shares(fitted, tmp_path):
    bags, _, _ = planted()
    Topics("etm", bags.words, fitted).save(tmp_path)
    loaded = Topics.load(tmp_path)
    texts = ["word03 Word03 word11", "nothing known"]
    counts = np.zeros((2, 30), dtype=int)
    counts[0, [3, 11]] = 2, 1
    assert loaded.theta(["wordthree"]).tolist() == [[pytest.approx(1 / 3)] * 3]
    assert np.array_equal(loaded.fitted.theta(csr_matrix(counts)), fitted.theta(csr_matrix(counts)))
    assert loaded.words == bags.words
    assert len(texts) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["topics.json", "topics.safetensors", "vocabulary.json"]


def test_a_fit_that_diverges_is_told_and_gives_no_topics():
    bags, _, _ = planted()
    with pytest.raises(DataError, match="learning_rate=50': the fit of 2 topics diverged, its numbers are not finite"):
        fit_topics("etm:dims=4,hidden=8,batch=50,epochs=10,learning_rate=50", bags.rows(np.arange(50)), 2, 0)


def test_a_process_without_a_bar_fits_the_same_and_every_setting_of_the_fit_counts(monkeypatch):
    bags, _, _ = planted()
    few = {"dims": 3, "hidden": 4, "batch": 40, "epochs": 3}
    plain = EmbeddedTopics(**few).fit(bags.rows(np.arange(90)), 2, seed=0)
    monkeypatch.setattr(logging, "is_main_process", lambda: False)
    assert torch.equal(EmbeddedTopics(**few).fit(bags.rows(np.arange(90)), 2, seed=0).topics, plain.topics)
    for changed in ({"learning_rate": 6e-3}, {"weight_decay": 0.1}, {"annealing": 1.0}, {"batch": 50}, {"epochs": 4}):
        other = EmbeddedTopics(**few | changed).fit(bags.rows(np.arange(90)), 2, seed=0)
        assert not torch.equal(other.topics, plain.topics), changed
