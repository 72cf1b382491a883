"""Intervals, paired tests and bootstraps against hand-computed values, scipy and scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dana.core.statistics import (
    draw_groups,
    fewest_seeds,
    holm,
    mean_interval,
    paired_bootstrap,
    paired_differences,
    percentile_interval,
    sign_flip_p,
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


def test_differences_pair_by_seed_not_by_position():
    assert paired_differences({2: 0.5, 0: 0.9, 7: 0.1}, {0: 0.4, 1: 0.0, 2: 0.25}) == [0.5, 0.25]
    with pytest.raises(ValueError, match=r"\[0\] and \[1\]"):
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
    p = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert sign_flip_p(values) == pytest.approx(p)


def test_more_pairs_than_can_be_enumerated_are_sampled_close_to_exact():
    values = np.random.default_rng(4).normal(0.5, 1, 14)
    p = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=2**14).pvalue
    assert 0 < p < 0.2
    assert sign_flip_p(values) == pytest.approx(p, abs=0.01)
    assert sign_flip_p([1.0] * 30) == 1 / 20_001  # never 0
    with pytest.raises(ValueError, match="no differences"):
        sign_flip_p([])


def test_holm_by_hand():
    # sorted: .01 * 4, .02 * 3, .03 * 2, .9 * 1, each at least the one before
    assert holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_holm_only_raises_and_lies_between_no_correction_and_bonferroni(values):
    for value, p in zip(values, holm(values), strict=True):
        assert value <= p <= min(1.0, len(values) * value)


@pytest.mark.parametrize(("questions", "fewest"), [(1, 6), (2, 7), (3, 7), (4, 8), (5, 8), (8, 9)])
def test_the_fewest_seeds_are_those_whose_least_p_passes_holm(questions, fewest):
    assert fewest_seeds(questions) == fewest
    too_few, enough = (holm([sign_flip_p([1.0] * n), *[1.0] * (questions - 1)])[0] for n in (fewest - 1, fewest))
    assert too_few > 0.05 >= enough


def _arm(random, labels, right, seeds=5):
    """Predictions that are right with a given probability, else any class but the last."""
    shape = (seeds, labels.size)
    return np.where(random.random(shape) < right, labels, random.integers(0, CLASSES - 1, shape))


@pytest.fixture
def labels():
    return np.random.default_rng(0).integers(0, CLASSES - 1, 300)  # the last class never occurs


def bootstrap(arm, other, labels, metric="accuracy", **how):
    """The two-level bootstrap of two arms' predictions, examples that all models answer alike drawn together."""
    answers, true, counts = KIND.group_alike(np.vstack([arm, other]), labels)
    return paired_bootstrap(KIND.scorer(answers, true, metric), counts, **how)


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_the_estimate_is_the_difference_of_the_mean_scores(labels, metric):
    random = np.random.default_rng(2)
    better, worse = _arm(random, labels, 0.8), _arm(random, labels, 0.6)
    means = [KIND.scorer(arm, labels, metric)(np.ones((1, labels.size))).mean() for arm in (better, worse)]
    interval = bootstrap(better, worse, labels, metric, resamples=200)
    assert interval.mean == pytest.approx(means[0] - means[1])
    assert 0 < interval.low < interval.mean < interval.high
    assert interval.n == 5


def test_an_arm_does_not_differ_from_itself(labels):
    arm = _arm(np.random.default_rng(3), labels, 0.7)
    interval = bootstrap(arm, arm, labels, "macro_f1", resamples=50)
    assert (interval.mean, interval.low, interval.high, interval.std) == (0, 0, 0, 0)


def test_the_spread_is_that_of_resampled_examples_where_seeds_agree(labels):
    """With identical seeds only the examples vary: the standard error of a mean of paired differences."""
    random = np.random.default_rng(4)
    better, worse = (np.repeat(_arm(random, labels, right, 1), 6, 0) for right in (0.8, 0.6))
    each = (better[0] == labels).astype(float) - (worse[0] == labels)
    interval = bootstrap(better, worse, labels, "accuracy", resamples=4000)
    assert interval.std == pytest.approx(each.std() / np.sqrt(labels.size), rel=0.05)


def test_seeds_that_disagree_widen_the_interval(labels):
    random = np.random.default_rng(5)
    worse = _arm(random, labels, 0.6)
    uneven = np.concatenate([_arm(random, labels, right, 1) for right in (0.5, 0.6, 0.7, 0.8, 0.9)])
    even = _arm(random, labels, 0.7)
    wide, narrow = (bootstrap(arm, worse, labels, "accuracy", resamples=400).std for arm in (uneven, even))
    assert wide > 1.5 * narrow


def test_the_same_seed_gives_the_same_interval(labels):
    random = np.random.default_rng(6)
    arms = _arm(random, labels, 0.8), _arm(random, labels, 0.7)
    first, again = (bootstrap(*arms, labels, "accuracy", resamples=50) for _ in range(2))
    other = bootstrap(*arms, labels, "accuracy", resamples=50, seed=1)
    assert first == again
    assert first != other


def test_examples_that_are_drawn_together_change_no_number(labels):
    """The sorts only save time: one sort an example has the same mean, and about the same interval."""
    random = np.random.default_rng(8)
    arms = _arm(random, labels, 0.8), _arm(random, labels, 0.7)
    together = bootstrap(*arms, labels, resamples=2000)
    alone = paired_bootstrap(KIND.scorer(np.vstack(arms), labels, "accuracy"), np.ones(labels.size, dtype=int))
    assert together.mean == pytest.approx(alone.mean)
    assert (together.low, together.high) == pytest.approx((alone.low, alone.high), abs=0.01)


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_the_parts_of_the_variance_need_two_seeds_and_add_up(labels, seeds):
    better, worse = (_arm(np.random.default_rng(right), labels, right / 10, seeds) for right in (8, 6))
    interval = bootstrap(better, worse, labels, "accuracy", resamples=300)
    parts = [interval.examples, interval.interaction]
    assert np.isnan(parts).all() == (seeds == 1)
    each = ((better == labels).astype(float) - (worse == labels)).var(1) / labels.size
    assert seeds == 1 or np.square(parts).sum() == pytest.approx(each.mean(), rel=0.2)


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


def test_the_deviation_over_examples_is_split_into_common_and_interaction(labels):
    """Seeds that agree share all of it; of others it is the mean covariance of two seeds' differences over texts."""
    random = np.random.default_rng(6)
    worse = np.repeat(_arm(random, labels, 0.6, 1), 3, 0)
    alike = np.repeat(_arm(random, labels, 0.8, 1), 3, 0)
    interval = bootstrap(alike, worse, labels, "accuracy")
    each = ((alike[0] == labels).astype(float) - (worse[0] == labels)).std() / np.sqrt(labels.size)
    assert interval.examples == pytest.approx(each, rel=0.05)
    assert interval.interaction == pytest.approx(0, abs=1e-6)
    better = _arm(random, labels, 0.8, 3)
    interval = bootstrap(better, worse, labels, "accuracy")
    differences = (better == labels).astype(float) - (worse == labels)
    covariance = np.cov(differences, ddof=0) / labels.size
    common = covariance[~np.eye(3, dtype=bool)].mean()
    assert interval.examples == pytest.approx(np.sqrt(common), rel=0.06)
    assert interval.interaction == pytest.approx(np.sqrt(np.diag(covariance).mean() - common), rel=0.06)
    assert np.isnan(bootstrap(better[:1], worse[:1], labels, "accuracy", resamples=50).interaction)
