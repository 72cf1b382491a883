import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dana.core.errors import ConfigError
from dana.train.objectives.masked import Masking, mask

VOCABULARY = 50
SPECIAL = np.arange(VOCABULARY) < 5
MASK = 4
MASKING = Masking(MASK, SPECIAL, seed=7)

examples = st.lists(
    st.tuples(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30), st.integers(0, 2**64 - 1)),
    min_size=1,
    max_size=8,
)


def flat(batch):
    tokens = np.concatenate([np.array(row, dtype=np.int32) for row, _ in batch])
    offsets = np.concatenate([[0], np.cumsum([len(row) for row, _ in batch])])
    return tokens, offsets, np.array([key for _, key in batch], dtype=np.uint64)


@given(batch=examples, epoch=st.integers(0, 5))
@settings(max_examples=50)
def test_an_example_is_masked_alike_alone_and_in_any_batch(batch, epoch):
    tokens, offsets, ids = flat(batch)
    together = mask(tokens, offsets, ids, epoch, MASKING)
    for place, example in enumerate(batch):
        alone = mask(*flat([example]), epoch, MASKING)
        span = slice(offsets[place], offsets[place + 1])
        np.testing.assert_array_equal(together.inputs[span], alone.inputs)
        np.testing.assert_array_equal(together.is_masked[span], alone.is_masked)


@given(batch=examples)
@settings(max_examples=50)
def test_special_tokens_stay_and_every_example_with_an_ordinary_token_hides_one(batch):
    tokens, offsets, ids = flat(batch)
    masked = mask(tokens, offsets, ids, 0, MASKING)
    assert not masked.is_masked[SPECIAL[tokens]].any()
    np.testing.assert_array_equal(masked.inputs[~masked.is_masked], tokens[~masked.is_masked])
    for place, (row, _) in enumerate(batch):
        assert masked.is_masked[offsets[place] : offsets[place + 1]].any() == any(token >= 5 for token in row)


def test_shares_are_those_of_bert():
    tokens = np.full(200_000, 30, dtype=np.int32)
    masked = mask(tokens, np.array([0, 100_000, 200_000]), np.array([1, 2], dtype=np.uint64), 0, MASKING)
    hidden = masked.inputs[masked.is_masked]
    assert masked.is_masked.mean() == pytest.approx(0.15, abs=0.005)
    assert (hidden == MASK).mean() == pytest.approx(0.8, abs=0.01)
    assert (hidden == 30).mean() == pytest.approx(0.1 + 0.1 / 45, abs=0.01)
    replaced = hidden[(hidden != MASK) & (hidden != 30)]
    assert set(replaced) == set(range(5, VOCABULARY)) - {30}, "any ordinary token, and no special one"


def test_masks_change_with_epoch_seed_and_example():
    tokens, offsets = np.full(1000, 30, dtype=np.int32), np.array([0, 1000])
    base = mask(tokens, offsets, np.array([1], dtype=np.uint64), 0, MASKING).is_masked
    others = [
        mask(tokens, offsets, np.array([1], dtype=np.uint64), 1, MASKING).is_masked,
        mask(tokens, offsets, np.array([2], dtype=np.uint64), 0, MASKING).is_masked,
        mask(tokens, offsets, np.array([1], dtype=np.uint64), 0, Masking(MASK, SPECIAL, seed=8)).is_masked,
    ]
    for other in others:  # independent: both hide 0.15² of the tokens
        assert (base & other).mean() == pytest.approx(0.0225, abs=0.015)


def test_one_batch_may_hold_two_epochs():
    tokens, offsets = np.full(60, 30, dtype=np.int32), np.array([0, 30, 60])
    ids = np.array([9, 9], dtype=np.uint64)
    both = mask(tokens, offsets, ids, np.array([0, 1]), MASKING)
    for place, epoch in enumerate((0, 1)):
        alone = mask(tokens[:30], offsets[:2], ids[:1], epoch, MASKING)
        np.testing.assert_array_equal(both.inputs[30 * place : 30 * place + 30], alone.inputs)


def test_neighbouring_positions_are_hidden_independently():
    tokens = np.full(100_000, 30, dtype=np.int32)
    hidden = mask(tokens, np.array([0, tokens.size]), np.array([3], dtype=np.uint64), 0, MASKING).is_masked
    assert np.corrcoef(hidden[1:], hidden[:-1])[0, 1] == pytest.approx(0, abs=0.015)


def test_input_is_not_changed():
    tokens = np.full(50, 30, dtype=np.int32)
    mask(tokens, np.array([0, 50]), np.array([1], dtype=np.uint64), 0, MASKING)
    assert (tokens == 30).all()


def test_masking_of_a_tokenizer_spares_its_special_tokens(tiny_tokenizer):
    masking = Masking.of(tiny_tokenizer, seed=0)
    assert set(np.flatnonzero(masking.special)) == set(tiny_tokenizer.all_special_ids)
    assert masking.mask_token == tiny_tokenizer.mask_token_id


def test_a_rate_outside_of_0_1_is_refused():
    with pytest.raises(ConfigError, match=r"mask_rate=1\.5: must be in \(0, 1\]"):
        Masking(MASK, SPECIAL, seed=0, rate=1.5)


def test_a_tokenizer_without_a_mask_token_is_refused():
    class Causal:
        mask_token_id = None

    with pytest.raises(ConfigError, match="Causal has no mask token"):
        Masking.of(Causal(), seed=0)
