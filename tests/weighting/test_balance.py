"""A budget spread over clusters: which segments are kept, by hand, and what never happens whatever the scores are."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dana.core.errors import ConfigError, DataError
from dana.weighting.pool import Groups, Pool
from dana.weighting.selection import check_targets
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


def test_the_best_of_each_cluster_are_kept_and_a_cluster_that_is_used_up_leaves_its_rest_to_the_others():
    assert kept("3 units") == [0, 5, 9]
    assert kept("7 units") == [0, 1, 2, 5, 6, 7, 9]  # a third each would be 2 and a bit; cluster 2 has one
    assert kept("4 units") == [0, 1, 5, 9]  # of equally far ones the better
    assert kept("10 units") == list(range(10))
    assert kept(0.3) == [0, 5, 9]


def test_shares_are_kept_and_a_cluster_without_one_is_left_out():
    assert kept("4 units", (0.25, 0.75, 0)) == [0, 5, 6, 7]
    assert kept("8 units", (0.25, 0.75, 0)) == [0, 1, 2, 3, 5, 6, 7, 8]  # the rest of 1 goes to 0, none to 2


def test_named_clusters_that_hold_less_than_the_budget_are_kept_whole_with_a_warning(caplog):
    assert kept("5 units", (0, 0.5, 0.5)) == [5, 6, 7, 8, 9]
    assert not caplog.records
    assert kept("6 units", (0, 0.5, 0.5)) == [5, 6, 7, 8, 9]
    assert "group 1, 2: holds less than the budget, 5 of 6; all is kept" in caplog.text


def test_named_clusters_without_a_segment_are_refused():
    with pytest.raises(DataError, match="balance: no segment is mostly of group 3"):
        kept("3 units", (0, 0, 0, 1))


def test_tokens_and_documents_are_spread_as_they_are_counted():
    clusters = np.array([0, 0, 0, 1, 1, 1])
    settings = WeighSettings(budget="8 tokens", tokenizer="x", gamma=1, balance="clusters")
    tokens = np.array([4.0, 1, 1, 2, 2, 9])
    found = apply_policy(table(range(6), tokens=tokens, group=clusters), settings, np.array([0.5, 0.5]))
    assert np.flatnonzero(found.weight).tolist() == [0, 3, 4]
    documents = np.array([0, 0, 1, 2, 2, 3])
    settings = WeighSettings(budget="2 documents", gamma=1, balance="clusters")
    found = apply_policy(table(range(6), documents, group=clusters), settings, np.array([0.5, 0.5]))
    assert np.flatnonzero(found.weight).tolist() == [0, 1, 3, 4]  # not both documents of cluster 0


def test_a_segment_is_of_the_cluster_that_most_of_its_units_are_of():
    segment = np.array([0, 0, 0, DROPPED, 1, 1, 2, 2, 2])
    clusters = np.array([4, 1, 4, 0, 3, 2, 0, 0, 5])
    assert segment_groups(segment, clusters).tolist() == [4, 2, 0]  # of equally frequent ones the first


def test_drawn_segments_are_spread_too():
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
def test_a_budget_is_filled_by_the_best_of_each_cluster_and_no_cluster_is_a_unit_ahead_of_another(pool):
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


@given(pools())
@settings(max_examples=50)
def test_a_balance_of_one_cluster_changes_nothing(pool):
    clusters, _, scores, budget = pool
    given_ = {"budget": f"{budget} units", "gamma": 3}
    plain = apply_policy(table(scores), WeighSettings(**given_))
    pool = table(scores, group=np.zeros_like(clusters))
    one = apply_policy(pool, WeighSettings(**given_, balance="clusters"), np.ones(1))
    np.testing.assert_array_equal(one.weight, plain.weight)


def test_tables_and_shares_are_read_from_the_setting():
    assert parse_balance("clusters") == Balance("clusters", {})
    assert parse_balance("clusters:0=0.7,3=.3") == Balance("clusters", {"0": 0.7, "3": 0.3})
    assert parse_balance("my/genres.parquet:broad news=1") == Balance("my/genres.parquet", {"broad news": 1.0})


@pytest.mark.parametrize(
    "text",
    [
        *("", "clusters:", "clusters:0", "clusters:0=", "clusters:=1", "clusters:a=b", "clusters:0=nan"),
        *("clusters:0=1.0,0=0", "clusters:0=0.5,0=1", "clusters:0=0.5,1=0.4", "clusters:0=1.5,1=-0.5"),
        *("clusters:0=0.5;1=0.5", ":0=1", "clusters:0=0.5,,1=0.5", "clusters:0=0.5,1=0.5,"),
    ],
)
def test_a_balance_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match=r"balance=.* must be a table of groups, or TABLE:GROUP=SHARE"):
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
def test_any_parquet_of_keys_and_groups_is_a_table_of_groups(tmp_path, groups, expected):
    opened = Groups.open(table_of_groups(tmp_path, groups))
    assert opened.values == sorted(set(groups))
    pool = Pool(table(range(4)))
    assert opened.of_pool(pool).tolist() == expected
    together = pool.with_columns(group=opened.of_pool(pool)).read(["score", "group"])
    assert [value for part in together for value in part["group"].to_pylist()] == expected
    assert opened.shares(Balance("x", {})).tolist() == pytest.approx([1 / 3] * 3)
    last, first = str(sorted(set(groups))[2]), str(sorted(set(groups))[0])
    assert opened.shares(Balance("x", {last: 0.9, first: 0.1})).tolist() == [0.1, 0.0, 0.9]
    with pytest.raises(ConfigError, match="balance='x:nowhere': must be among its groups: "):
        opened.shares(Balance("x", {"nowhere": 1.0}))


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ([0.5, 1.5], "group is double; a group is a whole number or text"),
        (["a", None], "group is null in some row; every unit is of a group"),
    ],
)
def test_groups_that_are_none_are_refused_with_the_file(tmp_path, groups, says):
    path = table_of_groups(tmp_path, groups)
    with pytest.raises(ConfigError, match=f"{path}: {says}"):
        Groups.open(path)


def test_a_table_without_groups_names_what_it_has(tmp_path):
    path = tmp_path / "groups.parquet"
    pq.write_table(pa.table({"doc_id": ["one"], "genre": ["law"]}), path)
    with pytest.raises(ConfigError, match="holds doc_id, genre; a table of groups has doc_id, unit, group"):
        Groups.open(path)


@pytest.mark.parametrize("units", [5, 6, 7])
def test_groups_of_other_units_are_refused(tmp_path, units):
    opened = Groups.open(table_of_groups(tmp_path, ["a"] * units))
    with pytest.raises(ConfigError, match="its rows are not those of the scores"):
        opened.of_pool(Pool(table(range(6), np.array([0, 0, 0, 1, 1, 1]))))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"policy": "sigmoid"}, "needs policy=segments or sampled"),
        ({"below": 0.0}, r"spreads a budget, and below=0\.0 stands for none"),
        ({"beta": "auto"}, "beta=auto is chosen by the scores alone"),
    ],
)
def test_what_has_no_budget_to_spread_is_refused_by_name(other, says):
    with pytest.raises(ConfigError, match=f"balance='clusters': {says}"):
        WeighSettings(balance="clusters", **other)
    with pytest.raises(ConfigError, match="balance='clusters': spreads the budget of one target"):
        check_targets([0.5, 0.5], 2, WeighSettings(balance="clusters"))


def test_the_effective_number_is_that_of_equal_clusters():
    assert effective_number(np.array([5, 5, 0, 5])) == pytest.approx(3)
    assert effective_number(np.array([0, 7.5])) == 1
    expected = np.exp(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    assert effective_number(np.array([3, 1])) == pytest.approx(expected)
