"""LDA and the embedded topic model: parity, planted topics, determinism, files; vocabulary, coherence, choice of k."""

from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.decomposition import LatentDirichletAllocation

from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.rng import derive_seed
from dana.studies.topics.etm import EmbeddedTopics, FittedEmbeddedTopics, elbo
from dana.studies.topics.model import Bags, Topics, choose_vocabulary, fit_topics
from dana.studies.topics.settings import TopicSettings
from dana.studies.topics.stage import (
    choose_topics,
    measure_collapse,
    measure_topics,
    top_words,
    topic_coherence,
)
from tests.studies.topics.planted_topics import agreement, known_topics


@pytest.fixture(scope="module")
def topics():
    return fit_topics("lda:epochs=10,batch=100,alpha=0.5", known_topics()[0], 3, seed=4)


def test_it_is_that_of_scikit_learn(topics):
    bags, _, _ = known_topics()
    seed = derive_seed(4, "lda") % 2**32
    settings = {"learning_method": "online", "batch_size": 100, "doc_topic_prior": 0.5}
    model = LatentDirichletAllocation(3, random_state=seed, **settings).fit(bags.counts)
    assert np.array_equal(topics.model.components.numpy(), model.components_)
    np.testing.assert_allclose(
        topics.model.theta(bags.counts), model.transform(bags.counts), atol=1e-6
    )
    np.testing.assert_allclose(topics.beta.sum(1), 1)


def test_rows_depend_on_no_other_and_are_equal_without_words(topics):
    bags, _, _ = known_topics()
    theta = topics.model.theta(bags.counts)
    assert np.array_equal(topics.model.theta(bags.counts[5:9]), theta[5:9])
    assert (
        topics.model.theta(csr_matrix((1, 30), dtype=int))[0].tolist() == [pytest.approx(1 / 3)] * 3
    )
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
    with_empty = Bags(
        bags.words, csr_matrix(np.vstack([np.zeros((50, 30), dtype=int), bags.counts.toarray()]))
    )
    plain = fit_topics("lda:epochs=1", bags, 3, seed=0)
    assert np.array_equal(fit_topics("lda:epochs=1", with_empty, 3, seed=0).beta, plain.beta)
    few = Bags(bags.words, with_empty.counts[:52])
    with pytest.raises(ConfigError, match="k=3: must be at most 2"):
        fit_topics("lda", few, 3, seed=0)


SMALL = {"dims": 20, "hidden": 48, "batch": 100, "steps": 300, "spread": 2.0}


@pytest.fixture(scope="module")
def model():
    bags, _, _ = known_topics()
    return EmbeddedTopics(**SMALL).fit(bags, 3, seed=0)


def _random_parameters(words, topics, width, dims, seed=0):
    random = torch.Generator().manual_seed(seed)
    shapes = {
        "first": (words, width),
        "first_bias": (width,),
        "second": (width, width),
        "second_bias": (width,),
    }
    shapes |= {
        f"{name}{rest}": (topics, width)[: 2 - bool(rest)]
        for name in ("mean", "log_variance")
        for rest in ("", "_bias")
    }
    shapes |= {"words": (words, dims), "topics": (topics, dims)}
    return FittedEmbeddedTopics(
        **{name: torch.randn(*shape, generator=random) for name, shape in shapes.items()}
    )


