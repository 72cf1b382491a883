"""Recall at the budget by hand, its interval over documents, and thresholds that no fit has seen."""

import numpy as np
import pytest

from dana.core.statistics import percentile_interval
from dana.scoring.ranking.measures import REPLICATES, Fold, bootstrap_counts, recalls, separations


def one_fold(task, general):
    task = np.asarray(task, dtype=np.float64)
    return Fold(np.arange(task.size), task, np.asarray(general, dtype=np.float64))


def each_alone(folds, seed=0):
    units = sum(fold.rows.size for fold in folds)
    return bootstrap_counts(np.arange(units), np.arange(folds[0].general.size), seed)


def test_recall_by_hand():
    fold = one_fold([0.5, 2, 2.5, 7, 20], range(10))  # a fifth of the general units: 0 and 1
    assert recalls([fold], each_alone([fold]), 0.2)[0] == pytest.approx(1 / 5)
    assert recalls([fold], each_alone([fold]), 0.3)[0] == pytest.approx(2 / 5)
    assert recalls([fold], each_alone([fold]), 1.0)[0] == pytest.approx(4 / 5)
    constant = one_fold(np.ones(50), np.ones(80))
    np.testing.assert_allclose(recalls([constant], each_alone([constant]), 0.2), 0.2)


def test_every_fold_has_its_own_threshold():
    # the second fold's detector gives scores a hundred times as high
    first = Fold(np.array([0, 1]), np.array([0.0, 9.0]), np.arange(10.0))
    second = Fold(np.array([2, 3]), np.array([0.0, 900.0]), 100 * np.arange(10.0))
    found = recalls([first, second], each_alone([first, second]), 0.2)
    assert found.shape == (REPLICATES + 1,)
    assert found[0] == pytest.approx(0.5)


def test_the_interval_is_over_documents_and_wider_than_over_units():
    rng = np.random.default_rng(0)
    documents = np.repeat(np.arange(20), 30)
    task = np.repeat(rng.normal(0, 1, 20), 30) + rng.normal(0, 0.1, 600)  # units of a document are alike
    fold = one_fold(task, rng.normal(1, 1, 1000))
    by_document = percentile_interval(recalls([fold], bootstrap_counts(documents, np.arange(1000), 0), 0.2)[1:])
    by_unit = percentile_interval(recalls([fold], bootstrap_counts(np.arange(600), np.arange(1000), 0), 0.2)[1:])
    recall = recalls([fold], each_alone([fold]), 0.2)[0]
    assert by_document[0] < recall < by_document[1]
    assert by_document[1] - by_document[0] > 2 * (by_unit[1] - by_unit[0])


def test_the_interval_holds_the_true_recall_nineteen_times_of_twenty():
    # units 0.2 of whose general ones lie below -0.8416 + 1: recall of N(0, 1) is that of 0.1584
    from scipy.stats import norm

    truth, inside = norm.cdf(norm.ppf(0.2) + 1), 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        fold = one_fold(rng.normal(0, 1, 200), rng.normal(1, 1, 500))
        low, high = percentile_interval(recalls([fold], each_alone([fold], seed), 0.2)[1:])
        inside += low <= truth <= high
    assert inside >= 52


def test_the_general_sample_is_drawn_again_too():
    fold = one_fold(np.linspace(0, 3, 200), np.random.default_rng(0).normal(1, 1, 40))
    fixed = each_alone([fold])[0], np.ones((REPLICATES + 1, 40), dtype=np.float32)
    both = recalls([fold], each_alone([fold]), 0.2)
    assert np.std(both) > 1.5 * np.std(recalls([fold], fixed, 0.2))


def test_the_threshold_of_a_fold_comes_from_the_others_on_one_scale():
    general = np.array([1.0, 3.0])  # mean 2, deviation 1
    folds = [
        Fold(np.array([0]), np.array([9.0]), general),  # standardised: 7
        Fold(np.array([1]), np.array([50.0]), 10 * general),  # standardised: 3
        Fold(np.array([2]), np.array([3.0]), general),  # standardised: 1
    ]
    # thresholds are 2.8, 6.4 and 6.6: 0.9 between 1 and 3, 1 and 7, 3 and 7
    assert [f1 for f1, *_ in separations(folds, 0.5)] == pytest.approx([0, 2 / 3, 2 / 3])
