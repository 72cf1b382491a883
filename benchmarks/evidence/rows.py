"""The committed results: a file of JSON lines for each task, a line for each measure of a model.

A line names base, objective, arm, index and steps of a model, the measure (probe or finetune) and the
number of labels. ``correct`` has a character for each test text: how many of the draws of labels (or
of the fine-tunings) predict it rightly, 0 to 9 and A for ten.
"""

import json
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[2] / "docs" / "results" / "evidence"
KEYS = ("arm", "objective", "index", "model", "steps", "measure", "size")
DIGITS = "0123456789A"
_LOCK = Lock()


def encode_counts(counts: np.ndarray) -> str:
    """Write the number of right predictions of each text, 0 to 10, as a character."""
    return "".join(DIGITS[count] for count in counts.tolist())


def decode_counts(text: str) -> np.ndarray:
    """Read what :func:`encode_counts` wrote."""
    return np.array([DIGITS.index(character) for character in text])


class Results:
    """The finished rows of all tasks.

    Attributes:
        folder: Folder of the files.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def of(self, task: str) -> list[dict[str, Any]]:
        """Return the rows of a task."""
        if task not in self._rows:
            path = self.folder / f"{task}.jsonl"
            lines = path.read_text(encoding="ascii").splitlines() if path.is_file() else []
            self._rows[task] = [json.loads(line) for line in lines]
        return self._rows[task]

    def find(self, task: str, **values: Any) -> list[dict[str, Any]]:
        """Return the rows of a task with some values, in the order of their index."""
        found = [
            row
            for row in self.of(task)
            if all(row.get(name) == value for name, value in values.items())
        ]
        return sorted(found, key=lambda row: row.get("index", 0))

    def add(self, task: str, rows: list[dict[str, Any]]) -> None:
        """Append rows to the file of a task; those that are there already are left out."""
        with _LOCK:
            known = {tuple(row.get(key) for key in KEYS) for row in self.of(task)}
            new = [row for row in rows if tuple(row.get(key) for key in KEYS) not in known]
            self.folder.mkdir(parents=True, exist_ok=True)
            text = "".join(json.dumps(row) + "\n" for row in new)
            with (self.folder / f"{task}.jsonl").open("a", encoding="ascii") as file:
                file.write(text)
            self._rows[task].extend(new)