def test_the_bound_of_one_document_by_hand():
    """Two words, two topics; the document has the first word once and the second thrice, shares 1/4 and 3/4."""
    one = torch.ones(1, 1)
    parameters = FittedEmbeddedTopics(
        first=torch.tensor([[4.0], [0.0]]),  # activation: 4 · 1/4 = 1, then 2 · 1 = 2
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
    assert divergence.item() == pytest.approx(
        0.5 * ((1 + 1 - 0 - 1) + (0 + np.e - 1 - 1)), rel=1e-6
    )


def test_planted_topics_are_found(model):
    bags, theta, beta = known_topics()
    order, cosines = agreement(model.beta, beta)
    assert sorted(order) == [0, 1, 2]
    assert cosines.min() > 0.97
    theta_fitted = model.theta(bags.counts)[:, order]
    clear = theta.max(1) > 0.8
    assert (theta_fitted.argmax(1) == theta.argmax(1))[clear].mean() > 0.97
    assert np.corrcoef(theta_fitted.ravel(), theta.ravel())[0, 1] > 0.9


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(0, 9), min_size=7, max_size=7), min_size=1, max_size=5))
def test_shares_sum_to_one_and_do_not_depend_on_other_documents(rows):
    parameters = _random_parameters(7, 3, 5, 4)
    counts = csr_matrix(np.array(rows))
    theta = parameters.theta(counts)
    np.testing.assert_allclose(theta.sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(theta[np.sum(rows, axis=1) == 0], 1 / 3, rtol=1e-6)
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


def test_the_same_seed_gives_the_same_bits_in_any_number_of_threads():
    bags, _, _ = known_topics()
    model = EmbeddedTopics(**SMALL | {"steps": 12})
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


@pytest.mark.parametrize("model", ["etm", "lda"])
def test_the_defaults_use_every_topic_of_a_small_pool_once(model):
    bags, _, beta = known_topics(10, 15)
    topics = fit_topics(model, bags, 10, seed=0)
    assert measure_collapse(topics.beta, topics.model.theta(bags.counts)) == {
        "unused": 0,
        "twins": 0,
    }
    places, cosines = agreement(topics.beta, beta)
    assert (len(set(places)), cosines.min() > 0.8) == (10, True)


def test_collapsed_topics_are_counted():
    beta = np.array([[8, 1, 1], [8, 1, 2], [1, 8, 1], [1, 1, 8]]) / 10
    theta = np.eye(4)[[0, 1, 2, 2]]
    assert measure_collapse(beta, theta) == {"unused": 1, "twins": 2}


def test_given_vectors_are_kept_and_limit_the_vocabulary(tmp_path):
    bags, _, _ = known_topics()
    path = tmp_path / "vectors.txt"
    vectors = torch.randn(31, 6, generator=torch.Generator().manual_seed(0))
    words = ["unused", *(word.upper() for word in reversed(bags.words))]
    lines = [f"{len(words)} {vectors.shape[1]}"]
    for word, row in zip(words, vectors.tolist(), strict=True):
        numbers = " ".join(f"{value:.9g}" for value in row)
        lines.append(f"{word} {numbers}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = EmbeddedTopics(vectors=str(path), **SMALL | {"steps": 6})
    assert set(model.known_words) == {"unused", *bags.words}
    model = model.fit(bags, 3, seed=0)
    assert torch.equal(model.words, vectors[1:].flip(0))
    assert model.topics.shape == (3, 6)
    assert EmbeddedTopics().known_words is None


def test_a_fit_that_diverges_is_told_and_gives_no_topics():
    bags, _, _ = known_topics()
    with pytest.raises(DataError, match="learning_rate=50'"):
        fit_topics(
            "etm:dims=4,hidden=8,batch=50,steps=10,learning_rate=50", bags.rows(np.arange(50)), 2, 0
        )


ALL = TopicSettings(min_documents=1, max_share=1.0, stop_words="none")


def test_words_are_runs_of_three_letters_without_contractions():
    bags = choose_vocabulary(
        ["Don't DON’T isn't we've the judge's cells, Cells; Zürich x2y to 1999"], ALL
    )
    assert dict(zip(bags.words, bags.counts.toarray()[0].tolist(), strict=True)) == {
        "cells": 2, "judge": 1, "the": 1, "zürich": 1,
    }  # fmt: skip
    assert bags.words[0] == "cells"


def test_limits_by_documents_are_inclusive():
    texts = ["common middle rare common", "common middle", "common single", "common pair pair"]
    limits = replace(ALL, min_documents=2, max_share=0.5)
    with pytest.raises(DataError, match=r"1 of the 5 words of 4 documents \(min_documents=2"):
        choose_vocabulary(texts, limits)
    bags = choose_vocabulary(texts, replace(ALL, max_share=0.5))
    assert bags.words == ("middle", "pair", "rare", "single")
    assert bags.sizes.tolist() == [2, 1, 1, 2]
    assert "common" in choose_vocabulary(texts, TopicSettings(min_documents=2, max_share=1.0)).words
    three = replace(
        ALL, vocabulary=3
    )  # the most frequent ones, equally frequent ones by the alphabet
    assert choose_vocabulary(["pear plum apple plum", "fig pear plum"], three).words == (
        "plum",
        "pear",
        "apple",
    )


def test_stop_words_are_english_or_those_of_a_file(tmp_path):
    texts = ["the judge and the cell", "those judges"]
    english = TopicSettings(min_documents=1, max_share=1.0)
    assert choose_vocabulary(texts, english).words == ("cell", "judge", "judges")
    path = tmp_path / "stop.txt"
    path.write_text("Judge\ncell\n", encoding="utf-8")
    from_file = TopicSettings(min_documents=1, max_share=1.0, stop_words=str(path))
    assert choose_vocabulary(texts, from_file).words == ("the", "and", "judges", "those")
    with pytest.raises(ConfigError, match="stop_words='german'"):
        choose_vocabulary(texts, TopicSettings(min_documents=1, max_share=1.0, stop_words="german"))


def test_only_known_words_are_chosen_where_they_are_given():
    assert choose_vocabulary(["one two three"], ALL, {"three", "one", "four"}).words == (
        "one",
        "three",
    )
    with pytest.raises(DataError, match="vector"):
        choose_vocabulary(["one two three"], ALL, {"four"})


def test_coherence_by_hand():
    """Words a and b are always together, a and c are independent, a and d are never together, e is everywhere."""
    counts = csr_matrix([[1, 2, 1, 0, 1], [3, 1, 0, 0, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 2]])
    pairs = {
        (0, 1): 1.0,
        (0, 2): 0.0,
        (0, 3): -1.0,
        (4, 4): 0.0,
        (2, 3): np.log(0.25 / (0.5 * 0.25)) / np.log(4),
    }
    for pair, npmi in pairs.items():
        assert topic_coherence(np.array([pair]), counts)[0] == pytest.approx(npmi)
    three = topic_coherence(np.array([[0, 1, 3], [0, 1, 2]]), counts)
    assert three.tolist() == [pytest.approx((1 - 1 - 1) / 3), pytest.approx(1 / 3)]


@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_coherence_is_between_minus_one_and_one_and_knows_no_order(seed, width):
    random = np.random.default_rng(seed)
    counts = csr_matrix(random.integers(0, 2, (9, 12)) | (np.arange(9) == 0)[:, None])
    top = random.permutation(12)[None, :width]
    scores = topic_coherence(top, counts)[0]
    assert -1 <= scores <= 1 + 1e-12
    assert topic_coherence(top[:, ::-1], counts)[0] == pytest.approx(scores)


def test_top_words_by_probability_then_place():
    beta = np.array([[0.1, 0.4, 0.4, 0.1], [0.25, 0.25, 0.25, 0.25]])
    assert top_words(beta, 3).tolist() == [[1, 2, 0], [0, 1, 2]]
    assert top_words(beta, 9).shape == (2, 4)


def test_measures_take_ten_words_for_coherence_and_twenty_five_for_diversity():
    alike = measure_topics(np.full((3, 4), 0.25), csr_matrix(np.ones((2, 4), dtype=int)))
    assert alike["diversity"] == 1 / 3, "all topics have the same four words"
    beta = np.vstack([np.linspace(2, 1, 40), np.roll(np.linspace(2, 1, 40), 20)])
    counts = csr_matrix(
        np.repeat([[1] * 10 + [0] * 30, [0] * 20 + [1] * 10 + [0] * 10, [0] * 40], 2, axis=0)
    )
    scores = measure_topics(beta / beta.sum(1, keepdims=True), counts)
    assert scores == pytest.approx({"coherence": 1.0, "diversity": 40 / 50, "quality": 0.8})


def test_the_number_with_the_best_mean_over_seeds_is_taken_and_its_best_seed():
    columns = ["k", "seed", "coherence", "diversity", "quality"]
    rows = [
        (10, 0, 0.5, 0.5, 0.25),
        (10, 1, 0.1, 0.1, 0.01),
        (5, 0, 0.3, 0.5, 0.15),
        (5, 1, 0.4, 0.5, 0.20),
    ]
    k, seed, reason = choose_topics(pd.DataFrame(rows, columns=columns))
    assert (k, seed) == (5, 1)
    assert {"5", "10:", "0.175"} <= {*reason.split()}
    equal = pd.DataFrame([(9, 0, 0.5, 0.5, 0.25), (4, 0, 0.5, 0.5, 0.25)], columns=columns)
    assert choose_topics(equal)[:2] == (4, 0), "of equally good numbers the smallest"
