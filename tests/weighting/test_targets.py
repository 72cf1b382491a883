"""Several targets: nothing twice, the budget and the proportions held, whatever the order of the targets."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.core.errors import ConfigError, DataError
from dana.weighting import selection
from dana.weighting.pool import Pool
from dana.weighting.selection import NOBODY, Segments, check_targets, make_targets_rule
from dana.weighting.settings import Budget, WeighSettings
from tests.weighting.in_memory import apply_policy, score_table


def apply_targets(tables, shares=(0.5, 0.5), names="ab", **settings):
    """Weights and targets of the units of tables in memory, and the rule's counts."""
    settings = WeighSettings(**settings)
    pools = dict(zip(names, map(Pool, tables), strict=True))
    rule = make_targets_rule(pools, dict(zip(names, shares, strict=True)), settings)
    blocks = zip(*(pool.blocks(["score"], settings) for pool in pools.values()), strict=True)
    results = [rule.weigh(block) for block in blocks]
    weight, target = (
        np.concatenate([getattr(one, name) for one in results]) for name in ("weight", "target")
    )
    return SimpleNamespace(weight=weight, target=target, counts=rule.counts)


def allot(orders, amounts, budget, proportions):
    """Of targets that want the segments in these orders."""
    segments = Segments(np.zeros(amounts.size), amounts, int(amounts.sum()), int(amounts.max()) + 1)
    return selection.allot(
        [np.argsort(order) * 1.0 for order in orders], segments, proportions, budget
    )


