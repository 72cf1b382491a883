"""Pieces: runs of units of one document, general ones cut to the task's lengths."""

import numpy as np

from dana.core.schemas import Document
from dana.corpus.unit_stream import Units, draw, split_documents
from dana.scoring.ranking.folds import match_lengths, pieces_of


def lines(text):
    ends = np.cumsum([len(line) + 1 for line in text.split("\n")]) - 1
    return [(int(end) - len(line), int(end)) for line, end in zip(text.split("\n"), ends, strict=True)]


def documents(count, sizes):
    return [
        Document(f"d{n}", "s", "\n".join(f"unit {n} {u}" for u in range(sizes[n % len(sizes)]))) for n in range(count)
    ]


def corpus(count, sizes):
    return Units.join(list(split_documents(documents(count, sizes), lines, 50)))


def test_a_piece_is_a_run_of_at_most_gamma_units_of_one_document_whatever_the_order():
    units = corpus(6, [7, 1, 3])
    shuffled = units.rows(np.random.default_rng(0).permutation(len(units)))
    groups = np.unique(shuffled.doc_ids, return_inverse=True)[1]
    pieces = pieces_of(shuffled, groups, 3)
    assert sorted(pieces.lengths.tolist()) == sorted([3, 3, 1, 1, 3] * 2)
    for piece in range(len(pieces)):
        inside = pieces.units.rows(np.flatnonzero(pieces.of == piece))
        assert len(set(inside.doc_ids)) == 1
        first = int(inside.numbers[0])
        assert first % 3 == 0
        assert inside.numbers.tolist() == list(range(first, first + len(inside)))
    assert pieces.means(np.arange(len(units), dtype=float))[0] == np.arange(3).mean()
    assert sorted(pieces_of(shuffled, groups, 10**11).lengths.tolist()) == [1, 1, 3, 3, 7, 7]


def test_general_pieces_get_the_lengths_of_the_tasks_and_keep_their_beginnings():
    pieces = pieces_of(corpus(400, [15]), np.repeat(np.arange(400), 15), 15)
    cut = match_lengths(pieces, np.array([1, 1, 4]), seed=3)
    assert len(cut) == 400
    assert set(cut.lengths.tolist()) == {1, 4}
    assert 0.57 < (cut.lengths == 1).mean() < 0.77
    for piece in (0, 200, 399):
        inside = cut.units.rows(np.flatnonzero(cut.of == piece))
        assert inside.numbers.tolist() == list(range(len(inside)))
    assert match_lengths(pieces, np.array([99]), 0).lengths.tolist() == [15] * 400


def test_a_sample_of_runs_has_whole_runs_and_ignores_order_batch_and_other_samples():
    every, wanted = documents(120, [9, 2, 5]), {"units": (1, 10**6), "runs": (2, 100)}
    drawn = draw(split_documents(every, lines, 64), wanted, {"runs": 3})["runs"]
    again = draw(split_documents(every[::-1], lines, 7), {"runs": (2, 100)}, {"runs": 3})["runs"]
    assert sorted(drawn.ids) == sorted(again.ids)
    assert 90 < len(drawn) <= 100
    sizes = {document.doc_id: document.text.count("\n") + 1 for document in every}
    for doc_id, number in drawn.ids:
        first = number // 3 * 3
        run = {(doc_id, n) for n in range(first, min(first + 3, sizes[doc_id]))}
        assert run <= set(drawn.ids)
    other = draw(split_documents(every, lines, 64), {"runs": (3, 100)}, {"runs": 3})["runs"]
    assert set(other.ids) != set(drawn.ids)
    everything = draw(split_documents(every, lines, 64), {"runs": (2, 10**6)}, {"runs": 3})["runs"]
    assert len(everything) == sum(sizes.values())


def test_pieces_have_one_group_and_plain_texts_are_pieces():
    pieces = pieces_of(corpus(1, [6]), np.array([0, 0, 1, 1, 1, 2]), 15)
    assert (pieces.lengths.tolist(), pieces.groups.tolist()) == ([2, 3, 1], [0, 1, 2])
    assert pieces_of(Units.of_texts(["a", "b", "c"]), np.zeros(3, dtype=int), 15).lengths.tolist() == [1, 1, 1]
