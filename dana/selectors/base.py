"""What a selector is: fitted on task text and general samples, it scores units; higher = more foreign."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Units:
    """A batch of units, columns of equal length.

    Attributes:
        doc_ids: Document of each unit.
        sources: Source of each unit's document.
        numbers: Position of the unit in its document, from 0; int32.
        starts: Character span in the document's text; int64.
        ends: See starts.
        texts: The span's text.
        keys: One stable uint64 a unit, a hash of document and position.
    """

    doc_ids: Sequence[str]
    sources: Sequence[str]
    numbers: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    texts: Sequence[str]
    keys: np.ndarray

    def __len__(self) -> int:
        return len(self.doc_ids)


class FittedSelector(Protocol):
    """Scores units; a unit's score does not depend on the rest of the batch."""

    def score(self, units: Units) -> np.ndarray:
        """Anomaly scores of shape (units,), float64, higher = more foreign to the task."""
        ...

    def save(self, folder: Path) -> None:
        """Write what was learned: tensors as safetensors, parameters as JSON."""
        ...


class Selector(Protocol):
    """A frozen dataclass of parameters."""

    def samples(self, task_units: int) -> Mapping[str, int]:
        """Named samples of general units that `fit` wants, and their sizes. They will be disjoint."""
        ...

    def fit(self, task: Sequence[str], general: Mapping[str, Sequence[str]], seed: int) -> FittedSelector:
        """Learn what the task looks like.

        Args:
            task: Texts of the task's units.
            general: The samples asked for, by name; smaller where the corpus is small.
            seed: Root seed.
        """
        ...

    def identity(self) -> dict[str, Any]:
        """All that decides the scores besides the texts and the seed."""
        ...
