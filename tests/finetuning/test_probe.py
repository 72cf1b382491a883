"""The linear probe of frozen vectors: draws of labels, folds, kinds of labels and what is too little."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dana.finetuning.probe import (
    INVERSE_PENALTIES,
    USUAL_INVERSE_PENALTY,
    LabelledVectors,
    choose_strength,
    cross_validated,
    draw_labels,
    fitted,
    fold_numbers,
    probe_scores,
    strata_of,
    text_keys,
)
from dana.finetuning.result_model import pipeline_targets
from dana.tasks.examples import Example
from dana.tasks.kinds.multi_label import MultiLabel
from dana.tasks.kinds.regression import Regression
from dana.tasks.kinds.single_label import SingleLabel

THREE = SingleLabel.from_count(3)


def cloud(count=300, width=6, seed=0):
    """Vectors whose class shifts them, labels and keys."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    vectors = random.normal(size=(count, width))
    vectors[np.arange(count), labels] += 2
    keys = random.integers(0, 2**63, count).astype(np.uint64)
    return vectors, labels, keys


def labelled(**changes):
    vectors, labels, keys = cloud()
    values = {"vectors": vectors, "labels": labels, "kind": THREE, "metric": "accuracy"}
    return LabelledVectors(**{**values, "keys": keys, **changes})


def test_a_draw_has_the_shares_of_the_labels_and_contains_the_smaller_ones():
    keys = np.arange(1000, dtype=np.uint64)
    strata = np.repeat([0, 1, 2], [700, 200, 100])
    small = draw_labels(keys, strata, 50, 0)
    large = draw_labels(keys, strata, 100, 0)
    assert np.bincount(strata[large]).tolist() == [70, 20, 10]
    assert set(small) < set(large)
    assert not np.array_equal(large, draw_labels(keys, strata, 100, 1))
    assert not np.array_equal(large, draw_labels(keys, strata, 100, 0, seed=1))
    assert draw_labels(keys, strata, 5000, 0).tolist() == list(range(1000))


def test_draws_and_folds_do_not_depend_on_the_order_of_the_texts():
    _, labels, keys = cloud()
    strata = strata_of(labels, THREE)
    groups = np.arange(300) // 4
    order = np.random.default_rng(1).permutation(300)
    drawn = set(keys[draw_labels(keys, strata, 60, 3)])
    assert set(keys[order][draw_labels(keys[order], strata[order], 60, 3)]) == drawn
    numbers = fold_numbers(keys, strata, groups)
    assert np.array_equal(fold_numbers(keys[order], strata[order], groups[order]), numbers[order])


def test_the_key_of_a_text_depends_on_no_other_text():
    examples = [Example(str(number), f"text {number % 8}", 0) for number in range(9)]
    keys = text_keys(examples)
    assert len(set(keys.tolist())) == 9
    assert text_keys(examples[::-1]).tolist() == keys[::-1].tolist()
    assert text_keys(examples[3:5]).tolist() == keys[3:5].tolist()
    renamed = [Example("other", "text 3", 0), Example("a", "text 4", 0, pair="second")]
    assert text_keys(renamed)[0] == keys[3]
    assert text_keys(renamed)[1] != keys[4]


def test_folds_are_stratified_and_keep_groups_together():
    keys = np.random.default_rng(0).integers(0, 2**63, 600).astype(np.uint64)
    strata = np.arange(600) % 3
    alone = fold_numbers(keys, strata)
    assert np.bincount(alone * 3 + strata).tolist() == [pytest.approx(67, abs=1)] * 9
    groups = np.arange(600) // 5
    numbers = fold_numbers(keys, strata, groups)
    assert all(len(set(numbers[groups == group])) == 1 for group in range(120))
    assert np.bincount(numbers).tolist() == [200, 200, 200]
    assert set(fold_numbers(keys[:4], strata[:4], np.array([0, 0, 1, 1]))) == {0, 1}


def test_a_probe_is_the_minimum_of_the_penalised_loss():
    vectors, labels, _ = cloud(90)
    train, test = np.arange(60), np.arange(60, 90)
    mean, scale = vectors[train].mean(0), vectors[train].std(0)
    x, others = (vectors[train] - mean) / scale, (vectors[test] - mean) / scale

    def loss(flat):
        weights, bias = flat[:18].reshape(6, 3), flat[18:]
        logits = x @ weights + bias
        logs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        return -0.1 * logs[np.arange(60), labels[train]].sum() + (weights**2).sum() / 2

    best = minimize(loss, np.zeros(21)).x
    by_hand = (others @ best[:18].reshape(6, 3) + best[18:]).argmax(1)
    assert probe_scores(vectors, labels, THREE, train, test, 0.1).tolist() == by_hand.tolist()


