"""Tables of a report, by hand-computed numbers."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from dana.report import tables
from dana.report.page import markdown_text, number, percent
from dana.report.run import ACCURACIES, ScoreFrames
from dana.report.verdicts import compare_arms
from tests.report.test_verdicts import arm_result


def score_frames(sources, characters, scores, weights) -> ScoreFrames:
    """Units, and held-out target text with the scores 0 and 1."""
    units = pd.DataFrame({"source": pd.Series(sources, dtype="category"), "characters": characters})
    units = units.assign(score=scores, weight=weights)
    return ScoreFrames(units, pd.DataFrame({"characters": [10, 10], "score": [0.0, 1.0]}))


@pytest.fixture
def by_hand() -> ScoreFrames:
    """Four units of 10, 30, 20 and 40 characters; b and half of p are selected."""
    sources = ["a", "b", "a", "p"]
    return score_frames(sources, [10, 30, 20, 40], [3.0, -1.0, 2.0, -2.0], [0.0, 1.0, 0.0, 0.5])


def test_source_table_by_hand(by_hand):
    frame = tables.source_table(by_hand).frame.set_index("source")
    assert list(frame.index) == ["b", "p", "a"]  # 30, 20 and 0 kept characters
    assert frame["selected_units"].tolist() == [1, 0.5, 0]
    assert frame["share_of_selected_units"].tolist() == pytest.approx([2 / 3, 1 / 3, 0])
    assert frame["share_of_selected_characters"].tolist() == pytest.approx([0.6, 0.4, 0])
    assert frame["share_of_characters"].tolist() == pytest.approx([0.3, 0.4, 0.3])
    assert frame["share_of_its_units_selected"].tolist() == pytest.approx([1, 0.5, 0])


def test_nothing_selected(by_hand):
    by_hand.units["weight"] = 0.0
    assert tables.source_table(by_hand).frame["share_of_selected_characters"].tolist() == [0, 0, 0]


def test_separation_by_hand(by_hand):
    frame = tables.separation_table(by_hand).frame.set_index("text")
    assert frame["units"].to_dict() == {"target": 2, "pool": 4}
    # Pool scores are 3, -1, 2, -2; of the 8 pairs with the task's 0 and 1, four are in order.
    assert frame["auroc_against_pool"].tolist() == pytest.approx([1 / 2, np.nan], nan_ok=True)
    assert tables.auroc(pd.Series([1.0]), pd.Series([1.0])) == 0.5


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=30))
def test_spearman_agrees_with_scipy(pairs):
    first, second = (pd.Series(values, dtype=float) for values in zip(*pairs, strict=True))
    varies = first.nunique() > 1 and second.nunique() > 1
    correlation = spearmanr(first, second).statistic if varies else np.nan
    assert tables.spearman(first, second) == pytest.approx(correlation, nan_ok=True)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_histogram_counts_every_unit_of_every_group(scores):
    size = len(scores)
    frame = tables.histogram(score_frames(["a"] * size, [1] * size, scores, [1.0] * size)).frame
    assert frame["pool"].sum() == pytest.approx(1)
    assert frame["target"].sum() == pytest.approx(1)
    assert (frame["from"].to_numpy()[1:] == frame["to"].to_numpy()[:-1]).all()


def test_twenty_sources_are_shown():
    sources = [f"s{index:02}" for index in range(23)]
    table = tables.source_table(score_frames(sources, [1] * 23, [0.0] * 23, [1.0] * 23))
    assert (len(list(table.rows())), table.hidden_rows, len(table.frame)) == (20, 3, 23)


def test_numbers_have_a_true_minus_and_no_minus_zero():
    assert number(-0.1234, 2) == "−0.12"
    assert number(-0.0001, 2) == "0.00"
    assert [number(x, 3, sign=True) for x in (0.5, -0.0003, 0.0003, -1e-17)] == [
        "+0.500",
        "−0.000",
        "+0.000",
        "+0.000",
    ]
    assert number(1234567, 0) == "1,234,567"
    assert number(None) == number(float("nan")) == "–"
    assert percent(0.1234) == "12.3\N{NO-BREAK SPACE}%"
    assert markdown_text("a|b\nc") == r"a\|b c"


def results(**scores):
    """Results of ten texts with a score per seed; seed 1 of a control collapsed."""
    arms = {arm: np.arange(10) < np.array(values)[:, None] * 10 for arm, values in scores.items()}
    seeds = {arm: frozenset() if arm == "dana" else frozenset({1}) for arm in scores}
    return [arm_result(arm, right, collapsed_seeds=seeds[arm]) for arm, right in arms.items()]


def test_result_and_difference_table_by_hand():
    cells = results(base=[0.1, 0.2, 0.3], random=[0.3, 0.1, 0.2], dana=[0.2, 0.4, 0.3])
    frame = tables.result_table(cells).frame.set_index("arm")
    assert frame.loc["base", ["n", "mean", "std", "ddof"]].tolist() == pytest.approx(
        [3, 0.2, 0.1, 1]
    )
    table = tables.difference_table(compare_arms(cells))
    index = [column.header for column in table.columns].index("collapsed")
    texts = {row[0]: row[index] for row, _ in table.rows()}
    assert texts == {
        "adapted − not adapted": "1 of 6",
        "adapted − random text": "1 of 6",
        "random text − not adapted": "2 of 6",
    }
    assert table.frame["collapsed"].tolist() == [1, 1, 2]
    intact = [replace(arm_result, collapsed_seeds=frozenset()) for arm_result in cells[::2]]
    (row,) = tables.difference_table(compare_arms(intact)).frame.itertuples()
    assert row.unit_std == pytest.approx(np.std([0.1, 0.2, 0.0], ddof=1))
    assert (row.unit, row.n, row.texts) == ("seed", 3, 10)
    assert (row.unit_share + row.text_share, row.seed_share) == pytest.approx((1, 0))


def test_difference_table_of_one_seed_has_dashes():
    pair = results(base=[0.1], dana=[0.9])
    ((cells, look),) = tables.difference_table(compare_arms(pair)).rows()
    assert (cells[2:6], look) == (["–"] * 4, "grey"), "base collapsed"
    intact = [replace(arm_result, collapsed_seeds=frozenset()) for arm_result in pair]
    ((cells, look),) = tables.difference_table(compare_arms(intact)).rows()
    expected = ["adapted − not adapted", "1", "+0.800", "–", "1.0000", "1.0000", "undecided"]
    assert (cells, look) == (expected, "")
    assert tables.difference_table(compare_arms(results(dana=[0.1]))) is None


def test_loss_table_compares_first_and_last_by_step():
    steps = {"step": [9, 0], "tokens": [90, 0], "target_loss": [1.0, 2.0], "pool_loss": [3.5, 3.0]}
    frame = pd.DataFrame({"arm": "dana", **steps, "target_loss_se": 0.1, "pool_loss_se": 0.2})
    frame[list(ACCURACIES)] = math.nan
    frame = tables.loss_table(frame).frame.set_index("text")
    assert frame["change"].to_dict() == {"target": -1.0, "pool": 0.5}
    assert frame.loc["target", "perplexity_after"] == pytest.approx(math.e)
    assert frame.loc["target", "tokens"] == 90
