"""Hashed n-grams of words and of characters: counts equal to counting one n-gram at a time."""

import hashlib
from collections import Counter

import numpy as np
import pytest

from dana.core.errors import ConfigError, DataError
from dana.corpus.hashed_ngrams import BATCH, CharacterNgrams, HashedNgrams, bucket_of, word_punct

TEXTS = [
    "The cat sat; the cat ran.",
    "",
    "one",
    "a b a b a b",
    "  ",
    "Café: 1,000 naïve cafés...",
    "the cat",
]


def count_one_by_one(text, order, buckets):
    tokens, counts = word_punct(text), np.zeros(buckets)
    for length in range(1, order + 1):
        for start in range(len(tokens) - length + 1):
            gram = " ".join(tokens[start : start + length])
            counts[int(hashlib.sha256(gram.encode()).hexdigest(), 16) % buckets] += 1
    return counts


@pytest.mark.parametrize(("order", "buckets"), [(1, 7), (2, 10_000), (4, 1000)])
def test_counts_are_those_of_hashing_each_ngram(order, buckets):
    counts = HashedNgrams(order, buckets).counts(TEXTS)
    np.testing.assert_array_equal(
        counts.toarray(), [count_one_by_one(text, order, buckets) for text in TEXTS]
    )
    assert HashedNgrams(order, buckets).counts([]).shape == (0, buckets)


def test_words_and_punctuation_are_tokens_of_their_own():
    assert word_punct("Don't, e.g. 3.5%!?") == [
        "don",
        "'",
        "t",
        ",",
        "e",
        ".",
        "g",
        ".",
        "3",
        ".",
        "5",
        "%!?",
    ]


@pytest.mark.parametrize("ngrams", [HashedNgrams(3, 50), CharacterNgrams(2, 5, 4096, str.split)])
def test_counts_do_not_depend_on_the_other_texts_of_the_call(ngrams):
    texts = [f"word{number} stem{number % 7}ing" for number in range(BATCH + 3)]
    together = ngrams.counts(texts)
    assert together.shape == (BATCH + 3, ngrams.buckets)
    for row in (0, BATCH - 1, BATCH, BATCH + 2):
        assert (together[[row]] != ngrams.counts([texts[row]])).nnz == 0


def test_runs_of_characters_are_counted_inside_words_with_their_ends():
    buckets = 2**20
    counts = CharacterNgrams(2, 3, buckets, str.split).counts(["ab ab c", "", "abc"]).toarray()
    by_hand = [
        Counter({" a": 2, "ab": 2, "b ": 2, " ab": 2, "ab ": 2, " c": 1, "c ": 1, " c ": 1}),
        Counter(),
    ]
    by_hand += [Counter({" a": 1, "ab": 1, "bc": 1, "c ": 1, " ab": 1, "abc": 1, "bc ": 1})]
    assert counts.sum(1).tolist() == [counter.total() for counter in by_hand]
    for row, counter in zip(counts, by_hand, strict=True):
        assert [row[bucket_of([gram], buckets)[0]] for gram in counter] == list(counter.values())


def test_texts_without_a_word_are_told():
    with pytest.raises(DataError, match="the task has no word in any of its 2 units"):
        CharacterNgrams(2, 3, 64, str.split).nonempty_counts(["", " "], "task")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: HashedNgrams(0, 10), "order=0"),
        (lambda: HashedNgrams(2, 0), "buckets=0"),
        (lambda: HashedNgrams(2, 2**31), "buckets=2147483648"),
        (lambda: CharacterNgrams(3, 2, 64, str.split), "shortest=3"),
        (lambda: CharacterNgrams(2, 3, 0, str.split), "buckets=0"),
    ],
)
def test_an_order_or_size_that_cannot_be_is_refused(build, message):
    with pytest.raises(ConfigError, match=message):
        build()