def test_labels_of_the_tested_texts_are_not_read():
    vectors, labels, _ = cloud()
    train, test = np.arange(100), np.arange(100, 300)
    first = probe_scores(vectors, labels, THREE, train, test)
    labels[test] = 0
    assert np.array_equal(probe_scores(vectors, labels, THREE, train, test), first)


def test_several_labels_are_one_against_the_rest():
    vectors, labels, _ = cloud()
    kind = MultiLabel(("a", "b", "c"))
    sets = kind.gather([(label,) if row % 2 else () for row, label in enumerate(labels.tolist())])
    train, test = np.arange(200), np.arange(200, 300)
    predictions = probe_scores(vectors, sets, kind, train, test, 0.1)
    for label in range(3):
        has = np.array([int(label in codes) for codes in sets])
        alone = probe_scores(vectors, has, SingleLabel.from_count(2), train, test, 0.1)
        assert [label in codes for codes in predictions] == alone.astype(bool).tolist()


def test_numbers_are_predicted_by_ridge_regression():
    vectors, _, keys = cloud()
    values = vectors @ np.arange(6.0) + 5
    train, test = np.arange(200), np.arange(200, 300)
    x = (vectors - vectors[train].mean(0)) / vectors[train].std(0)
    weights = np.linalg.solve(
        x[train].T @ x[train] + 10 * np.eye(6), x[train].T @ (values[train] - values[train].mean())
    )
    expected = x[test] @ weights + values[train].mean()
    assert probe_scores(vectors, values, Regression(()), train, test, 0.1) == pytest.approx(
        expected
    )
    texts = LabelledVectors(vectors, values, Regression(()), "mse", keys)
    assert choose_strength(texts) == INVERSE_PENALTIES[-1]  # nothing to shrink
    assert cross_validated(texts).shape == (5, 300)


def test_the_penalty_is_chosen_by_folds_that_keep_groups_together():
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 5)
    marks = random.normal(size=(60, 40))  # tell the group, and so its label, by heart
    labels = random.integers(0, 3, 60)[groups]
    vectors = np.hstack([marks[groups], random.normal(size=(300, 3))])
    texts = labelled(vectors=vectors, labels=labels)
    by_heart = cross_validated(texts, repeats=1)
    apart = cross_validated(LabelledVectors(**{**texts.__dict__, "groups": groups}), repeats=1)
    assert (by_heart == labels).mean() > 0.8
    assert (apart == labels).mean() < 0.5


def test_the_penalty_has_the_least_loss_in_folds():
    vectors, labels, keys = cloud(60)
    labels = np.where(np.arange(60) < 40, 0, labels)  # a constant prediction is often right
    texts = LabelledVectors(vectors, labels, THREE, "micro_f1", keys)
    numbers = fold_numbers(keys, strata_of(labels, THREE))
    losses = []
    for strength in INVERSE_PENALTIES:
        loss = 0.0
        for number in range(3):
            train = numbers != number
            mean, scale = vectors[train].mean(0), vectors[train].std(0)
            standard = (vectors - mean) / scale
            model = LogisticRegression(C=strength, max_iter=500)
            model.fit(standard[train], labels[train])
            chances = model.predict_proba(standard[~train])
            loss += log_loss(labels[~train], chances, labels=model.classes_, normalize=False)
        losses.append(loss)
    assert choose_strength(texts) == INVERSE_PENALTIES[int(np.argmin(losses))]


def test_cross_validation_gives_every_text_a_prediction_of_each_division():
    texts = labelled()
    predictions = cross_validated(texts)
    assert predictions.shape == (5, 300)
    assert ((predictions == texts.labels).mean(1) > 0.6).all()
    assert len({row.tobytes() for row in predictions}) == 5
    assert np.array_equal(cross_validated(texts), predictions)
    other = labelled(vectors=texts.vectors[:, :2])  # another model sees the same divisions
    assert cross_validated(other).shape == (5, 300)
    with pytest.raises(ValueError, match="two groups"):
        cross_validated(labelled(groups=np.zeros(300, dtype=int)))


