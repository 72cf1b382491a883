"""Several targets: nothing twice, the budget and the proportions held, whatever the order of the targets."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.core.errors import ConfigError, DataError
from dana.weighting import selection
from dana.weighting.pool import Pool
from dana.weighting.selection import NOBODY, Segments, check_targets, make_targets_rule
from dana.weighting.settings import Budget, WeighSettings
from tests.weighting.in_memory import apply_policy


@dataclass
class Target:
    name: str
    proportion: float
    table: pa.Table


def apply_targets(targets, settings):
    """Weights and targets of the units of a table in memory, and what the rule says."""
    pools = {one.name: Pool(one.table) for one in targets}
    rule = make_targets_rule(pools, {one.name: one.proportion for one in targets}, settings)
    found = [
        rule.weigh(blocks)
        for blocks in zip(*(pool.blocks(["score"], settings) for pool in pools.values()), strict=True)
    ]
    weight, target = (np.concatenate([getattr(one, name) for one in found]) for name in ("weight", "target"))
    components = [rule.components(row) for row in range(len(targets))]
    return SimpleNamespace(weight=weight, target=target, counts=rule.counts, components=components)


def allot(orders, amounts, budget, proportions):
    """Of targets that want the segments in these orders."""
    segments = Segments(np.zeros(amounts.size), amounts, int(amounts.sum()), int(amounts.max()) + 1)
    return selection.allot([np.argsort(order) * 1.0 for order in orders], segments, proportions, budget)


@st.composite
def wishes(draw):
    """Orders of two to four targets, sizes of the segments, proportions, and a share."""
    segments, targets = draw(st.integers(1, 60)), draw(st.integers(2, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    alike = draw(st.booleans())
    orders = [random.permutation(segments) for _ in range(targets)]
    orders = [orders[0]] * targets if alike else orders
    proportions = random.dirichlet(np.ones(targets)).round(3) + 0.001
    return orders, random.integers(1, 16, segments), proportions / proportions.sum(), draw(st.floats(0.01, 1.0))


@given(wishes())
def test_each_target_has_its_share_to_within_a_segment_and_nothing_is_kept_twice(given_wishes):
    orders, sizes, proportions, beta = given_wishes
    owner = allot(orders, sizes, Budget(beta), proportions)
    most = round(beta * sizes.sum())
    for row, (order, share) in enumerate(zip(orders, proportions, strict=True)):
        own = np.flatnonzero(owner == row)
        held = sizes[own].sum()
        assert held <= share * most + 1e-6 or own.size == 1  # at least one segment
        free = [one for one in order if owner[one] == NOBODY]
        if free and own.size:  # the first that nobody has would not have fitted
            assert held + sizes.max() > share * most - 1e-6
            places = np.argsort(order)
            assert places[own].max() < places[free[0]] or held + sizes[free[0]] > share * most - 1e-6


@given(wishes())
def test_no_target_and_segment_would_rather_have_each_other(given_wishes):
    orders, sizes, proportions, beta = given_wishes
    budget = Budget(beta)
    owner = allot(orders, sizes, budget, proportions)
    ranks = np.empty((len(orders), sizes.size))
    for row, (order, share) in enumerate(zip(orders, proportions, strict=True)):
        ranks[row, order] = np.cumsum(sizes[order]) / share
    for one in np.flatnonzero(owner != NOBODY):
        for row in range(len(orders)):
            worst = ranks[row, owner == row].max(initial=-1.0)
            assert not (ranks[row, one] < ranks[owner[one], one] - 1e-9 and ranks[row, one] < worst - 1e-9)


def test_two_targets_that_want_the_same_take_turns_by_their_proportions():
    order = np.arange(20)
    owner = allot([order, order], np.ones(20, dtype=int), Budget(0.5), [0.8, 0.2])
    # ranks: the first wants segments 0, 1, 2 ... at 1, 2, 3 ... eighths of its share, the second at halves of its own
    np.testing.assert_array_equal(owner[:10], [0, 0, 0, 0, 0, 0, 0, 0, 1, 1])
    owner = allot([order, order[::-1]], np.ones(20, dtype=int), Budget(10, "units"), [0.8, 0.2])
    np.testing.assert_array_equal(np.flatnonzero(owner == 1), [18, 19])
    np.testing.assert_array_equal(np.flatnonzero(owner == 0), np.arange(8))


@given(wishes())
def test_the_owners_do_not_depend_on_how_many_wishes_are_sorted_at_a_time(given_wishes):
    orders, sizes, _, beta = given_wishes
    sizes, proportions = np.where(sizes > 8, 8, 4), np.full(len(orders), 1 / len(orders))  # ranks are equal often
    whole = allot(orders, sizes, Budget(beta), proportions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "PIECE", 8)
        np.testing.assert_array_equal(allot(orders, sizes, Budget(beta), proportions), whole)


def test_a_segment_goes_to_the_target_that_wants_it_most_and_the_other_takes_its_next():
    first, second = np.array([0, 1, 2, 3, 4, 5]), np.array([3, 0, 4, 5, 1, 2])
    owner = allot([first, second], np.ones(6, dtype=int), Budget(4, "units"), [0.5, 0.5])
    # 0 and 3 are first wishes; 1 is the first's second; the second's second, 0, is gone: it takes 4
    np.testing.assert_array_equal(owner, [0, 0, NOBODY, 1, 1, NOBODY])


def test_a_share_smaller_than_any_segment_still_has_one():
    owner = allot([np.array([0, 1, 2]), np.array([2, 1, 0])], np.array([5, 5, 5]), Budget(2, "units"), [0.9, 0.1])
    np.testing.assert_array_equal(owner, [0, NOBODY, 1])


def test_documents_are_counted_once_a_target():
    documents = np.array([0, 0, 1, 1, 2, 2])
    orders = [np.array([0, 1, 2, 3, 4, 5]), np.array([5, 4, 3, 2, 1, 0])]
    owner = allot(orders, documents, Budget(2, "documents"), [0.5, 0.5])
    np.testing.assert_array_equal(owner, [0, 0, NOBODY, NOBODY, 1, 1])


def test_of_many_documents_each_is_counted_by_itself():
    documents = np.array([7, 15, 7, 14, 6, 23])  # 7 and 15 and 23 are the same bit of a byte, 6 and 14 another
    owner = allot([np.arange(6)], documents, Budget(4, "documents"), [1.0])
    np.testing.assert_array_equal(owner, [0, 0, 0, 0, 0, NOBODY])


def test_a_target_may_be_called_as_a_count():
    tables = pool_of(0)
    found = apply_targets([Target("kept", 0.5, tables[0]), Target("in", 0.5, tables[1])], WeighSettings(beta=0.3))
    segments = found.counts["segments"]
    assert segments["kept"] == sum(segments["by_target"].values()) < segments["in"]
    assert segments["by_target"].keys() == {"kept", "in"}


def test_segments_of_a_document_that_is_counted_do_not_end_a_target():
    orders = [np.array([0, 1, 2, 3]), np.array([3, 2, 1, 0])]
    owner = allot(orders, np.array([0, 0, 1, 1]), Budget(1, "documents"), [0.5, 0.5])
    np.testing.assert_array_equal(owner, [0, 0, 1, 1])  # half a document each, which its first one exceeds


def test_a_target_has_nothing_where_another_takes_the_only_segment():
    table = pa.table({"doc_id": ["a", "a"], "unit": [0, 1], "score": [0.0, 1.0]})  # one segment
    found = apply_targets([Target("x", 0.6, table), Target("y", 0.4, table)], WeighSettings(beta=1.0))
    assert found.target.tolist() == [0, 0]


@pytest.mark.parametrize("policy", ["segments", "sampled"])
def test_a_least_tail_beyond_every_document_is_refused(policy):
    targets = [Target(name, 0.5, table) for name, table in zip("ab", pool_of(0), strict=True)]
    with pytest.raises(DataError, match="min_tail=200: every document is shorter; no segment is left"):
        apply_targets(targets, WeighSettings(policy=policy, gamma=200, min_tail=200))


def pool_of(seed, documents=40):
    """Ids and units of a pool, and two targets' scores of it."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 12, documents)
    of = np.repeat(np.arange(documents), sizes)
    columns = {"doc_id": [f"d{row}" for row in of], "unit": np.concatenate([np.arange(size) for size in sizes])}
    scores = [random.normal(0, scale, documents)[of] + random.normal(size=of.size) for scale in (1.0, 40.0)]
    return [pa.table({**columns, "score": score}) for score in scores]


