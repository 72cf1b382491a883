"""Ranking: the F1 of A-D03 by hand, and what the numbers must not depend on."""

import numpy as np
import pytest

from dana.errors import DataError
from dana.ranking import Ranked, choose, separation, split, stability, summarise


def test_f1_at_the_ninetieth_percentile_by_hand():
    training = np.arange(11.0)  # 0.9-quantile of 0..10 is 9
    task = np.array([1.0, 9.0, 9.5, 2.0])  # three of four at or below 9
    general = np.array([8.0, 12.0, 13.0, 14.0])  # one wrongly in-domain
    result = separation(training, task, general)
    assert result.threshold == 9
    assert result.f1 == pytest.approx(2 * 3 / (2 * 3 + 1 + 1))
    # of 16 pairs (task, general), task is lower in all but (9, 8) and (9.5, 8)
    assert result.auroc == pytest.approx(14 / 16)
    assert result.best_f1 == pytest.approx(8 / 9)  # threshold 9.5: four found, one wrong


def test_always_in_domain_scores_two_thirds():
    # the floor that A-D03 reads the paper's numbers against
    result = separation(np.ones(10), np.ones(50), np.ones(50))
    assert result.f1 == pytest.approx(2 / 3)
    assert result.auroc == 0.5


def test_a_higher_score_means_more_foreign():
    rng = np.random.default_rng(0)
    task, general = rng.normal(0, 1, 200), rng.normal(4, 1, 200)
    assert separation(task, task, general).auroc > 0.98
    assert separation(task, general, task).auroc < 0.02


def test_non_finite_and_empty_scores_are_refused_by_name():
    good = np.ones(3)
    with pytest.raises(DataError, match="general scores hold 1 non-finite"):
        separation(good, good, np.array([1.0, np.inf]))
    with pytest.raises(DataError, match="task scores are empty"):
        separation(good, np.array([]), good)


def test_split_is_a_seeded_partition_into_90_and_10_percent():
    train, held_out = split(200, seed=1)
    assert held_out.size == 20
    assert sorted([*train, *held_out]) == list(range(200))
    np.testing.assert_array_equal(split(200, seed=1)[1], held_out)
    assert (split(200, seed=2)[1] != held_out).any()
    with pytest.raises(DataError, match="has 3 units"):
        split(3, seed=0)


def test_stability_is_one_for_equal_orders_and_none_for_one_seed():
    scores = np.array([3.0, 1.0, 2.0])
    assert stability([scores, scores * 10, np.exp(scores)]) == pytest.approx(1.0)
    assert stability([scores, -scores]) == pytest.approx(-1.0)
    assert stability([scores]) is None


def _row(name, f1, auroc):
    return Ranked(name, f1, 0, auroc, 0, 0, 0, None, 0, 0, 1)


def test_the_choice_is_the_highest_mean_f1_then_auroc_then_name():
    assert choose([_row("a", 0.8, 0.9), _row("b", 0.9, 0.5)]) == "b"
    assert choose([_row("a", 0.9, 0.5), _row("b", 0.9, 0.6)]) == "b"
    assert choose([_row("b", 0.9, 0.5), _row("a", 0.9, 0.5)]) == "a"


def test_summary_has_means_and_sample_standard_deviation():
    runs = [separation(np.arange(10.0), np.array([1.0, shift]), np.array([20.0, 3.0])) for shift in (2.0, 30.0)]
    row = summarise("knn", runs, 0.5, [1, 3], [2, 4])
    f1 = [run.f1 for run in runs]
    assert row.f1_mean == pytest.approx(np.mean(f1))
    assert row.f1_std == pytest.approx(np.std(f1, ddof=1))
    assert (row.fit_s, row.score_s, row.n_seeds, row.stability) == (2, 3, 2, 0.5)
