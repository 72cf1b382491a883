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
    """Build the report's section on the pool's clusters.

    Reads one part of a table at a time.

    Returns:
        The section; none if the run has no clusters of its current pool.

    Raises:
        ArtifactError: If a file is damaged.
    """
    clusters_file = run.path / "clusters" / MANIFEST
    pool_file = run.path / "pool" / MANIFEST
    if not (clusters_file.is_file() and pool_file.is_file()):
        return []
    manifest = read_object(clusters_file)
    with reading(clusters_file):
        k = manifest["k"]
        names = manifest["names"]
        pool = manifest["depends_on"].get("pool")
    if pool != read_object(pool_file).get("fingerprint"):
        return []
    weights = next(iter(weight_folders(run.path).values()), None)
    units, weight_sums = amounts_by_cluster(run.path / "clusters", weights, k)
    clusters = {"cluster": range(k), "name": names, "units": units, "selected": weight_sums}
    table = pool_table(pd.DataFrame(clusters))
    answer = f"The pool has {k} clusters; clusters.html describes them."
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
    parts = part_files(clusters)
    weight_parts = part_files(weights) if weights else []
    units = np.zeros(k, dtype=np.int64)
    weight_sums = np.zeros(k)
    are_same_units = len(parts) == len(weight_parts)
    for index, part in enumerate(parts):
        assignments = read_columns(part, [*KEY, "cluster"])
        labels = assignments["cluster"].to_numpy()
        units += np.bincount(labels, minlength=k)
        if not are_same_units:
            continue
        weight_rows = read_columns(weight_parts[index], [*KEY, "weight"])
        are_same_units = assignments.select(KEY).equals(weight_rows.select(KEY))
        if are_same_units:
            weight_sums += np.bincount(labels, weight_rows["weight"].to_numpy(), k)
    if not are_same_units:
        weight_sums = np.full(k, np.nan)
    return units, weight_sums


def pool_table(pool: pd.DataFrame) -> Table:
    """Tabulate how much of each cluster is selected, the largest share of the selected text first.

    Args:
        pool: One row per cluster: cluster, name, units, selected (sum of weights; NaN if unknown).
    """
    frame = pool.assign(share_of_units=pool["units"] / pool["units"].sum())
    frame["share_of_its_units_selected"] = pool["selected"] / pool["units"].clip(lower=1)
    frame["share_of_selected"] = pool["selected"] / pool["selected"].sum()
    frame = frame.sort_values(["share_of_selected", "units"], ascending=False, kind="stable")
    columns = (
        *decimals(0, "cluster"),
        *text_columns("name"),
        *decimals(0, "units"),
        *shares("share_of_units", "share_of_its_units_selected", "share_of_selected"),
    )
    caption = (
        "Clusters with their most distinctive words; shares of units. Selected: the sum of weights."
    )
    return Table("pool_clusters", caption, frame, columns, max_rows=MOST_BARS)
