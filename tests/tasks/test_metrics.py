"""Accuracy and F1 of one label per text, and the collapse of a model, by hand and against scikit-learn."""

import socket

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from dana.tasks.kinds.base import is_degenerate
from dana.tasks.kinds.single_label import _module, score_predictions

# true \ predicted      0  1  2      class 2 is never predicted, class 3 neither occurs nor is predicted
CONFUSION = np.array([[3, 1, 0], [2, 3, 0], [0, 1, 0]])


def test_the_three_metrics_of_a_confusion_table_by_hand():
    cells = [(true, guess) for true in range(3) for guess in range(3) for _ in range(CONFUSION[true, guess])]
    references, predictions = np.array(cells).T
    # F1 = 2 right / (predicted + true): 6/9, 6/10, 0/1, and 0 for the absent class
    expected = {"accuracy": 6 / 10, "micro_f1": 6 / 10, "macro_f1": (6 / 9 + 6 / 10 + 0 + 0) / 4}
    assert score_predictions(predictions, references, 4) == pytest.approx(expected)


def test_an_absent_label_counts_the_same_in_every_seed():
    """sklearn's default would average over 2 classes here and over 3 when one of them is guessed once."""
    references = np.array([0, 0, 1, 1])
    assert score_predictions(np.array([0, 0, 1, 1]), references, 3)["macro_f1"] == pytest.approx(2 / 3)
    assert score_predictions(np.array([0, 0, 1, 2]), references, 3)["macro_f1"] == pytest.approx((1 + 2 / 3) / 3)


def test_metrics_agree_with_sklearn():
    references, predictions = np.random.default_rng(0).integers(0, 5, (2, 400))
    expected = {f"{average}_f1": f1_score(references, predictions, average=average) for average in ("micro", "macro")}
    expected["accuracy"] = accuracy_score(references, predictions)
    assert score_predictions(predictions, references, 5) == pytest.approx(expected)


BALANCED = np.repeat(np.arange(6), 50)
LOPSIDED = np.array([0] * 950 + [1] * 50)


@pytest.mark.parametrize(
    ("references", "strays", "collapsed"),
    [
        (BALANCED, 2, True),
        (BALANCED, 24, True),  # a tenth of the 250 that are outside the largest class is 25
        (BALANCED, 25, False),
        (LOPSIDED, 4, True),
        (LOPSIDED, 10, False),  # a careful model of a rare class predicts it rarely
    ],
)
def test_a_few_stray_predictions_do_not_hide_a_collapse(references, strays, collapsed):
    predictions = np.full(references.size, min(2, references.max() - 1))
    predictions[references.size - strays :] = references.max()
    assert is_degenerate(predictions, references) is collapsed


def test_one_label_is_a_collapse_and_chance_is_not():
    assert is_degenerate(np.array([2, 2, 2]), np.array([0, 1, 2]))
    assert is_degenerate(np.array([2, 2, 2]), np.array([2, 2, 2]))
    assert not is_degenerate(np.array([2, 2, 0]), np.array([0, 1, 2]))
    assert not is_degenerate(np.random.default_rng(0).integers(0, 6, BALANCED.size), BALANCED)


def test_metrics_load_without_a_network(monkeypatch):
    def refuse(*arguments, **options):
        raise OSError("no network")

    for name in ("create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    _module.cache_clear()
    scores = score_predictions(np.array([0, 1]), np.array([0, 1]), 2)
    assert scores == {"accuracy": 1.0, "micro_f1": 1.0, "macro_f1": 1.0}
