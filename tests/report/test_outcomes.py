import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dana.report.cells import Finetuned, Predictions
from dana.report.tables import difference_table, loss_table, result_table
from dana.report.verdicts import compare_arms
from dana.tasks.kinds.single_label import SingleLabel

LABELS = np.arange(8) % 2


def cells(scores: dict[str, list[float]], **settings: dict[str, int]) -> list[Finetuned]:
    """A cell an arm, of the same eight predictions; `settings` are an arm's own."""
    return [
        Finetuned(
            task="t",
            arm=arm,
            metric="macro_f1",
            direction="higher",
            scores=dict(enumerate(values)),
            collapsed=frozenset(),
            settings={"preset.epochs": 3, **settings.get(arm, {})},
            predictions=Predictions(np.arange(8), LABELS, np.tile(LABELS, (len(values), 1)), SingleLabel.numbered(2)),
        )
        for arm, values in scores.items()
    ]


HAND = {"base": [0.1, 0.2, 0.3], "random": [0.3, 0.1, 0.2], "dana": [0.2, 0.4, 0.3]}


def test_results_have_n_mean_and_the_sample_standard_deviation():
    frame = result_table(cells(HAND)).frame.set_index("arm")
    assert frame.loc["base", ["n", "mean", "std"]].tolist() == pytest.approx([3, 0.2, 0.1])


def test_a_comparison_is_a_row_and_what_there_is_not_is_a_dash():
    table = difference_table(compare_arms(cells({"base": [0.1], "dana": [0.9]})))
    assert table.frame.iloc[0]["verdict"] == "undecided"
    shown = next(iter(table.rows()))[0]
    assert shown[:5] == ["t", "dana − base", "1", "+0.8000", "–"]
    assert shown[-1].startswith("undecided: 1 seed is too few, p cannot fall below 1; at least 6 are needed")
    assert difference_table(compare_arms(cells({"dana": [0.1]}))) is None


def test_collapsed_models_of_both_arms_are_flagged_and_deviations_say_their_ddof():
    made = [replace(cell, collapsed=frozenset({1})) if cell.arm != "dana" else cell for cell in cells(HAND)]
    table = difference_table(compare_arms(made))
    at = [column.header for column in table.columns].index("collapsed")
    shown = {row[1]: row[at] for row, _ in table.rows()}
    assert shown == {"dana − base": "1 of 6", "dana − random": "1 of 6", "random − base": "2 of 6"}
    assert set(table.frame["ddof"]) == {1}
    assert table.frame["std"].iloc[0] == pytest.approx(np.std([0.1, 0.2, 0.0], ddof=1))


def test_arms_that_were_made_otherwise_are_not_compared():
    made = cells(HAND, random={"preset.epochs": 2})
    row = difference_table(compare_arms(made)).frame.set_index(["arm", "other"]).loc[("dana", "random")]
    assert (row["verdict"], row["reasons"]) == ("not compared", "epochs 3 against 2")
    assert np.isnan(row["mean"])


def test_losses_compare_first_and_last_by_step():
    rows = [
        {"arm": "dana", "step": 9, "tokens": 90, "task_loss": 1.0, "general_loss": 3.5},
        {"arm": "dana", "step": 0, "tokens": 0, "task_loss": 2.0, "general_loss": 3.0},
    ]
    frame = loss_table(pd.DataFrame(rows).assign(task_loss_se=0.1, general_loss_se=0.2)).frame.set_index("text")
    assert frame["change"].to_dict() == {"task": -1.0, "general": 0.5}
    assert frame.loc["task", "perplexity_after"] == pytest.approx(math.e)
    assert frame.loc["task", "tokens"] == 90
