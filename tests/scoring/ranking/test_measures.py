"""F1, recall at the budget, average precision and stacking weights: by hand, against scikit-learn, at their limits."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from dana.core.statistics import percentile_interval
from dana.scoring.ranking import auto
from dana.scoring.ranking.auto import stacking_weights
from dana.scoring.ranking.comparison import (
    choose_by_f1,
    choose_by_recall,
    summarise,
    within_one_error,
)
from dana.scoring.ranking.measures import (
    PRECISION_REPLICATES,
    REPLICATES,
    Fold,
    auroc_interval,
    average_precisions,
    bootstrap_counts,
    is_below_chance,
    rank_correlation,
    recalls,
    recalls_at,
    separation,
    separations,
    stability,
    warn_of_length,
)


def test_f1_at_the_ninetieth_percentile_by_hand():
    training = np.arange(11.0)  # 0.9-quantile of 0..10 is 9
    target = np.array([1.0, 9.0, 9.5, 2.0])  # three of four at or below 9
    pool = np.array([8.0, 12.0, 13.0, 14.0])  # one wrongly in-domain
    f1, auroc, _ = separation(training, target, pool)
    assert f1 == pytest.approx(2 * 3 / (2 * 3 + 1 + 1))
    # of 16 pairs (target, pool), task is lower in all but (9, 8) and (9.5, 8)
    assert auroc == pytest.approx(14 / 16)
    assert separation(training, target, np.tile(pool, 7))[0] == pytest.approx(f1), (
        "F1 is of equal classes"
    )
    assert separation(np.ones(10), np.ones(50), np.ones(50))[:2] == (pytest.approx(2 / 3), 0.5)


def test_a_higher_score_means_more_foreign():
    rng = np.random.default_rng(0)
    target, pool = rng.normal(0, 1, 200), rng.normal(4, 1, 200)
    assert separation(target, target, pool)[1] > 0.98
    assert separation(target, pool, target)[1] < 0.02


def test_average_precision_by_hand():
    # task 1, 3; pool 2, 4: the first target unit is alone, the second comes with half of the
    # pool units
    scores = np.array([1.0, 3.0]), np.array([2.0, 4.0])
    assert separation(scores[0], *scores)[2] == pytest.approx((1 + 2 / 3) / 2)
    assert separation(scores[0], *scores, 0.1)[2] == pytest.approx(
        (1 + 0.1 / (0.1 + 0.9 * 0.5)) / 2
    )


def test_auroc_has_an_interval_over_documents():
    random = np.random.default_rng(0)
    target, pool = random.normal(size=(2, 300))
    alone = auroc_interval([(target, pool + 0.5)], [(np.arange(300), np.arange(300))])
    assert alone["auroc"] == pytest.approx(separation(target, target, pool + 0.5)[1])
    standard_error = (alone["auroc_high"] - alone["auroc"]) / 1.96
    draws = (
        separation(target, random.choice(target, 300), random.choice(pool + 0.5, 300))[1]
        for _ in range(200)
    )
    assert standard_error == pytest.approx(np.std(list(draws)), rel=0.15)
    copies = auroc_interval(
        [(np.repeat(target, 4), pool + 0.5)], [(np.repeat(np.arange(300), 4), np.arange(300))]
    )
    assert copies["auroc_low"] == pytest.approx(alone["auroc_low"]), (
        "copies within a document are no evidence"
    )
    assert is_below_chance(
        auroc_interval([(target, pool - 0.5)], [(np.arange(300), np.arange(300))])
    )
    assert not is_below_chance({"auroc_low": 0.4, "auroc_high": 0.6})
    one = auroc_interval([(target, pool - 9)], [(np.zeros(300), np.arange(300))])
    assert (one["auroc_low"], one["auroc_high"]) == (0, 1)


def test_the_interval_of_auroc_by_hand():
    # one of 30 target units in three documents is above: sums -1/3, -1/3 and 2/3, error sqrt(3/2 *
    # 2/3) / 30, t 4.3027
    target, pool, three = np.repeat([0.0, 2.0], [29, 1]), np.ones(30), np.repeat(np.arange(3), 10)
    interval = auroc_interval([(target, pool)], [(three, three)])
    assert interval["auroc"] == pytest.approx(29 / 30)
    assert (interval["auroc_low"], interval["auroc_high"]) == (
        pytest.approx((29 - 4.3027) / 30, abs=1e-5),
        1,
    )
    below = auroc_interval([(2 - target, pool)], [(three, three)])
    assert (below["auroc_low"], below["auroc_high"]) == (
        0,
        pytest.approx((1 + 4.3027) / 30, abs=1e-5),
    )
    two = np.arange(2)
    assert auroc_interval([(np.zeros(2), np.ones(2))], [(two, two)])["auroc_low"] == 1, (
        "two documents are enough"
    )


def test_the_correlation_of_score_and_length_is_told_above_its_limit(heard):
    lengths = np.array([30, 10, 20])
    assert rank_correlation(np.array([-9.0, 5.0, 0.0]), lengths) == pytest.approx(-1)
    assert rank_correlation(np.ones(3), lengths) == 0
    warn_of_length({"knn": -0.31, "lof": 0.29})
    assert "knn -0.31; below 0 long units" in heard.text
    assert "lof" not in heard.text


def test_stability_is_one_for_equal_orders_and_none_for_one_seed():
    scores = np.array([3.0, 1.0, 2.0])
    assert stability([scores, scores * 10, np.exp(scores)]) == pytest.approx(1.0)
    assert stability([scores, -scores]) == pytest.approx(-1.0)
    assert stability([scores]) is None
    assert stability([scores, np.ones_like(scores)]) == 0


def by_f1(name, f1, auroc):
    return {"name": name, "f1_mean": f1, "auroc_mean": auroc}


def by_recall(name, recall, stability=None, is_tied=True):
    return {
        "name": name,
        "recall": recall,
        "stability": stability,
        "tied": is_tied,
        "auroc_mean": 0.0,
    }


def test_the_papers_choice_is_the_highest_mean_f1_then_auroc_then_name():
    assert choose_by_f1([by_f1("a", 0.8, 0.9), by_f1("b", 0.9, 0.5)]) == "b"
    assert choose_by_f1([by_f1("a", 0.9, 0.5), by_f1("b", 0.9, 0.6)]) == "b"
    assert choose_by_f1([by_f1("b", 0.9, 0.5), by_f1("a", 0.9, 0.5)]) == "a"


def test_of_the_recalls_within_one_error_the_stablest_is_chosen_then_the_best_then_by_name():
    best, stable, far = (
        by_recall("best", 0.9, 0.8),
        by_recall("stable", 0.89, 0.99),
        by_recall("far", 0.5, 1.0, False),
    )
    assert choose_by_recall([far, best, stable]) == "stable"
    assert choose_by_recall([by_recall("a", 0.8, 0.991), by_recall("b", 0.81, 0.99)]) == "b"
    assert choose_by_recall([by_recall("b", 0.8), by_recall("a", 0.8)]) == "a"


def test_one_standard_error_is_that_of_the_paired_difference():
    noise = np.random.default_rng(0).normal(0, 0.1, 500)
    small = np.random.default_rng(1).normal(0, 0.01, 500)
    best = np.concatenate([[0.9], 0.9 + noise])
    with_it = np.concatenate(
        [[0.86], 0.86 + noise + small]
    )  # moves with the best: four errors below
    alone = np.concatenate([[0.86], 0.86 - noise])  # moves against it: well within one
    within = within_one_error({"with it": with_it, "best": best, "alone": alone})
    assert within == {"with it": False, "best": True, "alone": True}
    # differences .6 on the data and 0, 1 on two replicates, whose deviation is .71; with the data
    # it would be .50
    assert within_one_error({"best": np.array([0.9, 0.9, 0.9]), "one": np.array([0.3, 0.9, -0.1])})[
        "one"
    ]


def test_summary_has_means_and_sample_standard_deviation():
    runs = [
        separation(np.arange(10.0), np.array([1.0, shift]), np.array([20.0, 3.0]))
        for shift in (2.0, 30.0)
    ]
    row = summarise(runs, [np.arange(3.0), np.arange(3.0)], [(1, 2), (3, 4)])
    f1 = [run[0] for run in runs]
    assert row["f1_mean"] == pytest.approx(np.mean(f1))
    assert row["f1_std"] == pytest.approx(np.std(f1, ddof=1))
    assert (row["fit_s"], row["score_s"], row["stability"]) == (2, 3, pytest.approx(1))
    alone = summarise(runs[:1], [np.arange(3.0)], [(1, 2)])
    assert (alone["f1_mean"], alone["f1_std"], alone["stability"]) == (f1[0], 0.0, None)


def one_fold(target, pool):
    target = np.asarray(target, dtype=np.float64)
    return Fold(np.arange(target.size), target, np.asarray(pool, dtype=np.float64))


def each_alone(folds, seed=0):
    units = sum(fold.rows.size for fold in folds)
    return bootstrap_counts(np.arange(units), np.arange(folds[0].pool.size), seed)


def test_recall_by_hand():
    fold = one_fold([0.5, 2, 2.5, 8.5, 20], range(10))  # a fifth of the pool units: 0 and 1
    for share, recall in ((0.2, 1 / 5), (0.3, 2 / 5), (0.1 + 0.2, 2 / 5), (1.0, 4 / 5)):
        assert recalls([fold], each_alone([fold]), share)[0] == pytest.approx(recall)
    constant = one_fold(np.ones(50), np.ones(80))
    np.testing.assert_allclose(recalls([constant], each_alone([constant]), 0.2), 0.2)
    # scores below the quantile count, ties half
    assert recalls_at(np.array([0.0, 19.9, 20.0, 50.0]), np.arange(101.0), 0.2) == pytest.approx(
        (2 + 0.5) / 4
    )


def test_every_fold_has_its_own_threshold():
    # the second fold's detector gives scores a hundred times as high
    first = Fold(np.array([0, 1]), np.array([0.0, 9.0]), np.arange(10.0))
    second = Fold(np.array([2, 3]), np.array([0.0, 900.0]), 100 * np.arange(10.0))
    recall = recalls([first, second], each_alone([first, second]), 0.2)
    assert recall.shape == (REPLICATES + 1,)
    assert recall[0] == pytest.approx(0.5)


def test_the_interval_is_over_documents_and_wider_than_over_units():
    rng = np.random.default_rng(0)
    documents = np.repeat(np.arange(20), 30)
    target = np.repeat(rng.normal(0, 1, 20), 30) + rng.normal(
        0, 0.1, 600
    )  # units of a document are alike
    fold = one_fold(target, rng.normal(1, 1, 1000))
    intervals = []
    for of in (documents, np.arange(600)):
        recall = recalls([fold], bootstrap_counts(of, np.arange(1000), 0), 0.2)
        intervals.append(percentile_interval(recall[1:]))
    (low, high), (low_by_unit, high_by_unit) = intervals
    assert low < recall[0] < high
    assert high - low > 2 * (high_by_unit - low_by_unit)


def test_the_interval_holds_the_true_recall_nineteen_times_of_twenty():
    # units 0.2 of whose those of the pool lie below -0.8416 + 1: recall of N(0, 1) is that of 0.1584
    truth, inside = norm.cdf(norm.ppf(0.2) + 1), 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        fold = one_fold(rng.normal(0, 1, 200), rng.normal(1, 1, 500))
        low, high = percentile_interval(recalls([fold], each_alone([fold], seed), 0.2)[1:])
        inside += low <= truth <= high
    assert inside >= 52


def test_the_pool_sample_is_drawn_again_too():
    fold = one_fold(np.linspace(0, 3, 200), np.random.default_rng(0).normal(1, 1, 40))
    constant = each_alone([fold])[0], np.ones((REPLICATES + 1, 40), dtype=np.float32)
    both = recalls([fold], each_alone([fold]), 0.2)
    assert np.std(both) > 1.5 * np.std(recalls([fold], constant, 0.2))
    target, pool = bootstrap_counts(np.arange(40), np.arange(40), 0)
    assert (target[0] == pool[0]).all()
    assert (target[1:] != pool[1:]).any(axis=1).all(), "in draws of its own"


def test_the_threshold_of_a_fold_comes_from_the_others_on_one_scale():
    pool = np.array([1.0, 3.0])  # mean 2, deviation 1
    folds = [
        Fold(np.arange(9), np.full(9, 9.0), pool),  # standardised: 7
        Fold(np.array([9]), np.array([50.0]), 10 * pool),  # standardised: 3
        Fold(np.array([10]), np.array([3.0]), pool),  # standardised: 1
    ]
    # thresholds are 2.8, 0.9 between 1 and 3, and 7
    assert [f1 for f1, *_ in separations(folds, 0.5)] == pytest.approx([0, 2 / 3, 2 / 3])
    assert separations([one_fold([1], [1, 1])] * 2, 0.5)[0][:2] == (pytest.approx(2 / 3), 0.5), (
        "constant scores"
    )


def scores_of(rows, means, seed):
    return np.random.default_rng(seed).normal(means, 1.0, (rows, len(means)))


POOL = scores_of(400, [0, 0], 1)


def test_average_precision_is_scikit_learns_at_the_prevalence():
    target, pool = scores_of(50, [-1.0], 0)[:, 0], scores_of(400, [0], 1)[:, 0]
    groups = np.arange(50), np.arange(400)
    precision = average_precisions(target, pool, groups, 0.1, seed=0)
    weight, is_target = np.repeat([0.1 / 50, 0.9 / 400], [50, 400]), np.repeat([1, 0], [50, 400])
    reference = average_precision_score(
        is_target, -np.concatenate([target, pool]), sample_weight=weight
    )
    assert precision.shape == (PRECISION_REPLICATES + 1,)
    assert precision[0] == pytest.approx(reference)
    assert precision[1:].std() > 0.01
    assert abs(precision[1:].mean() - reference) < 0.05
    assert average_precisions(target, pool, groups, 0.1, seed=0).tolist() == precision.tolist()
    assert average_precisions(target, pool, groups, 0.1, seed=1).tolist() != precision.tolist()
    assert average_precisions(target, pool, groups, 0.01, seed=0)[0] < precision[0]


def test_every_replicate_has_the_prevalence_whatever_groups_it_drew(monkeypatch):
    import sklearn.metrics

    weights = []
    monkeypatch.setattr(
        sklearn.metrics,
        "average_precision_score",
        lambda *_, sample_weight: weights.append(sample_weight),
    )
    groups = np.repeat([0, 1, 2], [1, 9, 40]), np.repeat([0, 1], [5, 95])
    average_precisions(np.arange(50.0), np.arange(100.0), groups, 0.1, seed=0)
    assert len({np.count_nonzero(replicate) for replicate in weights}) > 5, (
        "replicates of several sizes"
    )
    np.testing.assert_allclose(
        [[part[:50].sum(), part[50:].sum()] for part in weights], len(weights) * [[0.1, 0.9]]
    )


def test_pieces_of_one_group_are_drawn_together():
    target, pool = np.repeat([-3.0, 3.0], 20), scores_of(200, [0], 1)[:, 0]
    alone, together = (
        average_precisions(target, pool, (groups, np.arange(200)), 0.1, 0)
        for groups in (np.arange(40), np.repeat([0, 1], 20))
    )
    assert together[1:].std() > 2 * alone[1:].std()


def test_without_the_ridge_the_model_is_scikit_learns_logistic_regression(monkeypatch):
    monkeypatch.setattr(auto, "RIDGE", 0.0)
    target, pool = scores_of(300, [-1.5, -0.7], 0), scores_of(900, [0, 0], 1)
    weights, slope, intercept = stacking_weights(target, pool)
    labels = np.repeat([0, 1], [300, 900])
    model = LogisticRegression(C=1e9, class_weight="balanced").fit(
        np.concatenate([target, pool]), labels
    )
    np.testing.assert_allclose(weights * slope, model.coef_[0], rtol=1e-2)
    assert intercept == pytest.approx(model.intercept_[0], rel=2e-2)
    assert weights.sum() == pytest.approx(1)


def test_weights_follow_the_better_selector_and_are_shrunk_towards_equal_ones(monkeypatch):
    def weights(*means):
        return stacking_weights(scores_of(400, means, 0), POOL)[0]

    assert weights(-2.0, -0.5)[0] > 0.6
    assert weights(-2.0, 2.0) == pytest.approx([1, 0], abs=0.02)
    assert weights(3.0, 3.0) == pytest.approx([0.5, 0.5], abs=0.05)
    monkeypatch.setattr(auto, "RIDGE", 100.0)
    assert weights(-2.0, -0.5) == pytest.approx([0.5, 0.5], abs=0.01)


def test_weights_minimise_the_penalised_loss(monkeypatch):
    monkeypatch.setattr(auto, "RIDGE", 0.3)
    target, pool = scores_of(300, [-2.0, -0.5], 0), scores_of(500, [0, 0], 1)

    def loss(weights, intercept):
        parts = (
            np.logaddexp(0, target @ weights + intercept),
            np.logaddexp(0, -pool @ weights - intercept),
        )
        return (parts[0].mean() + parts[1].mean()) / 2 + 0.3 * np.square(
            weights - weights.mean()
        ).sum()

    weights, slope, intercept = stacking_weights(target, pool)
    for step in np.concatenate([np.eye(3), -np.eye(3)]) * 0.02:
        assert loss(weights * slope + step[:2], intercept + step[2]) > loss(
            weights * slope, intercept
        )
