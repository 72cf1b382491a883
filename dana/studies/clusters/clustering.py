"""Clustering of a corpus: a sample of its units to a fitted mixture, and every unit to its cluster, in shards."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from dana.core.artifacts import OWN, Artifact, Draft
from dana.core.errors import DataError
from dana.core.logging import get_logger, progress, ticking
from dana.core.rng import derive_seed
from dana.core.schemas import write_parts
from dana.corpus.text import distinct_rows
from dana.corpus.unit_stream import Units
from dana.scoring.inputs import GeneralCorpus
from dana.scoring.settings import Selection
from dana.scoring.sharded import ShardedTable, key_columns
from dana.selectors.base import SelectorContext
from dana.studies.clusters.learned import learn_clusters
from dana.studies.clusters.model import FittedClusters
from dana.studies.clusters.settings import ClusterSettings
from dana.studies.clusters.tables import CLUSTERS

log = get_logger(__name__)

LEARNED = f"{OWN}/mixture"
NOTES = ("k", "reason", "names", "map_variance")  # of the manifest


@dataclass(frozen=True)
class Clustering(ShardedTable):
    """One clustering of one corpus.

    Attributes:
        general: The corpus.
        selection: How its text is cut and embedded.
        settings: How its units are clustered.
        folder: Where ``part-*.parquet`` goes (:data:`dana.studies.clusters.tables.CLUSTERS`, one row a unit, corpus
            order), with ``__dana__/mixture/``: the model, the sample it was fitted on, and all fits.
    """

    general: GeneralCorpus
    selection: Selection
    settings: ClusterSettings
    folder: Path
    kind: ClassVar[str] = "clusters"
    learned: ClassVar[str] = "mixture"
    schema: ClassVar[pa.Schema] = CLUSTERS
    command: ClassVar[str] = "dana clusters"

    @cached_property
    def _context(self) -> SelectorContext:
        return self.selection.context("")

    @property
    def depends_on(self) -> dict[str, Any]:
        """All that decides the clusters."""
        cut = {key: value for key, value in self.selection.cut().items() if key != "max_task_units"}
        space = {"encoder": self._context.encoder_identity(), "geometry": self.selection.geometry}
        return {"general": self.general.fingerprint, "selection": cut, **space, "clusters": self.settings.identity()}

    def load(self, folder: Path) -> FittedClusters:
        """The fitted model."""
        return FittedClusters.load(folder)

    def rows(self, units: Units, fitted: FittedClusters) -> pa.Table:
        """Units and their clusters."""
        found = fitted.assign(self._embed(units))
        likeliest = found.responsibilities[np.arange(len(units)), found.clusters]
        columns = [found.clusters, likeliest.astype(np.float32), found.log_densities.astype(np.float32)]
        return pa.Table.from_arrays([*key_columns(units), *map(pa.array, columns)], schema=CLUSTERS)

    def _embed(self, units: Units) -> Tensor:
        """Vectors of units.

        Raises:
            DataError: If one is not finite; names the unit.
        """
        vectors = self._context.embed(units.texts)
        finite = torch.isfinite(vectors).all(1)
        if not finite.all():
            bad = int((~finite).nonzero()[0])
            raise DataError(f"unit {units.numbers[bad]} of document {units.doc_ids[bad]!r}: its vector is not finite")
        return vectors

    def learn(self, draft: Draft) -> None:
        """Draw a sample, fit every candidate on its distinct units, choose one.

        Raises:
            DataError: If there are too few units, or nothing tells so many clusters apart.
        """
        seed, settings = self.selection.seed, self.settings
        drawn = derive_seed(seed, "clusters", "sample")
        count, samples = self.draw_samples({"clusters": (drawn, settings.fit)})
        sample = samples["clusters"]
        sample = sample.rows(distinct_rows(sample.texts))
        with progress(what="embedding", unit="units", total=len(sample)) as bar, ticking(bar):
            vectors = self._embed(sample)
            bar.update(len(sample) - bar.n)
        learned = learn_clusters(sample, vectors, self.selection.geometry, settings, seed)
        log.info("clusters  %s", learned.choice.reason)
        learned.save(draft.path / LEARNED)
        draft.seeds["sample"] = drawn
        draft.counts = {"general_units": count, "fitted_on": len(sample)}
        notes = (learned.choice.k, learned.choice.reason, learned.names, learned.variance)
        draft.notes |= dict(zip(NOTES, notes, strict=True))

    def join(self, draft: Draft, prepared: Artifact, shards: Iterator[pa.Table]) -> int:
        """The table, with what was learned."""
        shutil.copytree(prepared.path / LEARNED, draft.path / LEARNED)
        draft.notes |= {key: prepared.manifest[key] for key in NOTES}
        return write_parts(shards, draft.path, CLUSTERS)
