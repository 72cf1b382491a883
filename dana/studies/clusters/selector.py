"""Clusters selector: vectors of units to minus the log of the task's share of the clusters that they are of."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dana.core.artifacts import read_json, write_json
from dana.core.config import require
from dana.core.errors import DataError
from dana.corpus.text import distinct_rows
from dana.corpus.unit_stream import Units
from dana.selectors.base import FittedSelector, Selector
from dana.studies.clusters.description import cluster_names
from dana.studies.clusters.model import FittedClusters, fit_clusters
from dana.studies.clusters.settings import ClusterSettings

SAMPLE = "clusters"
UNITS_EACH = 2  # units that a cluster must have for each component, on average; of fewer, fewer components are kept


@dataclass(frozen=True)
class ClustersSelector(Selector):
    """Gaussian mixture of general vectors; a unit is the more foreign, the fewer task units are in its clusters.

    s(u) = -log Σ_k r_k(u) p_k, in nats, with r_k(u) the responsibility of cluster k for the unit and p_k the task's
    share of it: p_k = (Σ_t r_k(t) + smoothing / K) / (T + smoothing) over the task's T units and the K clusters. So a
    cluster without any task unit has a share above 0, and no score is above log(K (T + smoothing) / smoothing).

    The mixture never sees the task and is not told what to keep, so one fit scores all of the corpus: an equal unit
    within its sample and outside it get the same score. Of a small sample fewer components are kept, so that a cluster
    has two units for each.

    Attributes:
        k: Number of clusters, or ``auto``, as ``dana clusters --k auto`` chooses it.
        pca: Principal components that are clustered; 0 takes the vectors as they are.
        covariance: Shape of a cluster: ``full``, ``tied``, ``diag`` or ``spherical``.
        seeds: Fits from other beginnings, of which the likeliest is kept.
        sample: General units to fit on.
        smoothing: Task units that are added, spread evenly over the clusters.
        encoder: Encoder spec; None takes the run's.
        geometry: Geometry spec; None takes the run's.

    References:
        Aharoni and Goldberg 2020, Unsupervised domain clusters in pretrained language models, section 2 (the
        clusters); to choose by them is dana's.
    """

    k: int | str = 10
    pca: int = 50
    covariance: str = "full"
    seeds: int = 3
    sample: int = 10_000
    smoothing: float = 1.0
    encoder: str | None = None
    geometry: str | None = None
    version: ClassVar[int] = 1
    takes: ClassVar[tuple[str, ...]] = ("encoder", "geometry")

    def __post_init__(self) -> None:
        self._settings(self.pca)
        require(self.sample >= 2, "sample", self.sample, "at least 2")
        require(0 < self.smoothing < float("inf"), "smoothing", self.smoothing, "above 0, and finite")

    def _settings(self, pca: int) -> ClusterSettings:
        return ClusterSettings(k=[self.k], pca=pca, covariance=self.covariance, seeds=self.seeds)

    def samples(self, task_units: int) -> Mapping[str, int]:
        """``clusters``: what the mixture is fitted on."""
        return {SAMPLE: self.sample}

    def learn(self, task: Units, general: Mapping[str, Units], seed: int) -> "FittedClustersSelector":
        """Fit the mixture, then count the task's units in its clusters.

        Raises:
            DataError: If the task has no unit, the sample too few for so many clusters, or a vector is not finite.
        """
        if not len(task):
            raise DataError("the task has no unit")
        sample = general[SAMPLE]
        texts = sample.rows(distinct_rows(sample.texts)).texts
        vectors = self.settings.embed(texts)
        settings = self._settings(self._components(len(texts)))
        fitted, _ = fit_clusters(vectors, self.settings.geometry, settings, seed)
        k = len(fitted.mixture.weights_)
        counts = fitted.assign(self.settings.embed(task.texts)).responsibilities.sum(0)
        share = (counts + self.smoothing / k) / (len(task) + self.smoothing)
        names = cluster_names(texts, fitted.assign(vectors).clusters, k)
        rows = [{"name": name, "task_share": float(part)} for name, part in zip(names, share, strict=True)]
        return FittedClustersSelector(self, fitted, {"components": settings.pca, "clusters": rows})

    def _components(self, units: int) -> int:
        """Components to keep of so many units: what is asked for, or what they can fill."""
        most = max(self._settings(self.pca).candidates)
        return min(self.pca, max(2, units // (UNITS_EACH * most)))

    def load(self, folder: Path) -> "FittedClustersSelector":
        """See :meth:`dana.selectors.base.Selector.load`."""
        learned = read_json(folder / "selector.json")["learned"]
        return FittedClustersSelector(self, FittedClusters.load(folder), learned)


@dataclass(frozen=True)
class FittedClustersSelector(FittedSelector):
    """Fitted clusters and the task's share of each.

    Attributes:
        selector: Its parameters.
        clusters: Space and mixture.
        notes: For the manifest: components that were kept; of each cluster its name and p_k, which sum to 1.
    """

    selector: ClustersSelector
    clusters: FittedClusters
    notes: dict[str, Any]

    def score_units(self, units: Units) -> np.ndarray:
        """-log Σ_k r_k(u) p_k in nats, at least 0."""
        if not len(units):
            return np.zeros(0)
        responsibilities = self.clusters.assign(self.selector.settings.embed(units.texts)).responsibilities
        share = np.array([row["task_share"] for row in self.notes["clusters"]])
        return np.maximum(-np.log((responsibilities * share).sum(1)), 0)

    def save(self, folder: Path) -> None:
        """Write the clusters, see :meth:`dana.studies.clusters.model.FittedClusters.save`, and ``selector.json``."""
        self.clusters.save(folder)
        write_json(folder / "selector.json", {**self.selector.identity(), "learned": self.notes})
