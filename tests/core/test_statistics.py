"""Intervals, the two-level test and draws of bootstraps against hand-computed values and scipy."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr, ndtri, stdtrit

from dana.core.statistics import (
    ALPHA,
    PROBE_DEVIATION,
    PROBE_DISAGREEMENT,
    TwoLevel,
    draw_groups,
    holm,
    looks_bound,
    mean_interval,
    percentile_interval,
    smallest_difference,
    two_level,
)
from dana.tasks.kinds.single_label import SingleLabel

CLASSES = 4
KIND = SingleLabel.from_count(CLASSES)
scores = st.lists(st.floats(0, 1), min_size=2, max_size=12)


def test_mean_std_and_t_interval_by_hand():
    interval = mean_interval([1.0, 2.0, 3.0, 4.0])
    assert (interval.mean, interval.n) == (2.5, 4)
    assert interval.std == pytest.approx(math.sqrt(5 / 3))  # ddof 1
    reach = 3.182446305284263 * math.sqrt(5 / 3) / 2  # t(0.975, 3), from a table
    assert (interval.low, interval.high) == pytest.approx((2.5 - reach, 2.5 + reach))


@given(scores.filter(lambda values: np.std(values) > 1e-6))
def test_t_interval_agrees_with_scipy(values):
    interval = mean_interval(values)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-9)


def test_one_value_has_a_mean_and_no_interval_and_none_is_refused():
    interval = mean_interval([0.7])
    assert (interval.mean, interval.n) == (0.7, 1)
    assert all(math.isnan(value) for value in (interval.std, interval.low, interval.high))
    with pytest.raises(ValueError, match="no values"):
        mean_interval([])


def test_holm_by_hand():
    # sorted: .01 * 4, .02 * 3, .03 * 2, .9 * 1, each at least the one before
    assert holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_holm_only_raises_and_lies_between_no_correction_and_bonferroni(values):
    for value, p in zip(values, holm(values), strict=True):
        assert value <= p <= min(1.0, len(values) * value)


def test_a_percentile_interval_leaves_a_fortieth_on_either_side():
    assert percentile_interval(np.arange(41.0)[::-1]) == (1.0, 39.0)


def test_a_group_is_drawn_whole_and_as_many_groups_as_there_are():
    groups = np.array([0, 0, 1, 2, 2, 2])
    counts = draw_groups(np.random.default_rng(9), groups, 400)
    assert counts.shape == (400, 6)
    assert (counts[:, 0] == counts[:, 1]).all()
    assert (counts[:, 3] == counts[:, 5]).all()
    assert (counts[:, [0, 2, 3]].sum(1) == 3).all()
    assert counts[:, [0, 2, 3]].mean(0) == pytest.approx([1, 1, 1], abs=0.15)


VALUES = np.array(
    [[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
)  # two units of two models


def test_units_that_share_the_texts_by_hand():
    """Units have means 1/2 and 2/3, texts 3/4, 1/4 and 3/4: the variances of both means add up."""
    both = two_level(VALUES, 2)
    assert (both.mean, both.units, both.texts) == (pytest.approx(7 / 12), 2, 3)
    assert both.by_unit == pytest.approx((1 / 6) ** 2 / 2 / 2)
    assert both.by_text == pytest.approx(((1 / 6) ** 2 * 2 + (1 / 3) ** 2) / 2 / 3)
    assert both.error**2 == pytest.approx(both.by_unit + both.by_text)
    assert both.freedom == pytest.approx(both.error**2 / (both.by_unit / 1 + both.by_text / 2))
    assert both.seed_std == pytest.approx(math.sqrt(((1 / 3) ** 2 / 2 + (2 / 3) ** 2 / 2) / 2))
    assert both.unit_std == 0  # less than the fine-tunings within explain
    apart = two_level(
        np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), 2
    )
    assert apart.unit_std == pytest.approx(
        math.sqrt((2 / 3) ** 2 / 2 - (1 / 3) ** 2 / 2 / 2)
    )  # 5/6 and 1/6


def test_folds_with_texts_of_their_own_by_hand():
    """Fold means 1, 1/2 and 0: their spread holds that of the texts, so the larger of the two is the error."""
    folds = np.array([7, 7, 3, 3, 5, 5])
    both = two_level(np.array([[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]]), folds=folds)
    assert (both.units, both.mean, both.nested) == (3, 0.5, True)
    assert both.by_unit == pytest.approx(2 * (0.25 + 0.25) / 2 / 6)
    assert both.by_text == pytest.approx(0.5 / 3 / 6)
    assert both.error == pytest.approx(math.sqrt(both.by_unit))
    assert math.isnan(both.seed_std)
    assert both.unit_std == pytest.approx(math.sqrt(0.25 - 0.5 / 3 / 2))
    alike = two_level(np.array([[1.0, 0.0] * 3]), folds=folds)
    assert (alike.by_unit, alike.error) == (0, pytest.approx(math.sqrt(1.5 / 3 / 6)))
    leave_one_out = two_level(np.array([[1.0, 0.0, 0.0]]), folds=np.arange(3))
    assert (leave_one_out.by_text, leave_one_out.error) == (0, pytest.approx(1 / 3)), (
        "each fold is one text"
    )


def test_the_interval_and_p_are_students():
    both = TwoLevel(0.3, 0.01, 0.0, 5, 100)
    assert both.freedom == pytest.approx(4)
    assert both.interval == pytest.approx(stats.t.interval(0.95, 4, 0.3, 0.1))
    assert both.p == pytest.approx(2 * stats.t.sf(3, 4))
    assert [TwoLevel(mean, 0.0, 0.0, 5, 100).p for mean in (0.0, 0.3)] == [1, 0]


def test_one_unit_leaves_the_texts_alone():
    one = two_level(VALUES[:1])
    low, high = stats.ttest_1samp(VALUES[0], 0).confidence_interval(0.95)
    assert one.interval == pytest.approx((low, high))
    assert math.isnan(one.unit_std)


def test_the_smallest_difference_by_hand_and_how_it_falls():
    both = TwoLevel(0.0, 0.01, 0.0, 5, 100)
    assert both.detectable(2) == pytest.approx(0.1 * (stats.t.isf(0.0125, 4) + stats.t.isf(0.2, 4)))
    many = TwoLevel(0.0, 0.0004, 0.0001, 5, 500)
    assert many.at(20, 500).error == pytest.approx(math.sqrt(0.0001 + 0.0001))
    assert many.at(5, 2000).error == pytest.approx(math.sqrt(0.0004 + 0.000025))
    folds = TwoLevel(0.0, 0.0004, 0.0002, 5, 500, nested=True)
    assert folds.at(5, 2000).error == pytest.approx(0.01)
    assert (
        smallest_difference(500, 5) > smallest_difference(500, 10) > smallest_difference(2000, 10)
    )
    assert smallest_difference(500, 5) == pytest.approx(0.077, abs=0.001)


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_the_error_over_texts_is_that_of_a_bootstrap(metric):
    random = np.random.default_rng(0)
    labels = random.choice(CLASSES, 400, p=[0.5, 0.3, 0.15, 0.05])
    answers = np.where(random.random((3, 400)) < 0.7, labels, random.integers(0, CLASSES, (3, 400)))
    values = KIND.influences(answers, labels, metric)
    scorer = KIND.scorer(answers, labels, metric)
    assert values.mean(1) == pytest.approx(scorer(np.ones((1, 400)))[0])
    resampled = scorer(random.multinomial(400, np.full(400, 1 / 400), 2000).astype(float)).mean(1)
    assert math.sqrt(two_level(values).by_text) == pytest.approx(resampled.std(), rel=0.06)


@pytest.mark.parametrize(("horizon", "bound"), [(4, 2.024), (5, 2.040), (10, 2.087)])
def test_bounds_are_those_of_o_brien_and_fleming_and_chance_crosses_one_in_twenty(horizon, bound):
    """Jennison and Turnbull 2000, table 2.3, with looks from the first on; the first two hardly count."""
    assert looks_bound(0.05, horizon) == pytest.approx(bound, abs=0.01)
    walks = np.random.default_rng(0).normal(size=(100_000, horizon)).cumsum(1)[:, 2:]
    crosses = (np.abs(walks) >= looks_bound(0.2, horizon) * math.sqrt(horizon)).any(1).mean()
    assert crosses == pytest.approx(0.2, abs=0.005)


@pytest.mark.parametrize("units", [3, 4, 5])
def test_with_looks_p_interval_and_level_decide_alike_and_more_strictly(units):
    one = TwoLevel(0.0, 0.01 / units, 0.001, units, 500)
    level = replace(one, horizon=5).level()
    assert level < 0.05
    edge = float(stdtrit(one.freedom, 1 - level / 2)) * one.error
    both = replace(one, mean=edge, horizon=5)
    assert replace(both, horizon=0).p == pytest.approx(level)
    assert (both.p, both.interval[0], both.interval[1]) == pytest.approx(
        (0.05, 0, 2 * edge), abs=1e-6
    )
    assert both.level(4) < level / 4 * 1.2
    assert replace(both, mean=0.0).p == 1
    assert 0 <= replace(both, mean=9.0, by_unit=0.0).p < 1e-8
    assert replace(both, horizon=0).detectable() < both.detectable()
    # By their texts: fields that are NaN are unequal since Python 3.13.
    assert str(both.at(9, 500)) == str(replace(both, horizon=0).at(9, 500))
    assert replace(both, horizon=units - 1).level() == replace(both, horizon=units).level(), (
        "a run that went on"
    )


def test_the_chance_to_decide_at_the_planned_end_by_hand():
    """z = 2 after 4 of 8: the trend leads to 2.83 at the end, and half of the information is ahead."""
    both = TwoLevel(0.2, 0.01, 0.0, 4, 10**9, horizon=8)
    z = -ndtri(replace(both, horizon=0).p / 2)
    expectation = ndtr((z * math.sqrt(2) - looks_bound(0.0125, 8)) * math.sqrt(2))
    assert both.chance(4) == pytest.approx(expectation)
    assert 0 < replace(both, mean=0.01).chance() < both.chance(4) < both.chance() < 1


def test_the_shares_of_the_squared_error_by_hand():
    shared = TwoLevel(0.1, 0.03, 0.01, 3, 100, unit_std=math.sqrt(0.06), seed_std=0.1)
    assert shared.shares == pytest.approx((0.5, 0.25, 0.25))
    assert replace(shared, nested=True).shares == pytest.approx((2 / 3, 0, 1 / 3)), (
        "a fold's variance contains its texts'"
    )
    assert replace(shared, by_unit=0.0, unit_std=math.nan).shares == (0, 0, 1)
    assert TwoLevel(0.0, 0.0, 0.0, 3, 100, unit_std=0.0).shares == (0, 0, 0)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_small_levels_of_few_units_keep_their_error(share):
    """Satterthwaite's degrees of freedom decide up to 1.6 times too often here (docs/results/verdicts.md)."""
    random, units, texts, draws, level = np.random.default_rng(0), 5, 2000, 20_000, 0.0125
    by_unit = share * random.chisquare(units - 1, draws) / (units - 1)
    by_text = (1 - share) * random.chisquare(texts - 1, draws) / (texts - 1)
    rows = zip(random.normal(size=draws), by_unit, by_text, strict=True)
    decided = sum(TwoLevel(*map(float, row), units, texts).p <= level for row in rows) / draws
    assert decided <= 1.2 * level, "1.07 times at worst, standard error .06"


def test_the_rule_finds_the_smallest_difference_of_a_probe_in_four_of_five_runs():
    random = np.random.default_rng(0)
    for texts, folds, stated in ((2000, 1, 0.014), (400, 5, 0.034)):
        smallest = smallest_difference(texts, folds, probe=True)
        assert smallest == pytest.approx(stated, abs=5e-4)
        assert smallest < smallest_difference(texts, folds)
        found = 0
        for _ in range(300):
            of_units = random.normal(0, PROBE_DEVIATION, 5)
            of_texts = smallest + random.normal(0, PROBE_DISAGREEMENT**0.5, texts)
            if folds == 1:
                result = two_level(of_texts + of_units[:, None], 5)
            else:
                numbers = np.arange(texts) % folds
                result = two_level((of_texts + of_units[numbers])[None], folds=numbers)
            found += result.p <= ALPHA
        assert 0.72 < found / 300 < 0.88
