"""Shingle matrices and near duplicates, against sets of strings."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dana.corpus.overlap import COMMON, ROWS_AT_ONCE, repeats_earlier, shingle_matrix

LETTERS = list("abcdefgh")
documents = st.lists(st.text("abc ", max_size=14).map(" ".join), min_size=2, max_size=12)


def shingles(text):
    parts = text.split()
    return {" ".join(parts[at : at + 4]) for at in range(max(1, len(parts) - 3))} - {""}


def test_a_document_holds_the_runs_of_four_words_of_each_of_its_texts():
    held, sizes = shingle_matrix([["a b c d e", "f g"], ["B, c d: E"], ["..."], ["a b c d a b c d"]])
    assert held.sum(axis=1).tolist() == [3, 1, 0, 4]
    assert sizes.tolist() == [3, 1, 0, 4]
    shared = (held @ held.T).toarray()
    assert shared[0, 1] == 1  # b c d e, whatever the case and marks
    assert shared[0, 3] == 1  # a b c d, counted once


def test_common_shingles_join_nothing_but_count_for_the_size():
    every = [["we thank them all"]] * COMMON + [["one two three four"]]
    held, sizes = shingle_matrix(every)
    assert held.shape[1] == 2
    held, sizes = shingle_matrix([*every, ["we thank them all"]])
    assert held.shape[1] == 1
    assert sizes.tolist() == [1] * (COMMON + 2)


@given(documents, st.sampled_from([0.2, 0.5, 1.0]))
def test_what_repeats_an_earlier_document_is_that_of_all_pairs(texts, least):
    found = repeats_earlier(*shingle_matrix([[text] for text in texts]), least)
    for at, text in enumerate(texts):
        own = shingles(text)
        pairs = [(own, shingles(other)) for other in texts[:at]]
        assert found[at] == any(one & two and len(one & two) >= least * len(one | two) for one, two in pairs)


def test_blocks_of_rows_are_compared_with_all_earlier_ones():
    texts = [[f"{number} b{number} c{number} d{number} e{number}"] for number in range(ROWS_AT_ONCE + 9)]
    texts += [texts[0], texts[ROWS_AT_ONCE + 1]]
    assert np.flatnonzero(repeats_earlier(*shingle_matrix(texts), 0.5)).tolist() == [
        ROWS_AT_ONCE + 9,
        ROWS_AT_ONCE + 10,
    ]
