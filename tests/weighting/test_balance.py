"""A budget spread over clusters: which segments are selected, by hand, and what never happens whatever the scores."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dana.core.errors import ConfigError, DataError
from dana.stages.weigh import Groups
from dana.weighting.formulas import DROPPED, effective_number, segment_groups
from dana.weighting.settings import Balance, WeighSettings, parse_balance
from tests.weighting.in_memory import apply_policy, score_table

# The best units are all of cluster 0; cluster 2 has one unit alone.
CLUSTERS = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 2])
THIRDS = (1 / 3, 1 / 3, 1 / 3)


def select(budget, shares, clusters=CLUSTERS, documents=None, **columns):
    """Rows that are selected of units in order of their scores."""
    tokenizer = {"tokenizer": "x"} if "tokens" in columns else {}
    table = score_table(np.arange(len(clusters)), documents, group=np.array(clusters), **columns)
    settings = WeighSettings(budget=budget, gamma=1, balance="clusters", **tokenizer)
    return np.flatnonzero(apply_policy(table, settings, np.array(shares)).weight).tolist()


HALVES = ([0, 0, 0, 1, 1, 1], (0.5, 0.5))


@pytest.mark.parametrize(
    ("budget", "clusters", "shares", "columns", "rows"),
    [
        ("3 units", CLUSTERS, THIRDS, {}, [0, 5, 9]),
        (
            "7 units",
            CLUSTERS,
            THIRDS,
            {},
            [0, 1, 2, 5, 6, 7, 9],
        ),  # a third each would be 2 and a bit; 2 has one
        ("4 units", CLUSTERS, THIRDS, {}, [0, 1, 5, 9]),  # of equally far ones the better
        ("10 units", CLUSTERS, THIRDS, {}, list(range(10))),
        (0.3, CLUSTERS, THIRDS, {}, [0, 5, 9]),
        ("4 units", CLUSTERS, (0.25, 0.75, 0), {}, [0, 5, 6, 7]),
        (
            "8 units",
            CLUSTERS,
            (0.25, 0.75, 0),
            {},
            [0, 1, 2, 3, 5, 6, 7, 8],
        ),  # the rest of 1 goes to 0, none to 2
        ("3 units", [0] * 10, (1.0,), {}, [0, 1, 2]),
        ("8 tokens", *HALVES, {"tokens": np.array([4.0, 1, 1, 2, 2, 9])}, [0, 3, 4]),
        (
            "2 documents",
            *HALVES,
            {"documents": [0, 0, 1, 2, 2, 3]},
            [0, 1, 3, 4],
        ),  # not both of cluster 0
    ],
)
def test_the_best_of_each_group_are_selected_by_share(budget, clusters, shares, columns, rows):
    assert select(budget, shares, clusters, **columns) == rows


def test_groups_smaller_than_the_budget_are_selected_whole(caplog):
    assert select("5 units", (0, 0.5, 0.5)) == [5, 6, 7, 8, 9]
    assert not caplog.records
    assert select("6 units", (0, 0.5, 0.5)) == [5, 6, 7, 8, 9]
    assert "group g1, g2" in caplog.text
    with pytest.raises(DataError, match="balance: no segment is mostly of group g3"):
        select("3 units", (0, 0, 0, 1))


def test_a_segment_has_its_majority_group():
    segment = np.array([0, 0, 0, DROPPED, 1, 1, 2, 2, 2])
    clusters = np.array([4, 1, 4, 0, 3, 2, 0, 0, 5])
    assert segment_groups(segment, clusters).tolist() == [
        4,
        2,
        0,
    ]  # of equally frequent ones the first


@st.composite
def pools(draw):
    count, k = draw(st.integers(1, 60)), draw(st.integers(1, 5))
    clusters = np.array(draw(st.lists(st.integers(0, k - 1), min_size=count, max_size=count)))
    shares = np.array(draw(st.lists(st.floats(0.05, 1), min_size=k, max_size=k)))
    scores = np.array(
        draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)), dtype=float
    )
    return clusters, shares / shares.sum(), scores, draw(st.integers(1, count))


@given(pools())
@settings(max_examples=100)
def test_balance_fills_the_budget_evenly(pool):
    clusters, shares, scores, budget = pool
    even = WeighSettings(budget=f"{budget} units", gamma=1, shrink=False, balance="clusters")
    inside = apply_policy(score_table(scores, group=clusters), even, shares).weight > 0
    assert inside.sum() == budget
    counts, sizes = (
        np.bincount(clusters[inside], minlength=shares.size),
        np.bincount(clusters, minlength=shares.size),
    )
    for one in range(shares.size):
        assert sorted(scores[clusters == one])[: counts[one]] == sorted(
            scores[(clusters == one) & inside]
        )
        for other in range(shares.size):
            if (
                counts[other] and counts[one] < sizes[one]
            ):  # the next unit of `one` would have come later
                assert counts[other] / shares[other] <= (counts[one] + 1) / shares[one] * (1 + 1e-9)


def test_balance_is_parsed():
    assert parse_balance("clusters") == Balance("clusters", {})
    assert parse_balance("clusters:0=0.7,3=.3") == Balance("clusters", {"0": 0.7, "3": 0.3})
    assert parse_balance("my/genres.parquet:broad news=1") == Balance(
        "my/genres.parquet", {"broad news": 1.0}
    )


def write_groups(folder, groups):
    rows = {
        "doc_id": ["d000000"] * len(groups),
        "unit": np.arange(len(groups), dtype=np.int32),
        "group": groups,
    }
    path = folder / "groups.parquet"
    pq.write_table(pa.table(rows), path)
    return path


@pytest.mark.parametrize(
    "groups", [["law", "art", "law", "news"], [7, -2, 7, 9]], ids=["text", "numbers"]
)
def test_any_parquet_with_keys_and_groups_is_a_table(tmp_path, groups):
    table = Groups.open(write_groups(tmp_path, groups))
    assert table.values == sorted(set(groups))
    pq.write_table(score_table(range(4)), tmp_path / "scores.parquet")
    assert table.of_units(tmp_path / "scores.parquet").tolist() == [1, 0, 1, 2]
    assert table.shares(Balance("x", {})).tolist() == pytest.approx([1 / 3] * 3)
    first, _, last = map(str, table.values)
    assert table.shares(Balance("x", {last: 0.9, first: 0.1})).tolist() == [0.1, 0.0, 0.9]
    with pytest.raises(ConfigError, match="balance='x:nowhere'"):
        table.shares(Balance("x", {"nowhere": 1.0}))


@pytest.mark.parametrize("units", [5, 6, 7])
def test_groups_of_other_units_are_refused(tmp_path, units):
    scores = tmp_path / "scores.parquet"
    pq.write_table(score_table(range(6), [0, 0, 0, 1, 1, 1]), scores)
    with pytest.raises(ConfigError, match="its rows"):
        Groups.open(write_groups(tmp_path, ["a"] * units)).of_units(scores)


def test_effective_number_by_hand():
    assert effective_number(np.array([5, 5, 0, 5])) == pytest.approx(3)
    assert effective_number(np.array([0, 7.5])) == 1
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    assert effective_number(np.array([3, 1])) == pytest.approx(np.exp(entropy))
