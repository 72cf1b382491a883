"""Accuracy of a few-shot study: exact intervals, the comparison of arms, and the answer in words."""

from math import comb, isnan

import pandas as pd
import pytest
from scipy.stats import beta

from dana.studies.few_shot.stage import arm_accuracy, compare_on_with_off, exact_interval, study_text


def outcomes(**counts):
    return [outcome for outcome, count in counts.items() for _ in range(count)]


@pytest.mark.parametrize(("right", "items"), [(0, 5), (5, 5), (1, 9), (30, 72), (400, 1000)])
def test_the_interval_is_that_of_clopper_and_pearson(right, items):
    low = 0.0 if right == 0 else beta.ppf(0.025, right, items - right + 1)
    high = 1.0 if right == items else beta.ppf(0.975, right + 1, items - right)
    assert exact_interval(right, items) == pytest.approx((low, high), abs=1e-9)


def test_who_does_not_answer_is_wrong_and_counted_apart():
    row = arm_accuracy("on", outcomes(right=6, wrong=2, abstained=3, unparsable=1))
    assert (row["items"], row["right"], row["wrong"], row["abstained"], row["unparsable"]) == (12, 6, 2, 3, 1)
    assert (row["accuracy"], row["answered"], row["accuracy_answered"]) == (0.5, 8, 0.75)
    assert (row["low"], row["high"]) == exact_interval(6, 12)
    assert (row["low_answered"], row["high_answered"]) == exact_interval(6, 8)
    assert isnan(arm_accuracy("off", outcomes(abstained=4))["accuracy_answered"])


def pairs(both, only_on, only_off, neither):
    """Results of which so many items are right in both arms, in one, in none; the rows are in no order."""
    rows = []
    for on, off, count in ((1, 1, both), (1, 0, only_on), (0, 1, only_off), (0, 0, neither)):
        for _ in range(count):
            item = str(len(rows) // 2)
            rows.append({"item": item, "arm": "off", "outcome": "right" if off else "abstained"})
            rows.append({"item": item, "arm": "on", "outcome": "right" if on else "wrong"})
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def test_arms_are_compared_item_by_item():
    row = compare_on_with_off(pairs(20, 9, 1, 4))
    assert (row["both"], row["only_on"], row["only_off"], row["neither"]) == (20, 9, 1, 4)
    assert row["difference"] == pytest.approx(8 / 34)
    assert row["p"] == pytest.approx(2 * (comb(10, 0) + comb(10, 1)) / 2**10)
    mirror = compare_on_with_off(pairs(20, 1, 9, 4))
    assert (mirror["only_on"], mirror["difference"], mirror["p"]) == (1, -row["difference"], row["p"])


def words(on, off, both):
    results = pairs(both, on - both, off - both, 72 - on - off + both)
    arms = [arm_accuracy(arm, list(results["outcome"][results["arm"] == arm])) for arm in ("on", "off")]
    return study_text("Study", arms, compare_on_with_off(results))


def test_the_result_comes_first_and_in_words():
    first, second, *_, table = [line for line in words(60, 24, 20).splitlines() if line][1:-1]
    assert "60 of 72 (83 %, exact 95 % interval 73 to 91 %)" in first
    assert first.endswith("better than guessing.")
    assert second.endswith("worse than guessing.")
    shares = ["0.333", "0.227", "0.454", "24", "1.000", "0.858", "1.000"]
    assert table.split() == ["off", "72", "24", "0", "48", "0", *shares]
    assert "by 50 points" in words(60, 24, 20)


def test_what_cannot_be_told_from_guessing_or_chance_is_not_called_better():
    text = words(40, 33, 20)
    assert text.count("may be guessing.") == 2
    assert "The difference of 10 points may be chance" in text
    assert "better with examples of other topics than" in words(24, 60, 20)
