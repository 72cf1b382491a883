"""Text tables: numbers right, text left, thousands separators and three decimals."""

import pandas as pd

from dana.core.text_table import csv_text, tabulate


def test_tables_are_aligned_and_numbers_formatted():
    rows = [
        {"split": "train", "examples": 1688, "drift": None},
        {"split": "test", "examples": 9, "drift": 0.12345},
    ]
    assert (
        tabulate(rows) == "split  examples  drift\ntrain     1,688      -\ntest          9  0.123"
    )
    assert tabulate([{"a": 1, "b": "x"}, {"a": 22, "b": "long"}]).splitlines() == [
        " a  b",
        " 1  x",
        "22  long",
    ]
    assert tabulate([{"p": 0.0}, {"p": 4.2e-17}, {"p": 0.0005}]).split() == [
        "p",
        "0.000",
        "4e-17",
        "0.001",
    ]


def test_csv_steps_that_a_spreadsheet_would_run_are_text_and_numbers_stay_numbers():
    frame = pd.DataFrame(
        {"label": ["=cmd|x", "-", "+1", "@a", "\t=x", "plain"], "score": [-1.5, 0, 1, 2, 3, 4]}
    )
    lines = csv_text(pd.concat([frame, frame[["label"]]], axis=1)).split("\n")
    assert lines[:3] == ["label,score,label", "'=cmd|x,-1.5,'=cmd|x", "-,0.0,-"]
    assert [line.partition(",")[0] for line in lines[3:]] == ["'+1", "'@a", "'\t=x", "plain", ""]
    assert frame["label"].iloc[0] == "=cmd|x", "the frame stays as it is"
