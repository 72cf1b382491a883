"""The committed results: a file of JSON lines for each task, a line for each measure of a model.

A line names base, objective, arm, index and steps of a model, the measure (probe or finetune) and the
number of labels. ``correct`` has a character for each test text: how many of the draws of labels (or
of the fine-tunings) predict it rightly, 0 to 9 and A for ten.

A question is answered on one device and with one base, so all rows of a folder are of one setting.
Rows of a CPU name no device, and rows of the base as it ships no base; all others do.
"""

import json
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from plan import PILOT, SECOND_PILOT, TASKS

from dana.finetuning.pilot import NONE

FOLDER = Path(__file__).parents[2] / "docs" / "results" / "evidence"
KEYS = ("arm", "objective", "index", "model", "steps", "measure", "size")
DIGITS = "0123456789A"
SETTING = ("device", "base")
UNMEASURED = (
    PILOT,
    SECOND_PILOT,
)  # arms of rows that say which objective a task has; they have no setting
_LOCK = Lock()


def encode_counts(counts: np.ndarray) -> str:
    """Write the number of right predictions of each text, 0 to 10, as a character."""
    return "".join(DIGITS[count] for count in counts.tolist())


def decode_counts(text: str) -> np.ndarray:
    """Read what :func:`encode_counts` wrote."""
    return np.array([DIGITS.index(character) for character in text])


def setting_of(row: dict[str, Any]) -> dict[str, str]:
    """Return what a row says of its device and base."""
    return {name: row[name] for name in SETTING if name in row}


def in_words(setting: dict[str, str]) -> str:
    """Name the device and the base of a setting."""
    device = setting.get("device", "a CPU")
    base = setting.get("base", "as it ships")
    return f"{device} with the base {base}"


class Results:
    """The finished rows of all tasks.

    Attributes:
        folder: Folder of the files.
        setting: Device and base of the rows that are added, by the names of :data:`SETTING`. Rows of
            another setting are then refused. None only reads.
    """

    def __init__(self, folder: Path = FOLDER, setting: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.setting = setting
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def of(self, task: str) -> list[dict[str, Any]]:
        """Return the rows of a task.

        Raises:
            ValueError: If rows are of another setting than those that are added.
        """
        if task not in self._rows:
            path = self.folder / f"{task}.jsonl"
            lines = path.read_text(encoding="ascii").splitlines() if path.is_file() else []
            rows = [json.loads(line) for line in lines]
            for row in rows:
                self._check(row, path)
            self._rows[task] = rows
        return self._rows[task]

    def _check(self, row: dict[str, Any], path: Path) -> None:
        """Refuse a row of another setting."""
        if self.setting is None or row["arm"] in UNMEASURED:
            return
        its_own = setting_of(row)
        if its_own != self.setting:
            raise ValueError(
                f"{path} has rows of {in_words(its_own)}, and these would be of "
                f"{in_words(self.setting)}; give them another folder: --results FOLDER"
            )

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
            new = [
                row if row["arm"] in UNMEASURED else {**row, **(self.setting or {})}
                for row in rows
                if tuple(row.get(key) for key in KEYS) not in known
            ]
            self.folder.mkdir(parents=True, exist_ok=True)
            text = "".join(json.dumps(row) + "\n" for row in new)
            with (self.folder / f"{task}.jsonl").open("a", encoding="ascii") as file:
                file.write(text)
            self._rows[task].extend(new)


def choices_of(results: Results) -> dict[str, str]:
    """Return what pilots chose by task, without those that chose none."""
    found = {task.name: results.find(task.name, arm=PILOT) for task in TASKS}
    chosen = {task: rows[0]["choice"] for task, rows in found.items() if rows}
    return {task: choice for task, choice in chosen.items() if choice != NONE}
