"""What differences texts can decide, in the metric of a card."""

import numpy as np
import pytest

from dana.stages.power import describe_difference, spread_ratio
from dana.tasks.kinds.single_label import SingleLabel


def classes(*sizes):
    kind = SingleLabel(tuple(f"class {number}" for number in range(len(sizes))))
    return kind, np.repeat(np.arange(len(sizes)), sizes).tolist()


def resampled_ratio(kind, labels):
    """Measure over new samples of texts what is estimated from one: two models that know half of all labels."""
    random = np.random.default_rng(3)
    differences = {"macro_f1": [], "accuracy": []}
    for _ in range(600):
        actual = random.choice(labels, len(labels))
        others = [random.permutation(actual) for _ in range(2)]
        first = np.where(random.random(len(actual)) < 0.6, actual, others[0])
        again = np.where(random.random(len(actual)) < 0.6, actual, others[1])
        second = np.where(random.random(len(actual)) < 0.3, again, first)
        for metric, found in differences.items():
            scores = [kind.score(part, actual, metric) for part in (first, second)]
            found.append(scores[1] - scores[0])
    return np.std(differences["macro_f1"]) / np.std(differences["accuracy"])


@pytest.mark.parametrize("sizes", [(100, 100), (180, 20), (60, 55, 30, 20, 15)])
def test_the_spread_of_macro_f1_is_that_over_new_texts(sizes):
    kind, labels = classes(*sizes)
    assert spread_ratio(kind, labels, "macro_f1") == pytest.approx(
        resampled_ratio(kind, labels), rel=0.2
    )


def test_a_rare_class_makes_smaller_differences_undecidable_and_accuracy_is_as_it_is():
    kind, labels = classes(190, 10)
    assert spread_ratio(kind, labels, "macro_f1") > 2
    assert spread_ratio(kind, labels, "accuracy") == 1


def test_texts_that_can_decide_nothing_are_said_to():
    assert describe_difference(1.2, "macro_f1", "the probe").startswith("too few texts or folds")
