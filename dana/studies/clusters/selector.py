"""Clusters selector: score a unit by minus the log of the target's share of its clusters."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from dana.core.artifacts import read_json, write_json
from dana.core.errors import DataError
from dana.core.settings import Int, Positive, settings_model
from dana.corpus.text import distinct_rows
from dana.corpus.unit_stream import Units
from dana.selectors.base import FittedSelector, Selector
from dana.studies.clusters.description import cluster_names
from dana.studies.clusters.model import FittedClusters, fit_clusters
from dana.studies.clusters.settings import ClusterSettings

SAMPLE = "clusters"
# Fewest units of a cluster per principal component, on average; with less, components are dropped.
UNITS_EACH = 2


@settings_model
class ClustersSelector(Selector):
    """Cluster pool vectors by a Gaussian mixture; score a unit by how much of the task is in its clusters.

    s(u) = -log Σ_k r_k(u) p_k, in nats, with r_k(u) the responsibility of cluster k for the unit
    and p_k the target's share of the cluster: p_k = (Σ_t r_k(t) + smoothing / K) / (T + smoothing)
    over T target units and K clusters. A cluster without target units has a share above 0, so no
    score exceeds log(K (T + smoothing) / smoothing).

    The mixture is fitted to pool text alone, so a unit gets the same score inside and outside
    the fitted sample. If the sample is small, fewer components are used, so that a cluster has two
    units per component on average.

    Attributes:
        k: Number of clusters, or ``auto``, as ``dana studies clusters --k auto`` chooses it.
        pca: Number of principal components; 0 for none.
        covariance: Shape of a cluster: ``full``, ``tied``, ``diag`` or ``spherical``.
        seeds: Number of initialisations; the likeliest fit is used.
        sample: Pool units to fit on.
        smoothing: Pseudo-count of target units, spread evenly over the clusters.
        encoder: Encoder spec; None for the run's.
        geometry: Geometry spec; None for the run's.

    References:
        Aharoni and Goldberg 2020, Unsupervised domain clusters in pretrained language models,
        section 2 (the clusters); selecting by them is our own.
    """

    k: Int | str = 10
    pca: Int = 50
    covariance: str = "full"
    seeds: Int = 3
    sample: Annotated[Int, Field(ge=2)] = 10_000
    smoothing: Positive = 1.0
    encoder: str | None = None
    geometry: str | None = None
    version: ClassVar[int] = 1
    takes: ClassVar[tuple[str, ...]] = ("encoder", "geometry")

    def __post_init__(self) -> None:
        self._settings(self.pca)

    def _settings(self, pca: int) -> ClusterSettings:
        return ClusterSettings(k=[self.k], pca=pca, covariance=self.covariance, seeds=self.seeds)

    def samples(self, target_units: int) -> Mapping[str, int]:
        return {SAMPLE: self.sample}

    def learn(
        self, target: Units, pool: Mapping[str, Units], seed: int
    ) -> "FittedClustersSelector":
        """Fit the mixture, then count the target's units in its clusters.

        Raises:
            DataError: If the task has no units, the sample has too few, or a vector is not finite.
        """
        if not len(target):
            raise DataError("the task has no units")
        sample = pool[SAMPLE]
        texts = sample.rows(distinct_rows(sample.texts)).texts
        vectors = self.settings.embed(texts)
        settings = self._settings(self._components(len(texts)))
        clusters, _ = fit_clusters(vectors, self.settings.geometry, settings, seed)
        k = len(clusters.mixture.weights_)
        counts = clusters.assign(self.settings.embed(target.texts)).responsibilities.sum(0)
        share = (counts + self.smoothing / k) / (len(target) + self.smoothing)
        names = cluster_names(texts, clusters.assign(vectors).clusters, k)
        rows = [
            {"name": name, "task_share": float(part)}
            for name, part in zip(names, share, strict=True)
        ]
        notes = {"components": settings.pca, "clusters": rows}
        return FittedClustersSelector(self, clusters, notes)

    def _components(self, units: int) -> int:
        """Return the number of components: `pca`, or fewer if there are too few units for it."""
        max_clusters = max(self._settings(self.pca).candidates)
        return min(self.pca, max(2, units // (UNITS_EACH * max_clusters)))

    def load(self, folder: Path) -> "FittedClustersSelector":
        notes = read_json(folder / "selector.json")["learned"]
        return FittedClustersSelector(self, FittedClusters.load(folder), notes)


@dataclass(frozen=True)
class FittedClustersSelector(FittedSelector):
    """Fitted clusters with the target's share of each.

    Attributes:
        selector: Parameters.
        clusters: The fitted clusters.
        notes: Entries of the manifest: number of components; name and share p_k of each cluster.
    """

    selector: ClustersSelector
    clusters: FittedClusters
    notes: dict[str, Any]

    def score_units(self, units: Units) -> np.ndarray:
        if not len(units):
            return np.zeros(0)
        vectors = self.selector.settings.embed(units.texts)
        responsibilities = self.clusters.assign(vectors).responsibilities
        share = np.array([row["task_share"] for row in self.notes["clusters"]])
        scores: np.ndarray = np.maximum(-np.log((responsibilities * share).sum(1)), 0)
        return scores

    def save(self, folder: Path) -> None:
        self.clusters.save(folder)
        write_json(folder / "selector.json", {**self.selector.identity(), "learned": self.notes})
