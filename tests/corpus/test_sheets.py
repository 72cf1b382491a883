"""Cells of a spreadsheet become the text that a table of text would have."""

from datetime import date, datetime, time

import pytest

from dana.corpus.sheets import Sheet

openpyxl = pytest.importorskip("openpyxl")


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (time(9, 30), "09:30:00"),
        (datetime(2026, 11, 29, 9, 30), "2026-11-29 09:30:00"),
        (date(2026, 11, 29), "2026-11-29 00:00:00"),  # a spreadsheet has no date without a time
        (3.0, "3"),
        (3.5, "3.5"),
        (True, "True"),
        ("NA", "NA"),
        (None, ""),
    ],
)
def test_a_cell_is_read_as_text(cell, text, tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["label", "text"])
    book.active.append(["name", cell])
    book.save(tmp_path / "table.xlsx")
    assert Sheet(tmp_path / "table.xlsx", ".xlsx").rows[1] == ["name", text]
