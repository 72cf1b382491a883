"""Weighing in pieces: to the last bit what all at once gives, however the pool is cut into blocks."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dana.core.errors import DataError
from dana.weighting import pool as pools
from dana.weighting import selection
from dana.weighting.pool import Pool
from dana.weighting.selection import argsort_pieces, make_rule
from dana.weighting.settings import WeighSettings
from tests.weighting import in_memory
from tests.weighting.in_memory import apply_policy, score_table

POLICIES = [
    {},
    {"shrink": False},
    {"beta": 1.0},
    {"below": 0.5},
    {"gamma": 1},
    {"gamma": 4, "min_tail": 3},
]
POLICIES += [{"stream": True, "gamma": 4, "min_tail": 3}, {"stream": True, "gamma": 10**11}]
POLICIES += [{"budget": f"{amount} units"} for amount in ("1", "0.5", "1e12")]
POLICIES += [{"budget": "9 documents", "gamma": 2}, {"budget": "40 tokens", "tokenizer": "x"}]
SAMPLED = [{"gamma": 2}, {"budget": "9 documents", "midpoint": -1.0}, {"stream": True}]
SAMPLED += [
    {"sharpness": sharpness, "beta": 0.9, "gamma": 1} for sharpness in (300.0, 5000.0)
]  # or hardly relevant
POLICIES += [{"policy": "sampled", **values} for values in SAMPLED]
POLICIES += [
    {"policy": "sigmoid", **values}
    for values in ({}, {"beta": 1.0}, {"midpoint": -0.5, "stream": True})
]
SPREAD = [{"gamma": 2}, {"budget": "9 documents", "gamma": 2}]
SPREAD += [{"policy": "sampled", "budget": "40 tokens", "tokenizer": "x"}]
POLICIES += [{"balance": "clusters", **values} for values in SPREAD]


def random_pool(seed, units, decimals=None):
    """Documents of one to forty units, with tokens and clusters; few different scores where they are rounded."""
    random = np.random.default_rng(seed)
    of = np.repeat(np.arange(units), np.minimum(random.geometric(0.15, units), 40))[:units]
    score = np.where(of % 5 == 0, 0.0, 2.0) + random.normal(size=units)
    columns = {
        "tokens": random.integers(0, 4, units).astype(float),
        "group": random.integers(0, 3, units),
    }
    columns["group"] = columns["group"].astype(np.int32)
    return score_table(score if decimals is None else score.round(decimals), of, **columns)


def assert_as_in_memory(table, values):
    settings = WeighSettings(**values)
    shares = np.array([0.5, 0.3, 0.2]) if settings.balance else None
    segment, _, weight = in_memory.weights(table, settings, shares)
    if not weight.any():
        with pytest.raises(DataError):
            apply_policy(table, settings, shares)
        return
    result = apply_policy(table, settings, shares)
    assert weight.tobytes() == result.weight.tobytes()
    within = (
        segment
        if settings.stream
        else np.where(segment < 0, -1, table["unit"].to_numpy() // settings.gamma)
    )
    np.testing.assert_array_equal(result.segment, within)
    if settings.policy != "sigmoid":
        assert result.counts["segments"]["in"] == segment.max() + 1
        assert result.counts["segments"]["kept"] == np.unique(segment[weight > 0]).size


@pytest.fixture
def small_pieces(monkeypatch):
    """Blocks of few rows, and few segments sorted at a time."""
    monkeypatch.setattr(pools, "ROWS", 13)
    monkeypatch.setattr(selection, "PIECE", 16)


@pytest.mark.parametrize("values", POLICIES, ids=str)
@pytest.mark.parametrize("decimals", [None, 0])
def test_weights_are_those_of_all_in_memory_whatever_the_blocks(small_pieces, values, decimals):
    for seed, units in enumerate((1, 17, 300)):
        assert_as_in_memory(random_pool(seed, units, decimals), values)


@pytest.mark.parametrize(
    "values", [{}, {"policy": "sampled", "gamma": 2}, {"policy": "sigmoid"}], ids=str
)
def test_weights_of_many_units_equal_those_in_memory(values):
    assert_as_in_memory(random_pool(0, 150_001), values)


@given(
    st.lists(st.sampled_from([-3.0, -0.0, 0.0, 1.5, 2.0, np.inf]), min_size=1, max_size=300),
    st.integers(0, 3),
)
@hypothesis_settings(max_examples=60)
def test_argsort_pieces_is_a_stable_argsort(numbers, seed):
    keys, ties = np.array(numbers), np.random.default_rng(seed).integers(0, 4, len(numbers))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "PIECE", 8)
        by_key, by_ties = (np.concatenate(list(argsort_pieces(keys, *of))) for of in ((), (ties,)))
    finite = np.isfinite(keys).sum()
    np.testing.assert_array_equal(by_key, np.argsort(keys, kind="stable")[:finite])
    np.testing.assert_array_equal(by_ties, np.lexsort((np.arange(keys.size), ties, keys))[:finite])


def test_argsort_pieces_sorts_little_at_a_time(monkeypatch):
    monkeypatch.setattr(selection, "PIECE", 1 << 12)
    random = np.random.default_rng(0)
    for keys in (
        random.normal(size=300_000),
        random.normal(size=300_000).round(1),
        np.zeros(300_000),
    ):
        pieces = list(argsort_pieces(keys))
        np.testing.assert_array_equal(np.concatenate(pieces), np.argsort(keys, kind="stable"))
        equal = np.unique(keys, return_counts=True)[1].max()  # equal numbers come together
        assert max(piece.size for piece in pieces) <= (1 << 16) + equal


def test_memory_is_sixteen_bytes_a_unit_at_most():
    """Of documents of one unit, which is the most: a number and a size a segment, and what is sorted at a time."""
    units = 3_000_000
    ids = pa.DictionaryArray.from_arrays(
        pa.array(np.arange(units, dtype=np.int32) % 1000), [f"d{n}" for n in range(1000)]
    )
    score = np.random.default_rng(0).normal(size=units)
    table = pa.table({"doc_id": ids, "unit": np.zeros(units, dtype=np.int32), "score": score})
    for policy in ("segments", "sigmoid"):
        tracemalloc.start()
        make_rule(Pool(table), WeighSettings(policy=policy))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 16 * units + 70e6, policy
