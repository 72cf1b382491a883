"""Clusters of a run's pool: its clusters, weights and stored vectors to what of pool, task and kept text is in each."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dana.core.artifacts import fingerprint
from dana.core.files import text_digest
from dana.core.schemas import HELD_OUT_TASK, SCORES, parts
from dana.encoders.rounding import unpack_vectors
from dana.encoders.store import META, VectorFolder, read_meta
from dana.report.files import read_columns
from dana.report.unit_texts import texts_of
from dana.studies.clusters.cluster_spread import cluster_amounts, clusters_manifest

FEWEST = 10  # of the task's units; fewer say nothing of its shares


def read_pool_clusters(path: Path, scores: Path | None, weights: Path | None, store: Path) -> pd.DataFrame | None:
    """What is in each cluster; of every table a part is in memory.

    Args:
        path: Folder of a run.
        scores: Folder of its scores, which has the keys of the task's held-out units.
        weights: Folder of its weights.
        store: Folder of the embedding store.

    Returns:
        A row a cluster: cluster, name, units, kept (the sum of their weights; NaN without weights of the same units),
        task_units (distinct held-out units of the task whose vectors by the clusters' encoder are stored; NaN where
        fewer than ten are). None without clusters of the corpus.

    Raises:
        ArtifactError: If a file is not what dana writes.
    """
    manifest = clusters_manifest(path)
    if manifest is None:
        return None
    clusters, k = path / "clusters", manifest["k"]
    amounts = cluster_amounts(clusters, weights, k) if weights else None
    units = sum(_counts(part, k) for part in parts(clusters)) if amounts is None else amounts[0].astype(np.int64)
    return pd.DataFrame(
        {
            "cluster": range(k),
            "name": manifest["names"],
            "units": units,
            "kept": np.nan if amounts is None else amounts[1],
            "task_units": _task_units(path, scores, store, manifest) if scores else np.nan,
        }
    )


def _counts(part: Path, k: int) -> np.ndarray:
    return np.bincount(read_columns(part, ["cluster"])["cluster"].to_numpy(), minlength=k)


def _task_units(path: Path, scores: Path, store: Path, manifest: dict[str, Any]) -> np.ndarray | float:
    """Held-out units of the task by cluster, shape (k,); NaN where their vectors are not stored."""
    folder = store / fingerprint(manifest["depends_on"].get("encoder"))
    if not ((scores / HELD_OUT_TASK).is_file() and (folder / META).is_file()):
        return np.nan
    texts = texts_of(read_columns(scores / HELD_OUT_TASK, SCORES.names), path / "task" / "held_out")
    meta = read_meta(folder)
    rows, known = VectorFolder(folder, meta).find(list(dict.fromkeys(map(text_digest, texts))))
    if known.sum() < FEWEST:
        return np.nan
    from dana.studies.clusters.clustering import LEARNED
    from dana.studies.clusters.model import FittedClusters

    found = FittedClusters.load(path / "clusters" / LEARNED).assign(unpack_vectors(rows[known], meta["dtype"]))
    return np.bincount(found.clusters, minlength=manifest["k"])
