"""Weighing in passes: to the last bit what all in memory gives, however the pool is cut into blocks and runs."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dana.core import columns
from dana.core.columns import DiskColumn, SortedRuns
from dana.core.errors import DataError
from dana.core.statistics import Moments, PairwiseSum, effective_sample_size
from dana.weighting import pool as pools
from dana.weighting.policies import apply_policy
from dana.weighting.settings import WeighSettings
from tests.weighting import in_memory

POLICIES = [
    {},
    {"shrink": False},
    {"gamma": 1},
    {"gamma": 4, "min_tail": 3},
    {"stream": True, "gamma": 4, "min_tail": 3},
    {"stream": True, "gamma": 10**11},
    {"beta": 1.0},
    {"budget": "1 units"},
    {"budget": "0.5 units"},
    {"budget": "1e12 units"},
    {"budget": "9 documents", "gamma": 2},
    {"budget": "40 tokens", "tokenizer": "x"},
    {"below": 0.5},
    {"policy": "sampled", "gamma": 2},
    {"policy": "sampled", "sharpness": 300.0, "beta": 0.9, "gamma": 1},
    {"policy": "sampled", "sharpness": 5000.0, "beta": 0.9, "gamma": 1},  # most have no relevance at all
    {"policy": "sampled", "budget": "9 documents", "midpoint": -1.0},
    {"policy": "sampled", "stream": True},
    {"policy": "sigmoid"},
    {"policy": "sigmoid", "beta": 1.0},
    {"policy": "sigmoid", "midpoint": -0.5, "stream": True},
    {"balance": "clusters", "gamma": 2},
    {"balance": "clusters", "budget": "9 documents", "gamma": 2},
    {"balance": "clusters", "policy": "sampled", "budget": "40 tokens", "tokenizer": "x"},
]


def a_pool(seed, units, decimals=None):
    """Documents of one to forty units, with tokens and clusters; few different scores where they are rounded."""
    random = np.random.default_rng(seed)
    of = np.repeat(np.arange(units), np.minimum(random.geometric(0.15, units), 40))[:units]
    score = np.where(of % 5 == 0, 0.0, 2.0) + random.normal(size=units)
    return pa.table(
        {
            "doc_id": [f"d{row:06d}" for row in of],
            "unit": (np.arange(units) - np.searchsorted(of, of)).astype(np.int32),
            "score": score if decimals is None else score.round(decimals),
            "tokens": random.integers(0, 4, units).astype(float),
            "group": random.integers(0, 3, units).astype(np.int32),
        }
    )


def assert_as_in_memory(table, given_):
    settings = WeighSettings(**given_)
    shares = np.array([0.5, 0.3, 0.2]) if settings.balance else None
    segment, _, weight = in_memory.weights(table, settings, shares)
    if not weight.any():
        with pytest.raises(DataError):
            apply_policy(table, settings, shares)
        return
    found = apply_policy(table, settings, shares)
    assert weight.tobytes() == found.weight.tobytes()
    within = segment if settings.stream else np.where(segment < 0, -1, table["unit"].to_numpy() // settings.gamma)
    np.testing.assert_array_equal(found.segment, within)
    assert found.counts["units"]["kept"] == (weight > 0).sum()
    assert found.notes["effective_sample_size"] == effective_sample_size(weight)
    if settings.policy != "sigmoid":
        assert found.counts["segments"]["in"] == segment.max() + 1
        assert found.counts["segments"]["kept"] == np.unique(segment[weight > 0]).size


@pytest.fixture
def small_pieces(monkeypatch):
    """Blocks of few rows and runs of few records, merged three at a time."""
    monkeypatch.setattr(pools, "ROWS", 13)
    monkeypatch.setattr(columns, "RUN", 16)
    monkeypatch.setattr(columns, "FAN_IN", 3)


@pytest.mark.parametrize("given_", POLICIES, ids=str)
@pytest.mark.parametrize("decimals", [None, 0])
def test_weights_are_those_of_all_in_memory_whatever_the_blocks(small_pieces, given_, decimals):
    for seed, units in enumerate((1, 2, 17, 400)):
        assert_as_in_memory(a_pool(seed, units, decimals), given_)


@pytest.mark.parametrize("given_", [{}, {"policy": "sampled", "gamma": 2}, {"policy": "sigmoid"}], ids=str)
def test_weights_of_many_units_are_those_of_all_in_memory(given_):
    assert_as_in_memory(a_pool(0, 150_001), given_)


@given(st.integers(1, 400_000), st.integers(0, 3), st.integers(1, 200_000))
@hypothesis_settings(max_examples=30)
def test_a_sum_of_blocks_is_numpys_of_one_array(count, seed, block):
    values = np.random.default_rng(seed).normal(size=count) * 10.0 ** np.random.default_rng(seed).uniform(-8, 8, count)
    total = PairwiseSum(count)
    for first in range(0, count, block):
        total.add(values[first : first + block])
    assert total.value == values.sum()
    assert Moments.streamed(count, lambda: np.array_split(values, 3)) == Moments.of(values)


def test_the_sum_and_the_moments_of_nothing_are_0():
    assert PairwiseSum(0).value == 0
    assert Moments.streamed(0, lambda: []) == Moments()


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), max_size=300), st.integers(1, 60))
@hypothesis_settings(max_examples=60)
def test_records_come_in_order_and_equal_keys_as_they_were_added(tmp_path_factory, rows, block):
    keys, marks = np.array([float(key) for key, _ in rows]), np.array([mark for _, mark in rows], dtype=bool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "RUN", 8)
        patch.setattr(columns, "FAN_IN", 2)
        runs = SortedRuns(tmp_path_factory.mktemp("runs") / "sort", row="i8", mark="?")
        for first in range(0, keys.size, block):
            part = slice(first, first + block)
            runs.add(key=keys[part], row=np.arange(keys.size)[part], mark=marks[part])
        order = np.argsort(keys, kind="stable")
        for _ in range(2):  # it may be begun again
            found = list(runs)
            assert all(part.size for part in found)
            np.testing.assert_array_equal([row for part in found for row in part["row"]], order)
            np.testing.assert_array_equal([mark for part in found for mark in part["mark"]], marks[order])


def test_a_column_is_read_where_it_is_asked_for(tmp_path):
    column = DiskColumn(tmp_path / "one.raw", "i4")
    column.append(np.arange(5))
    column.append(np.arange(5, 9))
    assert column.size == 9
    assert column.read(3, 7).tolist() == [3, 4, 5, 6]
    assert column.read(9, 9).tolist() == []
    assert [part.tolist() for part in column.blocks(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
