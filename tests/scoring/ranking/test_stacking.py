"""Stacking weights and average precision: by hand, against scikit-learn, and at their limits."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from dana.scoring.ranking import auto
from dana.scoring.ranking.auto import stacking_weights
from dana.scoring.ranking.measures import average_precisions, recalls_at


def scores(rows, means, seed):
    return np.random.default_rng(seed).normal(means, 1.0, (rows, len(means)))


def test_without_the_ridge_the_model_is_scikit_learns_logistic_regression(monkeypatch):
    monkeypatch.setattr(auto, "RIDGE", 0.0)
    task, general = scores(300, [-1.5, -0.7], 0), scores(900, [0, 0], 1)
    weights, slope, intercept = stacking_weights(task, general)
    labels = np.repeat([0, 1], [300, 900])
    model = LogisticRegression(C=1e9, class_weight="balanced").fit(np.concatenate([task, general]), labels)
    np.testing.assert_allclose(weights * slope, model.coef_[0], rtol=1e-2)
    assert intercept == pytest.approx(model.intercept_[0], rel=2e-2)
    assert weights.sum() == pytest.approx(1)


def test_average_precision_is_scikit_learns_at_the_prevalence():
    task, general = scores(50, [-1.0], 0)[:, 0], scores(400, [0], 1)[:, 0]
    groups = np.arange(50), np.arange(400)
    found = average_precisions(task, general, groups, 0.1, seed=0)
    weight = np.repeat([0.1 / 50, 0.9 / 400], [50, 400])
    truth = np.repeat([1, 0], [50, 400])
    expected = average_precision_score(truth, -np.concatenate([task, general]), sample_weight=weight)
    assert found[0] == pytest.approx(expected)
    assert found[1:].std() > 0.01
    assert abs(found[1:].mean() - expected) < 0.05
    assert average_precisions(task, general, groups, 0.1, seed=0).tolist() == found.tolist()
    rarer = average_precisions(task, general, groups, 0.01, seed=0)[0]
    assert rarer < found[0]


def test_pieces_of_one_group_are_drawn_together():
    task, general = np.repeat([-3.0, 3.0], 20), scores(200, [0], 1)[:, 0]
    alone = average_precisions(task, general, (np.arange(40), np.arange(200)), 0.1, 0)
    grouped = average_precisions(task, general, (np.repeat([0, 1], 20), np.arange(200)), 0.1, 0)
    assert grouped[1:].std() > 2 * alone[1:].std()


def test_recall_counts_scores_below_the_quantile_and_ties_half():
    general = np.arange(101.0)
    assert recalls_at(np.array([0.0, 19.9, 20.0, 50.0]), general, 0.2) == pytest.approx((2 + 0.5) / 4)


def test_weights_follow_the_better_selector_and_are_shrunk_towards_equal_ones(monkeypatch):
    general = scores(400, [0, 0], 1)
    assert stacking_weights(scores(400, [-2.0, -0.5], 0), general)[0][0] > 0.6
    assert stacking_weights(scores(400, [-2.0, 2.0], 0), general)[0] == pytest.approx([1, 0], abs=0.02)
    assert stacking_weights(scores(400, [3.0, 3.0], 0), general)[0] == pytest.approx([0.5, 0.5], abs=0.05)
    monkeypatch.setattr(auto, "RIDGE", 100.0)
    assert stacking_weights(scores(400, [-2.0, -0.5], 0), general)[0] == pytest.approx([0.5, 0.5], abs=0.01)


def test_weights_minimise_the_penalised_loss(monkeypatch):
    monkeypatch.setattr(auto, "RIDGE", 0.3)
    task, general = scores(300, [-2.0, -0.5], 0), scores(500, [0, 0], 1)

    def loss(weights, intercept):
        parts = np.logaddexp(0, task @ weights + intercept), np.logaddexp(0, -general @ weights - intercept)
        return (parts[0].mean() + parts[1].mean()) / 2 + 0.3 * np.square(weights - weights.mean()).sum()

    weights, slope, intercept = stacking_weights(task, general)
    least = loss(weights * slope, intercept)
    for step in ([0.02, 0, 0], [-0.02, 0, 0], [0, 0.02, 0], [0, -0.02, 0], [0, 0, 0.02], [0, 0, -0.02]):
        assert loss(weights * slope + step[:2], intercept + step[2]) > least
