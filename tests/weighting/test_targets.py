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
def test_the_matching_is_stable(given_wishes):
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


def test_two_equal_targets_take_turns_by_proportion():
    order = np.arange(20)
    owner = allot([order, order], np.ones(20, dtype=int), Budget(0.5), [0.8, 0.2])
    # ranks: the first wants segments 0, 1, 2 ... at 1, 2, 3 ... eighths of its share, the second at halves of its own
    np.testing.assert_array_equal(owner[:10], [0, 0, 0, 0, 0, 0, 0, 0, 1, 1])
    owner = allot([order, order[::-1]], np.ones(20, dtype=int), Budget(10, "units"), [0.8, 0.2])
    np.testing.assert_array_equal(np.flatnonzero(owner == 1), [18, 19])
    np.testing.assert_array_equal(np.flatnonzero(owner == 0), np.arange(8))


@given(wishes())
def test_owners_do_not_depend_on_pieces(given_wishes):
    orders, sizes, _, beta = given_wishes
    sizes, proportions = np.where(sizes > 8, 8, 4), np.full(len(orders), 1 / len(orders))  # ranks are equal often
    whole = allot(orders, sizes, Budget(beta), proportions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "PIECE", 8)
        np.testing.assert_array_equal(allot(orders, sizes, Budget(beta), proportions), whole)


def test_a_target_may_be_called_kept():
    tables = pool_of(0)
    found = apply_targets([Target("kept", 0.5, tables[0]), Target("in", 0.5, tables[1])], WeighSettings(beta=0.3))
    segments = found.counts["segments"]
    assert segments["kept"] == sum(segments["by_target"].values()) < segments["in"]
    assert segments["by_target"].keys() == {"kept", "in"}


@pytest.mark.parametrize("policy", ["segments", "sampled"])
def test_min_tail_beyond_every_document_is_refused(policy):
    targets = [Target(name, 0.5, table) for name, table in zip("ab", pool_of(0), strict=True)]
    with pytest.raises(DataError, match="min_tail=200"):
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
def test_the_scale_of_a_targets_scores_does_not_matter(policy):
    """The second target's scores vary forty times as much; each still has half of what is kept."""
    targets = [Target(name, 0.5, table) for name, table in zip("ab", pool_of(0, 400), strict=True)]
    found = apply_targets(targets, WeighSettings(policy=policy, gamma=3, beta=0.2, sharpness=1e4))
    parts = [(found.target == row).sum() for row in range(2)]
    assert abs(parts[0] - parts[1]) < 3
    for row, target in enumerate(targets):
        alone = apply_policy(target.table, WeighSettings(gamma=3, beta=0.1)).weight > 0
        assert alone[found.target == row].mean() > 0.75  # what it would keep alone: a draw so sharp is of the best


def test_sigmoid_takes_the_larger_weight():
    targets = [Target(name, share, table) for name, share, table in zip("ab", (0.75, 0.25), pool_of(1), strict=True)]
    found = apply_targets(targets, WeighSettings(policy="sigmoid", beta=0.2))
    expected = []
    for target in targets:
        score = target.table["score"].to_numpy()
        standard = (score - score.mean()) / score.std()
        expected.append(1 / (1 + np.exp(-4 * (np.quantile(standard, 0.2 * target.proportion) - standard))))
    np.testing.assert_allclose(found.weight, np.max(expected, axis=0))
    np.testing.assert_array_equal(found.target, np.argmax(expected, axis=0))


ALLOTTED = {
    "first requests win, then the next free one": (
        [[0, 1, 2, 3, 4, 5], [3, 0, 4, 5, 1, 2]], [1] * 6, Budget(4, "units"), [0.5, 0.5], [0, 0, -1, 1, 1, -1]
    ),
    "a share below any segment still has one": (
        [[0, 1, 2], [2, 1, 0]], [5, 5, 5], Budget(2, "units"), [0.9, 0.1], [0, -1, 1]
    ),
    "a document counts once": (
        [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]], [0, 0, 1, 1, 2, 2], Budget(2, "documents"), [0.5, 0.5],
        [0, 0, -1, -1, 1, 1],
    ),
    "a counted document does not close a target": (
        [[0, 1, 2, 3], [3, 2, 1, 0]], [0, 0, 1, 1], Budget(1, "documents"), [0.5, 0.5], [0, 0, 1, 1]
    ),
    "documents whose numbers share a byte": (
        [[0, 1, 2, 3, 4, 5]], [7, 15, 7, 14, 6, 23], Budget(4, "documents"), [1.0], [0, 0, 0, 0, 0, -1]
    ),
    "all taken by the other target": ([[0], [0]], [1], Budget(1.0), [0.6, 0.4], [0]),
}  # fmt: skip


@pytest.mark.parametrize(("orders", "amounts", "budget", "proportions", "owner"), ALLOTTED.values(), ids=ALLOTTED)
def test_allotted_by_hand(orders, amounts, budget, proportions, owner):
    found = allot([np.array(order) for order in orders], np.array(amounts), budget, proportions)
    assert found.tolist() == owner


@pytest.mark.parametrize(
    ("proportions", "targets", "settings", "key"),
    [
        ([1.0], 1, {}, "proportions"),
        ([0.5, 0.3, 0.2], 2, {}, "proportions"),
        ([0.5, 0.4], 2, {}, "proportions"),
        ([1.5, -0.5], 2, {}, "proportions"),
        ([float("nan"), 0.5], 2, {}, "proportions"),
        ([0.5, 0.5], 2, {"beta": "auto"}, "beta"),
        ([0.5, 0.5], 2, {"policy": "sigmoid", "midpoint": 0.0}, "midpoint"),
        ([0.5, 0.5], 2, {"below": 0.0}, "below"),
        ([0.5, 0.5], 2, {"balance": "clusters"}, "balance"),
    ],
)
def test_bad_proportions_and_settings_of_one_target_are_refused(proportions, targets, settings, key):
    with pytest.raises(ConfigError, match=f"{key}="):
        check_targets(proportions, targets, WeighSettings(**settings))
