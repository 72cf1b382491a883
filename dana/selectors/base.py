"""What a selector is: fitted on task text and general samples, it scores units; higher = more foreign."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dana.schemas import Document


@dataclass(frozen=True)
class Units:
    """A batch of units.

    Attributes:
        documents: The documents that the units are of, in order.
        of: int64 of shape (units,), which of the documents each is of.
        numbers: int32 of shape (units,), position of the unit in its document, from 0.
        starts: int64 of shape (units,), character span in the document's text.
        ends: See starts.
        texts: The span's text.
        keys: uint64 of shape (units,), a hash of document and position.
    """

    documents: Sequence[Document]
    of: np.ndarray
    numbers: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    texts: Sequence[str]
    keys: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def doc_ids(self) -> Sequence[str]:
        """Document of each unit."""
        return [self.documents[row].doc_id for row in self.of.tolist()]

    @cached_property
    def sources(self) -> Sequence[str]:
        """Source of each unit's document."""
        return [self.documents[row].source for row in self.of.tolist()]

    def rows(self, chosen: np.ndarray) -> "Units":
        """The units at `chosen`, in that order."""
        texts = [self.texts[row] for row in chosen.tolist()]
        of, numbers = self.of[chosen], self.numbers[chosen]
        return Units(self.documents, of, numbers, self.starts[chosen], self.ends[chosen], texts, self.keys[chosen])


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

    def load(self, folder: Path) -> FittedSelector:
        """What the selector's `fit` returned and :meth:`FittedSelector.save` wrote."""
        ...

    def identity(self) -> dict[str, Any]:
        """All that decides the scores besides the texts and the seed."""
        ...
