"""Trained word vectors: pairs and mutual information by hand, the decomposition against numpy's, real text."""

import gzip

import numpy as np
import pytest
import torch

from dana.core.errors import ConfigError, DataError
from dana.encoders import words as word_training
from dana.encoders.words import count_pairs, positive_information, train_word_vectors
from dana.models.ngram.vocabulary import MARKS, Vocabulary

TEXTS = ["a b rare a", "b a", "b"]  # by frequency: a and b, three times each


def test_pairs_by_hand():
    vocabulary = Vocabulary.of_texts(TEXTS, 2)
    assert vocabulary.words[len(MARKS) :] == ("a", "b")
    # Window 2: a-b next to each other twice (2 each), b-a two apart once (1); the rare word keeps its place.
    assert count_pairs(TEXTS, vocabulary, 2).toarray().tolist() == [[0, 5], [5, 0]]
    assert count_pairs(TEXTS, vocabulary, 3).toarray().tolist() == [[2, 8], [8, 0]]


def test_pairs_do_not_depend_on_how_many_texts_are_counted_at_once(monkeypatch, repository_texts):
    vocabulary = Vocabulary.of_texts(repository_texts, 3)
    at_once = count_pairs(repository_texts, vocabulary, 4)
    monkeypatch.setattr(word_training, "TEXTS_AT_ONCE", 7)
    assert (count_pairs(repository_texts, vocabulary, 4) != at_once).nnz == 0


def test_positive_information_by_hand():
    from scipy.sparse import csr_array

    found = positive_information(csr_array(np.array([[0.0, 4, 1], [4, 0, 4], [1, 4, 0]]))).toarray()
    a, b = 5**0.75 / (2 * 5**0.75 + 8**0.75), 8**0.75 / (2 * 5**0.75 + 8**0.75)
    with_b, with_a = np.log(4 / 18 / (5 / 18 * b)), np.log(4 / 18 / (8 / 18 * a))
    assert np.log(1 / 18 / (5 / 18 * a)) < 0, "the first and the last meet less often than by chance"
    np.testing.assert_allclose(found, [[0, with_b, 0], [with_a, 0, with_a], [0, with_b, 0]])


def test_vectors_are_the_leading_singular_ones_times_the_root(repository_texts):
    found = train_word_vectors(repository_texts, 12, 4, 5).vectors.double().numpy()
    vocabulary = Vocabulary.of_texts(repository_texts, 5)
    information = positive_information(count_pairs(repository_texts, vocabulary, 4)).toarray()
    left, values, _ = np.linalg.svd(information)
    expected = left[:, :12] * np.sqrt(values[:12])
    signs = np.sign((found * expected).sum(0))
    np.testing.assert_allclose(found, expected * signs, atol=1e-5)


def test_the_same_texts_give_the_same_bits(repository_texts):
    once, again = (train_word_vectors(repository_texts, 20) for _ in range(2))
    assert torch.equal(once.vectors, again.vectors)
    assert once.words == again.words


def test_bad_numbers_are_refused_by_name():
    with pytest.raises(ConfigError, match="window=0: must be at least 1"):
        train_word_vectors(TEXTS, window=0)
    with pytest.raises(DataError, match="dims=2: must be below 2"):
        train_word_vectors(TEXTS, dims=2, min_count=2)


def test_words_of_a_domain_have_neighbours_of_it(dana_data):
    texts = []
    for name in ("law", "medical"):
        with gzip.open(dana_data / "domains" / f"{name}.en.txt.gz", "rt", encoding="utf-8") as lines:
            texts += [line.strip() for line in lines][:2000]
    trained = train_word_vectors(texts, 50)
    vectors = torch.nn.functional.normalize(trained.vectors)
    for word, others in (
        ("dose", {"mg", "doses", "daily", "ml"}),
        ("council", {"commission", "regulation", "eu", "ec"}),
    ):
        near = (vectors @ vectors[trained.row_by_word[word]]).topk(20).indices.tolist()
        assert others & {trained.words[at] for at in near}
