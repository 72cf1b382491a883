"""Spread of a choice: weights and a clusters table to the effective number of clusters of pool and kept text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dana.core.artifacts import MANIFEST
from dana.core.schemas import parts
from dana.report.files import read_columns, read_object, require_keys
from dana.report.page import Column, Table, number
from dana.weighting.spread import effective_number

KEY = ["doc_id", "unit"]


def read_spread(path: Path, weights: Mapping[str, Path]) -> pd.DataFrame | None:
    """How many clusters the kept text of each arm is spread over; of both tables a part is in memory.

    Args:
        path: Folder of a run.
        weights: Folder of the weights of each arm.

    Returns:
        A row an arm: arm, clusters (k), pool and kept, their effective numbers. Arms that keep nothing, or are weighed
        in other units than the clusters', are left out. None where no arm is left, or the corpus has no clusters.
    """
    manifest = clusters_manifest(path)
    if manifest is None:
        return None
    rows = []
    for arm, folder in weights.items():
        found = cluster_amounts(path / "clusters", folder, manifest["k"])
        if found is not None and found[1].any():
            pool, kept = map(effective_number, found)
            rows.append({"arm": arm, "clusters": manifest["k"], "pool": pool, "kept": kept})
    return pd.DataFrame(rows) if rows else None


def clusters_manifest(path: Path) -> dict[str, Any] | None:
    """Manifest of the clusters of a run's corpus; None where there are none, or they are another corpus'."""
    file, corpus = path / "clusters" / MANIFEST, path / "corpus" / MANIFEST
    if not (file.is_file() and corpus.is_file()):
        return None
    manifest = read_object(file)
    require_keys(manifest, ("k", "names", "depends_on"), file)
    return manifest if manifest["depends_on"].get("general") == read_object(corpus).get("fingerprint") else None


def cluster_amounts(clusters: Path, weights: Path, k: int) -> np.ndarray | None:
    """Units and sum of weights of each cluster, shape (2, k); None of other units."""
    found = np.zeros((2, k))
    if len(parts(clusters)) != len(parts(weights)):
        return None
    for of_clusters, of_weights in zip(parts(clusters), parts(weights), strict=True):
        one, other = read_columns(of_clusters, [*KEY, "cluster"]), read_columns(of_weights, [*KEY, "weight"])
        if not one.select(KEY).equals(other.select(KEY)):
            return None
        cluster, weight = one["cluster"].to_numpy(), other["weight"].to_numpy()
        found += [np.bincount(cluster, minlength=k), np.bincount(cluster, weights=weight, minlength=k)]
    return found


def spread_table(spread: pd.DataFrame) -> Table:
    """The rows of :func:`read_spread`."""
    caption = (
        "Clusters that text is spread over: the exponential of the entropy of their shares (Hill 1973). It is the"
        " number of clusters where all hold the same, and 1 where one holds all."
    )
    columns = (
        Column("arm", lambda row: row.arm, numeric=False),
        Column("effective, kept text", lambda row: number(row.kept, 1)),
        Column("effective, pool", lambda row: number(row.pool, 1)),
        Column("clusters", lambda row: number(row.clusters, 0)),
    )
    return Table("spread", caption, spread, columns)


def spread_finding(spread: pd.DataFrame) -> str:
    """The first arm's spread in words."""
    row = spread.iloc[0]
    return (
        f"By the effective number of clusters the kept text is spread over {number(row['kept'], 1)} of"
        f" {row['clusters']}, the pool over {number(row['pool'], 1)}."
    )
