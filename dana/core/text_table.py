"""Format rows as a text table: numbers aligned right, all else left."""

from collections.abc import Mapping, Sequence

Value = str | int | float | None


def tabulate(rows: Sequence[Mapping[str, Value]]) -> str:
    """Format rows as text: a heading and one line per row.

    Args:
        rows: Mappings with the keys of the first, in its order. Integers get thousands separators, floats three
            decimals, or one significant digit if these would be zeros; None is ``-``.
    """
    columns = []
    for name in rows[0]:
        values = [row[name] for row in rows]
        cells = [name, *map(_cell, values)]
        width = max(map(len, cells))
        right = all(isinstance(value, int | float | None) for value in values)
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _cell(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.0e}" if 0 < abs(value) < 0.0005 else f"{value:.3f}"
    return value
