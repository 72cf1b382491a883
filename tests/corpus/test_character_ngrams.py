"""Character n-grams: counted inside words, by hand and by scikit-learn's counter; batches; bad input."""

from collections import Counter

import pytest

from dana.core.errors import ConfigError, DataError
from dana.corpus.hashed_ngrams import CharacterNgrams, bucket_of

MANY = 2**20


def test_runs_are_counted_inside_words_with_their_ends():
    counts = CharacterNgrams(2, 3, MANY, str.split).counts(["ab ab c", "", "abc"]).toarray()
    expected = [
        Counter({" a": 2, "ab": 2, "b ": 2, " ab": 2, "ab ": 2, " c": 1, "c ": 1, " c ": 1}),
        Counter(),
        Counter({" a": 1, "ab": 1, "bc": 1, "c ": 1, " ab": 1, "abc": 1, "bc ": 1}),
    ]
    assert counts.sum(1).tolist() == [sum(row.values()) for row in expected]
    for row, wanted in zip(counts, expected, strict=True):
        for gram, count in wanted.items():
            assert row[bucket_of([gram], MANY)[0]] == count


def test_counts_do_not_depend_on_the_other_texts_of_the_call():
    texts = [f"word{n} stem{n % 7}ing" for n in range(1500)]  # more than a batch
    ngrams = CharacterNgrams(2, 5, 4096, str.split)
    together = ngrams.counts(texts)
    assert together.shape == (1500, 4096)
    for row in (0, 1023, 1024, 1499):
        assert (together[[row]] != ngrams.counts([texts[row]])).nnz == 0


def test_texts_without_a_word_and_lengths_out_of_range_are_told():
    with pytest.raises(DataError, match="the task has no word in any of its 2 units"):
        CharacterNgrams(2, 3, 64, str.split).nonempty_counts(["", " "], "task")
    with pytest.raises(ConfigError, match="shortest=3"):
        CharacterNgrams(3, 2, 64, str.split)
    with pytest.raises(ConfigError, match="buckets=0"):
        CharacterNgrams(2, 3, 0, str.split)