def test_what_is_too_little_is_predicted_all_the_same():
    vectors, labels, keys = cloud(40)
    train, test = np.arange(3), np.arange(3, 40)
    one_class = np.ones(40, dtype=int)
    assert probe_scores(vectors, one_class, THREE, train, test).tolist() == [1] * 37
    absent = np.where(labels == 2, 1, labels)
    assert set(probe_scores(vectors, absent, THREE, np.arange(20), test)) <= {0, 1}
    constant = np.zeros_like(vectors)
    assert len(set(probe_scores(constant, labels, THREE, np.arange(20), test))) == 1
    single = LabelledVectors(vectors[:1], labels[:1], THREE, "macro_f1", keys[:1])
    assert choose_strength(single) == USUAL_INVERSE_PENALTY
    alike = LabelledVectors(vectors, one_class, THREE, "macro_f1", keys)
    assert choose_strength(alike) == USUAL_INVERSE_PENALTY


def skewed(count=300, share=0.1, seed=1):
    """Vectors of two classes that overlap, of which one is rare; labels and keys."""
    random = np.random.default_rng(seed)
    labels = (random.random(count) < share).astype(np.int64)
    vectors = random.normal(size=(count, 4))
    vectors[:, 0] += labels
    return vectors, labels, random.integers(0, 2**63, count).astype(np.uint64)


def test_balanced_classes_are_those_of_a_fit_to_repeated_texts():
    vectors, labels, _ = skewed()
    rare = np.flatnonzero(labels)
    common = np.flatnonzero(labels == 0)
    times = len(common) // len(rare)
    train = np.concatenate([common[: times * len(rare)], rare])
    repeated = np.concatenate([common[: times * len(rare)], np.repeat(rare, times)])
    test = np.arange(len(labels))
    two = SingleLabel.from_count(2)
    plain, balanced, copies = (
        probe_scores(vectors, labels, two, rows, test, 1e3, weight)
        for rows, weight in ((train, None), (train, "balanced"), (repeated, None))
    )
    # Standardised by other means, but with so weak a penalty that the fits are the same.
    assert (balanced == copies).mean() > 0.98
    assert balanced.sum() > 2 * plain.sum(), "the rare class is predicted more often"
    sets = np.empty(len(labels), dtype=object)
    sets[:] = [(1,) if label else () for label in labels]
    of_sets = probe_scores(vectors, sets, MultiLabel(("a", "b")), train, test, 1e3, "balanced")
    assert [row == (1,) for row in of_sets] == balanced.astype(bool).tolist()


def test_the_weighted_loss_chooses_the_penalty_of_balanced_classes():
    vectors, labels, keys = skewed(share=0.05)
    texts = LabelledVectors(vectors, labels, SingleLabel.from_count(2), "macro_f1", keys)
    balanced = replace(texts, class_weight="balanced")
    numbers = fold_numbers(keys, texts.strata)
    losses = np.zeros(len(INVERSE_PENALTIES))
    for number in range(3):
        train, test = np.flatnonzero(numbers != number), np.flatnonzero(numbers == number)
        mean, std = vectors[train].mean(0), vectors[train].std(0)
        every = np.concatenate([labels[train], labels[test]])
        weights = len(every) / (2 * np.bincount(every))
        for row, strength in enumerate(INVERSE_PENALTIES):
            model = LogisticRegression(C=strength, class_weight="balanced", max_iter=500)
            model.fit((vectors[train] - mean) / std, labels[train])
            likely = model.predict_proba((vectors[test] - mean) / std)
            actual = labels[test]
            losses[row] -= (weights[actual] * np.log(likely[np.arange(len(test)), actual])).sum()
    assert choose_strength(balanced) == INVERSE_PENALTIES[int(losses.argmin())]
    assert np.array_equal(cross_validated(texts), cross_validated(replace(texts))), "as before"
    assert not np.array_equal(cross_validated(texts), cross_validated(balanced))


@pytest.mark.parametrize("weight", [None, "balanced"])
def test_the_pipeline_that_is_saved_predicts_what_the_probe_does(weight):
    vectors, labels, _ = skewed()
    noise = 1e-33 * np.random.default_rng(0).normal(size=(len(labels), 1))
    vectors = np.hstack([vectors, noise])  # a column that is as good as constant, as MiniLM has
    rows = np.arange(len(labels))
    two = SingleLabel.from_count(2)
    pipeline = fitted(vectors, pipeline_targets(labels.tolist(), two), two, 0.1, weight)
    names = probe_scores(vectors, labels, two, rows, rows, 0.1, weight).astype(str)
    assert pipeline.predict(vectors).tolist() == names.tolist()
