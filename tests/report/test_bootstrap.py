import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from dana.report.bootstrap import paired_bootstrap
from dana.tasks.kinds.single_label import SingleLabel

CLASSES = 4
KIND = SingleLabel.numbered(CLASSES)


def _arm(random, labels, right, seeds=5):
    """Predictions that are right with a given probability, else any class but the last."""
    return np.where(
        random.random((seeds, labels.size)) < right,
        labels,
        random.integers(0, CLASSES - 1, (seeds, labels.size)),
    )


@pytest.fixture
def labels():
    return np.random.default_rng(0).integers(0, CLASSES - 1, 300)  # the last class never occurs


def score(predicted, labels, metric, kind=KIND):
    return kind.scorer(predicted[None], labels, metric)(np.ones((1, labels.size)))[0, 0]


def test_scores_of_a_confusion_table_by_hand():
    """Three and one of class 0, two and four of class 1."""
    labels, predicted = np.repeat([0, 0, 1, 1], [3, 1, 2, 4]), np.repeat([0, 1, 0, 1], [3, 1, 2, 4])
    kind = SingleLabel.numbered(2)
    assert score(predicted, labels, "accuracy", kind) == 0.7
    assert score(predicted, labels, "macro_f1", kind) == pytest.approx((6 / 9 + 8 / 11) / 2)


@pytest.mark.parametrize("metric", ["accuracy", "micro_f1", "macro_f1"])
def test_scores_agree_with_sklearn_over_the_full_label_set(labels, metric):
    predicted = _arm(np.random.default_rng(1), labels, 0.6, seeds=1)[0]
    found = score(predicted, labels, metric)
    average = metric.removesuffix("_f1")
    expected = (
        accuracy_score(labels, predicted)
        if metric == "accuracy"
        else f1_score(labels, predicted, labels=range(CLASSES), average=average, zero_division=0)
    )
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_the_estimate_is_the_difference_of_the_mean_scores(labels, metric):
    random = np.random.default_rng(2)
    better, worse = _arm(random, labels, 0.8), _arm(random, labels, 0.6)
    means = [np.mean([score(row, labels, metric) for row in arm]) for arm in (better, worse)]
    found = paired_bootstrap(better, worse, labels, KIND, metric, resamples=200)
    assert found.mean == pytest.approx(means[0] - means[1])
    assert 0 < found.low < found.mean < found.high
    assert found.n == 5


def test_an_arm_does_not_differ_from_itself(labels):
    arm = _arm(np.random.default_rng(3), labels, 0.7)
    found = paired_bootstrap(arm, arm, labels, KIND, "macro_f1", resamples=50)
    assert (found.mean, found.low, found.high, found.std) == (0, 0, 0, 0)


def test_the_spread_is_that_of_resampled_examples_where_seeds_agree(labels):
    """With identical seeds only the examples vary: the standard error of a mean of paired differences."""
    random = np.random.default_rng(4)
    better, worse = (
        np.repeat(_arm(random, labels, 0.8, 1), 6, 0),
        np.repeat(_arm(random, labels, 0.6, 1), 6, 0),
    )
    each = (better[0] == labels).astype(float) - (worse[0] == labels)
    found = paired_bootstrap(better, worse, labels, KIND, "accuracy", resamples=4000)
    assert found.std == pytest.approx(each.std() / np.sqrt(labels.size), rel=0.05)


def test_seeds_that_disagree_widen_the_interval(labels):
    random = np.random.default_rng(5)
    worse = _arm(random, labels, 0.6)
    rights = (0.5, 0.6, 0.7, 0.8, 0.9)
    mixed = np.concatenate([_arm(random, labels, right, 1) for right in rights])
    even = _arm(random, labels, 0.7)
    wide, narrow = (paired_bootstrap(arm, worse, labels, KIND, "accuracy", resamples=400).std for arm in (mixed, even))
    assert wide > 1.5 * narrow


def test_the_same_seed_gives_the_same_interval(labels):
    random = np.random.default_rng(6)
    arms = _arm(random, labels, 0.8), _arm(random, labels, 0.7)
    first, again = (paired_bootstrap(*arms, labels, KIND, "accuracy", resamples=50) for _ in range(2))
    other = paired_bootstrap(*arms, labels, KIND, "accuracy", resamples=50, seed=1)
    assert first == again
    assert first != other


def test_what_does_not_fit_is_refused(labels):
    arm = _arm(np.random.default_rng(7), labels, 0.7)
    with pytest.raises(ValueError, match="shapes do not fit"):
        paired_bootstrap(arm, arm[:3], labels, KIND, "accuracy")
    with pytest.raises(ValueError, match="metric='f1': must be one of accuracy, micro_f1, macro_f1"):
        paired_bootstrap(arm, arm, labels, KIND, "f1")


def test_what_seeds_share_of_the_examples_is_told_from_what_is_their_own(labels):
    """Seeds that agree share all of it; of others it is the mean covariance of two seeds' differences over texts."""
    random = np.random.default_rng(6)
    worse = np.repeat(_arm(random, labels, 0.6, 1), 3, 0)
    alike = np.repeat(_arm(random, labels, 0.8, 1), 3, 0)
    found = paired_bootstrap(alike, worse, labels, KIND, "accuracy")
    each = ((alike[0] == labels).astype(float) - (worse[0] == labels)).std() / np.sqrt(labels.size)
    assert found.examples == pytest.approx(each, rel=0.05)
    assert found.mixed == pytest.approx(0, abs=1e-6)
    own = _arm(random, labels, 0.8, 3)
    found = paired_bootstrap(own, worse, labels, KIND, "accuracy")
    differences = (own == labels).astype(float) - (worse == labels)
    covariance = np.cov(differences, ddof=0) / labels.size
    shared = covariance[~np.eye(3, dtype=bool)].mean()
    assert found.examples == pytest.approx(np.sqrt(shared), rel=0.06)
    assert found.mixed == pytest.approx(np.sqrt(np.diag(covariance).mean() - shared), rel=0.06)
    assert np.isnan(paired_bootstrap(own[:1], worse[:1], labels, KIND, "accuracy", resamples=50).mixed)
