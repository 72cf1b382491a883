from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.train.examples import Batch, Examples, SpecialTokens
from dana.train.objectives.batch import IGNORED
from dana.train.objectives.next_sentence import ELSEWHERE, FOLLOWS, pair

CLS, SEP = 2, 3
PAIR_TOKENS = SpecialTokens(*(np.array([token], dtype=np.int32) for token in (CLS, SEP, SEP)))


def make_batch(sizes, ids=None):
    """Texts of tokens that are all different, from 10 on."""
    sizes = np.array(sizes)
    ids = np.arange(sizes.size) if ids is None else ids
    stream = np.arange(10, 10 + sizes.sum())
    examples = Examples(
        stream, np.cumsum(sizes) - sizes, sizes, ids.astype(np.uint64), np.ones(sizes.size, np.float32), PAIR_TOKENS
    )
    return examples.take(np.arange(sizes.size))


def rows(pairs):
    return [
        pairs.batch.tokens[first:last].tolist()
        for first, last in zip(pairs.batch.offsets[:-1], pairs.batch.offsets[1:], strict=True)
    ]


def by_id(pairs):
    return {
        int(key): (row, int(label)) for key, row, label in zip(pairs.batch.ids, rows(pairs), pairs.labels, strict=True)
    }


def halves(row):
    """A and B of a row [CLS] A [SEP] B [SEP]."""
    middle = row.index(SEP)
    assert row[0] == CLS
    assert row[-1] == SEP
    return row[1:middle], row[middle + 1 : -1]


def seed_that_moves(batch, wanted):
    """The first seed whose coin exchanges exactly the second halves of the examples `wanted`."""
    return next(
        seed
        for seed in range(1000)
        if np.flatnonzero(pair(batch, PAIR_TOKENS, 0, seed).labels == ELSEWHERE).tolist() == wanted
    )


def test_a_text_is_cut_in_its_middle_and_the_first_half_is_the_longer():
    found = rows(pair(make_batch([5]), PAIR_TOKENS, 0, 0))
    assert found == [[CLS, 10, 11, 12, SEP, 13, 14, SEP]]


def test_two_that_exchange_their_second_halves_by_hand():
    batch = make_batch([5, 3, 2])
    found = pair(batch, PAIR_TOKENS, 0, seed_that_moves(batch, [0, 2]))
    assert rows(found) == [
        [CLS, 10, 11, 12, SEP, 19, SEP],
        [CLS, 15, 16, SEP, 17, SEP],
        [CLS, 18, SEP, 13, 14, SEP],
    ]
    assert found.labels.tolist() == [ELSEWHERE, FOLLOWS, ELSEWHERE] == [1, 0, 1], "the sign is that of BERT"
    assert found.types.tolist() == [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1]
    assert found.texts.tolist() == [0, 0, 0, 0, 0, 2, 2] + [1] * 6 + [2, 2, 2, 0, 0, 0]


def test_a_text_of_one_token_is_not_asked_about_and_exchanges_nothing():
    batch = make_batch([1] * 40 + [4, 4])
    for seed in range(8):
        found = pair(batch, PAIR_TOKENS, 0, seed)
        assert (found.labels[:40] == IGNORED).all()
        assert rows(found)[:40] == [[CLS, 10 + place, SEP, SEP] for place in range(40)]


def test_one_alone_keeps_what_follows_it():
    assert {int(pair(make_batch([6]), PAIR_TOKENS, 0, seed).labels[0]) for seed in range(20)} == {FOLLOWS}


def test_the_next_epochs_copy_of_a_text_is_not_from_elsewhere():
    one = make_batch([6, 6], ids=np.array([7, 7]))
    for seed in range(30):
        assert pair(one, PAIR_TOKENS, np.array([0, 1]), seed).labels.tolist() == [FOLLOWS, FOLLOWS]


def test_about_half_come_from_elsewhere_and_others_in_another_epoch_and_seed():
    batch = make_batch(np.full(4000, 4), ids=np.random.default_rng(0).integers(0, 2**63, 4000))
    found = [pair(batch, PAIR_TOKENS, epoch, seed).labels for epoch, seed in ((0, 0), (1, 0), (0, 1))]
    for labels in found:
        assert abs(labels.mean() - 0.5) < 4 * 0.5 / 4000**0.5
    for one, other in ((0, 1), (0, 2)):
        assert abs((found[one] == found[other]).mean() - 0.5) < 4 * 0.5 / 4000**0.5


