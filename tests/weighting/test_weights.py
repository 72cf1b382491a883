"""Weights: values by hand, the limits of C, and what must not depend on order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dana.core.statistics import Moments, effective_sample_size
from dana.weighting.selection import RunningAmount, Segments, argsort_pieces, fill_budget
from dana.weighting.settings import Budget
from dana.weighting.weights import DROPPED, Components, segment_ids, segment_means, sigmoid, standardise


def lowest_segments(means, amounts, budget):
    """What the policy ``segments`` keeps, ascending; `amounts` are numbers of documents where these are counted."""
    segments = Segments(means, amounts, int(amounts.sum()), int(amounts.max()) + 1)
    (order,) = argsort_pieces(means)
    pieces = np.array_split(order, 3) if order.size > 2 else [order]
    rows = fill_budget(pieces, RunningAmount(segments, budget), budget.max_amount(segments.units))
    return np.sort(np.concatenate(list(rows)))


def components_of(values, segment):
    """Variance components of units in memory."""
    inside = segment != DROPPED
    means, sizes = segment_means(values, segment), np.bincount(segment[inside]).astype(float)
    residual = np.square(values[inside] - means[segment[inside]]).sum()
    return Components.of(residual, int(inside.sum()), sizes.size, lambda of: of(means, sizes).sum())


finite = arrays(np.float64, st.integers(1, 60), elements=st.floats(-1e6, 1e6, width=32))


@given(finite, st.integers(0, 60), st.integers(0, 60))
def test_moments_merge_in_any_order(scores, a, b):
    first, second = sorted((min(a, scores.size), min(b, scores.size)))
    total = Moments()
    for shard in (scores[second:], scores[:first], scores[first:second]):
        total = total.merge(Moments.of(shard))
    assert total.count == scores.size
    assert total.mean == pytest.approx(scores.mean(), rel=1e-9, abs=1e-6)
    assert total.std == pytest.approx(scores.std(), rel=1e-6, abs=1e-3)


def test_standardise_and_sigmoid_by_hand_and_at_their_limits():
    # mean 2, population variance ((1)^2 + 0 + (1)^2) / 3 = 2/3
    scores, same = np.array([1.0, 2.0, 3.0]), np.full(4, 7.0)
    np.testing.assert_allclose(standardise(scores, Moments.of(scores)), [-(1.5**0.5), 0, 1.5**0.5])
    np.testing.assert_array_equal(standardise(same, Moments.of(same)), np.zeros(4))
    standard = np.array([-2.0, -1.0, 0.0, 5.0])
    assert sigmoid(standard, 4.0, -1.0)[0] == pytest.approx(1 / (1 + np.exp(-4.0)))  # C (α - Ā) = 4 (-1 + 2)
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
        # 64 units: a fifth is 13, less than any full segment, so one is kept; 0.54 is 35, enough for 15 + 15 + 4
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
    # means 1 and 4, residuals -1, 1 and -1, 0, 1: within 4/3; average 2.8, spread 2 * 3.24 + 3 * 1.44 = 10.8 over 1;
    # (10.8 - 4/3) / (5 - 13/5)
    model = components_of(np.array([0.0, 2, 3, 4, 5, 99]), np.array([0, 0, 1, 1, 1, DROPPED]))
    assert model.within == pytest.approx(4 / 3)
    assert model.between == pytest.approx((10.8 - 4 / 3) / 2.4)
    one, two = model.between + model.within / 2, model.between + model.within / 3
    assert model.mean == pytest.approx((1 / one + 4 / two) / (1 / one + 1 / two))
    shrunk = [model.mean + (y - model.mean) * model.between / v for y, v in [(1, one), (4, two)]]
    np.testing.assert_allclose(model.shrink(np.array([1.0, 4.0]), np.array([2, 3])), shrunk)
    alone = components_of(np.array([1.0, 3.0]), np.array([0, 0]))
    assert alone.shrink(np.array([2.0]), np.array([2])) == pytest.approx(2.0)
    single, means = components_of(np.array([5.0, 3.0, 4.0]), np.arange(3)), np.array([5.0, 3.0, 4.0])
    np.testing.assert_allclose(single.shrink(means, np.ones(3)), means)


def test_simulated_variance_components_are_recovered_and_equal_sizes_keep_their_order():
    rng = np.random.default_rng(0)
    segment = np.repeat(np.arange(4000), rng.integers(1, 16, 4000))
    model = components_of(rng.normal(2, 0.7, 4000)[segment] + rng.normal(0, 1.3, segment.size), segment)
    assert model.within == pytest.approx(1.3**2, rel=0.03)
    assert model.between == pytest.approx(0.7**2, rel=0.1)
    assert model.mean == pytest.approx(2, abs=0.05)
    means = rng.normal(0, 1, 50)
    model = components_of(np.repeat(means, 4) + np.tile([-1, 1, -2, 2], 50), np.repeat(np.arange(50), 4))
    np.testing.assert_array_equal(np.argsort(model.shrink(means, np.full(50, 4))), np.argsort(means))


def test_shrinkage_keeps_short_segments_from_winning():
    """Foreign text of one source, in segments of one unit and of 15; in-domain text in segments of 15."""
    rng = np.random.default_rng(0)
    sizes = np.repeat([1, 15, 15], [3000, 800, 200])
    level = np.repeat([1.0, 1.0, 0.0], [3000, 800, 200])  # the last are in-domain
    segment = np.repeat(np.arange(4000), sizes)
    values = (level + rng.normal(0, 0.2, 4000))[segment] + rng.normal(0, 1, segment.size)
    means = segment_means(values, segment)
    shares = []
    for ranked_means in (means, components_of(values, segment).shrink(means, sizes)):
        lowest = lowest_segments(ranked_means, sizes, Budget(0.17))
        shares.append(((lowest < 3000).sum() / 3000, (lowest >= 3800).sum() / 200))
    (plain_short, plain_inside), (short, inside) = shares
    assert plain_short > 0.15, "what the paper's rule does"
    assert short < 0.02
    assert inside > plain_inside + 0.1
