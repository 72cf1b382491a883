"""Aligned text tables."""

from dana.core.text_table import tabulate


def test_numbers_go_right_and_text_left_with_separators_and_three_decimals():
    rows = [
        {"split": "train", "examples": 1688, "drift": None},
        {"split": "test", "examples": 9, "drift": 0.12345},
    ]
    assert tabulate(rows) == "split  examples  drift\ntrain     1,688      -\ntest          9  0.123"


def test_a_last_column_of_text_leaves_no_spaces_behind():
    assert tabulate([{"a": 1, "b": "x"}, {"a": 22, "b": "long"}]).splitlines() == [" a  b", " 1  x", "22  long"]


def test_a_number_that_three_decimals_would_make_zero_keeps_a_digit():
    assert tabulate([{"p": 0.0}, {"p": 4.2e-17}, {"p": 0.0005}]).split() == ["p", "0.000", "4e-17", "0.001"]
