"""Text tables: numbers right, text left, thousands separators and three decimals."""

from dana.core.text_table import tabulate


def test_tables_are_aligned_and_numbers_formatted():
    rows = [{"split": "train", "examples": 1688, "drift": None}, {"split": "test", "examples": 9, "drift": 0.12345}]
    assert tabulate(rows) == "split  examples  drift\ntrain     1,688      -\ntest          9  0.123"
    assert tabulate([{"a": 1, "b": "x"}, {"a": 22, "b": "long"}]).splitlines() == [" a  b", " 1  x", "22  long"]
    assert tabulate([{"p": 0.0}, {"p": 4.2e-17}, {"p": 0.0005}]).split() == ["p", "0.000", "4e-17", "0.001"]
