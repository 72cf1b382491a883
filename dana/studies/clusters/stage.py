"""Fit clusters to a sample of the pool, assign every unit shard by shard, and write a page."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from dana.core.artifacts import Artifact, Draft
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger, progress, report_ticks
from dana.core.rng import derive_seed
from dana.core.schemas import UNIT, table_schema, write_parts
from dana.corpus.text import distinct_rows
from dana.corpus.unit_stream import Units
from dana.report.page import write_page
from dana.scoring.inputs import PoolText
from dana.scoring.settings import Selection
from dana.scoring.sharded import ShardedTable
from dana.selectors.base import SelectorContext
from dana.stages.settings import RunSettings
from dana.stages.steps.step import Step
from dana.stages.texts import open_pool
from dana.studies.clusters.description import FOLDER, describe_clusters
from dana.studies.clusters.domains import true_domains
from dana.studies.clusters.model import FittedClusters
from dana.studies.clusters.page import cluster_report, read_clusters
from dana.studies.clusters.settings import ClusterSettings
from dana.studies.frame_text import frame_text
from dana.weighting.settings import parse_balance

log = get_logger(__name__)

# cluster: the most likely one, from 0.  responsibility: its probability, given the unit.
# log_density: natural logarithm of the mixture's density at the unit; lower is more of an outlier.
SCHEMA = table_schema(
    **UNIT, cluster=pa.int32(), responsibility=pa.float32(), log_density=pa.float32()
)


@dataclass(frozen=True)
class Clustering(ShardedTable):
    """A clustering of one pool, made in shards.

    Attributes:
        pool: The pool.
        selection: How its text is split into units and embedded.
        settings: How units are clustered.
        folder: Folder of ``part-*.parquet`` (:data:`SCHEMA`, one row per unit, pool order) and of
            ``__dana__/mixture/``: the model, the sample it was fitted on, and all fits.
    """

    pool: PoolText
    selection: Selection
    settings: ClusterSettings
    folder: Path
    kind: ClassVar[str] = "clusters"
    model_name: ClassVar[str] = "mixture"
    schema: ClassVar[pa.Schema] = SCHEMA
    command: ClassVar[str] = "dana studies clusters"

    @cached_property
    def _context(self) -> SelectorContext:
        return self.selection.context("")

    @property
    def depends_on(self) -> dict[str, Any]:
        """Inputs of the fingerprint."""
        of_targets = ("max_target_units", "min_words")
        cut = {key: value for key, value in self.selection.cut().items() if key not in of_targets}
        return {
            "pool": self.pool.artifact.fingerprint,
            "selection": cut,
            "encoder": self._context.encoder_identity(),
            "geometry": self.selection.geometry,
            "clusters": self.settings.identity(),
        }

    def load(self, folder: Path) -> FittedClusters:
        return FittedClusters.load(folder)

    def rows(self, units: Units, clusters: FittedClusters) -> pa.Table:
        assignment = clusters.assign(self._context.embed(units.texts))
        likeliest = assignment.responsibilities.max(1).astype(np.float32)
        columns = [assignment.clusters, likeliest, assignment.log_densities.astype(np.float32)]
        return pa.Table.from_arrays([*units.key_columns(), *map(pa.array, columns)], schema=SCHEMA)

    def fit(self, draft: Draft) -> None:
        """Draw a sample, fit every candidate on its distinct units, choose one.

        Raises:
            DataError: If there are too few units, or every fit has an empty cluster.
        """
        seed = self.selection.seed
        sample_seed = derive_seed(seed, "clusters", "sample")
        count, samples = self.draw_samples({"clusters": (sample_seed, self.settings.fit)})
        sample = samples["clusters"]
        sample = sample.rows(distinct_rows(sample.texts))
        with progress(what="embedding", unit="units", total=len(sample)) as bar, report_ticks(bar):
            vectors = self._context.embed(sample.texts)
            bar.update(len(sample) - bar.n)
        description = describe_clusters(
            sample, vectors, self.selection.geometry, self.settings, seed
        )
        log.info("clusters  %s", description.reason)
        description.save(draft.path / FOLDER)
        draft.seeds["sample"] = sample_seed
        draft.counts = {"pool_units": count, "fitted_on": len(sample)}
        draft.notes |= {
            "k": description.k,
            "reason": description.reason,
            "names": description.names,
            "map_variance": description.variance,
        }

    def join(self, draft: Draft, mixture: Artifact, shards: Iterator[pa.Table]) -> int:
        shutil.copytree(mixture.path / FOLDER, draft.path / FOLDER)
        for key in ("k", "reason", "names", "map_variance"):
            draft.notes[key] = mixture.manifest[key]
        return write_parts(shards, draft.path, SCHEMA)


def steps(settings: RunSettings, texts: RunSettings) -> Iterator[Step]:
    """Yield the step of ``dana run`` that clusters the pool.

    There is one only if an arm's budget is balanced over clusters.

    Args:
        settings: Settings of the run.
        texts: The part of them that reading uses.
    """
    balances = [arm.weigh.balance for arm in settings.described_arms if arm.weigh]
    if any(parse_balance(str(balance)).table == "clusters" for balance in balances if balance):
        sections = {"clusters": settings.section("clusters")}
        cluster_settings = replace(texts, selection=settings.selection, **sections)
        arguments = {"settings": cluster_settings, "is_named": False}
        yield Step("clusters", f"{__name__}:run_clusters", arguments, ("texts",))


def run_clusters(settings: RunSettings, is_named: bool = True) -> Artifact:
    """Cluster the units of a run's pool text; the processes of one launch share the shards.

    Args:
        settings: Settings of the run.
        is_named: False to use the pool in the run's folder as it is, if there is one.

    Returns:
        The clusters artifact, ``OUT/clusters``, described beside it by ``clusters.html`` and
        ``clusters.md`` with ``tables/cluster*.csv`` and ``figures/cluster*``.

    Raises:
        ConfigError: If there is no pool text, or a true domain is not among its sources.
        DataError: If it has too few units for so many clusters.
    """
    clusters = settings.section("clusters")
    out = Path(settings.out)
    encoder = clusters.encoder
    if not encoder:
        is_default = settings.selection.encoder == Selection.encoder
        encoder = "minilm" if is_default else settings.selection.encoder
    selection = replace(settings.selection, encoder=encoder)
    selection.splitter()  # fail on unknown names before any text is read
    selection.context("").encoder_identity()
    pool = open_pool(settings, is_named)
    domains = true_domains(clusters.true_domains, pool.artifact.manifest["counts"]["by_source"])
    artifact = Clustering(pool, selection, clusters, out / "clusters").run()

    def describe() -> Path:
        description, units = read_clusters(artifact)
        report = cluster_report(out.resolve().name, description, units, domains)
        return write_page(report, out, "clusters")

    on_rank_0(describe)
    return artifact


def clusters_text(out: Path) -> str:
    """Format one line per cluster: its size, words and sources.

    Args:
        out: Folder of the run, after :func:`run_clusters`.
    """
    table = pd.read_csv(out / "tables" / "clusters.csv", keep_default_na=False)
    return frame_text(table[["cluster", "units", "share", "name", "sources"]])
