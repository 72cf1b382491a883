import math

import pandas as pd
import pytest

from dana.report.outcomes import contrasts, difference_table, loss_table, result_table, verdict


def results(scores: dict[str, list[float]], direction: str = "higher", task: str = "t") -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "task": task,
                "metric": "macro_f1",
                "direction": direction,
                "arm": arm,
                "seed": seed,
                "score": score,
                "degenerate": False,
            }
            for arm, values in scores.items()
            for seed, score in enumerate(values)
        ]
    )


HAND = {"base": [0.1, 0.2, 0.3], "random": [0.3, 0.1, 0.2], "dana": [0.2, 0.4, 0.3]}


def test_results_have_n_mean_and_the_sample_standard_deviation():
    frame = result_table(results(HAND)).frame.set_index("arm")
    assert frame.loc["base", ["n", "mean", "std"]].tolist() == pytest.approx([3, 0.2, 0.1])


def test_differences_are_paired_by_seed():
    frame = difference_table(results(HAND)).frame.set_index(["arm", "other"])
    row = frame.loc[("dana", "base")]  # differences 0.1, 0.2, 0.0: mean 0.1, std 0.1, t(2, .975) = 4.302653
    assert row["mean"] == pytest.approx(0.1)
    assert row["high"] == pytest.approx(0.1 + 4.302653 * 0.1 / math.sqrt(3), abs=1e-6)
    assert row["verdict"] == "undecided"
    assert row["p"] == pytest.approx(4 / 8)  # sums as large as 0.3: only ±±0, whatever the sign of the zero


def test_every_arm_is_compared_with_base_and_ours_with_the_others():
    found = contrasts(["base", "general", "random", "dana"])
    assert found[:3] == [("dana", "base"), ("random", "base"), ("general", "base")]
    assert set(found[3:]) == {("dana", "random"), ("dana", "general")}
    assert contrasts(["base", "adapted"]) == [("adapted", "base")]
    assert contrasts(["base"]) == []


@pytest.mark.parametrize(
    ("low", "high", "sign", "said"),
    [
        (0.1, 0.2, 1, "better"),
        (-0.2, -0.1, 1, "worse"),
        (-0.1, 0.2, 1, "undecided"),
        (0.0, 0.0, 1, "undecided"),
        (0.1, 0.2, -1, "worse"),
        (-0.2, -0.1, -1, "better"),
        (math.nan, math.nan, 1, "undecided"),
    ],
)
def test_the_verdict_is_the_interval_s(low, high, sign, said):
    assert verdict({"low": low, "high": high}, sign) == said


def test_lower_is_better_turns_the_verdict_and_not_the_number():
    scores = {"base": [0.5, 0.51, 0.52], "dana": [0.3, 0.31, 0.33]}
    row = difference_table(results(scores, "lower")).frame.iloc[0]
    assert row["mean"] < 0
    assert row["verdict"] == "better"
    assert difference_table(results(scores)).frame.iloc[0]["verdict"] == "worse"


def test_no_shared_seed_no_comparison():
    frame = results(HAND)
    frame.loc[frame["arm"] != "base", "seed"] += 10
    found = difference_table(frame).frame
    assert "base" not in set(found["other"])
    assert difference_table(results({"dana": [0.1]})) is None


def test_one_seed_is_undecided_and_shown_without_an_interval():
    table = difference_table(results({"base": [0.1], "dana": [0.9]}))
    assert table.frame.iloc[0]["verdict"] == "undecided"
    assert next(iter(table.rows()))[0][4] == "–"


def test_losses_compare_first_and_last_by_step():
    rows = [
        {"arm": "dana", "step": 9, "tokens": 90, "task_loss": 1.0, "general_loss": 3.5},
        {"arm": "dana", "step": 0, "tokens": 0, "task_loss": 2.0, "general_loss": 3.0},
    ]
    frame = loss_table(pd.DataFrame(rows).assign(task_loss_se=0.1, general_loss_se=0.2)).frame.set_index("text")
    assert frame["change"].to_dict() == {"task": -1.0, "general": 0.5}
    assert frame.loc["task", "perplexity_after"] == pytest.approx(math.e)
    assert frame.loc["task", "tokens"] == 90
