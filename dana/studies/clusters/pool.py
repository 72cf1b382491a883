"""Section of a report: how much of each cluster of the pool the weights select."""

from pathlib import Path

import numpy as np
import pandas as pd

from dana.core.artifacts import MANIFEST
from dana.core.schemas import part_files
from dana.report.figures import MOST_BARS
from dana.report.files import read_columns, read_object, reading
from dana.report.page import Section, Table, decimals, shares, text_columns
from dana.report.run import RunFrames, weight_folders

KEY = ["doc_id", "unit"]


def sections(run: RunFrames) -> list[Section]:
    """Build the report's section on the pool's clusters; empty if the run has none of its current pool.

    Reads one part of a table at a time.

    Raises:
        ArtifactError: If a file is damaged.
    """
    file, manifest_file = run.path / "clusters" / MANIFEST, run.path / "pool" / MANIFEST
    if not (file.is_file() and manifest_file.is_file()):
        return []
    manifest = read_object(file)
    with reading(file):
        clusters, names, source = (
            manifest["k"],
            manifest["names"],
            manifest["depends_on"].get("pool"),
        )
    if source != read_object(manifest_file).get("fingerprint"):
        return []
    weights = next(iter(weight_folders(run.path).values()), None)
    units, weight_sums = amounts_by_cluster(run.path / "clusters", weights, clusters)
    clusters_of_pool = pd.DataFrame(
        {"cluster": range(clusters), "name": names, "units": units, "selected": weight_sums}
    )
    table = pool_table(clusters_of_pool)
    answer = f"The pool has {clusters} clusters; clusters.html describes them."
    if weights is not None and not table.frame["share_of_selected"].notna().all():
        answer += " The weights select nothing, or belong to other units than the clusters."
    return [Section("What is the pool made of?", answer, (), (table,))]


def amounts_by_cluster(
    clusters: Path, weights: Path | None, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Count the units of each cluster and sum their weights.

    Args:
        clusters: Folder of a clusters table.
        weights: Folder of a weights table.
        k: Number of clusters.

    Returns:
        Counts, int64 of shape (k,); and sums, float64 of shape (k,), NaN without weights or if the
        weights belong to other units.
    """
    parts, weight_parts = part_files(clusters), part_files(weights) if weights else []
    units, weight_sums, is_same = (
        np.zeros(k, dtype=np.int64),
        np.zeros(k),
        len(parts) == len(weight_parts),
    )
    for index, part in enumerate(parts):
        assignments = read_columns(part, [*KEY, "cluster"])
        labels = assignments["cluster"].to_numpy()
        units += np.bincount(labels, minlength=k)
        if is_same:
            weight_rows = read_columns(weight_parts[index], [*KEY, "weight"])
            is_same = assignments.select(KEY).equals(weight_rows.select(KEY))
            weight_sums += (
                np.bincount(labels, weight_rows["weight"].to_numpy(), k) if is_same else 0
            )
    return units, weight_sums if is_same else np.full(k, np.nan)


def pool_table(pool: pd.DataFrame) -> Table:
    """Tabulate how much of each cluster is selected, the largest share of the selected text first.

    Args:
        pool: One row per cluster: cluster, name, units, selected (sum of weights; NaN if unknown).
    """
    frame = pool.assign(share_of_units=pool["units"] / pool["units"].sum())
    frame["share_of_its_units_selected"] = pool["selected"] / pool["units"].clip(lower=1)
    frame["share_of_selected"] = pool["selected"] / pool["selected"].sum()
    frame = frame.sort_values(["share_of_selected", "units"], ascending=False, kind="stable")
    columns = (*decimals(0, "cluster"), *text_columns("name"), *decimals(0, "units"))
    columns += shares("share_of_units", "share_of_its_units_selected", "share_of_selected")
    caption = (
        "Clusters with their most distinctive words; shares of units. Selected: the sum of weights."
    )
    return Table("pool_clusters", caption, frame, columns, max_rows=MOST_BARS)
