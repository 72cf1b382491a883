"""Format rows as a text table, numbers aligned right, all else left; and frames as CSV."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Value = str | int | float | None
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs a cell that begins with one


def tabulate(rows: Sequence[Mapping[str, Value]]) -> str:
    """Format rows as text: a heading and one line per row.

    Args:
        rows: Mappings with the keys of the first, in its order. Integers get thousands separators,
            floats three decimals, or one significant digit if these would be zeros; None is ``-``.
    """
    columns = []
    for name in rows[0]:
        values = [row[name] for row in rows]
        cells = [name, *map(_cell, values)]
        width = max(map(len, cells))
        are_numbers = all(isinstance(value, int | float | None) for value in values)
        pad = str.rjust if are_numbers else str.ljust
        columns.append([pad(cell, width) for cell in cells])
    lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
    return "\n".join(lines)


def csv_text(frame: "pd.DataFrame") -> str:
    """Format a frame as CSV without its index.

    An apostrophe stops spreadsheets from running text as a formula.
    """
    from pandas.api.types import is_numeric_dtype

    frame = frame.copy()
    for column, dtype in enumerate(frame.dtypes):  # columns may share a name
        if not is_numeric_dtype(dtype):
            frame.isetitem(column, frame.iloc[:, column].map(_inert).to_numpy())
    return frame.to_csv(index=False, lineterminator="\n")


def _inert(value: Any) -> Any:
    """Return a value, with an apostrophe before text that a spreadsheet would run."""
    if isinstance(value, str) and value.startswith(FORMULA) and len(value) > 1:
        return f"'{value}"
    return value


def _cell(value: Value) -> str:
    """Format a value."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.0e}" if 0 < abs(value) < 0.0005 else f"{value:.3f}"
    return value
