"""The choice of a model by out-of-fold predictions: the rule, the estimate, and what its interval covers."""

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from dana.finetuning.choice import (
    MARGIN,
    Candidate,
    _interval,
    choose,
    choose_rows,
    label_rows,
    margin_of,
)
from dana.tasks.kinds.multi_label import MultiLabel
from dana.tasks.kinds.regression import Regression
from dana.tasks.kinds.single_label import SingleLabel

CLASSES = SingleLabel.from_count(3)


def table(random, texts, skills, fits=1, groups=None):
    """Labels, and candidates that are right with these chances; hard texts are hard for all."""
    labels = random.integers(0, 3, size=texts)
    shared = random.standard_normal(texts)
    if groups is not None:
        shared = random.standard_normal(groups.max() + 1)[groups]
    candidates = []
    for number, skill in enumerate(skills):
        ease = np.sqrt(0.5) * (shared + random.standard_normal((fits, texts)))
        wrong = (labels + random.integers(1, 3, size=(fits, texts))) % 3
        right = ease < norm.ppf(skill)
        candidates.append(Candidate(str(number), np.where(right, labels, wrong)))
    return labels, candidates


def predictions_with(labels, right):
    """Predictions of which so many are right, the first ones."""
    rows = np.where(np.arange(labels.size) < right, labels, (labels + 1) % 3)
    return rows[None]


def test_the_best_wins_and_within_the_margin_the_cheapest():
    labels = np.arange(1000) % 3
    scores = {"cheap": 600, "middle": 604, "dear": 605}
    candidates = [
        Candidate(name, predictions_with(labels, right)) for name, right in scores.items()
    ]
    assert choose(candidates, labels, CLASSES, "accuracy").name == "cheap"
    scores["dear"] = 606
    candidates = [
        Candidate(name, predictions_with(labels, right)) for name, right in scores.items()
    ]
    choice = choose(candidates, labels, CLASSES, "accuracy")
    assert choice.name == "middle"
    assert choice.scores == pytest.approx({"cheap": 0.6, "middle": 0.604, "dear": 0.606})
    assert choose_rows(np.array([[0.5, 0.505], [0.5, 0.5051], [0.7, 0.2]]), MARGIN).tolist() == [
        0,
        1,
        0,
    ]


def test_the_fits_of_a_candidate_are_averaged():
    labels = np.arange(300) % 3
    lucky = np.concatenate([predictions_with(labels, 240), predictions_with(labels, 180)])
    steady = predictions_with(labels, 216)
    choice = choose(
        [Candidate("lucky", lucky), Candidate("steady", steady)], labels, CLASSES, "accuracy"
    )
    assert choice.scores == pytest.approx({"lucky": 0.7, "steady": 0.72})
    assert choice.name == "steady"


def test_of_an_error_the_lowest_wins_and_the_margin_has_its_unit():
    labels = np.random.default_rng(0).standard_normal(200) * 100
    kind = Regression(())
    near = Candidate("near", (labels + 10)[None])
    nearer = Candidate("nearer", (labels + 9.9)[None])
    best = Candidate("best", (labels + 1)[None])
    assert margin_of(labels, kind, "mse") == pytest.approx(MARGIN * labels.var())
    assert choose([near, nearer], labels, kind, "mse").name == "near"
    choice = choose([near, nearer, best], labels, kind, "mse")
    assert choice.name == "best"
    assert choice.expected == pytest.approx(1)


def test_the_estimate_of_equal_candidates_is_lower_than_the_score_that_won():
    plain, corrected = [], []
    random = np.random.default_rng(1)
    for seed in range(60):
        labels, candidates = table(random, 200, (0.6,) * 6)
        choice = choose(candidates, labels, CLASSES, "accuracy", seed=seed, draws=200)
        plain.append(choice.scores[choice.name] - 0.6)
        corrected.append(choice.expected - 0.6)
    error = np.std(corrected) / np.sqrt(60)
    assert np.mean(plain) > 0.02
    assert abs(np.mean(corrected)) < 3 * error


@pytest.mark.parametrize(
    ("skills", "groups"), [((0.6,), None), ((0.55, 0.58, 0.6, 0.62), None), ((0.55, 0.6, 0.63), 40)]
)
def test_the_interval_covers_the_true_score(skills, groups):
    """``python benchmarks choice`` does this with 1,000 tables a design, for all kinds of label."""
    random = np.random.default_rng(2)
    numbers = None if groups is None else np.arange(240) % groups
    covered = []
    for seed in range(150):
        labels, candidates = table(random, 240, skills, groups=numbers)
        choice = choose(candidates, labels, CLASSES, "accuracy", numbers, seed, draws=200)
        covered.append(choice.low <= skills[int(choice.name)] <= choice.high)
    assert 0.9 <= np.mean(covered) <= 0.995


