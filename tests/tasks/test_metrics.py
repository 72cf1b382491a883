import subprocess
import sys

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from dana.tasks.kinds.base import is_degenerate
from dana.tasks.kinds.single_label import score_predictions

# true \ predicted      0  1  2      class 2 is there and never found, class 3 is neither there nor predicted
CONFUSION = np.array([[3, 1, 0], [2, 3, 0], [0, 1, 0]])


def _pairs():
    cells = [(true, guess) for true in range(3) for guess in range(3) for _ in range(CONFUSION[true, guess])]
    return np.array(cells).T


def test_the_three_metrics_of_a_confusion_table_by_hand():
    references, predictions = _pairs()
    found = score_predictions(predictions, references, 4)
    assert found["accuracy"] == pytest.approx(6 / 10)
    assert found["micro_f1"] == pytest.approx(6 / 10)
    # F1 = 2 right / (predicted + true): 6/9, 6/10, 0/1, and 0 for the class that is not there
    assert found["macro_f1"] == pytest.approx((6 / 9 + 6 / 10 + 0 + 0) / 4)


def test_a_label_that_is_not_there_counts_the_same_in_every_seed():
    """sklearn's default would average over 2 classes here and over 3 when one of them is guessed once."""
    references = np.array([0, 0, 1, 1])
    without, with_guess = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 2])
    assert score_predictions(without, references, 3)["macro_f1"] == pytest.approx(2 / 3)
    assert score_predictions(with_guess, references, 3)["macro_f1"] == pytest.approx((1 + 2 / 3) / 3)


def test_metrics_agree_with_sklearn():
    random = np.random.default_rng(0)
    references, predictions = random.integers(0, 5, (2, 400))
    found = score_predictions(predictions, references, 5)
    assert found["accuracy"] == pytest.approx(accuracy_score(references, predictions))
    assert found["micro_f1"] == pytest.approx(f1_score(references, predictions, average="micro"))
    assert found["macro_f1"] == pytest.approx(f1_score(references, predictions, average="macro"))


BALANCED = np.repeat(np.arange(6), 50)
LOPSIDED = np.array([0] * 950 + [1] * 50)


def _constant(references: np.ndarray, strays: int) -> np.ndarray:
    """Class 2 (in two classes: 0) but for so many predictions at the end."""
    predictions = np.full(references.size, min(2, references.max() - 1))
    predictions[references.size - strays :] = references.max()
    return predictions


def test_a_run_that_predicts_one_label_is_degenerate():
    assert is_degenerate(np.array([2, 2, 2]), np.array([0, 1, 2]))
    assert is_degenerate(np.array([2, 2, 2]), np.array([2, 2, 2]))
    assert not is_degenerate(np.array([2, 2, 0]), np.array([0, 1, 2]))


@pytest.mark.parametrize(
    ("references", "strays", "collapsed"),
    [
        (BALANCED, 2, True),
        (BALANCED, 24, True),  # a tenth of the 250 that lie outside the largest class is 25
        (BALANCED, 25, False),
        (LOPSIDED, 4, True),
        (LOPSIDED, 10, False),  # a careful model of a rare class predicts it rarely
    ],
)
def test_a_few_stray_predictions_do_not_make_a_collapsed_run_sound(references, strays, collapsed):
    assert is_degenerate(_constant(references, strays), references) is collapsed


def test_a_weak_run_is_not_a_collapsed_one():
    """No better than chance, but its predictions vary: its score is bad news, not no news."""
    predictions = np.random.default_rng(0).integers(0, 6, BALANCED.size)
    assert not is_degenerate(predictions, BALANCED)


def test_metrics_load_without_a_network():
    """In a process where opening any connection raises."""
    code = """
import socket
def refuse(*args, **kwargs): raise OSError("no network")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
import numpy as np
from dana.tasks.kinds.single_label import score_predictions
print(score_predictions(np.array([0, 1]), np.array([0, 1]), 2))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "{'accuracy': 1.0, 'micro_f1': 1.0, 'macro_f1': 1.0}"
