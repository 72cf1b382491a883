"""Weights and policies: values by hand, the limits of C, and what must not depend on order."""

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dana.core.errors import ConfigError, DataError
from dana.core.statistics import Moments, effective_sample_size
from dana.weighting.formulas import (
    DROPPED,
    Components,
    segment_ids,
    segment_means,
    sigmoid,
    standardise,
)
from dana.weighting.selection import fill_budget, running_amounts
from dana.weighting.settings import Budget, WeighSettings
from tests.weighting.in_memory import apply_policy, score_table


def lowest_segments(means, amounts, budget):
    """What the policy ``segments`` keeps, ascending; `amounts` are numbers of documents where these are counted."""
    order = np.argsort(means, kind="stable")
    running = running_amounts(order, amounts, budget.kind)
    return np.sort(fill_budget(order, running, budget.max_amount(int(amounts.sum()))))


finite = arrays(np.float64, st.integers(1, 60), elements=st.floats(-1e6, 1e6, width=32))


@given(finite, st.integers(0, 60), st.integers(0, 60))
def test_moments_merge_in_any_order(scores, a, b):
    first, second = sorted((min(a, scores.size), min(b, scores.size)))
    total = Moments()
    for shard in (scores[second:], scores[:first], scores[first:second]):
        total = total.merge(Moments.from_scores(shard))
    assert total.count == scores.size
    assert total.mean == pytest.approx(scores.mean(), rel=1e-9, abs=1e-6)
    assert total.std == pytest.approx(scores.std(), rel=1e-6, abs=1e-3)


def test_standardise_and_sigmoid_by_hand_and_at_their_limits():
    # mean 2, population variance ((1)^2 + 0 + (1)^2) / 3 = 2/3
    scores, same = np.array([1.0, 2.0, 3.0]), np.full(4, 7.0)
    np.testing.assert_allclose(standardise(scores), [-(1.5**0.5), 0, 1.5**0.5])
    np.testing.assert_array_equal(standardise(same), np.zeros(4))
    standard = np.array([-2.0, -1.0, 0.0, 5.0])
    assert sigmoid(standard, 4.0, -1.0)[0] == pytest.approx(
        1 / (1 + np.exp(-4.0))
    )  # C (α - Ā) = 4 (-1 + 2)
    np.testing.assert_array_equal(sigmoid(standard, 0.0, -1.0), np.full(4, 0.5))
    np.testing.assert_allclose(sigmoid(standard, 1e6, -0.5), [1, 1, 0, 0], atol=1e-12)
    assert np.isfinite(sigmoid(np.array([1e300, -1e300]), 1e5, 0.0)).all()


@given(finite, st.floats(0.01, 50))
def test_sigmoid_never_rises_with_the_score(scores, sharpness):
    assert (np.diff(sigmoid(np.sort(scores), sharpness, 0.0)) <= 0).all()


@given(finite, st.floats(0.001, 1.0), st.randoms(use_true_random=False))
def test_single_unit_segments_are_the_papers_discrete_weights(scores, beta, random):
    # DANA, section 3.2: weight 1 for the round(βN) lowest scores, and never for none
    lowest = lowest_segments(scores, np.ones(scores.size), Budget(beta))
    assert lowest.size == max(1, round(beta * scores.size))
    rest = np.delete(scores, lowest)
    assert scores[lowest].max() <= rest.min(initial=np.inf)
    order = list(range(scores.size))
    random.shuffle(order)
    again = lowest_segments(scores[order], np.ones(scores.size), Budget(beta))
    np.testing.assert_array_equal(np.sort(scores[order][again]), np.sort(scores[lowest]))


def test_segments_never_cross_documents():
    starts = np.array([0, 3, 7])
    np.testing.assert_array_equal(segment_ids(starts, 8, 2), [0, 0, 1, 2, 2, 3, 3, 4])
    without_tails = segment_ids(starts, 8, 2, min_tail=2)
    np.testing.assert_array_equal(without_tails, [0, 0, -1, 1, 1, 2, 2, -1])
    np.testing.assert_allclose(segment_means(np.arange(8.0), without_tails), [0.5, 3.5, 5.5])


TIES = np.array([3.0, 1.0, 2.0, 1.0, 9.0]), np.array([15, 15, 4, 15, 15])
# in order: segments 1 and 5 of document 7, 3 and 2 of 8, 0 of 7, 4 of 9
DOCUMENTS = np.array([3.0, 1.0, 2.0, 1.5, 9.0, 1.2]), np.array([7, 7, 8, 8, 9, 7])


