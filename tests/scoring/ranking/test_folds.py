"""Folds hold out whole documents and near duplicates; pieces are runs of units of the task's lengths."""

import numpy as np
import pytest

from dana.corpus.unit_stream import Units, draw, split_documents
from dana.scoring.ranking.folds import (
    STRETCHES,
    folds_of,
    groups_of,
    match_lengths,
    pieces_of,
    stretches,
)
from tests.scoring.ranking.line_units import lines, numbered, units_of

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def sentence(seed, length=12):
    return " ".join(np.random.default_rng(seed).choice([f"w{n}" for n in range(500)], length))


def test_units_of_a_document_and_its_near_duplicates_are_one_group():
    brackets = "The [[ kinase ]] is inhibited by << aspirin >> in cells."
    other = "The << kinase >> is inhibited by [[ aspirin ]] in cells!"
    texts = [brackets, sentence(1), other, sentence(2), sentence(3)]
    assert groups_of(texts, ["a", "b", "c", "b", "d"]).tolist() == [0, 1, 0, 1, 2]
    assert groups_of(["!!!", "???", "...", "?"], ["a", "b", "c", "c"]).tolist() == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("words", "groups"),
    [
        (
            NUMBERS[:7],
            [0, 0],
        ),  # ten words have seven shingles; a copy of the first seven has four, all shared
        (
            [*NUMBERS[:5], "x", "y", "z"],
            [0, 1],
        ),  # of eight words, the first five shared: two of its five shingles
        (
            [*NUMBERS[:5], "x", "y"],
            [0, 0],
        ),  # of seven words, the first five shared: two of four, just half
    ],
)
def test_half_of_the_shorter_documents_shingles_joins_and_less_does_not(words, groups):
    assert groups_of([" ".join(NUMBERS), " ".join(words)], ["a", "b"]).tolist() == groups


def test_a_shared_stock_phrase_does_not_join_everything():
    texts = [
        text
        for n in range(600)
        for text in (sentence(n, 14), "We thank the reviewers for their comments.")
    ]
    assert groups_of(texts, [str(n) for n in range(600) for _ in range(2)]).max() == 599


@pytest.mark.parametrize("seed", range(5))
def test_folds_never_part_a_group_and_are_nearly_equal(seed):
    groups = np.repeat(np.arange(60), np.random.default_rng(seed).integers(1, 12, 60))
    folds = folds_of(groups, 5, seed)
    assert all(np.unique(folds[groups == group]).size == 1 for group in range(60))
    sizes = np.bincount(folds, minlength=5)
    assert sizes.max() - sizes.min() <= 12
    np.testing.assert_array_equal(folds, folds_of(groups, 5, seed))
    assert (folds != folds_of(groups, 5, seed + 1)).any()
    assert set(folds_of(np.array([0, 0, 1, 1, 2]), 5, seed)) == {0, 1, 2}, (
        "no more folds than groups"
    )
    one_large = np.repeat(np.arange(10), [1] * 9 + [9])
    assert np.bincount(folds_of(one_large, 2, seed)).tolist() == [9, 9], "the largest first"


def test_a_document_that_is_most_of_the_task_is_cut_into_stretches():
    order = np.random.default_rng(0).permutation(100)
    groups = (order >= 90).astype(int)  # one document of 90 units, one of ten
    cut = stretches(groups, order)
    assert np.bincount(cut).size == STRETCHES + 1
    assert np.unique(cut[order >= 90]).size == 1
    for group in np.unique(cut):
        rows = np.sort(order[cut == group])
        np.testing.assert_array_equal(rows, np.arange(rows[0], rows[0] + rows.size))
    np.testing.assert_array_equal(stretches(np.array([0, 0, 1, 1]), np.arange(4)), [0, 0, 1, 1])


def test_a_piece_is_a_run_of_at_most_gamma_units_of_one_document_whatever_the_order():
    units = units_of(numbered(6, [7, 1, 3]))
    in_disorder = units.rows(np.random.default_rng(0).permutation(len(units)))
    groups = np.unique(in_disorder.doc_ids, return_inverse=True)[1]
    pieces = pieces_of(in_disorder, groups, 3)
    assert sorted(pieces.lengths.tolist()) == sorted([3, 3, 1, 1, 3] * 2)
    for piece in range(len(pieces)):
        inside = pieces.units.rows(np.flatnonzero(pieces.of == piece))
        assert len(set(inside.doc_ids)) == 1
        first = int(inside.numbers[0])
        assert first % 3 == 0
        assert inside.numbers.tolist() == list(range(first, first + len(inside)))
    assert pieces.means(np.arange(len(units), dtype=float))[0] == np.arange(3).mean()
    assert sorted(pieces_of(in_disorder, groups, 10**11).lengths.tolist()) == [1, 1, 3, 3, 7, 7]


def test_pieces_have_one_group_and_plain_texts_are_pieces():
    pieces = pieces_of(units_of(numbered(1, [6])), np.array([0, 0, 1, 1, 1, 2]), 15)
    assert (pieces.lengths.tolist(), pieces.groups.tolist()) == ([2, 3, 1], [0, 1, 2])
    assert pieces_of(
        Units.of_texts(["a", "b", "c"]), np.zeros(3, dtype=int), 15
    ).lengths.tolist() == [1, 1, 1]


def test_pool_pieces_get_the_lengths_of_the_tasks_and_keep_their_beginnings():
    pieces = pieces_of(units_of(numbered(400, [15])), np.repeat(np.arange(400), 15), 15)
    cut = match_lengths(pieces, np.array([1, 1, 4]), seed=3)
    assert len(cut) == 400
    assert set(cut.lengths.tolist()) == {1, 4}
    assert (match_lengths(pieces, np.array([1, 1, 4]), seed=4).lengths != cut.lengths).any()
    assert 0.57 < (cut.lengths == 1).mean() < 0.77
    for piece in (0, 200, 399):
        inside = cut.units.rows(np.flatnonzero(cut.of == piece))
        assert inside.numbers.tolist() == list(range(len(inside)))
    assert match_lengths(pieces, np.array([99]), 0).lengths.tolist() == [15] * 400


def test_a_sample_of_runs_has_whole_runs_and_ignores_order_batch_and_other_samples():
    documents = numbered(120, [9, 2, 5])

    def sample(order, batch, **sizes):
        return draw(split_documents(documents[::order], lines, batch), sizes, {"runs": 3})["runs"]

    runs, again = sample(1, 64, units=(1, 10**6), runs=(2, 100)), sample(-1, 7, runs=(2, 100))
    assert sorted(runs.ids) == sorted(again.ids)
    assert 90 < len(runs) <= 100
    sizes = {document.doc_id: document.text.count("\n") + 1 for document in documents}
    for doc_id, number in runs.ids:
        first = number // 3 * 3
        assert {(doc_id, n) for n in range(first, min(first + 3, sizes[doc_id]))} <= set(runs.ids)
    assert set(sample(1, 64, runs=(3, 100)).ids) != set(runs.ids)
    assert len(sample(1, 64, runs=(2, 10**6))) == sum(sizes.values())
