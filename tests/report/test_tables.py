import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from dana.report.page import number, percent
from dana.report.run import Selected
from dana.report.tables import auroc, histogram, kept_table, planted_table, separation_table, spearman


def selected(sources, characters, scores, weights, task=(0.0, 1.0)) -> Selected:
    source = pd.Series(sources, dtype="category")
    units = pd.DataFrame({"source": source, "planted": source.astype(str).str.endswith("(planted)")})
    units["characters"], units["score"], units["weight"] = characters, scores, weights
    held_out = pd.DataFrame({"characters": [10] * len(task), "score": task})
    return Selected(units, held_out)


@pytest.fixture
def by_hand() -> Selected:
    """Four units of 10, 30, 20 and 40 characters; b and half of the planted one are kept."""
    sources = ["a", "b", "a", "p (planted)"]
    return selected(sources, [10, 30, 20, 40], [3.0, -1.0, 2.0, -2.0], [0.0, 1.0, 0.0, 0.5])


def test_kept_by_source_by_units_and_by_characters(by_hand):
    frame = kept_table(by_hand).frame.set_index("source")
    assert list(frame.index) == ["b", "p (planted)", "a"]  # 30, 20 and 0 kept characters
    assert frame.loc["b", "share_of_kept_units"] == pytest.approx(2 / 3)
    assert frame.loc["b", "share_of_kept_characters"] == pytest.approx(30 / 50)
    assert frame.loc["b", "share_of_characters"] == pytest.approx(30 / 100)
    assert frame.loc["p (planted)", "share_of_its_units_kept"] == pytest.approx(0.5)
    assert frame.loc["a", "kept_units"] == 0


def test_recall_precision_and_chance_of_planted_units(by_hand):
    frame = planted_table(by_hand).frame
    assert frame["value"].tolist() == pytest.approx([0.5, 0.5 / 1.5])
    assert frame["by_chance"].tolist() == pytest.approx([1.5 / 4, 1 / 4])


def test_nothing_planted_has_no_recall(by_hand):
    by_hand.units["planted"] = False
    assert planted_table(by_hand) is None


def test_nothing_kept_divides_by_nothing(by_hand):
    by_hand.units["weight"] = 0.0
    assert kept_table(by_hand).frame["share_of_kept_characters"].tolist() == [0, 0, 0]
    assert planted_table(by_hand) is None


def test_auroc_is_the_chance_that_the_relevant_score_is_lower():
    assert auroc(pd.Series([0.0, 2.0]), pd.Series([1.0, 3.0])) == 0.75
    assert auroc(pd.Series([1.0]), pd.Series([1.0])) == 0.5


def test_separation_compares_with_general_text_that_is_not_planted(by_hand):
    frame = separation_table(by_hand).frame.set_index("text")
    assert frame["units"].to_dict() == {"task": 2, "general": 3, "planted": 1}
    # General scores are 3, -1, 2; of the 6 pairs with the task's 0 and 1, four are in order.
    assert frame.loc["task", "auroc_against_general"] == pytest.approx(4 / 6)
    assert frame.loc["planted", "auroc_against_general"] == 1.0
    assert np.isnan(frame.loc["general", "auroc_against_general"])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=30))
def test_spearman_agrees_with_scipy(pairs):
    first, second = (pd.Series(values, dtype=float) for values in zip(*pairs, strict=True))
    if first.nunique() > 1 and second.nunique() > 1:
        assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic)
    else:
        assert np.isnan(spearman(first, second))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_histogram_counts_every_unit_of_every_group(scores):
    size = len(scores)
    frame = histogram(selected(["a"] * size, [1] * size, scores, [1.0] * size)).frame
    assert frame["general"].sum() == pytest.approx(1)
    assert frame["task"].sum() == pytest.approx(1)
    assert (frame["from"].to_numpy()[1:] == frame["to"].to_numpy()[:-1]).all()


def test_only_the_first_sources_are_shown_and_the_rest_counted():
    table = kept_table(selected([f"s{place:02}" for place in range(23)], [1] * 23, [0.0] * 23, [1.0] * 23))
    assert len(list(table.rows())) == 20
    assert table.left_out == 3
    assert len(table.frame) == 23


def test_numbers_are_set_with_a_true_minus_and_without_minus_zero():
    assert number(-0.1234, 2) == "−0.12"
    assert number(-0.0001, 2) == "0.00"
    assert number(0.5, 1, sign=True) == "+0.5"
    assert number(1234567, 0) == "1,234,567"
    assert number(None) == number(float("nan")) == "–"
    assert percent(0.1234) == "12.3\N{NO-BREAK SPACE}%"
