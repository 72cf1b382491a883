"""The in-domain share of pool and selection, against mixtures whose truth is known."""

import numpy as np
import pytest

from dana.core.rng import generator
from dana.weighting import in_domain as module
from dana.weighting.in_domain import (
    Estimate,
    InDomain,
    UnitScores,
    in_domain_probability,
    local_mean,
)
from dana.weighting.selection import sample_documents


def in_domain(target, keep, pool, selected_share, seed):
    return module.estimate_in_domain(target, keep, pool, selected_share, generator(seed, "mixture"))


def mixed(seed, share, distance, units=6000, target_units=150, beta=0.2):
    """A pool with `share` of the task's kind, the rest `distance` deviations away; the lowest beta is kept."""
    rng = np.random.default_rng(seed)
    target, is_target = rng.normal(0, 1, target_units), rng.random(units) < share
    pool = np.where(is_target, rng.normal(0, 1, units), rng.normal(distance, 1, units))
    weight = np.zeros(units)
    weight[np.argsort(pool)[: round(beta * units)]] = 1
    keep = local_mean(pool, weight, target)
    result = in_domain(
        UnitScores(target, np.arange(target_units)),
        keep,
        UnitScores(pool, np.arange(units)),
        beta,
        seed,
    )
    return result, is_target[weight > 0].mean()


@pytest.mark.parametrize(("share", "distance"), [(0.02, 2.0), (0.11, 3.0), (0.3, 2.0)])
def test_shares_of_a_known_mixture(share, distance):
    results, truth = zip(*(mixed(seed, share, distance) for seed in range(8)), strict=True)
    assert np.mean([one.pool.value for one in results]) == pytest.approx(share, abs=0.03)
    assert np.mean([one.precision.value for one in results]) == pytest.approx(
        np.mean(truth), abs=0.06
    )
    assert (
        sum(
            one.precision.low <= true <= one.precision.high
            for one, true in zip(results, truth, strict=True)
        )
        >= 4
    )


@pytest.mark.parametrize("share", [0.05, 0.11, 0.3])
def test_a_gap_in_low_scores_hides_nothing(share):
    """With few documents held out, a seventh of them may score lower than any of the pool: chance, not a share of 0."""
    target = np.concatenate([np.full(4, -3.0), np.linspace(-1, 1, 26)])
    alike, other = round(share * 1000), round((1 - share) * 1000)
    pool = np.concatenate([np.linspace(-1, 1, alike), np.linspace(5, 6, other)])
    keep = np.ones(target.size)
    result = in_domain(
        UnitScores(target, np.arange(30)), keep, UnitScores(pool, np.arange(pool.size)), share, 0
    )
    assert result.pool.value == pytest.approx(share, rel=0.25)


def test_shares_by_hand():
    # the tenth of ten target documents is the only threshold with ten below: 10 of 40 in the pool, 10
    # of 10 of the task
    target, pool = np.arange(10.0), np.append(np.arange(10.0), np.full(30, 100.0))
    result = in_domain(
        UnitScores(target, np.arange(10)), np.ones(10), UnitScores(pool, np.arange(40)), 0.1, 0
    )
    assert (result.pool.value, result.recall.value, result.precision.value) == (0.25, 1, 1), (
        "not 0.25 / 0.1"
    )
    one = Estimate.from_replicates(np.array([9.0, 1.0, 1.0]))
    assert one == Estimate(9.0, 1.0, 1.0), "an interval is of the replicates alone"
    assert [
        InDomain(Estimate(0.5, 0.2, high), one, one, 0.1).tells_apart for high in (0.94, 0.96)
    ] == [True, False]


def test_overlapping_scores_give_an_upper_bound():
    results, truth = zip(*(mixed(seed, 0.11, 1.0) for seed in range(8)), strict=True)
    assert np.mean([one.precision.value for one in results]) > np.mean(truth) + 0.1
    assert mixed(0, 0.11, 0.0)[0].pool.high > 0.95, "scores without information exclude nothing"