@pytest.mark.parametrize(
    ("segments", "budget", "lowest"),
    [
        # 64 units: a fifth is 13, less than any full segment, so one is kept; 0.54 is 35, enough
        # for 15 + 15 + 4
        (TIES, Budget(0.2), [1]),
        (TIES, Budget(0.54), [1, 2, 3]),
        (TIES, Budget(33, "units"), [1, 3]),
        (TIES, Budget(34, "units"), [1, 2, 3]),
        (DOCUMENTS, Budget(1, "documents"), [1, 5]),
        (DOCUMENTS, Budget(2, "documents"), [0, 1, 2, 3, 5]),
        (DOCUMENTS, Budget(3, "documents"), range(6)),
    ],
)
def test_budgets_by_share_units_and_documents(segments, budget, lowest):
    np.testing.assert_array_equal(lowest_segments(*segments, budget), lowest)


def test_effective_sample_size_by_hand():
    assert effective_sample_size(np.array([1.0, 1.0, 0.0])) == 2
    assert effective_sample_size(np.array([0.5, 1.0])) == pytest.approx(2.25 / 1.25)
    assert effective_sample_size(np.zeros(3)) == 0


def test_variance_components_by_hand():
    # means 1 and 4, residuals -1, 1 and -1, 0, 1: within 4/3; average 2.8, spread 2 * 3.24 + 3 *
    # 1.44 = 10.8 over 1; (10.8 - 4/3) / (5 - 13/5)
    model = Components.estimate(np.array([0.0, 2, 3, 4, 5, 99]), np.array([0, 0, 1, 1, 1, DROPPED]))
    assert model.within == pytest.approx(4 / 3)
    assert model.between == pytest.approx((10.8 - 4 / 3) / 2.4)
    one, two = model.between + model.within / 2, model.between + model.within / 3
    assert model.mean == pytest.approx((1 / one + 4 / two) / (1 / one + 1 / two))
    shrunk = [model.mean + (y - model.mean) * model.between / v for y, v in [(1, one), (4, two)]]
    np.testing.assert_allclose(model.shrink(np.array([1.0, 4.0]), np.array([2, 3])), shrunk)
    alone = Components.estimate(np.array([1.0, 3.0]), np.array([0, 0]))
    assert alone.shrink(np.array([2.0]), np.array([2])) == pytest.approx(2.0)
    single, means = (
        Components.estimate(np.array([5.0, 3.0, 4.0]), np.arange(3)),
        np.array([5.0, 3.0, 4.0]),
    )
    np.testing.assert_allclose(single.shrink(means, np.ones(3)), means)


def test_shrinkage_keeps_short_segments_from_winning():
    """Foreign text of one source, in segments of one unit and of 15; in-domain text in segments of 15."""
    rng = np.random.default_rng(0)
    sizes = np.repeat([1, 15, 15], [3000, 800, 200])
    level = np.repeat([1.0, 1.0, 0.0], [3000, 800, 200])  # the last are in-domain
    segment = np.repeat(np.arange(4000), sizes)
    values = (level + rng.normal(0, 0.2, 4000))[segment] + rng.normal(0, 1, segment.size)
    means = segment_means(values, segment)
    shares = []
    for ranked_means in (means, Components.estimate(values, segment).shrink(means, sizes)):
        lowest = lowest_segments(ranked_means, sizes, Budget(0.17))
        shares.append(((lowest < 3000).sum() / 3000, (lowest >= 3800).sum() / 200))
    (plain_short, plain_inside), (short, inside) = shares
    assert plain_short > 0.15, "what the paper's rule does"
    assert short < 0.02
    assert inside > plain_inside + 0.1


SCORES = [-2.0, 1.5, 0.5, -0.25, -3.0, 3.0]  # segments of two: means -.25, .125, 0


def weigh(scores, **settings):
    return apply_policy(score_table(scores), WeighSettings(**settings)).weight.tolist()


@pytest.mark.parametrize("shrink", [True, False])
def test_below_selects_by_segment_mean(shrink):
    assert weigh(SCORES, below=0, gamma=2, shrink=shrink) == [1, 1, 0, 0, 0, 0], (
        "a mean of 0 is not below 0"
    )
    assert weigh(SCORES, below=0, gamma=1, shrink=shrink) == [1, 0, 0, 1, 1, 0], (
        "means that shrink to one value"
    )
    result = apply_policy(score_table(SCORES), WeighSettings(below=0.1, gamma=2, shrink=shrink))
    assert result.weight.tolist() == [1, 1, 0, 0, 1, 1]
    assert result.counts["segments"] == {"in": 3, "selected": 2}
    with pytest.raises(DataError, match=r"below=-1: .*-0\.25"):
        weigh(SCORES, below=-1, gamma=2, shrink=shrink)