def test_elsewhere_is_said_exactly_where_the_second_half_is_anothers():
    batch = make_batch(np.random.default_rng(1).integers(1, 12, 200))
    found = pair(batch, PAIR_TOKENS, 3, 5)
    for row, label in zip(rows(found), found.labels, strict=True):
        first, second = halves(row)
        if label != IGNORED:
            assert (second[0] == first[-1] + 1) is bool(label == FOLLOWS), "tokens are numbered as they follow"
    assert {FOLLOWS, ELSEWHERE, IGNORED} == set(found.labels.tolist())


@given(st.lists(st.integers(1, 13), min_size=1, max_size=30), st.integers(0, 50), st.integers(0, 3))
def test_nothing_is_lost_nothing_too_long_and_the_order_does_not_matter(sizes, seed, epoch):
    batch = make_batch(sizes)
    found = pair(batch, PAIR_TOKENS, epoch, seed)
    assert Counter(found.batch.tokens.tolist()) == Counter(batch.tokens.tolist())
    assert np.diff(found.batch.offsets).max() <= max(sizes) + PAIR_TOKENS.size
    order = np.random.default_rng(seed).permutation(len(sizes))
    lengths = np.diff(batch.offsets)
    shuffled = Batch(
        np.concatenate([batch.tokens[batch.offsets[row] : batch.offsets[row + 1]] for row in order]),
        np.concatenate([[0], np.cumsum(lengths[order])]),
        batch.ids[order],
        batch.weights[order],
    )
    assert by_id(pair(shuffled, PAIR_TOKENS, epoch, seed)) == by_id(found)


def test_texts_tell_where_every_token_is_from():
    batch = make_batch(np.random.default_rng(2).integers(1, 12, 50))
    found = pair(batch, PAIR_TOKENS, 0, 0)
    owner_of = {token: row for row, tokens in enumerate(rows_of(batch)) for token in tokens if token >= 10}
    ordinary = found.batch.tokens >= 10
    assert [owner_of[token] for token in found.batch.tokens[ordinary].tolist()] == found.texts[ordinary].tolist()


def rows_of(batch):
    return [batch.tokens[a:b].tolist() for a, b in zip(batch.offsets[:-1], batch.offsets[1:], strict=True)]


def test_the_frame_of_a_pair_is_the_tokenizers_own(tiny_tokenizer):
    frame = SpecialTokens.of(tiny_tokenizer, paired=True)
    first, second = (tiny_tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("model", "of text"))
    assert [*frame.before, *first, *frame.middle, *second, *frame.after] == tiny_tokenizer("model", "of text")[
        "input_ids"
    ]
    assert SpecialTokens.of(tiny_tokenizer).size == 2
    assert frame.size == 3


@pytest.mark.parametrize("max_tokens", [12, 13])
def test_the_window_has_room_for_the_token_between(write_corpus, tiny_tokenizer, max_tokens):
    from dana.core.schemas import iterate_documents
    from dana.train.examples import build_examples
    from dana.train.tokens import Tokens

    tokens = Tokens.of(iterate_documents(write_corpus("c", ["Alpha beta gamma delta. " * 20])), tiny_tokenizer)
    alone, _ = build_examples(tokens, None, SpecialTokens.of(tiny_tokenizer), max_tokens)
    examples, counts = build_examples(tokens, None, SpecialTokens.of(tiny_tokenizer, paired=True), max_tokens)
    assert examples.sizes.sum() == alone.sizes.sum() == counts["tokens_text"]
    assert examples.lengths.max() == max_tokens
    batch = examples.take(np.arange(len(examples)))
    assert np.array_equal(np.diff(batch.offsets), examples.lengths)
    found = pair(batch, examples.special_tokens, 0, 0)
    assert ELSEWHERE in found.labels
    assert np.diff(found.batch.offsets).max() <= max_tokens
