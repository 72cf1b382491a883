"""Weighing a pool: to the last bit what the formulas give unit by unit, and what is said before."""

import numpy as np
import pytest

from dana.core.errors import DataError
from dana.weighting.selection import Pool, weigh_pool
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


def test_a_draw_whose_weights_are_all_0_is_refused():
    table = score_table(np.arange(12.0), np.repeat(np.arange(6), 2))
    settings = WeighSettings(policy="sampled", midpoint=-50.0, sharpness=100.0, gamma=2)
    with pytest.raises(DataError, match=r"midpoint=-50\.0: the weight of every segment is 0"):
        weigh_pool(Pool.from_tables([table], table.num_rows), settings)


def test_tables_without_a_row_are_passed_over():
    table = score_table(np.arange(4.0), [0, 0, 1, 1])
    parts = [table.slice(0, 0), table.slice(0, 3), table.slice(0, 0), table.slice(3)]
    pool = Pool.from_tables(parts, 4)
    assert pool.score.tolist() == [0, 1, 2, 3]
    assert pool.document_starts.tolist() == [0, 2]


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
    assert weight.tobytes() == result.weight.astype(np.float64).tobytes()
    within = (
        segment
        if settings.stream
        else np.where(segment < 0, -1, table["unit"].to_numpy() // settings.gamma)
    )
    np.testing.assert_array_equal(result.segment, within)
    if settings.policy != "sigmoid":
        assert result.counts["segments"]["in"] == segment.max() + 1
        assert result.counts["segments"]["selected"] == np.unique(segment[weight > 0]).size


@pytest.mark.parametrize("values", POLICIES, ids=str)
@pytest.mark.parametrize("decimals", [None, 0])
def test_weights_are_those_of_the_formulas(values, decimals):
    for seed, units in enumerate((1, 17, 300)):
        assert_as_in_memory(random_pool(seed, units, decimals), values)


@pytest.mark.parametrize(
    "values", [{}, {"policy": "sampled", "gamma": 2}, {"policy": "sigmoid"}], ids=str
)
def test_weights_of_many_units_are_those_of_the_formulas(values):
    assert_as_in_memory(random_pool(0, 150_001), values)


def test_a_pool_is_the_same_in_one_table_and_in_several():
    table = random_pool(0, 300)
    whole = Pool.from_tables([table], 300)
    for rows in (1, 7, 100):
        parts = Pool.from_tables((table.slice(row, rows) for row in range(0, 300, rows)), 300)
        np.testing.assert_array_equal(parts.score, whole.score)
        np.testing.assert_array_equal(parts.document_starts, whole.document_starts)
        assert parts.doc_ids.to_pylist() == whole.doc_ids.to_pylist()
