"""The in-domain share of pool and selection, against mixtures whose truth is known."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from dana.core.rng import generator
from dana.weighting import mixture
from dana.weighting.mixture import UnitScores, in_domain_probability, local_mean
from dana.weighting.pool import Sample


def in_domain(task, keep, pool, kept_share, seed):
    return mixture.in_domain(task, keep, pool, kept_share, generator(seed, "mixture"))


def mixed(seed, share, distance, units=6000, task_units=150, beta=0.2):
    """A pool with `share` of the task's kind, the rest `distance` deviations away; the lowest beta is kept."""
    rng = np.random.default_rng(seed)
    task, is_task = rng.normal(0, 1, task_units), rng.random(units) < share
    pool = np.where(is_task, rng.normal(0, 1, units), rng.normal(distance, 1, units))
    weight = np.zeros(units)
    weight[np.argsort(pool)[: round(beta * units)]] = 1
    keep = local_mean(pool, weight, task)
    found = in_domain(UnitScores(task, np.arange(task_units)), keep, UnitScores(pool, np.arange(units)), beta, seed)
    return found, is_task[weight > 0].mean()


@pytest.mark.parametrize("distance", [2.0, 3.0])
@pytest.mark.parametrize("share", [0.02, 0.11, 0.3])
def test_the_shares_are_roughly_those_of_the_mixture(share, distance):
    found, truth = zip(*(mixed(seed, share, distance) for seed in range(8)), strict=True)
    assert np.mean([one.pool.value for one in found]) == pytest.approx(share, abs=0.03)
    assert np.mean([one.kept.value for one in found]) == pytest.approx(np.mean(truth), abs=0.06)
    assert sum(one.kept.low <= true <= one.kept.high for one, true in zip(found, truth, strict=True)) >= 4


@pytest.mark.parametrize("share", [0.05, 0.11, 0.3])
def test_a_gap_in_the_pool_s_low_scores_does_not_hide_its_domain(share):
    """With few documents held out, a seventh of them may score lower than any of the pool: chance, not a share of 0."""
    task = np.concatenate([np.full(4, -3.0), np.linspace(-1, 1, 26)])
    alike, other = round(share * 1000), round((1 - share) * 1000)
    pool = np.concatenate([np.linspace(-1, 1, alike), np.linspace(5, 6, other)])
    keep = np.ones(task.size)
    found = in_domain(UnitScores(task, np.arange(30)), keep, UnitScores(pool, np.arange(pool.size)), share, 0)
    assert found.pool.value == pytest.approx(share, rel=0.25)


def test_eleven_percent_in_the_pool_are_half_of_a_kept_fifth():
    found, truth = mixed(0, 0.11, 3.0)
    assert 0.5 < truth < 0.56
    assert found.pool.value == pytest.approx(0.11, abs=0.02)
    assert found.kept.value == pytest.approx(truth, abs=0.1)
    assert found.recall.value > 0.95


def test_text_that_scores_alike_makes_it_an_upper_bound():
    found, truth = zip(*(mixed(seed, 0.11, 1.0) for seed in range(8)), strict=True)
    assert np.mean([one.kept.value for one in found]) > np.mean(truth) + 0.1


def test_scores_that_tell_nothing_leave_all_possible():
    assert mixed(0, 0.11, 0.0)[0].pool.high > 0.95


def test_documents_not_units_make_the_interval():
    rng = np.random.default_rng(0)
    documents = np.repeat(np.arange(15), 20)
    scores = np.repeat(rng.normal(0, 1, 15), 20) + rng.normal(0, 0.1, 300)
    pool = UnitScores(np.concatenate([rng.normal(0, 1, 1000), rng.normal(4, 1, 2000)]), np.arange(3000))
    keep, widths = (scores < 0).astype(float), []
    for of in (documents, np.arange(300)):
        recall = in_domain(UnitScores(scores, of), keep, pool, 0.2, 0).recall
        assert recall.low < recall.value == keep.mean() < recall.high
        widths.append(recall.high - recall.low)
    assert widths[0] > 2 * widths[1]


@pytest.mark.parametrize(("seed", "alike", "other"), [(0, 60, 140), (2, 3, 27)])
def test_units_that_repeat_within_a_document_change_no_share(seed, alike, other):
    """Limits of T (the first pool) or G (the second) that counted units would choose another threshold."""
    rng = np.random.default_rng(seed)
    task = rng.normal(0, 1, 40)
    pool = np.concatenate([rng.normal(0, 1, alike), rng.normal(2, 1, other)])
    keep = np.ones(task.size)
    once = in_domain(UnitScores(task, np.arange(40)), keep, UnitScores(pool, np.arange(pool.size)), 1.0, 0)
    sides = [UnitScores(np.repeat(scores, 20), np.repeat(np.arange(scores.size), 20)) for scores in (task, pool)]
    often = in_domain(sides[0], np.repeat(keep, 20), sides[1], 1.0, 0)
    assert often.pool.value == pytest.approx(once.pool.value)


