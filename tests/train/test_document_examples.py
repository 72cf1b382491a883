"""Examples of documents: which sentences they have, and which pieces of them an epoch reads."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.core.errors import ConfigError, DataError
from dana.core.schemas import iterate_documents
from dana.corpus.units import sentences
from dana.train.documents import (
    Documents,
    DrawCrops,
    DrawSentences,
    build_documents,
)
from dana.train.examples import ExampleSet, SpecialTokens, TrainingText
from dana.train.tokens import Tokens
from tests.train.conftest import random_documents

TEXT = "Alpha beta. Gamma delta. Epsilon zeta? Eta theta."
LONGER = f"{TEXT} Iota kappa. Lambda mu."


def unit_rows(doc_id, weights):
    return [
        (doc_id, unit, start, end, 0, weight)
        for unit, ((start, end), weight) in enumerate(zip(sentences(TEXT), weights, strict=True))
    ]


@pytest.fixture
def build(write_corpus, write_weights, tiny_tokenizer):
    """Builds the documents of texts; rows are those of a table of weights."""

    def call(texts, rows=None, draw=None, max_tokens=64, exclude=()):
        pool = write_corpus("c", texts)
        tokens = Tokens.from_documents(iterate_documents(pool), tiny_tokenizer)
        text = TrainingText(
            tokens,
            None if rows is None else write_weights(rows),
            lambda: iterate_documents(pool),
            sentences,
            exclude,
        )
        special_tokens = SpecialTokens.from_tokenizer(tiny_tokenizer)
        return build_documents(text, special_tokens, max_tokens, draw or DrawSentences(0, None))

    return call


@pytest.fixture
def pieces_of(tiny_tokenizer):
    """The texts of all pieces of an epoch, by document."""

    def call(documents, epoch=0):
        batch = documents.take(np.arange(len(documents)), epoch)
        found = [[] for _ in range(len(documents))]
        for owner, row in zip(
            batch.owners, np.split(batch.tokens, batch.offsets[1:-1]), strict=True
        ):
            text = tiny_tokenizer.decode(row, skip_special_tokens=True)
            found[owner].append(text.replace(" ", "").replace(".", "").replace("?", ""))
        return found

    return call


def test_without_weights_a_document_is_all_of_its_sentences(build, pieces_of):
    documents, counts = build([TEXT, "One. Two. Three.", LONGER, ""])
    assert pieces_of(documents) == [
        ["alphabeta", "gammadelta", "epsilonzeta", "etatheta"],
        ["alphabeta", "gammadelta", "epsilonzeta", "etatheta", "iotakappa", "lambdamu"],
    ]
    batch = documents.take(np.array([1, 0]))
    assert batch.numbers.tolist() == [*range(6), *range(4)]
    assert batch.totals.tolist() == [6] * 6 + [4] * 4
    assert batch.weights.tolist() == [1] * 10
    assert {name: counts[f"documents_{name}"] for name in ("in", "kept", "left_out")} == {
        "in": 4,
        "kept": 2,
        "left_out": 1,
    }
    assert counts["documents_too_short"] == 1
    assert counts["sentences"] == 10


def test_weights_select_sentences_and_the_whole_document_counts_their_places(build, pieces_of):
    rows = [*unit_rows("c-0", [0, 0.5, 1, 0]), *unit_rows("c-2", [0, 0, 0, 0])]
    documents, counts = build([TEXT, LONGER, TEXT], rows)
    assert pieces_of(documents) == [["gammadelta", "epsilonzeta"]]
    batch = documents.take(np.array([0]))
    assert batch.numbers.tolist() == [1, 2]
    assert batch.totals.tolist() == [4, 4]
    assert batch.weights.tolist() == [0.5, 1]
    assert documents.weights.tolist() == [0.75]
    assert counts["documents_left_out"] == 2


def test_excluded_documents_and_long_sentences_are_counted(build, pieces_of):
    documents, counts = build([TEXT, LONGER], exclude={"c-1"}, max_tokens=3)
    assert counts["documents_excluded"] == 1
    assert counts["pieces_cut"] == counts["sentences"] == 4
    assert np.diff(documents.take(np.array([0])).offsets).tolist() == [3] * 4
    assert documents.lengths.tolist() == [12]
    with pytest.raises(ConfigError, match="max_tokens"):
        build([TEXT], max_tokens=2)


def test_pairs_of_sentences_that_are_cut_are_counted_and_said(build, caplog):
    with caplog.at_level("INFO"):
        whole, counts = build([TEXT], draw=DrawCrops(0))
        assert counts["pieces_cut"] == 0
        assert "cut there" not in caplog.text
        longest = int(whole.sizes.max())  # tokens of a sentence; a pair has more
        _, counts = build([TEXT], draw=DrawCrops(0), max_tokens=longest + 2)
    assert counts["pieces_cut"] == 3
    assert "3 of 3 pairs of neighbouring sentences are longer than" in caplog.text


@pytest.mark.parametrize(
    ("texts", "rows"),
    [
        (["One sentence.", "Another one."], None),
        (["Three. Short. Ones."], None),
        ([TEXT], unit_rows("c-0", [0, 0, 0, 0])),
    ],
)
def test_text_without_documents_is_refused_and_says_what_works(build, texts, rows):
    with pytest.raises(DataError, match="objective=masked"):
        build(texts, rows)


def test_crops_need_two_disjoint_pairs_of_neighbours(build):
    alternate = unit_rows("c-0", [1, 0, 1, 1])
    with pytest.raises(DataError, match="neighbouring sentences"):
        build([TEXT], alternate, DrawCrops(0))
    documents, _ = build([TEXT], unit_rows("c-0", [1, 1, 1, 1]), DrawCrops(0))
    batch = documents.take(np.array([0]))
    assert sorted(batch.numbers.tolist()) == [0, 2]


def test_units_beyond_the_document_are_refused(build):
    rows = [
        (doc_id, unit, start, end + 90, 0, 1.0)
        for doc_id, unit, start, end, _, _ in unit_rows("c-0", [1] * 4)
    ]
    with pytest.raises(DataError, match="'c-0' reach character"):
        build([TEXT], rows)


@given(seed=st.integers(0, 10**6), epoch=st.integers(0, 5), count=st.integers(1, 4))
def test_a_draw_of_sentences_is_of_distinct_ones_and_depends_on_the_document_alone(
    seed, epoch, count
):
    documents = random_documents(12, seed, DrawSentences(seed, count))
    everything = np.arange(12)
    batch = documents.take(everything, epoch)
    sizes = np.diff(documents.firsts)
    assert np.bincount(batch.owners, minlength=12).tolist() == np.minimum(sizes, count).tolist()
    for document in everything:
        mine = batch.owners == document
        assert len(set(batch.numbers[mine].tolist())) == mine.sum()
        alone = documents.rows(np.array([document])).take(np.array([0]), epoch)
        assert alone.numbers.tolist() == batch.numbers[mine].tolist()
        assert (
            alone.tokens.tolist()
            == batch.tokens[batch.offsets[:-1][mine][0] : batch.offsets[1:][mine][-1]].tolist()
        )
    lengths = np.bincount(batch.owners, np.diff(batch.offsets), 12)
    assert documents.lengths_in(epoch).tolist() == lengths.tolist()


@given(seed=st.integers(0, 10**6), epoch=st.integers(0, 5))
def test_crops_are_disjoint_neighbours_that_cross_no_gap(seed, epoch):
    documents = random_documents(12, seed, DrawCrops(seed), gaps=0.3)
    documents = documents.rows(np.flatnonzero(documents.draw.fits(documents)))
    if not len(documents):
        return
    batch = documents.take(np.arange(len(documents)), epoch)
    assert batch.owners.tolist() == np.repeat(np.arange(len(documents)), 2).tolist()
    for document in range(len(documents)):
        first, second = batch.numbers[2 * document : 2 * document + 2]
        assert abs(first - second) >= 2
        selected = documents.numbers[documents.firsts[document] : documents.firsts[document + 1]]
        assert {first, first + 1, second, second + 1} <= set(selected.tolist())


def test_every_disjoint_pair_of_pieces_is_drawn_about_equally_often_from_each_first_piece():
    documents = random_documents(1, 0, DrawCrops(0), sentences=5)
    pairs = [tuple(documents.take(np.array([0]), epoch).numbers) for epoch in range(3000)]
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    # Pieces begin at 0 to 3; 0 goes with 2 and 3, 1 with 3, 2 with 0, 3 with 0 and 1.
    assert [tuple(pair) for pair in found] == [(0, 2), (0, 3), (1, 3), (2, 0), (3, 0), (3, 1)]
    assert counts / 3000 == pytest.approx([1 / 8, 1 / 8, 1 / 4, 1 / 4, 1 / 8, 1 / 8], abs=0.03)


def test_epochs_and_seeds_draw_other_pieces():
    draws = {
        tuple(random_documents(12, 3, DrawSentences(seed, 2)).take(np.arange(12), epoch).numbers)
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(draws) == 9


def test_a_mixture_of_documents_has_its_shares_of_the_tokens_of_text():
    def part(size):
        documents = random_documents(40, size, DrawSentences(0, 3))
        return replace(documents, sizes=np.full(documents.sizes.size, size), room=size)

    parts = {"short": part(1), "long": part(9)}
    mixture = ExampleSet.mixture(parts, {"short": 0.5, "long": 0.5})
    of_one = [float(examples.text_lengths.mean()) for examples in parts.values()]
    [shares] = mixture.shares
    text = [float(share) * mean for share, mean in zip(shares, of_one, strict=True)]
    assert text[0] == pytest.approx(text[1], rel=1e-5)
    pieces = parts["long"].take(np.arange(40))
    special = len(pieces.owners) * pieces.source.special_tokens.size
    assert parts["long"].text_lengths.sum() == pieces.tokens.size - special


def test_a_mixture_of_documents_keeps_the_text_of_each():
    parts = {
        name: random_documents(count, seed, DrawSentences(0, 2))
        for name, count, seed in (("selected", 9, 1), ("task", 4, 2))
    }
    mixture = ExampleSet.mixture(parts, {"selected": 0.5, "task": 0.5})
    assert isinstance(mixture, Documents)
    assert mixture.parts == (9, 4)
    one = mixture.take(np.array([2, 10]), 1)
    first = parts["selected"].take(np.array([2]), 1)
    second = parts["task"].take(np.array([1]), 1)
    assert one.tokens.tolist() == [*first.tokens, *second.tokens]
    assert mixture.first_part.ids.tolist() == parts["selected"].ids.tolist()
    assert one.text()[0].tolist() == [*first.text()[0], *second.text()[0]]


def test_the_text_of_a_step_is_all_of_its_documents():
    documents = random_documents(5, 0, DrawSentences(0, 1))
    text_of_step, offsets = documents.take(np.array([3, 1])).text()
    for place, document in enumerate((3, 1)):
        rows = slice(documents.firsts[document], documents.firsts[document + 1])
        spans = zip(documents.starts[rows], documents.sizes[rows], strict=True)
        text = np.concatenate([documents.stream[start : start + size] for start, size in spans])
        found = text_of_step[offsets[place] : offsets[place + 1]]
        assert found.tolist() == text.tolist()