@pytest.mark.parametrize(("seed", "alike", "other"), [(0, 60, 140), (2, 3, 27)])
def test_repeated_units_change_no_share(seed, alike, other):
    """Confidence limits count documents: repeated units would choose another threshold by T (first) or G (second)."""
    rng = np.random.default_rng(seed)
    target, pool = (
        rng.normal(0, 1, 40),
        np.concatenate([rng.normal(0, 1, alike), rng.normal(2, 1, other)]),
    )
    estimates = []
    for repeats in (1, 20):
        sides = [
            UnitScores(np.repeat(one, repeats), np.repeat(np.arange(one.size), repeats))
            for one in (target, pool)
        ]
        estimates.append(in_domain(sides[0], np.ones(40 * repeats), sides[1], 1.0, 0).pool.value)
    assert estimates[1] == pytest.approx(estimates[0])


def test_the_interval_is_over_documents():
    rng = np.random.default_rng(0)
    documents = np.repeat(np.arange(15), 20)
    scores = np.repeat(rng.normal(0, 1, 15), 20) + rng.normal(0, 0.1, 300)
    pool = UnitScores(
        np.concatenate([rng.normal(0, 1, 1000), rng.normal(4, 1, 2000)]), np.arange(3000)
    )
    keep, widths = (scores < 0).astype(float), []
    for of in (documents, np.arange(300)):
        recall = in_domain(UnitScores(scores, of), keep, pool, 0.2, 0).recall
        assert recall.low < recall.value == keep.mean() < recall.high
        widths.append(recall.high - recall.low)
    assert widths[0] > 2 * widths[1]


def test_local_mean_by_hand():
    values, weights = np.arange(10.0), np.array([1, 1, 1, 0, 0, 0, 0, 0, 0, 0.5])
    at = np.array([-5, 1, 3, 6, 99])  # windows: ranks 0-1, 0-2, 1-4, 4-7, 8-9
    np.testing.assert_allclose(local_mean(values, weights, at, 0.4), [1, 1, 0.5, 0, 0.25])


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_the_probability_of_a_unit_is_that_of_bayes(share):
    """Normal scores, task at 0 and others at 3: P(task | s) = 1 / (1 + (1 - π) / π · exp(3 s - 4.5))."""
    rng = np.random.default_rng(0)
    target, is_target = rng.normal(0, 1, 400), rng.random(20_000) < share
    pool = np.where(is_target, rng.normal(0, 1, is_target.size), rng.normal(3, 1, is_target.size))
    sides = UnitScores(target, np.arange(400)), UnitScores(pool, np.arange(pool.size))
    probability = in_domain_probability(*sides, share)
    bayes = 1 / (1 + (1 - share) / share * np.exp(3 * pool - 4.5))
    assert np.abs(probability - bayes).mean() < 0.02
    assert (np.diff(probability[np.argsort(pool)]) <= 1e-12).all()
    assert 0 <= probability.min() <= probability.max() <= 1
    mostly = in_domain(*sides[:1], np.ones(400), sides[1], 1.0, 0).likely_share
    assert mostly == pytest.approx((bayes >= 0.5).mean(), abs=0.02)


@pytest.mark.parametrize(
    ("size", "fewest_units", "most_units"), [(500, 1, 699), (10_000, 2000, 2000)]
)
def test_whole_documents_are_sampled(size, fewest_units, most_units):
    document = np.repeat(np.arange(400), 5)
    mask = sample_documents(document, size, generator(3, "mixture"))
    assert fewest_units <= mask.sum() <= most_units
    np.testing.assert_array_equal(mask, np.isin(document, document[mask]))


@pytest.mark.parametrize("sizes", [[1000], [700, 2, 900]])
def test_huge_documents_are_sampled_by_unit(sizes):
    document = np.repeat(np.arange(len(sizes)), sizes)
    mask = sample_documents(document, 9, generator(3, "mixture"))
    step = int(np.ceil(document.size / 9))
    np.testing.assert_array_equal(np.flatnonzero(mask), np.arange(0, document.size, step))
    assert 0 < mask.sum() <= 9