def test_texts_of_a_group_are_drawn_together():
    random = np.random.default_rng(3)
    groups = np.arange(240) % 20
    labels, candidates = table(random, 240, (0.6,), groups=groups)
    alone = choose(candidates, labels, CLASSES, "accuracy")
    together = choose(candidates, labels, CLASSES, "accuracy", groups)
    assert together.high - together.low > 1.3 * (alone.high - alone.low)


@pytest.mark.parametrize("right", [3, 50, 97])
def test_the_interval_of_a_share_is_wilson_s(right):
    share = right / 100
    deviation = np.sqrt(share * (1 - share) / 100)
    expected = binomtest(right, 100).proportion_ci(method="wilson")
    found = _interval(share, deviation, "accuracy", 1.0, 100)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-5)


def test_the_interval_of_an_error_is_symmetric_in_its_logarithm_and_that_of_a_correlation_is_fisher_s():
    low, high = _interval(2.0, 0.3, "mse", -1.0, 100)
    assert low * high == pytest.approx(4)
    assert np.log(high / 2) == pytest.approx(norm.ppf(0.975) * 0.15, rel=1e-3)
    low, high = _interval(0.8, 0.05, "pearson", 1.0, 100)
    middle = (np.arctanh(low) + np.arctanh(high)) / 2
    assert middle == pytest.approx(np.arctanh(0.8))
    half = norm.ppf(0.975) * 0.05 / (1 - 0.8**2)
    assert np.arctanh(high) - middle == pytest.approx(half, rel=1e-3)
    assert _interval(0.8, 0.0, "pearson", 1.0, 100) == (None, None)


def test_several_labels_and_numbers_have_intervals_too():
    random = np.random.default_rng(4)
    kind = MultiLabel(("a", "b", "c"))
    sets = [tuple(np.flatnonzero(row).tolist()) for row in random.random((100, 3)) < 0.4]
    labels = kind.gather(sets)
    other = kind.gather(
        [sets[(row + 1) % 100] if row % 4 == 0 else sets[row] for row in range(100)]
    )
    fits = np.empty((1, 100), dtype=object)
    fits[0] = other
    for metric in kind.metrics:
        choice = choose([Candidate("one", fits)], labels, kind, metric)
        assert 0 < choice.low < choice.expected < choice.high < 1
        assert choice.scores["one"] == pytest.approx(kind.score(other, labels, metric))
    values = random.standard_normal(100)
    noisy = (values + random.standard_normal(100))[None]
    for metric in Regression(()).metrics:
        choice = choose([Candidate("one", noisy)], values, Regression(()), metric)
        assert choice.low < choice.expected < choice.high


def test_few_texts_are_chosen_by_without_an_interval_and_perfect_ones_keep_one():
    labels = np.arange(9) % 3
    choice = choose([Candidate("one", labels[None])], labels, CLASSES, "accuracy")
    assert (choice.low, choice.high, choice.expected) == (None, None, 1.0)
    labels = np.arange(60) % 3
    choice = choose([Candidate("one", labels[None])], labels, CLASSES, "accuracy")
    assert choice.high == pytest.approx(1)
    assert 0.9 < choice.low < 0.96  # Wilson's of 60 of 60
    pair = choose([Candidate("one", labels[:2][None])], labels[:2], CLASSES, "macro_f1")
    assert pair.low is None


def test_a_label_without_texts_does_not_break_the_estimate():
    labels = np.zeros(40, dtype=np.int64)
    choice = choose([Candidate("one", labels[None])], labels, CLASSES, "macro_f1")
    assert choice.expected == pytest.approx(1 / 3)
    assert [row["texts"] for row in label_rows(labels[None], labels, CLASSES)] == [40, 0, 0]


def test_nothing_to_choose_is_refused():
    with pytest.raises(ValueError, match="candidates and texts"):
        choose([], np.zeros(3, dtype=np.int64), CLASSES, "accuracy")


def test_the_rows_of_labels_are_precision_recall_and_f1():
    labels = np.array([0, 0, 1, 1, 2])
    fits = np.array([[0, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    rows = {row["label"]: row for row in label_rows(fits, labels, CLASSES)}
    assert rows["0"]["recall"] == pytest.approx(0.75)
    assert rows["1"]["precision"] == pytest.approx((2 / 4 + 2 / 3) / 2)
    assert rows["1"]["f1"] == pytest.approx((2 * 2 / 6 + 2 * 2 / 5) / 2)
    assert (rows["2"]["precision"], rows["2"]["f1"], rows["2"]["texts"]) == (0, 0, 1)
    assert label_rows(fits.astype(float), labels.astype(float), Regression(())) == []


def test_the_order_of_draws_is_fixed_by_the_seed():
    labels, candidates = table(np.random.default_rng(5), 100, (0.6, 0.62))
    first = choose(candidates, labels, CLASSES, "accuracy", seed=7)
    assert first == choose(candidates, labels, CLASSES, "accuracy", seed=7)
    assert first != choose(candidates, labels, CLASSES, "accuracy", seed=8)