def test_dropped_tails_are_not_selected():
    tail = {"below": 0, "gamma": 2, "min_tail": 2}
    assert weigh([*SCORES, -9.0], **tail) == [1, 1, 0, 0, 0, 0, 0]


def test_sampled_draws_by_weight_in_any_order():
    """Units of three scores: the draw is by what the sigmoid gives each, whatever their order in the pool."""
    scores = np.repeat([40.0, 1.0, 0.0], [20, 2000, 2000])
    units = pa.table(
        {"doc_id": [f"d{row}" for row in range(4020)], "unit": [0] * 4020, "score": scores}
    )
    settings = {
        "policy": "sampled",
        "gamma": 1,
        "budget": "600 units",
        "sharpness": 5.0,
        "midpoint": -0.2,
    }
    draw = apply_policy(units, WeighSettings(**settings, shrink=False)).weight > 0
    assert draw.sum() == 600
    standard = (np.array([40.0, 1.0, 0.0]) - scores.mean()) / scores.std()
    far, middle, near = 1 / (1 + np.exp(-5 * (-0.2 - standard)))
    assert far < 1e-20
    assert not draw[:20].any()
    # The first draws are nearly independent; exhaustion lowers the ratio a little.
    assert 0.7 * near / middle < draw[2020:].sum() / draw[20:2020].sum() < 1.1 * near / middle
    order = np.random.default_rng(0).permutation(4020)
    again = apply_policy(units.take(order), WeighSettings(**settings, shrink=False))
    np.testing.assert_array_equal(again.weight > 0, draw[order])
    assert (
        apply_policy(units, WeighSettings(**settings, shrink=False, seed=2)).weight > 0
    ).tolist() != draw.tolist()
    sharp = WeighSettings(**settings | {"sharpness": 1e4, "budget": "4020 units"}, shrink=False)
    weighed = np.flatnonzero(apply_policy(units, sharp).weight)
    np.testing.assert_array_equal(
        weighed, np.arange(2020, 4020), "what the sigmoid gives nothing is never drawn"
    )


@pytest.mark.parametrize("policy", ["segments", "sigmoid", "sampled"])
def test_scores_that_are_not_finite_are_refused_by_row(policy):
    for bad in (np.nan, np.inf, -1e101):
        with pytest.raises(DataError, match=re.escape(f"scores[4] is {bad:.3g}")):
            weigh([*SCORES[:4], bad], policy=policy, gamma=2)
    assert np.isfinite(weigh([*SCORES[:4], 1e100], policy=policy, gamma=2)).all()


def test_equal_scores_are_said(heard):
    weigh([0.5] * 8, gamma=2)
    weigh([*SCORES], gamma=2)
    weigh([0.5] * 2, gamma=2)
    weigh([0.5] * 8, gamma=2, below=1)
    assert heard.text.count("all segments have the same score") == 1


def test_budgets_are_parsed():
    budgets = {"0.2": (0.2,), "50000 units": (50000, "units"), "2e6 tokens": (2e6, "tokens")}
    budgets[" 300  documents "] = (300, "documents")
    assert {text: Budget.parse(text) for text in budgets} == {
        text: Budget(*one) for text, one in budgets.items()
    }


def test_beta_is_chosen_only_where_it_decides():
    others = [{"budget": "3 units"}, {"below": 0.0}, {"policy": "sigmoid", "midpoint": 0.0}]
    assert [WeighSettings(beta="auto", **one).is_auto for one in ({}, *others)] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    "settings",
    [
        *(
            {"budget": budget}
            for budget in ("0", "1.4", "-3 units", "5 words", "many", "1e400 units")
        ),
        *(
            {"below": 0, **other}
            for other in ({"budget": "3 units"}, {"policy": "sampled"}, {"policy": "sigmoid"})
        ),
        *(
            {"balance": "clusters", **other}
            for other in ({"policy": "sigmoid"}, {"below": 0.0}, {"beta": "auto"})
        ),
        *(
            {"balance": text}
            for text in ("", "clusters:", "clusters:0", "clusters:=1", "clusters:a=b", ":0=1")
        ),
        *(
            {"balance": f"clusters:{text}"}
            for text in ("0=nan", "0=1.0,0=0", "0=0.5,1=0.4", "0=1.5,1=-0.5")
        ),
        *(
            {"balance": f"clusters:{text}"}
            for text in ("0=0.5,,1=0.5", "0=0.5,1=0.5,", "0=0.5,0=1")
        ),
    ],
    ids=str,
)
def test_bad_budgets_and_balances_are_refused(settings):
    key = next(iter(settings))
    with pytest.raises(ConfigError, match=f"{key}="):
        WeighSettings(**settings)
