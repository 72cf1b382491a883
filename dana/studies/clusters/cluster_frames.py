"""A clusters artifact to data frames: the table counted by cluster and source, the sample, the fits."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dana.core.artifacts import open_artifact
from dana.core.schemas import parts, read_batches
from dana.studies.clusters.clustering import LEARNED
from dana.studies.clusters.learned import ASSIGNMENTS, CHOICE, ELLIPSES, FITS, SAMPLE, WORDS
from dana.studies.clusters.mixture import Mixture
from dana.studies.clusters.neighbours import mean_distances
from dana.studies.clusters.representatives import log_density_of_own

BETWEEN = 0.9  # a unit whose likeliest cluster has less responsibility lies between two
COUNTED = ["cluster", "source", "responsibility", "log_density"]


@dataclass(frozen=True)
class ClusterFrames:
    """What a page on clusters is made from.

    Attributes:
        names: Of the clusters.
        reason: Why there are so many.
        units: A row a cluster and source: units, between (units whose responsibility is below 0.9), and the sums of
            responsibility and log_density.
        sample: The units that were fitted on, see :class:`dana.studies.clusters.learned.LearnedClusters`; also own, the
            log of weight times density of their own component.
        assignments: See there; so are the others.
        fits: A row a fit.
        choice: A row a number of clusters.
        words: Of each cluster.
        ellipses: On the map.
        variance: Of the map's axes.
        distances: Between the clusters' means, shape (k, k).
    """

    names: list[str]
    reason: str
    units: pd.DataFrame
    sample: pd.DataFrame
    assignments: pd.DataFrame
    fits: pd.DataFrame
    choice: pd.DataFrame
    words: pd.DataFrame
    ellipses: pd.DataFrame
    variance: tuple[float, float]
    distances: np.ndarray

    @property
    def k(self) -> int:
        """Number of clusters."""
        return len(self.names)

    @property
    def sources(self) -> list[str]:
        """Sources of the units, in alphabetical order."""
        return sorted(self.units["source"].unique())

    @property
    def counts(self) -> np.ndarray:
        """Units, int64 of shape (k, sources)."""
        found = self.units.pivot_table(values="units", index="cluster", columns="source", aggfunc="sum", fill_value=0)
        return found.reindex(index=range(self.k), columns=self.sources, fill_value=0).to_numpy()


def read_clusters(folder: Path) -> ClusterFrames:
    """Read what :class:`dana.studies.clusters.clustering.Clustering` wrote, the table in batches.

    Raises:
        ArtifactError: If there is none, or it is damaged.
    """
    manifest = open_artifact(folder, "clusters", "dana clusters --general ... --out DIR").manifest
    learned = folder / LEARNED
    sample = pd.read_parquet(learned / SAMPLE)
    sample["own"] = log_density_of_own(sample["log_density"].to_numpy(), sample["responsibility"].to_numpy())
    tables = {name: pd.read_csv(learned / file) for name, file in TABLES.items()}
    return ClusterFrames(
        names=manifest["names"],
        reason=manifest["reason"],
        units=count_units(folder),
        sample=sample,
        assignments=pd.read_parquet(learned / ASSIGNMENTS),
        variance=tuple(manifest["map_variance"]),
        distances=mean_distances(Mixture.load(learned)),
        **tables,
    )


TABLES = {"fits": FITS, "choice": CHOICE, "words": WORDS, "ellipses": ELLIPSES}


def count_units(folder: Path) -> pd.DataFrame:
    """Units of a clusters table by cluster and source, see :class:`ClusterFrames`; in memory a batch at a time."""
    found = []
    for part in parts(folder):
        for batch in read_batches(part, COUNTED):
            table = pa.table(batch)
            between = pc.cast(pc.less(table["responsibility"], BETWEEN), pa.int64())
            table = table.append_column("between", between).append_column("units", pa.array(np.ones(len(table), int)))
            sums = [(name, "sum") for name in ("units", "between", "responsibility", "log_density")]
            found.append(table.group_by(["cluster", "source"], use_threads=False).aggregate(sums).to_pandas())
    together = pd.concat(found).rename(columns=lambda name: name.removesuffix("_sum"))
    return together.groupby(["cluster", "source"], as_index=False).sum()
