"""The in-domain share of pool and selection, against mixtures whose truth is known."""

from itertools import pairwise

import numpy as np
import pytest

from dana.weighting import mixture
from dana.weighting.mixture import PoolSample, Scored, in_domain_probability


def in_domain(task, keep, pool, kept_share, seed):
    """Of a pool in memory, that comes in two blocks."""
    sample, half = PoolSample(pool.scores.size, seed), int(np.searchsorted(pool.documents, pool.documents[-1] // 2 + 1))
    for rows in (slice(0, half), slice(half, None)):
        if pool.scores[rows].size:
            sample.add(pool.scores[rows], pool.documents[rows])
    return mixture.in_domain(task, keep, sample, kept_share)


def local_mean(values, weights, at, share=0.01, parts=3):
    """Of units in memory, in so many blocks."""
    order = np.argsort(values, kind="stable")
    blocks = [(values[rows], np.ones(rows.size, dtype=int), weights[rows]) for rows in np.array_split(order, parts)]
    return mixture.local_mean(lambda: iter(blocks), values.size, at, share)


def mixed(seed, share, distance, units=6000, task_units=150, beta=0.2):
    """A pool with `share` of the task's kind, the rest `distance` deviations away; the lowest beta is kept."""
    rng = np.random.default_rng(seed)
    task, is_task = rng.normal(0, 1, task_units), rng.random(units) < share
    pool = np.where(is_task, rng.normal(0, 1, units), rng.normal(distance, 1, units))
    weight = np.zeros(units)
    weight[np.argsort(pool)[: round(beta * units)]] = 1
    keep = local_mean(pool, weight, task)
    found = in_domain(Scored(task, np.arange(task_units)), keep, Scored(pool, np.arange(units)), beta, seed)
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
    found = in_domain(Scored(task, np.arange(30)), keep, Scored(pool, np.arange(pool.size)), share, 0)
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
    pool = Scored(np.concatenate([rng.normal(0, 1, 1000), rng.normal(4, 1, 2000)]), np.arange(3000))
    keep, widths = (scores < 0).astype(float), []
    for of in (documents, np.arange(300)):
        recall = in_domain(Scored(scores, of), keep, pool, 0.2, 0).recall
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
    once = in_domain(Scored(task, np.arange(40)), keep, Scored(pool, np.arange(pool.size)), 1.0, 0)
    sides = [Scored(np.repeat(scores, 20), np.repeat(np.arange(scores.size), 20)) for scores in (task, pool)]
    often = in_domain(sides[0], np.repeat(keep, 20), sides[1], 1.0, 0)
    assert often.pool.value == pytest.approx(once.pool.value)


def test_a_large_pool_is_thinned_by_document_and_says_the_same(monkeypatch):
    whole = mixed(0, 0.3, 3.0)[0]
    monkeypatch.setattr("dana.weighting.mixture.LARGEST_POOL", 2000)
    thinned = mixed(0, 0.3, 3.0)[0]
    assert thinned != whole
    assert thinned.pool.value == pytest.approx(whole.pool.value, abs=0.04)


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
    sides = Scored(task, np.arange(400)), Scored(pool, np.arange(pool.size))
    found = in_domain_probability(*sides, share)
    bayes = 1 / (1 + (1 - share) / share * np.exp(3 * pool - 4.5))
    assert np.abs(found - bayes).mean() < 0.02
    assert (np.diff(found[np.argsort(pool)]) <= 1e-12).all()
    assert found.min() >= 0
    assert found.max() <= 1
    mostly = in_domain(*sides[:1], np.ones(400), sides[1], 1.0, 0).mostly
    assert mostly == pytest.approx((bayes >= 0.5).mean(), abs=0.02)


def test_groups_of_units_count_as_their_units_do():
    rng = np.random.default_rng(0)
    sizes, weights = rng.integers(1, 9, 200), rng.integers(0, 2, 200).astype(float)
    values, at = np.sort(rng.normal(size=200)), rng.normal(size=50)
    groups = [tuple(column[rows] for column in (values, sizes, weights)) for rows in (slice(0, 70), slice(70, 200))]
    found = mixture.local_mean(lambda: iter(groups), int(sizes.sum()), at, 0.05)
    np.testing.assert_array_equal(found, local_mean(np.repeat(values, sizes), np.repeat(weights, sizes), at, 0.05))


@pytest.mark.parametrize("largest", [500, 10_000])
def test_what_is_drawn_of_a_pool_does_not_depend_on_its_blocks(monkeypatch, largest):
    monkeypatch.setattr(mixture, "LARGEST_POOL", largest)
    documents = np.repeat(np.arange(400), 5)
    scores = np.random.default_rng(0).normal(size=2000)
    found = []
    for starts in ([0, 400], [0, 1, 150, 151, 390, 400]):
        sample = PoolSample(2000, 3)
        for first, last in pairwise(starts):
            rows = (documents >= first) & (documents < last)
            sample.add(scores[rows], documents[rows])
        found.append((sample.scored, sample.scored.weights(sample.random)))
    (one, drawn), (two, again) = found
    assert one.scores.size < 700 if largest == 500 else one.scores.size == 2000
    np.testing.assert_array_equal(one.scores, two.scores)
    np.testing.assert_array_equal(one.documents, two.documents)
    np.testing.assert_array_equal(drawn, again)
    taken = np.isin(scores, one.scores)  # of whole documents, which are numbered anew without a gap
    np.testing.assert_array_equal(one.documents, np.unique(documents[taken], return_inverse=True)[1])
    np.testing.assert_array_equal(taken, np.isin(documents, documents[taken]))
    assert all(np.unique(drawn[one.documents == document]).size == 1 for document in np.unique(one.documents))


def sample_of(scores, documents, starts, seed=3):
    sample = PoolSample(scores.size, seed)
    for first, last in pairwise([*starts, documents[-1] + 1]):
        rows = (documents >= first) & (documents < last)
        sample.add(scores[rows], documents[rows])
    return sample


@pytest.mark.parametrize("sizes", [[1000], [700, 2, 900]])
def test_of_huge_documents_of_which_none_is_drawn_every_nth_unit_is_taken(monkeypatch, sizes):
    monkeypatch.setattr(mixture, "LARGEST_POOL", 9)
    documents = np.repeat(np.arange(len(sizes)), sizes)
    scores = np.random.default_rng(0).normal(size=documents.size)
    for starts in ([0], range(len(sizes))):
        sample = sample_of(scores, documents, starts)
        taken = sample.scored
        step = int(np.ceil(scores.size / 9))
        np.testing.assert_array_equal(taken.scores, scores[::step])
        assert 0 < taken.scores.size <= 9
        # numbered without a gap, although of the document of two units none is taken
        assert sorted(set(taken.documents.tolist())) == list(range(len(set(documents[::step].tolist()))))
        found = mixture.in_domain(Scored(np.linspace(-3, 0, 30), np.arange(30)), np.ones(30), sample, 1.0)
        assert 0 <= found.pool.low <= found.pool.value <= found.pool.high <= 1


def test_where_any_document_is_drawn_only_whole_ones_are_taken(monkeypatch):
    monkeypatch.setattr(mixture, "LARGEST_POOL", 40)
    documents = np.repeat(np.arange(20), 50)
    scores = documents.astype(float)
    found = [sample_of(scores, documents, range(20), seed).scored.scores for seed in range(60)]
    sizes = [np.unique(taken, return_counts=True) for taken in found]
    none = [of.tolist() for of, units in sizes if units.max() < 50]
    late = [of for of, units in sizes if units.max() == 50 and of[0] > 0]
    assert none == [list(range(20))] * len(none)
    assert 15 < len(none) < 40  # 0.96 ** 20 of the seeds are 26
    assert late
    assert all((units == 50).all() for _, units in sizes if units.max() == 50)
