"""Records of training and fine-tuning to their lines, and to the seconds they took, over every start of a step."""

import json
from pathlib import Path
from typing import Any

from dana.core.errors import ArtifactError
from dana.report.files import read_object, require_keys

TRAINING, RESULTS = "training.jsonl", "metrics.json"


def training_lines(file: Path) -> list[dict[str, Any]]:
    """The records of a training.

    Raises:
        ArtifactError: If a line is not one; names it.
    """
    rows = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{file}: cannot be read: {error}; make {file.parent} again") from error
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ArtifactError(f"{file}:{number}: not JSON: {error}") from error
        require_keys(rows[-1], ("kind",), f"{file}:{number}")
    return rows


def recorded_seconds(folder: Path) -> float:
    """Seconds that a step's own records tell of; 0 where there are none, or they tell of none.

    Args:
        folder: Of a trained model, whose last step counts from the first one, or of fine-tuning, whose seeds' seconds
            are summed.

    Raises:
        ArtifactError: If the records are damaged.
    """
    found: list[Any] = []
    if (folder / RESULTS).is_file():
        found = [seed["seconds"] for seed in read_object(folder / RESULTS).get("seeds", []) if "seconds" in seed]
    elif (folder / TRAINING).is_file():
        found = [max((line.get("seconds", 0) for line in training_lines(folder / TRAINING)), default=0)]
    return float(sum(found))
