import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dana.report.statistics import (
    fewest_seeds,
    holm,
    mean_interval,
    paired_differences,
    sign_flip_p,
)

scores = st.lists(st.floats(0, 1), min_size=2, max_size=12)


def test_mean_std_and_t_interval_by_hand():
    found = mean_interval([1.0, 2.0, 3.0, 4.0])
    assert (found.mean, found.n) == (2.5, 4)
    assert found.std == pytest.approx(math.sqrt(5 / 3))  # ddof 1
    reach = 3.182446305284263 * math.sqrt(5 / 3) / 2  # t(0.975, 3), from a table
    assert (found.low, found.high) == pytest.approx((2.5 - reach, 2.5 + reach))


@given(scores.filter(lambda values: np.std(values) > 1e-6))
def test_t_interval_agrees_with_scipy(values):
    found = mean_interval(values, level=0.9)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


def test_one_value_has_a_mean_and_no_interval():
    found = mean_interval([0.7])
    assert (found.mean, found.n) == (0.7, 1)
    assert all(math.isnan(value) for value in (found.std, found.low, found.high))


def test_no_values_are_refused():
    with pytest.raises(ValueError, match="no values"):
        mean_interval([])


def test_differences_pair_by_seed_not_by_place():
    assert paired_differences({2: 0.5, 0: 0.9, 7: 0.1}, {0: 0.4, 1: 0.0, 2: 0.25}) == [0.5, 0.25]


def test_arms_without_a_common_seed_are_refused():
    with pytest.raises(ValueError, match=r"no seed in common: \[0\] and \[1\]"):
        paired_differences({0: 1.0}, {1: 1.0})


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ([0.3], 1.0),
        ([1.0, 1.0], 0.5),
        ([1.0, 2.0, 3.0], 0.25),
        ([1.0, 2.0, -1.0], 0.75),  # |sum| of ±1±2±1: 2 4 0 2 2 0 4 2, of which six reach 2
        ([0.0, 0.0], 1.0),
        ([0.1, 0.1, 0.1, 0.1, 0.1], 0.0625),
    ],
)
def test_sign_flip_p_by_hand(values, p):
    assert sign_flip_p(values) == p


@given(scores)
def test_sign_flip_p_does_not_depend_on_sign_or_scale(values):
    assert sign_flip_p(values) == sign_flip_p([-3 * value for value in values])


def test_sign_flip_p_agrees_with_scipy():
    values = np.random.default_rng(3).normal(0.3, 1, 9)
    expected = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert sign_flip_p(values) == pytest.approx(expected)


def test_more_pairs_than_can_be_enumerated_are_sampled_close_to_exact():
    values = np.random.default_rng(4).normal(0.5, 1, 14)
    expected = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=2**14).pvalue
    assert 0 < expected < 0.2
    assert sign_flip_p(values) == pytest.approx(expected, abs=0.01)
    assert sign_flip_p([1.0] * 30) == 1 / 20_001  # never 0


def test_no_differences_are_refused():
    with pytest.raises(ValueError, match="no differences"):
        sign_flip_p([])


def test_holm_by_hand():
    # sorted: .01 * 4, .02 * 3, .03 * 2, .9 * 1, each at least the one before
    assert holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_holm_only_raises_and_lies_between_no_correction_and_bonferroni(values):
    for value, adjusted in zip(values, holm(values), strict=True):
        assert value <= adjusted <= min(1.0, len(values) * value)


@pytest.mark.parametrize(("questions", "fewest"), [(1, 6), (2, 7), (3, 7), (4, 8), (5, 8), (8, 9)])
def test_the_fewest_seeds_are_those_whose_least_p_passes_holm(questions, fewest):
    assert fewest_seeds(questions) == fewest
    least = [holm([sign_flip_p([1.0] * n), *[1.0] * (questions - 1)])[0] for n in (fewest - 1, fewest)]
    assert least[0] > 0.05 >= least[1]
