"""Read spreadsheets as records: the first sheet that is filled, each cell as its text."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dana.core.errors import DataError
from dana.corpus.inputs import Inputs, Record
from dana.corpus.layout import Layout, layout_of_cells

PACKAGES = {".xlsx": "openpyxl", ".xls": "xlrd", ".ods": "odfpy"}  # that pandas needs, by suffix


class Sheet:
    """Rows of text of a sheet.

    Attributes:
        name: Name of the sheet.
        others: Names of the other sheets, which are not read.
        rows: Its cells as text, empty ones as an empty string.
    """

    def __init__(self, path: Path, suffix: str) -> None:
        """Read the first sheet that has a cell.

        Raises:
            DataError: If a package is missing, or the file cannot be read.
        """
        import pandas as pd

        try:
            with pd.ExcelFile(path) as file:
                names = [str(name) for name in file.sheet_names]
                for name in names:  # if none has a cell, the last one stays
                    frame = pd.read_excel(
                        file, sheet_name=name, header=None, dtype=object, na_filter=False
                    )
                    if frame.size:
                        break
        except ImportError as error:
            package = PACKAGES[suffix]
            raise DataError(
                f"{path}: {suffix} files are read by {package}: pip install {package}"
            ) from error
        except Exception as error:  # of pandas, zipfile or the packages
            reason = " ".join(str(error).split())[:200]
            raise DataError(
                f"{path}: is no {suffix} file, or damaged ({reason}); save it as .xlsx or CSV"
            ) from error
        self.name = name
        self.others = [other for other in names if other != name]
        self.rows: list[list[str]] = []
        for row in frame.itertuples(index=False):
            self.rows.append([_as_text(cell) for cell in row])

    def layout(self, wanted: Sequence[str], inputs: Inputs) -> tuple[Layout, int] | None:
        """Find its header; see :func:`dana.corpus.layout.layout_of_cells`."""
        return layout_of_cells(self.rows, wanted, inputs)

    def describe(self, layout: Layout) -> str:
        """Say in words what was found."""
        found = f"sheet {self.name!r}"
        if self.others:
            found += f", not {', '.join(map(repr, self.others[:3]))}"
        return "; ".join([found, *layout.describe().split("; ")[1:]])

    def records(self, origin: str, layout: Layout, first: int) -> Iterator[Record]:
        """Stream one record per row that is filled, behind the header."""
        for number, cells in enumerate(self.rows, 1):
            if number <= first + layout.has_header or not any(map(str.strip, cells)):
                continue
            yield Record(origin, number, dict(zip(layout.names, cells, strict=False)), kind="row")


def _as_text(cell: Any) -> str:
    """Return a cell as a table of text has it: whole numbers without a point, dates as ISO."""
    if cell is None or cell != cell:  # NaN
        return ""
    if isinstance(cell, bool):
        return str(cell)
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15:
        return str(int(cell))
    if isinstance(cell, datetime):
        return cell.isoformat(" ")
    if hasattr(cell, "isoformat"):  # a date, or a time of day
        return str(cell.isoformat())
    return str(cell)
