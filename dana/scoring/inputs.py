"""Open the target and pool artifacts and cut their documents into units."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from dana.core.artifacts import Artifact, open_artifact
from dana.core.rng import generator
from dana.core.schemas import part_files
from dana.corpus.text import distinct_rows, strip_markers, wording
from dana.corpus.unit_stream import Units, iterate_units
from dana.corpus.units import WholeDocuments
from dana.scoring.settings import Selection

MADE_BY = "dana score --task ... --pool ... --out DIR"


@dataclass(frozen=True)
class TargetText:
    """A task artifact: documents to fit on and held-out documents."""

    artifact: Artifact

    @classmethod
    def open(cls, path: Path) -> "TargetText":
        """Open the artifact of :func:`dana.stages.texts.target_stage`."""
        return cls(open_artifact(path, "target", MADE_BY))

    def units(self, selection: Selection) -> Units:
        """Return the units to fit on, in random order: at most ``max_target_units``.

        They are distinct and without markers. Of units with the same words only the first is used.
        Copies, such as one sentence with different entity marks in relation data, would count more
        than once and leak across splits.
        """
        units = Units.join(list(self._cut("fit", selection)))
        distinct = distinct_rows(units.texts)
        order = generator(selection.seed, "task", "units").permutation(len(distinct))
        return units.rows(distinct[order[: selection.max_target_units]])

    def held_out_units(self, selection: Selection) -> Iterator[Units]:
        """Yield batches of held-out units without markers.

        Those whose words are in a unit to fit on are left out.
        """
        fitted: set[str] = set()
        for batch in self._cut("fit", selection):
            fitted.update(map(wording, batch.texts))
        for batch in self._cut("held_out", selection):
            is_new = [wording(text) not in fitted for text in batch.texts]
            if any(is_new):
                yield batch.rows(np.flatnonzero(is_new))

    def _cut(self, part: str, selection: Selection) -> Iterator[Units]:
        """Yield batches of the units of a part of the target text, without markers."""
        for batch in iterate_units(self.artifact.path / part, selection.splitter()):
            yield replace(batch, texts=[strip_markers(text) for text in batch.texts])


@dataclass(frozen=True)
class PoolText:
    """A pool artifact."""

    artifact: Artifact

    @classmethod
    def open(cls, path: Path) -> "PoolText":
        """Open the artifact of :func:`dana.stages.texts.pool_stage`."""
        return cls(open_artifact(path, "pool", MADE_BY))

    @cached_property
    def documents(self) -> int:
        """Number of documents."""
        return sum(pq.read_metadata(part).num_rows for part in part_files(self.artifact.path))

    def units(self, selection: Selection | WholeDocuments) -> Iterator[Units]:
        """Yield batches of units in pool order."""
        return iterate_units(self.artifact.path, selection.splitter())
