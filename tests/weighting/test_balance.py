"""A budget spread over clusters: which segments are kept, by hand, and what never happens whatever the scores are."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dana.core.errors import ConfigError, DataError
from dana.weighting.pool import Groups, Pool
from dana.weighting.settings import Balance, WeighSettings, parse_balance
from dana.weighting.weights import DROPPED, effective_number, segment_groups
from tests.weighting.in_memory import apply_policy

# The best units are all of cluster 0; cluster 2 has one unit alone.
CLUSTERS = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 2])


def table(scores, documents=None, **columns):
    units = np.arange(len(scores), dtype=np.int32)
    names = ["one"] * len(scores) if documents is None else [f"d{number}" for number in documents]
    units = units if documents is None else units - np.searchsorted(documents, documents)
    known = {"doc_id": names, "unit": units.astype(np.int32), "score": np.array(scores, dtype=float)}
    return pa.table({**known, **columns})


def kept(budget, shares=(1 / 3, 1 / 3, 1 / 3), clusters=CLUSTERS, **given):
    settings = WeighSettings(budget=budget, gamma=1, balance="clusters", **given)
    found = apply_policy(table(np.arange(len(clusters)), group=clusters), settings, np.array(shares))
    return np.flatnonzero(found.weight).tolist()


def test_the_best_of_each_group_are_selected():
    assert kept("3 units") == [0, 5, 9]
    assert kept("7 units") == [0, 1, 2, 5, 6, 7, 9]  # a third each would be 2 and a bit; cluster 2 has one
    assert kept("4 units") == [0, 1, 5, 9]  # of equally far ones the better
    assert kept("10 units") == list(range(10))
    assert kept(0.3) == [0, 5, 9]
    assert kept("3 units", (1.0,), np.zeros(10, dtype=int)) == [0, 1, 2]


def test_groups_without_a_share_are_left_out():
    assert kept("4 units", (0.25, 0.75, 0)) == [0, 5, 6, 7]
    assert kept("8 units", (0.25, 0.75, 0)) == [0, 1, 2, 3, 5, 6, 7, 8]  # the rest of 1 goes to 0, none to 2


def test_groups_smaller_than_the_budget_are_selected_whole(caplog):
    assert kept("5 units", (0, 0.5, 0.5)) == [5, 6, 7, 8, 9]
    assert not caplog.records
    assert kept("6 units", (0, 0.5, 0.5)) == [5, 6, 7, 8, 9]
    assert "group 1, 2" in caplog.text


def test_groups_without_a_segment_are_refused():
    with pytest.raises(DataError, match="balance: no segment is mostly of group 3"):
        kept("3 units", (0, 0, 0, 1))


def test_balance_counts_tokens_and_documents():
    clusters = np.array([0, 0, 0, 1, 1, 1])
    settings = WeighSettings(budget="8 tokens", tokenizer="x", gamma=1, balance="clusters")
    tokens = np.array([4.0, 1, 1, 2, 2, 9])
    found = apply_policy(table(range(6), tokens=tokens, group=clusters), settings, np.array([0.5, 0.5]))
    assert np.flatnonzero(found.weight).tolist() == [0, 3, 4]
    documents = np.array([0, 0, 1, 2, 2, 3])
    settings = WeighSettings(budget="2 documents", gamma=1, balance="clusters")
    found = apply_policy(table(range(6), documents, group=clusters), settings, np.array([0.5, 0.5]))
    assert np.flatnonzero(found.weight).tolist() == [0, 1, 3, 4]  # not both documents of cluster 0


def test_a_segment_has_its_majority_group():
    segment = np.array([0, 0, 0, DROPPED, 1, 1, 2, 2, 2])
    clusters = np.array([4, 1, 4, 0, 3, 2, 0, 0, 5])
    assert segment_groups(segment, clusters).tolist() == [4, 2, 0]  # of equally frequent ones the first


def test_balance_applies_to_sampled():
    """The best cluster would have nearly all of the draw."""
    clusters = np.repeat([0, 1], 200)
    scores = np.repeat([-1.0, 1.0], 200) + np.random.default_rng(0).normal(0, 0.1, 400)
    asked, pool = {"policy": "sampled", "budget": "60 units", "gamma": 1}, table(scores, group=clusters)
    plain = apply_policy(pool, WeighSettings(**asked))
    even = apply_policy(pool, WeighSettings(balance="clusters", **asked), np.array([0.5, 0.5]))
    assert plain.weight[:200].sum() > 55
    assert (even.weight[:200].sum(), even.weight[200:].sum()) == (30, 30)


@st.composite
def pools(draw):
    count, k = draw(st.integers(1, 60)), draw(st.integers(1, 5))
    clusters = np.array(draw(st.lists(st.integers(0, k - 1), min_size=count, max_size=count)))
    shares = np.array(draw(st.lists(st.floats(0.05, 1), min_size=k, max_size=k)))
    scores = np.array(draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)), dtype=float)
    return clusters, shares / shares.sum(), scores, draw(st.integers(1, count))


@given(pools())
@settings(max_examples=200)
def test_balance_fills_the_budget_evenly(pool):
    clusters, shares, scores, budget = pool
    chosen = WeighSettings(budget=f"{budget} units", gamma=1, shrink=False, balance="clusters")
    weight = apply_policy(table(scores, group=clusters), chosen, shares).weight > 0
    assert weight.sum() == budget
    held = np.bincount(clusters[weight], minlength=shares.size)
    there = np.bincount(clusters, minlength=shares.size)
    for one in range(shares.size):
        own = scores[clusters == one]
        assert sorted(own)[: held[one]] == sorted(scores[(clusters == one) & weight])
        for other in range(shares.size):
            if held[other] and held[one] < there[one]:  # the next unit of `one` would have come later
                assert held[other] / shares[other] <= (held[one] + 1) / shares[one] * (1 + 1e-9)


def test_balance_is_parsed():
    assert parse_balance("clusters") == Balance("clusters", {})
    assert parse_balance("clusters:0=0.7,3=.3") == Balance("clusters", {"0": 0.7, "3": 0.3})
    assert parse_balance("my/genres.parquet:broad news=1") == Balance("my/genres.parquet", {"broad news": 1.0})


@pytest.mark.parametrize(
    "text",
    [
        *("", "clusters:", "clusters:0", "clusters:=1", "clusters:a=b", "clusters:0=nan", "clusters:0=1.0,0=0"),
        *("clusters:0=0.5,1=0.4", "clusters:0=1.5,1=-0.5", ":0=1", "clusters:0=0.5,,1=0.5", "clusters:0=0.5,1=0.5,"),
    ],
)
def test_a_bad_balance_is_refused(text):
    with pytest.raises(ConfigError, match="balance="):
        WeighSettings(balance=text)


def table_of_groups(folder, groups, **columns):
    rows = {"doc_id": ["one"] * len(groups), "unit": np.arange(len(groups), dtype=np.int32), "group": groups}
    path = folder / "groups.parquet"
    pq.write_table(pa.table({**rows, **columns}), path)
    return path


@pytest.mark.parametrize(
    ("groups", "expected"),
    [(["law", "art", "law", "news"], [1, 0, 1, 2]), ([7, -2, 7, 9], [1, 0, 1, 2])],
    ids=["text", "numbers"],
)
def test_any_parquet_with_keys_and_groups_is_a_table(tmp_path, groups, expected):
    opened = Groups.open(table_of_groups(tmp_path, groups))
    assert opened.values == sorted(set(groups))
    pool = Pool(table(range(4)))
    assert opened.of_pool(pool).tolist() == expected
    together = pool.with_columns(group=opened.of_pool(pool)).read(["score", "group"])
    assert [value for part in together for value in part["group"].to_pylist()] == expected
    assert opened.shares(Balance("x", {})).tolist() == pytest.approx([1 / 3] * 3)
    last, first = str(sorted(set(groups))[2]), str(sorted(set(groups))[0])
    assert opened.shares(Balance("x", {last: 0.9, first: 0.1})).tolist() == [0.1, 0.0, 0.9]
    with pytest.raises(ConfigError, match="balance='x:nowhere'"):
        opened.shares(Balance("x", {"nowhere": 1.0}))


@pytest.mark.parametrize("units", [5, 6, 7])
def test_groups_of_other_units_are_refused(tmp_path, units):
    opened = Groups.open(table_of_groups(tmp_path, ["a"] * units))
    with pytest.raises(ConfigError, match="its rows"):
        opened.of_pool(Pool(table(range(6), np.array([0, 0, 0, 1, 1, 1]))))


@pytest.mark.parametrize("other", [{"policy": "sigmoid"}, {"below": 0.0}, {"beta": "auto"}], ids=str)
def test_a_balance_without_a_budget_is_refused(other):
    with pytest.raises(ConfigError, match="balance='clusters'"):
        WeighSettings(balance="clusters", **other)


@pytest.mark.parametrize("groups", [[0.5, 1.5], ["a", None], None], ids=str)
def test_a_bad_table_of_groups_is_refused_with_its_file(tmp_path, groups):
    path = table_of_groups(tmp_path, groups or ["a", "b"])
    if groups is None:
        pq.write_table(pa.table({"doc_id": ["one"], "genre": ["law"]}), path)
    with pytest.raises(ConfigError, match=f"^{path}: .*(group|doc_id, genre)"):
        Groups.open(path)


def test_effective_number_by_hand():
    assert effective_number(np.array([5, 5, 0, 5])) == pytest.approx(3)
    assert effective_number(np.array([0, 7.5])) == 1
    expected = np.exp(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    assert effective_number(np.array([3, 1])) == pytest.approx(expected)
