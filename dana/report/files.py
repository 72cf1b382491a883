"""Files of a run, read with errors that name the file and what is missing in it."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import read_json
from dana.core.errors import ArtifactError

TRAINING, RESULTS = "training.jsonl", "metrics.json"


@contextmanager
def reading(place: Path | str) -> Iterator[None]:
    """Where what is read is not what dana writes: one line that names the place and what is amiss.

    Args:
        place: The file, or a line of it.
    """
    try:
        yield
    except KeyError as error:
        raise ArtifactError(f"{place}: no key {error.args[0]}; make it again") from error
    except (IndexError, TypeError, AttributeError, ValueError, OSError) as error:  # Arrow's derive from these
        raise ArtifactError(f"{place}: not what dana writes ({str(error).splitlines()[0]}); make it again") from error


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ArtifactError: If the file cannot be read or holds none; names the line.
    """
    return as_object(read_json(path), path)


def as_object(content: Any, place: Path | str) -> dict[str, Any]:
    """What was read, if it is an object.

    Raises:
        ArtifactError: If it is none; names the place.
    """
    if not isinstance(content, dict):
        raise ArtifactError(f"{place}: holds a {type(content).__name__}, not an object; make it again")
    return content


def read_columns(file: Path, columns: Sequence[str]) -> pa.Table:
    """Columns of a Parquet file.

    Raises:
        ArtifactError: If the file is not Parquet or lacks a column.
    """
    with reading(file):
        return pq.read_table(file, columns=list(columns))


def training_lines(file: Path) -> list[dict[str, Any]]:
    """The records of a training, each with its kind.

    Raises:
        ArtifactError: If a line is not one; names it.
    """
    with reading(file):
        lines = file.read_text(encoding="utf-8").splitlines()
    rows = []
    for number, line in enumerate(lines, start=1):
        with reading(place := f"{file}:{number}"):
            rows.append(as_object(json.loads(line), place))
            rows[-1]["kind"]
    return rows


def recorded_seconds(folder: Path) -> float:
    """Seconds that a step's own records tell of, over every start of it; 0 where there are none.

    Args:
        folder: Of a trained model, whose last step counts from the first one, or of fine-tuning, whose seeds' seconds
            are summed.

    Raises:
        ArtifactError: If the records are damaged.
    """
    if (folder / RESULTS).is_file():
        with reading(folder / RESULTS):
            return float(sum(seed.get("seconds", 0) for seed in read_object(folder / RESULTS).get("seeds", [])))
    if (folder / TRAINING).is_file():
        return float(max((line.get("seconds", 0) for line in training_lines(folder / TRAINING)), default=0))
    return 0.0


def flatten(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested objects, by dotted key; a list is a leaf."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flatten(inner, f"{where}.{key}" if where else str(key))
    else:
        yield where or "all", value
