"""Read the files of a run, with errors that name the file and the missing key."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import META_DIR, read_json
from dana.core.errors import ArtifactError

TRAINING = "training.jsonl"
RESULTS = "metrics.json"
AGAIN = "run the step that wrote it again"


def how_to_mend(location: Path | str) -> str:
    """Say how a damaged file of a run is made again.

    A step reuses the artifact that it finds, so that has to be removed before.

    Args:
        location: The file, or ``file:line``.
    """
    for folder in Path(location).parents:
        if (folder / META_DIR).is_dir():
            return f"remove {folder} and run its command again"
    return AGAIN


@contextmanager
def reading(location: Path | str) -> Iterator[None]:
    """Turn errors of reading into an ArtifactError that names the location and the problem.

    Args:
        location: A file, or ``file:line``.
    """
    try:
        yield
    except KeyError as error:
        raise ArtifactError(
            f"{location}: missing key {error.args[0]}; {how_to_mend(location)}"
        ) from error
    # Arrow's errors derive from these.
    except (IndexError, TypeError, AttributeError, ValueError, OSError) as error:
        problem = str(error).splitlines()[0]
        raise ArtifactError(f"{location}: damaged ({problem}); {how_to_mend(location)}") from error


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ArtifactError: If the file cannot be read or holds no object; names file and line.
    """
    try:
        content = read_json(path)
    except ArtifactError as error:
        raise ArtifactError(f"{error}; {how_to_mend(path)}") from error
    return as_object(content, path)


def as_object(content: Any, location: Path | str) -> dict[str, Any]:
    """Return parsed JSON if it is an object.

    Raises:
        ArtifactError: If it is not; names the location.
    """
    if not isinstance(content, dict):
        raise ArtifactError(
            f"{location}: expected an object, got a {type(content).__name__}; "
            f"{how_to_mend(location)}"
        )
    return content


def read_columns(file: Path, columns: Sequence[str]) -> pa.Table:
    """Read columns of a Parquet file.

    Raises:
        ArtifactError: If the file is not Parquet or lacks a column.
    """
    with reading(file):
        return pq.read_table(file, columns=list(columns))


def training_lines(file: Path) -> list[dict[str, Any]]:
    """Read the records of a training run; each has a ``kind``.

    Raises:
        ArtifactError: If a line is no such record; names file and line.
    """
    with reading(file):
        lines = file.read_text(encoding="utf-8").splitlines()
    rows = []
    for number, line in enumerate(lines, start=1):
        location = f"{file}:{number}"
        with reading(location):
            row = as_object(json.loads(line), location)
            row["kind"]  # a missing key is an error here, where the line is known
            rows.append(row)
    return rows


def recorded_seconds(folder: Path) -> float:
    """Read the seconds that a step recorded itself, restarts included; 0 without such records.

    Args:
        folder: A trained model, whose records count seconds from the first step; or fine-tuning
            results, whose seeds are summed.

    Raises:
        ArtifactError: If the records are damaged.
    """
    results = folder / RESULTS
    if results.is_file():
        with reading(results):
            seeds = read_object(results).get("seeds", [])
            return float(sum(seed.get("seconds", 0) for seed in seeds))
    training = folder / TRAINING
    if training.is_file():
        seconds = [line.get("seconds", 0) for line in training_lines(training)]
        return float(max(seconds, default=0))
    return 0.0
