"""The choice of an objective by a pilot, by hand."""

import numpy as np
import pytest

from dana.finetuning.pilot import NONE, choose_objective, judge
from dana.tasks.kinds import find_kind

LABELS = np.zeros(100, dtype=np.int64)
KIND = find_kind("single_label")(("a", "b"))


def right(*counts):
    """Predictions of repeats, each right on its first so many of 100 texts."""
    rows = [np.where(np.arange(100) < count, 0, 1) for count in counts]
    return np.stack(rows)


def trials(k=0.5, **candidates):
    predictions = {NONE: right(50, 50), **candidates}
    found = judge(predictions, LABELS, KIND, "accuracy", k)
    return {trial.objective: trial for trial in found}


def test_gain_error_and_bar_are_those_of_the_paired_differences_of_texts():
    found = trials(crops=right(60, 70))["crops"]
    # Ten texts gain 1 in both repeats, ten in one of two, all others nothing.
    differences = np.array([1.0] * 10 + [0.5] * 10 + [0.0] * 80)
    assert found.score == pytest.approx(0.65)
    assert found.gain == pytest.approx(0.15)
    assert found.error == pytest.approx(differences.std(ddof=1) / 10)
    assert found.bar == pytest.approx(max(0.01, 0.5 * found.error))
    assert trials(0.0, crops=right(60, 70))["crops"].bar == 0.01


@pytest.mark.parametrize(
    ("candidates", "k", "choice"),
    [
        ({"position": right(60, 60), "crops": right(70, 70)}, 0.5, "crops"),
        ({"position": right(70, 70), "crops": right(70, 70)}, 0.5, "position"),
        ({"position": right(50, 51), "crops": right(40, 40)}, 0.0, NONE),
        ({"position": right(52, 52)}, 0.5, "position"),
        ({"position": right(52, 52)}, 2.0, NONE),
        ({"position": right(40, 40)}, 0.5, NONE),
        ({}, 0.5, NONE),
    ],
    ids=["best", "first of equals", "below .01", "above", "k", "worse", "no candidate"],
)
def test_the_largest_gain_above_its_bar_is_chosen(candidates, k, choice):
    assert choose_objective([*trials(k, **candidates).values()]) == choice


def test_where_less_is_better_a_smaller_error_is_a_gain():
    kind = find_kind("regression")(())
    metric = next(name for name, way in kind.metrics.items() if way == "lower")
    labels = np.linspace(0, 1, 50)
    predictions = {NONE: np.stack([labels + 0.5]), "crops": np.stack([labels + 0.1])}
    found = judge(predictions, labels, kind, metric)
    assert found[1].gain == pytest.approx(found[0].score - found[1].score)
    assert found[1].gain > 0
    assert choose_objective(found) == "crops"
