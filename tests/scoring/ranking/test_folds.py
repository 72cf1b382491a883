"""Folds hold out whole documents and whole groups of near duplicates."""

import numpy as np
import pytest

from dana.scoring.ranking.folds import STRETCHES, folds_of, groups_of, stretches

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def sentence(seed, length=12):
    return " ".join(np.random.default_rng(seed).choice([f"w{n}" for n in range(500)], length))


def test_units_of_a_document_and_its_near_duplicates_are_one_group():
    marked = "The [[ kinase ]] is inhibited by << aspirin >> in cells."
    other = "The << kinase >> is inhibited by [[ aspirin ]] in cells!"
    texts = [marked, sentence(1), other, sentence(2), sentence(3)]
    documents = ["a", "b", "c", "b", "d"]
    np.testing.assert_array_equal(groups_of(texts, documents), [0, 1, 0, 1, 2])
    np.testing.assert_array_equal(groups_of(["!!!", "???", "...", "?"], ["a", "b", "c", "c"]), [0, 1, 2, 2])


def test_half_of_the_shorter_documents_shingles_joins_and_less_does_not():
    # ten words have seven shingles; a copy of the first seven words has four, all shared
    whole = " ".join(NUMBERS)
    part = " ".join(NUMBERS[:7])
    # of eight words, the first five shared: two of its five shingles
    less = " ".join([*NUMBERS[:5], "x", "y", "z"])
    # of seven words, the first five shared: two of its four shingles, just half
    just = " ".join([*NUMBERS[:5], "x", "y"])
    np.testing.assert_array_equal(groups_of([whole, part], ["a", "b"]), [0, 0])
    np.testing.assert_array_equal(groups_of([whole, less], ["a", "b"]), [0, 1])
    np.testing.assert_array_equal(groups_of([whole, just], ["a", "b"]), [0, 0])


def test_a_shared_stock_phrase_does_not_join_everything():
    texts = [text for n in range(600) for text in (sentence(n, 14), "We thank the reviewers for their comments.")]
    documents = [str(n) for n in range(600) for _ in range(2)]
    assert groups_of(texts, documents).max() == 599


@pytest.mark.parametrize("seed", range(5))
def test_folds_never_part_a_group_and_are_nearly_equal(seed):
    groups = np.repeat(np.arange(60), np.random.default_rng(seed).integers(1, 12, 60))
    folds = folds_of(groups, 5, seed)
    assert all(np.unique(folds[groups == group]).size == 1 for group in range(60))
    sizes = np.bincount(folds, minlength=5)
    assert sizes.max() - sizes.min() <= 12
    np.testing.assert_array_equal(folds, folds_of(groups, 5, seed))
    assert (folds != folds_of(groups, 5, seed + 1)).any()
    assert set(folds_of(np.array([0, 0, 1, 1, 2]), 5, seed)) == {0, 1, 2}, "no more folds than groups"


def test_a_document_that_is_most_of_the_task_is_cut_into_stretches():
    order = np.random.default_rng(0).permutation(100)
    groups = (order >= 90).astype(int)  # one document of 90 units, one of ten
    cut = stretches(groups, order)
    assert np.bincount(cut).size == STRETCHES + 1
    assert np.unique(cut[order >= 90]).size == 1
    for group in np.unique(cut):
        places = np.sort(order[cut == group])
        np.testing.assert_array_equal(places, np.arange(places[0], places[0] + places.size))
    np.testing.assert_array_equal(stretches(np.array([0, 0, 1, 1]), np.arange(4)), [0, 0, 1, 1])