@pytest.mark.parametrize("policy", ["segments", "sampled"])
def test_a_targets_scale_of_scores_does_not_decide(policy):
    """The second target's scores vary forty times as much; each still has half of what is kept."""
    targets = [Target(name, 0.5, table) for name, table in zip("ab", pool_of(0, 400), strict=True)]
    found = apply_targets(targets, WeighSettings(policy=policy, gamma=3, beta=0.2, sharpness=1e4))
    parts = [(found.target == row).sum() for row in range(2)]
    assert abs(parts[0] - parts[1]) < 3
    for row, target in enumerate(targets):
        alone = apply_policy(target.table, WeighSettings(gamma=3, beta=0.1)).weight > 0
        assert alone[found.target == row].mean() > 0.75  # what it would keep alone: a draw so sharp is of the best


def test_sigmoid_takes_the_larger_weight_each_target_with_its_share():
    targets = [Target(name, share, table) for name, share, table in zip("ab", (0.75, 0.25), pool_of(1), strict=True)]
    found = apply_targets(targets, WeighSettings(policy="sigmoid", beta=0.2))
    expected = []
    for target in targets:
        score = target.table["score"].to_numpy()
        standard = (score - score.mean()) / score.std()
        expected.append(1 / (1 + np.exp(-4 * (np.quantile(standard, 0.2 * target.proportion) - standard))))
    np.testing.assert_allclose(found.weight, np.max(expected, axis=0))
    np.testing.assert_array_equal(found.target, np.argmax(expected, axis=0))


@pytest.mark.parametrize(
    ("proportions", "targets", "settings", "message"),
    [
        ([1.0], 1, {}, r"proportions=\[1.0\]: must be left out"),
        ([0.5, 0.3, 0.2], 2, {}, "must be 2 numbers"),
        ([0.5, 0.4], 2, {}, "must be positive numbers that sum to 1"),
        ([1.5, -0.5], 2, {}, "must be positive numbers that sum to 1"),
        ([float("nan"), 0.5], 2, {}, "must be positive numbers that sum to 1"),
        ([0.5, 0.5], 2, {"beta": "auto"}, "beta='auto': is chosen for one target"),
        ([0.5, 0.5], 2, {"policy": "sigmoid", "midpoint": 0.0}, "midpoint=0.0: with several targets"),
        ([0.5, 0.5], 2, {"below": 0.0}, "below=0.0: shares out no budget between targets"),
    ],
)
def test_proportions_that_share_out_no_budget_are_refused(proportions, targets, settings, message):
    with pytest.raises(ConfigError, match=message):
        check_targets(proportions, targets, WeighSettings(**settings))
