"""F1 at the 90th percentile of the training scores by hand, and what the numbers must not depend on."""

import numpy as np
import pytest

from dana.scoring.ranking.comparison import choose_by_f1, choose_by_recall, split, summarise, within_one_error
from dana.scoring.ranking.measures import separation, stability


def test_f1_at_the_ninetieth_percentile_by_hand():
    training = np.arange(11.0)  # 0.9-quantile of 0..10 is 9
    task = np.array([1.0, 9.0, 9.5, 2.0])  # three of four at or below 9
    general = np.array([8.0, 12.0, 13.0, 14.0])  # one wrongly in-domain
    f1, auroc, _ = separation(training, task, general)
    assert f1 == pytest.approx(2 * 3 / (2 * 3 + 1 + 1))
    # of 16 pairs (task, general), task is lower in all but (9, 8) and (9.5, 8)
    assert auroc == pytest.approx(14 / 16)
    assert separation(training, task, np.tile(general, 7))[0] == pytest.approx(f1), "F1 is of equal classes"
    assert separation(np.ones(10), np.ones(50), np.ones(50))[:2] == (pytest.approx(2 / 3), 0.5)


def test_average_precision_by_hand():
    # task 1, 3; general 2, 4: the first task unit is alone, the second comes with half of the general units
    scores = np.array([1.0, 3.0]), np.array([2.0, 4.0])
    assert separation(scores[0], *scores)[2] == pytest.approx((1 + 2 / 3) / 2)
    assert separation(scores[0], *scores, 0.1)[2] == pytest.approx((1 + 0.1 / (0.1 + 0.9 * 0.5)) / 2)


def test_split_is_a_seeded_partition_into_90_and_10_percent():
    train, held_out = split(200, seed=1)
    assert held_out.size == 20
    assert sorted([*train, *held_out]) == list(range(200))
    np.testing.assert_array_equal(split(200, seed=1)[1], held_out)
    assert (split(200, seed=2)[1] != held_out).any()
    assert split(20, seed=0)[1].size == 2


def test_stability_is_one_for_equal_orders_and_none_for_one_seed():
    scores = np.array([3.0, 1.0, 2.0])
    assert stability([scores, scores * 10, np.exp(scores)]) == pytest.approx(1.0)
    assert stability([scores, -scores]) == pytest.approx(-1.0)
    assert stability([scores]) is None


def _row(name, f1=0.0, auroc=0.0, recall=None, stability=None, tied=True):
    return {
        **{"name": name, "recall": recall, "tied": tied},
        **{"f1_mean": f1, "auroc_mean": auroc, "stability": stability},
    }


def test_the_papers_choice_is_the_highest_mean_f1_then_auroc_then_name():
    assert choose_by_f1([_row("a", 0.8, 0.9), _row("b", 0.9, 0.5)]) == "b"
    assert choose_by_f1([_row("a", 0.9, 0.5), _row("b", 0.9, 0.6)]) == "b"
    assert choose_by_f1([_row("b", 0.9, 0.5), _row("a", 0.9, 0.5)]) == "a"


def test_of_the_recalls_within_one_error_the_stablest_is_chosen_then_the_best_then_by_name():
    best, stable = _row("best", recall=0.9, stability=0.8), _row("stable", recall=0.89, stability=0.99)
    far = _row("far", recall=0.5, stability=1.0, tied=False)
    assert choose_by_recall([far, best, stable]) == "stable"
    assert choose_by_recall([_row("a", recall=0.8, stability=0.991), _row("b", recall=0.81, stability=0.99)]) == "b"
    assert choose_by_recall([_row("b", recall=0.8), _row("a", recall=0.8)]) == "a"


def test_one_standard_error_is_that_of_the_paired_difference():
    noise = np.random.default_rng(0).normal(0, 0.1, 500)
    small = np.random.default_rng(1).normal(0, 0.01, 500)
    best = np.concatenate([[0.9], 0.9 + noise])
    with_it = np.concatenate([[0.86], 0.86 + noise + small])  # moves with the best: four errors below
    alone = np.concatenate([[0.86], 0.86 - noise])  # moves against it: well within one
    tied = within_one_error({"with it": with_it, "best": best, "alone": alone})
    assert tied == {"with it": False, "best": True, "alone": True}


def test_summary_has_means_and_sample_standard_deviation():
    runs = [separation(np.arange(10.0), np.array([1.0, shift]), np.array([20.0, 3.0])) for shift in (2.0, 30.0)]
    row = summarise(runs, [np.arange(3.0), np.arange(3.0)], [(1, 2), (3, 4)])
    f1 = [run[0] for run in runs]
    assert row["f1_mean"] == pytest.approx(np.mean(f1))
    assert row["f1_std"] == pytest.approx(np.std(f1, ddof=1))
    assert (row["fit_s"], row["score_s"], row["stability"]) == (2, 3, pytest.approx(1))
    alone = summarise(runs[:1], [np.arange(3.0)], [(1, 2)])
    assert (alone["f1_mean"], alone["f1_std"], alone["stability"]) == (f1[0], 0.0, None)


def test_a_higher_score_means_more_foreign():
    rng = np.random.default_rng(0)
    task, general = rng.normal(0, 1, 200), rng.normal(4, 1, 200)
    assert separation(task, task, general)[1] > 0.98
    assert separation(task, general, task)[1] < 0.02