def test_a_sample_of_a_large_pools_documents_says_the_same():
    rng = np.random.default_rng(0)
    task, is_task = rng.normal(0, 1, 150), rng.random(6000) < 0.3
    pool = np.where(is_task, rng.normal(0, 1, 6000), rng.normal(3, 1, 6000))
    sample = Sample(6000, 2000, generator(0, "mixture"))
    sample.add(np.arange(6000), pa.table({"value": pool}))
    thinned = sample.table()["value"].to_numpy()
    assert 1800 < thinned.size < 2200
    whole, part = (
        in_domain(UnitScores(task, np.arange(150)), np.ones(150), UnitScores(of, np.arange(of.size)), 1.0, 0)
        for of in (pool, thinned)
    )
    assert part.pool.value == pytest.approx(whole.pool.value, abs=0.04)


def test_local_mean_by_hand():
    values, weights = np.arange(10.0), np.array([1, 1, 1, 0, 0, 0, 0, 0, 0, 0.5])
    asked = np.array([-5, 1, 3, 6, 99])  # windows: ranks 0-1, 0-2, 1-4, 4-7, 8-9
    np.testing.assert_allclose(local_mean(values, weights, asked, 0.4), [1, 1, 0.5, 0, 0.25])


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_the_probability_of_a_unit_is_that_of_bayes(share):
    """Normal scores, task at 0 and others at 3: P(task | s) = 1 / (1 + (1 - π) / π · exp(3 s - 4.5))."""
    rng = np.random.default_rng(0)
    task, is_task = rng.normal(0, 1, 400), rng.random(20_000) < share
    pool = np.where(is_task, rng.normal(0, 1, is_task.size), rng.normal(3, 1, is_task.size))
    sides = UnitScores(task, np.arange(400)), UnitScores(pool, np.arange(pool.size))
    found = in_domain_probability(*sides, share)
    bayes = 1 / (1 + (1 - share) / share * np.exp(3 * pool - 4.5))
    assert np.abs(found - bayes).mean() < 0.02
    assert (np.diff(found[np.argsort(pool)]) <= 1e-12).all()
    assert found.min() >= 0
    assert found.max() <= 1
    mostly = in_domain(*sides[:1], np.ones(400), sides[1], 1.0, 0).mostly
    assert mostly == pytest.approx((bayes >= 0.5).mean(), abs=0.02)


def sample_of(values, documents, starts, most, seed=3):
    """What is taken of a pool that comes in blocks, which begin with these documents."""
    sample = Sample(values.size, most, generator(seed, "mixture"))
    for first, last in pairwise([*starts, documents[-1] + 1]):
        rows = (documents >= first) & (documents < last)
        sample.add(documents[rows], pa.table({"value": values[rows], "document": documents[rows]}))
    return sample.table()


@pytest.mark.parametrize("most", [500, 10_000])
def test_what_is_drawn_of_a_pool_does_not_depend_on_its_blocks(most):
    documents = np.repeat(np.arange(400), 5)
    values = np.random.default_rng(0).normal(size=2000)
    one, two = (sample_of(values, documents, starts, most) for starts in ([0], [0, 1, 150, 151, 390]))
    assert one.num_rows < 700 if most == 500 else one.num_rows == 2000
    assert one.combine_chunks().equals(two.combine_chunks())
    taken = np.isin(values, one["value"].to_numpy())  # of whole documents
    np.testing.assert_array_equal(taken, np.isin(documents, documents[taken]))


@pytest.mark.parametrize("sizes", [[1000], [700, 2, 900]])
def test_of_huge_documents_of_which_none_is_drawn_every_nth_unit_is_taken(sizes):
    documents = np.repeat(np.arange(len(sizes)), sizes)
    values = np.random.default_rng(0).normal(size=documents.size)
    for starts in ([0], range(len(sizes))):
        taken = sample_of(values, documents, starts, 9)
        step = int(np.ceil(values.size / 9))
        np.testing.assert_array_equal(taken["value"], values[::step])
        assert 0 < taken.num_rows <= 9


def test_where_any_document_is_drawn_only_whole_ones_are_taken():
    documents = np.repeat(np.arange(20), 50)
    found = [sample_of(documents * 1.0, documents, range(20), 40, seed)["document"].to_numpy() for seed in range(60)]
    sizes = [np.unique(taken, return_counts=True) for taken in found]
    none = [of.tolist() for of, units in sizes if units.max() < 50]
    late = [of for of, units in sizes if units.max() == 50 and of[0] > 0]
    assert none == [list(range(20))] * len(none)
    assert 15 < len(none) < 40  # 0.96 ** 20 of the seeds are 26
    assert late
    assert all((units == 50).all() for _, units in sizes if units.max() == 50)
