"""A static model is fitted to a teacher: the formula, weights, tokens that no sentence has."""

from dataclasses import replace

import numpy as np
import pytest

from dana.train.static_student import TaughtSentences, fit_token_vectors

SIZE = 7  # ids of the vocabulary, of which 6 stands in no sentence
TOKENS = [[0, 1, 2], [2, 2, 3], [4], [5, 0], [1, 3, 5, 4], [0, 0, 1]]


def sentences(weights=(1.0, 0.5, 0.25, 1.0, 0.75, 1.0), seed=0):
    random = np.random.default_rng(seed)
    teacher = random.standard_normal((len(TOKENS), 3))
    teacher /= np.linalg.norm(teacher, axis=1, keepdims=True)
    tokens = [np.array(row) for row in TOKENS]
    return TaughtSentences(tokens, np.array(weights), teacher)


def loss(vectors, texts, penalty):
    """The sum of the module's docstring, in plain loops."""
    mean = np.average(texts.teacher, axis=0, weights=texts.weights)
    total = penalty * sum(((row - mean) ** 2).sum() for row in vectors)
    for tokens, weight, teacher in zip(texts.tokens, texts.weights, texts.teacher, strict=True):
        text_mean = sum(vectors[token] for token in tokens) / len(tokens)
        total += weight * ((text_mean - teacher) ** 2).sum()
    return total


@pytest.mark.parametrize("penalty", [0.05, 1.0])
def test_the_vectors_are_where_the_formula_is_lowest(penalty):
    texts = sentences()
    vectors = fit_token_vectors(texts, SIZE, penalty).astype(float)
    lowest = loss(vectors, texts, penalty)
    random = np.random.default_rng(1)
    for _ in range(50):
        step = 1e-2 * random.standard_normal(vectors.shape)
        assert loss(vectors + step, texts, penalty) > lowest
    for token in range(SIZE):
        for place in range(3):
            step = np.zeros_like(vectors)
            step[token, place] = 1e-4
            higher = loss(vectors + step, texts, penalty)
            lower = loss(vectors - step, texts, penalty)
            slope = (higher - lower) / 2e-4
            assert slope == pytest.approx(0, abs=1e-4), (token, place)


def test_weight_0_is_absence():
    texts = sentences(weights=(1, 0, 1, 0.5, 0, 1))
    rows = np.flatnonzero(texts.weights)
    fewer = TaughtSentences(
        [texts.tokens[row] for row in rows], texts.weights[rows], texts.teacher[rows]
    )
    assert np.array_equal(fit_token_vectors(texts, SIZE), fit_token_vectors(fewer, SIZE))
    vectors = fit_token_vectors(texts, SIZE)
    assert texts.cosine(vectors) == pytest.approx(fewer.cosine(vectors))


def test_a_weight_of_2_is_a_sentence_twice():
    texts = sentences(weights=(1, 2, 1, 1, 1, 1))
    twice = TaughtSentences(
        [*texts.tokens, texts.tokens[1]],
        np.ones(7),
        np.concatenate([texts.teacher, texts.teacher[1:2]]),
    )
    assert fit_token_vectors(texts, SIZE) == pytest.approx(fit_token_vectors(twice, SIZE), abs=1e-5)


def test_a_token_without_a_sentence_says_nothing():
    texts = sentences()
    mean = np.average(texts.teacher, axis=0, weights=texts.weights)
    vectors = fit_token_vectors(texts, SIZE)
    assert vectors[6] == pytest.approx(mean, abs=1e-6)
    strict = fit_token_vectors(texts, SIZE, 1e6)
    assert strict == pytest.approx(np.tile(mean, (SIZE, 1)), abs=1e-5)


def test_shares_count_repeats_and_a_sentence_without_tokens_has_none():
    texts = sentences()
    shares = texts.shares(SIZE).toarray()
    assert shares[1].tolist() == pytest.approx([0, 0, 2 / 3, 1 / 3, 0, 0, 0])
    assert shares.sum(1) == pytest.approx(1)
    empty = replace(texts, tokens=[np.array([], dtype=int), *texts.tokens[1:]])
    assert empty.shares(SIZE).toarray()[0].sum() == 0
