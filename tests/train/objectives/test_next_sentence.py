"""Pairs of halves of texts for next-sentence prediction."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.core.schemas import iterate_documents
from dana.train.examples import Batch, Examples, SpecialTokens, build_examples
from dana.train.objectives.batch import IGNORED
from dana.train.objectives.next_sentence import ELSEWHERE, FOLLOWS, NextSentence, pair
from dana.train.tokens import Tokens

CLS, SEP = 2, 3
PAIR_TOKENS = SpecialTokens(*(np.array([token], dtype=np.int32) for token in (CLS, SEP, SEP)))


def make_batch(sizes, ids=None):
    """Texts of tokens that are all different, from 10 on."""
    sizes = np.array(sizes)
    ids = np.arange(sizes.size) if ids is None else ids
    starts, weights = np.cumsum(sizes) - sizes, np.ones(sizes.size, np.float32)
    examples = Examples(
        np.arange(10, 10 + sizes.sum()), starts, sizes, ids.astype(np.uint64), weights, PAIR_TOKENS
    )
    return examples.take(np.arange(sizes.size))


def rows(batch):
    return [row.tolist() for row in np.split(batch.tokens, batch.offsets[1:-1])]


def test_halves_and_two_that_exchange_their_second_ones_by_hand():
    assert rows(pair(make_batch([5]), PAIR_TOKENS, 0, 0).batch) == [
        [CLS, 10, 11, 12, SEP, 13, 14, SEP]
    ]
    batch = make_batch([5, 3, 2])
    every = (pair(batch, PAIR_TOKENS, 0, seed) for seed in range(1000))
    pairs = next(
        pairs for pairs in every if np.flatnonzero(pairs.labels == ELSEWHERE).tolist() == [0, 2]
    )
    first, second, third = (
        [CLS, 10, 11, 12, SEP, 19, SEP],
        [CLS, 15, 16, SEP, 17, SEP],
        [CLS, 18, SEP, 13, 14, SEP],
    )
    assert rows(pairs.batch) == [first, second, third]
    assert pairs.labels.tolist() == [ELSEWHERE, FOLLOWS, ELSEWHERE] == [1, 0, 1], (
        "the labels of BERT"
    )
    assert pairs.types.tolist() == [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1]
    assert pairs.texts.tolist() == [0, 0, 0, 0, 0, 2, 2] + [1] * 6 + [2, 2, 2, 0, 0, 0]


def test_texts_that_exchange_with_nobody():
    single = make_batch([1] * 40 + [4, 4])
    twice = make_batch([6, 6], ids=np.array([7, 7]))
    for seed in range(30):
        pairs = pair(single, PAIR_TOKENS, 0, seed)
        assert (pairs.labels[:40] == IGNORED).all()
        assert rows(pairs.batch)[:40] == [[CLS, 10 + at, SEP, SEP] for at in range(40)]
        assert pair(make_batch([6]), PAIR_TOKENS, 0, seed).labels.tolist() == [FOLLOWS], "one alone"
        both = pair(twice, PAIR_TOKENS, np.array([0, 1]), seed).labels.tolist()
        assert both == [FOLLOWS, FOLLOWS], "the same text in two epochs"


def test_half_of_the_labels_are_elsewhere_independently_over_epochs_and_seeds():
    batch = make_batch(np.full(4000, 4), ids=np.random.default_rng(0).integers(0, 2**63, 4000))
    base, epoch, seed = (pair(batch, PAIR_TOKENS, *at).labels for at in ((0, 0), (1, 0), (0, 1)))
    for share in (
        base.mean(),
        epoch.mean(),
        seed.mean(),
        (base == epoch).mean(),
        (base == seed).mean(),
    ):
        assert abs(share - 0.5) < 4 * 0.5 / 4000**0.5


@given(st.lists(st.integers(1, 13), min_size=1, max_size=30), st.integers(0, 50), st.integers(0, 3))
def test_pairs_lose_no_token_and_do_not_depend_on_the_order(sizes, seed, epoch):
    batch = make_batch(sizes)
    pairs = pair(batch, PAIR_TOKENS, epoch, seed)
    assert Counter(pairs.batch.tokens.tolist()) == Counter(batch.tokens.tolist())
    assert np.diff(pairs.batch.offsets).max() <= max(sizes) + PAIR_TOKENS.size
    owners = {token: at for at, row in enumerate(rows(batch)) for token in row if token >= 10}
    ordinary = pairs.batch.tokens >= 10
    assert [owners[token] for token in pairs.batch.tokens[ordinary].tolist()] == pairs.texts[
        ordinary
    ].tolist()
    for row, label, size in zip(rows(pairs.batch), pairs.labels, sizes, strict=True):
        assert bool(label == IGNORED) is (size < 2)
        if label != IGNORED:  # tokens are numbered in the order of the text
            middle = row.index(SEP)
            assert (row[middle + 1] == row[middle - 1] + 1) is bool(label == FOLLOWS)
    order = np.random.default_rng(seed).permutation(len(sizes))
    parts = np.split(batch.tokens, batch.offsets[1:-1])
    offsets = np.cumsum([0, *(parts[at].size for at in order)])
    other_order = Batch(
        np.concatenate([parts[at] for at in order]), offsets, batch.ids[order], batch.weights[order]
    )
    again = pair(other_order, PAIR_TOKENS, epoch, seed)
    assert rows(again.batch) == [rows(pairs.batch)[at] for at in order]
    assert again.labels.tolist() == pairs.labels[order].tolist()


def test_special_tokens_of_a_pair_are_those_of_the_tokenizer(tiny_tokenizer):
    special = SpecialTokens.from_tokenizer(tiny_tokenizer, paired=True)
    first, second = (
        tiny_tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("model", "of text")
    )
    row = [*special.before, *first, *special.middle, *second, *special.after]
    assert row == tiny_tokenizer("model", "of text")["input_ids"]
    assert (SpecialTokens.from_tokenizer(tiny_tokenizer).size, special.size) == (2, 3)
    assert NextSentence().collator(tiny_tokenizer, 0).special_tokens.size == 3


@pytest.mark.parametrize("max_tokens", [12, 13])
def test_windows_have_room_for_the_token_between(write_corpus, tiny_tokenizer, max_tokens):
    tokens = Tokens.from_documents(
        iterate_documents(write_corpus("c", ["Alpha beta gamma delta. " * 20])), tiny_tokenizer
    )
    special = SpecialTokens.from_tokenizer(tiny_tokenizer, paired=True)
    examples, counts = build_examples(tokens, None, special, max_tokens)
    assert examples.sizes.sum() == tokens.ids.size == counts["tokens_text"]
    assert examples.lengths.max() == max_tokens
    pairs = pair(examples.take(np.arange(len(examples))), special, 0, 0)
    assert ELSEWHERE in pairs.labels
    assert np.diff(pairs.batch.offsets).max() <= max_tokens
