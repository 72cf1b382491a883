"""Files of a run, read with errors that name the file and what is missing in it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import read_json
from dana.core.errors import ArtifactError


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ArtifactError: If the file cannot be read or holds none; names the line.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise ArtifactError(f"{path}: holds a {type(content).__name__}, not an object; make it again")
    return content


def require_keys(content: Any, keys: tuple[str, ...], where: Any) -> None:
    """Check that an object is one and has its keys.

    Raises:
        ArtifactError: If not; names the place and the keys.
    """
    if not isinstance(content, dict):
        raise ArtifactError(f"{where}: holds a {type(content).__name__}, not an object; make it again")
    missing = [key for key in keys if key not in content]
    if missing:
        raise ArtifactError(f"{where}: no key {', '.join(missing)}; make it again")


def read_columns(file: Path, columns: Sequence[str]) -> pa.Table:
    """Columns of a Parquet file.

    Raises:
        ArtifactError: If the file is not Parquet or lacks a column.
    """
    try:
        missing = [name for name in columns if name not in pq.read_schema(file).names]
        if missing:
            raise ArtifactError(f"{file}: no column {', '.join(missing)}; make {file.parent} again")
        return pq.read_table(file, columns=list(columns))
    except (pa.ArrowException, OSError) as error:
        said = str(error).splitlines()[0]
        raise ArtifactError(f"{file}: not Parquet: {said}; make {file.parent} again") from error


def flatten(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested objects, by dotted key; a list is a leaf."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flatten(inner, f"{where}.{key}" if where else str(key))
    else:
        yield where or "all", value
