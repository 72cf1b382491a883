"""``dana clusters``: general text to clusters of its units, and what each of them is."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dana.core.artifacts import Artifact
from dana.core.launch import first
from dana.core.logging import get_logger
from dana.core.text_table import aligned
from dana.report.page import write_page
from dana.stages.grid.cell import Cell
from dana.stages.settings import RunSettings
from dana.stages.texts import open_general
from dana.studies.clusters.cluster_domains import TrueDomains
from dana.studies.clusters.cluster_frames import read_clusters
from dana.studies.clusters.cluster_page import cluster_report
from dana.studies.clusters.clustering import Clustering
from dana.weighting.settings import parse_balance

log = get_logger(__name__)

CLUSTERS = "clusters"


def cells(settings: RunSettings, texts: RunSettings) -> Iterator[Cell]:
    """The cell of ``dana run`` that clusters the general text, where an arm's budget is balanced over its clusters.

    Args:
        settings: Of the run.
        texts: The part of them that reading looks at.
    """
    weights = [arm.weigh for arm in settings.described_arms if arm.weigh and arm.weigh.balance]
    if any(parse_balance(str(weigh.balance)).table == CLUSTERS for weigh in weights):
        given = replace(texts, selection=settings.selection, **{CLUSTERS: settings.section(CLUSTERS)})
        arguments = {"settings": given, "is_named": False}
        yield Cell(CLUSTERS, f"{__name__}:run_clusters", arguments, ("texts",))


def run_clusters(settings: RunSettings, is_named: bool = True) -> Artifact:
    """Cluster the units of a run's general text; the processes of one launch share the shards.

    Args:
        settings: Of the run.
        is_named: Whether the general text was named now; else the corpus in the run's folder is taken as it is, if
            there is one.

    Returns:
        The clusters artifact, ``OUT/clusters``. Beside it ``clusters.html`` and ``clusters.md`` say what is in it, with
        ``tables/cluster*.csv`` and ``figures/cluster*``.

    Raises:
        ConfigError: If there is no general text, or a true domain is not among its sources.
        DataError: If it has too few units for so many clusters.
    """
    selection, out = settings.selection, Path(settings.out)
    selection.splitter()  # what is named is looked up before any text is read
    selection.context("").encoder_identity()
    corpus = open_general(settings, is_named)
    wanted = settings.section(CLUSTERS)
    domains = TrueDomains.among(wanted.true_domains, corpus.artifact.manifest["counts"]["by_source"])
    artifact = Clustering(corpus, selection, wanted, out / CLUSTERS).whole()
    first(lambda: _write_page(artifact.path, out, domains))
    return artifact


def _write_page(clusters: Path, out: Path, domains: TrueDomains | None) -> None:
    write_page(cluster_report(out.resolve().name, read_clusters(clusters), domains), out, CLUSTERS)


def clusters_text(out: Path) -> str:
    """A line a cluster: its size and its words.

    Args:
        out: The run's folder, in which :func:`run_clusters` has written.
    """
    import pandas as pd

    rows = pd.read_csv(out / "tables" / "clusters.csv", keep_default_na=False).to_dict("records")
    return aligned([{name: row[name] for name in ("cluster", "units", "share", "name", "sources")} for row in rows])