@st.composite
def wishes(draw):
    """Orders of two to four targets, sizes of the segments, proportions, and a share."""
    segments, targets = draw(st.integers(1, 60)), draw(st.integers(2, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    alike = draw(st.booleans())
    orders = [random.permutation(segments) for _ in range(targets)]
    orders = [orders[0]] * targets if alike else orders
    proportions = random.dirichlet(np.ones(targets)).round(3) + 0.001
    return (
        orders,
        random.integers(1, 16, segments),
        proportions / proportions.sum(),
        draw(st.floats(0.01, 1.0)),
    )


@given(wishes())
def test_each_target_has_its_share_to_within_a_segment_and_nothing_is_kept_twice(wish):
    orders, sizes, proportions, beta = wish
    owner = allot(orders, sizes, Budget(beta), proportions)
    budgets, ranks = proportions * round(beta * sizes.sum()), np.empty((len(orders), sizes.size))
    for row, (order, budget) in enumerate(zip(orders, budgets, strict=True)):
        ranks[row, order] = np.cumsum(sizes[order]) / proportions[row]
        rows = np.flatnonzero(owner == row)
        amount = sizes[rows].sum()
        assert amount <= budget + 1e-6 or rows.size == 1  # at least one segment
        free = [one for one in order if owner[one] == NOBODY]
        if free and rows.size:  # the first that nobody has would not have fitted
            assert amount + sizes.max() > budget - 1e-6
            assert (
                ranks[row, rows].max() < ranks[row, free[0]]
                or amount + sizes[free[0]] > budget - 1e-6
            )
    for one in np.flatnonzero(owner != NOBODY):  # the matching is stable
        for row in range(len(orders)):
            worst = ranks[row, owner == row].max(initial=-1.0)
            assert not (
                ranks[row, one] < ranks[owner[one], one] - 1e-9 and ranks[row, one] < worst - 1e-9
            )


@given(wishes())
def test_owners_do_not_depend_on_pieces(wish):
    orders, sizes, _, beta = wish
    sizes, proportions = (
        np.where(sizes > 8, 8, 4),
        np.full(len(orders), 1 / len(orders)),
    )  # ranks are equal often
    at_once = allot(orders, sizes, Budget(beta), proportions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "PIECE", 8)
        np.testing.assert_array_equal(allot(orders, sizes, Budget(beta), proportions), at_once)


def tables_of_two_targets(seed, documents=40):
    """A pool with two targets' scores; those of the second vary forty times as much."""
    random = np.random.default_rng(seed)
    of = np.repeat(np.arange(documents), random.integers(1, 12, documents))
    scores = [
        random.normal(0, scale, documents)[of] + random.normal(size=of.size)
        for scale in (1.0, 40.0)
    ]
    return [score_table(score, of) for score in scores]


def test_a_target_may_be_called_kept():
    segments = apply_targets(tables_of_two_targets(0), names=("kept", "in"), beta=0.3).counts[
        "segments"
    ]
    assert segments["kept"] == sum(segments["by_target"].values()) < segments["in"]
    assert segments["by_target"].keys() == {"kept", "in"}


@pytest.mark.parametrize("policy", ["segments", "sampled"])
def test_the_scale_of_a_targets_scores_does_not_matter(policy):
    tables = tables_of_two_targets(0, 400)
    result = apply_targets(tables, policy=policy, gamma=3, beta=0.2, sharpness=1e4)
    assert abs((result.target == 0).sum() - (result.target == 1).sum()) < 3
    for row, table in enumerate(tables):
        alone = apply_policy(table, WeighSettings(gamma=3, beta=0.1)).weight > 0
        assert (
            alone[result.target == row].mean() > 0.75
        )  # what it would keep alone: a draw so sharp is of the best
    with pytest.raises(DataError, match="min_tail=200"):
        apply_targets(tables, policy=policy, gamma=200, min_tail=200)


def test_sigmoid_takes_the_larger_weight():
    tables, shares, weights = tables_of_two_targets(1), (0.75, 0.25), []
    result = apply_targets(tables, shares, policy="sigmoid", beta=0.2)
    for table, share in zip(tables, shares, strict=True):
        score = table["score"].to_numpy()
        standard = (score - score.mean()) / score.std()
        weights.append(1 / (1 + np.exp(-4 * (np.quantile(standard, 0.2 * share) - standard))))
    np.testing.assert_allclose(result.weight, np.max(weights, axis=0))
    np.testing.assert_array_equal(result.target, np.argmax(weights, axis=0))
    sharp = apply_targets(tables, shares, policy="sigmoid", beta=0.2, sharpness=1e6)
    np.testing.assert_array_equal(sharp.target == NOBODY, sharp.weight == 0)
    assert 0 < (sharp.target == NOBODY).mean() < 1


TWENTY = list(range(20))
BY_HAND = {
    # ranks: the first wants segments 0, 1, 2 ... at 1, 2, 3 ... eighths of its share, the second at
    # halves of its own
    "equal targets take turns by proportion": (
        [TWENTY, TWENTY], [1] * 20, Budget(0.5), [0.8, 0.2], [0] * 8 + [1] * 2 + [-1] * 10
    ),
    "targets that want opposite ends": (
        [TWENTY, TWENTY[::-1]], [1] * 20, Budget(10, "units"), [0.8, 0.2], [0] * 8 + [-1] * 10 + [1] * 2
    ),
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


@pytest.mark.parametrize(
    ("orders", "amounts", "budget", "proportions", "owner"), BY_HAND.values(), ids=BY_HAND
)
def test_allotted_by_hand(orders, amounts, budget, proportions, owner):
    assert (
        allot(
            [np.array(order) for order in orders], np.array(amounts), budget, proportions
        ).tolist()
        == owner
    )


@pytest.mark.parametrize(
    ("proportions", "targets"),
    [([1.0], 1), ([0.5, 0.3, 0.2], 2), ([0.5, 0.4], 2), ([1.5, -0.5], 2), ([float("nan"), 0.5], 2)],
)
def test_bad_proportions_are_refused(proportions, targets):
    with pytest.raises(ConfigError, match="proportions="):
        check_targets(proportions, targets, WeighSettings())


@pytest.mark.parametrize(
    "settings",
    [
        {"beta": "auto"},
        {"midpoint": 0.0, "policy": "sigmoid"},
        {"below": 0.0},
        {"balance": "clusters"},
    ],
)
def test_settings_of_one_target_are_refused(settings):
    with pytest.raises(ConfigError, match=f"{next(iter(settings))}="):
        check_targets([0.5, 0.5], 2, WeighSettings(**settings))


def test_targets_draw_independently(monkeypatch):
    keys, original = [], selection.allot
    monkeypatch.setattr(
        selection, "allot", lambda each, *rest: keys.extend(each) or original(each, *rest)
    )
    table = score_table(np.arange(40.0))
    apply_targets([table, table], policy="sampled", gamma=2, beta=0.3)
    assert (keys[0] != keys[1]).all(), "equal scores, other draws"
    check_targets([0.5, 0.5], 2, WeighSettings(policy="sampled", beta="auto", budget="3 units"))
