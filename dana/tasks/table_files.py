"""Read the files of a labelled table as pandas has it: what every other door reads as records."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from dana.core.errors import Damage, DataError
from dana.core.lines import read_lines
from dana.core.storage import File
from dana.corpus.bad_records import BadRecords
from dana.corpus.columnar import class_names
from dana.corpus.inputs import SEPARATORS, Inputs
from dana.corpus.layout import NO_SEPARATOR, Layout
from dana.corpus.readers import layout_of, read_file
from dana.corpus.sources import expand, is_table_name


def holds_classes(folder: Path) -> bool:
    """Return whether a folder holds a folder of text files per label, and no tables."""
    if not folder.is_dir() or not files_of_classes(folder):
        return False
    return not any(is_table_name(path) for path in _visible(folder, "**/*"))


def files_of_classes(folder: Path) -> list[Path]:
    """List the files below the folders of a folder, in the order of their names."""
    return sorted(path for path in _visible(folder, "*/**/*") if path.is_file())


def _visible(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the paths below a folder that are not hidden and in no hidden folder, such as ``.git``."""
    for path in folder.glob(pattern):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def text_of(path: Path) -> str:
    """Read a file that is one text.

    Raises:
        DataError: If it is no text.
    """
    try:
        return "".join(line for _, line in read_lines(path))
    except Damage as damage:
        raise DataError(f"{path}:{damage.line}: {damage}") from damage


def read_files(source: str, notes: list[str], form: dict[str, Any], inputs: Inputs) -> pd.DataFrame:
    """Read the files of a table.

    Args:
        source: The files, as :func:`dana.corpus.sources.expand` takes them.
        notes: Gets a sentence on how delimited text is read.
        form: Gets ``separator`` and ``header`` of delimited text.
        inputs: How files are read.

    Returns:
        One row per record; the index has the lines of the rows, of several files their paths below
        the folder that holds all, too.

    Raises:
        DataError: If a row cannot be read; names the first five and their number.
    """
    files = expand(source)
    paths = _paths_below_common_folder(files)
    is_delimited = False
    rows: list[dict[str, Any]] = []
    index: list[Any] = []
    bad = BadRecords()
    for file, path in zip(files, paths, strict=True):
        layout = _layout_of(file, inputs)
        is_delimited = is_delimited or layout is not None
        if layout is not None and layout.separator != NO_SEPARATOR:
            form["separator"] = layout.separator
            form["header"] = layout.has_header
            notes.append(layout.describe())
        names_by_column = class_names(file)
        for record in read_file(file, inputs, is_table=True, layout=layout):
            if record.problem:
                bad.add(record.location, record.problem)
            for column in record.fields.keys() & names_by_column.keys():
                names = names_by_column[column]
                record.fields[column] = _as_name(record.fields[column], names)
            rows.append(record.fields)
            index.append(record.line if len(files) == 1 else f"{path}:{record.line}")
    if bad:
        raise bad.error()
    notes[:] = dict.fromkeys(notes)  # of several files alike, a sentence once
    has_columns = any(len(fields) > 1 for fields in rows)
    if rows and is_delimited and not has_columns:
        marks = ", ".join(SEPARATORS.values())
        column = ", ".join(rows[0])
        raise DataError(
            f"{source}: has a single column, {column!r}: no {marks} divides its lines; a "
            "label is needed beside the text"
        )
    is_nested = any(map(_has_nested_fields, rows))
    frame = pd.json_normalize(rows) if is_nested else pd.DataFrame(rows, dtype=object)
    return frame.set_index(pd.Index(index, dtype=object))


def _as_name(value: Any, names: list[str]) -> Any:
    """Return the name of a class, or those of a list of classes; None for one without a name.

    Texts without a class have the number -1 in data sets of the Hub.
    """
    if isinstance(value, list):
        return [_as_name(part, names) for part in value]
    is_class = isinstance(value, int) and 0 <= value < len(names)
    return names[value] if is_class else None


def _paths_below_common_folder(files: Sequence[File]) -> list[str]:
    """Return the path of each file below the innermost folder that holds all of them."""
    paths = [PurePosixPath(str(file)) for file in files]
    folder = os.path.commonpath([path.parent for path in paths])
    return [str(path.relative_to(folder)) for path in paths]


def _has_nested_fields(fields: dict[str, Any]) -> bool:
    """Return whether a value of a record is itself a mapping."""
    return any(isinstance(value, dict) for value in fields.values())


def _layout_of(file: File, inputs: Inputs) -> Layout | None:
    """Find the layout of a file of delimited text.

    It is None for another file, and for one that reading it will refuse.
    """
    try:
        return layout_of(file, inputs, is_table=True)
    except Damage:
        return None
