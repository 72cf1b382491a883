"""Hashed n-grams: counts equal to counting one n-gram at a time by SHA-256."""

import hashlib

import numpy as np
import pytest

from dana.core.errors import ConfigError
from dana.corpus.hashed_ngrams import BATCH, HashedNgrams, word_punct

TEXTS = ["The cat sat; the cat ran.", "", "one", "a b a b a b", "  ", "Café: 1,000 naïve cafés...", "the cat"]


def counted(text, order, buckets):
    tokens, counts = word_punct(text), np.zeros(buckets)
    for length in range(1, order + 1):
        for start in range(len(tokens) - length + 1):
            gram = " ".join(tokens[start : start + length])
            counts[int(hashlib.sha256(gram.encode()).hexdigest(), 16) % buckets] += 1
    return counts


@pytest.mark.parametrize(("order", "buckets"), [(1, 7), (2, 10_000), (4, 1000)])
def test_counts_are_those_of_hashing_each_ngram(order, buckets):
    found = HashedNgrams(order, buckets).counts(TEXTS)
    np.testing.assert_array_equal(found.toarray(), [counted(text, order, buckets) for text in TEXTS])


def test_more_texts_than_are_hashed_together_count_as_each_alone():
    texts = [f"word{number % 7} and word{number % 5}" for number in range(BATCH + 3)]
    features = HashedNgrams(3, 50)
    found = features.counts(texts)
    alone = {text: features.counts([text]).toarray()[0] for text in set(texts)}
    np.testing.assert_array_equal(found.toarray(), [alone[text] for text in texts])


def test_no_text_has_no_row():
    assert HashedNgrams(2, 10).counts([]).shape == (0, 10)
    assert HashedNgrams(2, 10).counts(["", " "]).nnz == 0


def test_words_and_punctuation_are_tokens_of_their_own():
    assert word_punct("Don't, e.g. 3.5%!?") == ["don", "'", "t", ",", "e", ".", "g", ".", "3", ".", "5", "%!?"]


@pytest.mark.parametrize(("order", "buckets", "name"), [(0, 10, "order"), (2, 0, "buckets"), (2, 2**31, "buckets")])
def test_an_order_or_size_that_cannot_be_is_refused(order, buckets, name):
    with pytest.raises(ConfigError, match=name):
        HashedNgrams(order, buckets)
