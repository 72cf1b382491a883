"""Clusters of a run's pool: clusters and weights to a report's section on what is kept of each."""

from pathlib import Path

import numpy as np
import pandas as pd

from dana.core.artifacts import MANIFEST
from dana.core.schemas import parts
from dana.report.figures import MOST_BARS
from dana.report.files import read_columns, read_object, reading
from dana.report.page import Section, Table, decimals, shares, text_columns
from dana.report.run import RunFrames, weight_folders

KEY = ["doc_id", "unit"]


def sections(run: RunFrames) -> list[Section]:
    """What a report says of the pool's clusters; nothing where the corpus has none. Of a table a part is in memory.

    Raises:
        ArtifactError: If a file is not what dana writes.
    """
    file, corpus = run.path / "clusters" / MANIFEST, run.path / "corpus" / MANIFEST
    if not (file.is_file() and corpus.is_file()):
        return []
    manifest = read_object(file)
    with reading(file):
        clusters, names, general = manifest["k"], manifest["names"], manifest["depends_on"].get("general")
    if general != read_object(corpus).get("fingerprint"):
        return []
    weights = next(iter(weight_folders(run.path).values()), None)
    units, kept = amounts_by_cluster(run.path / "clusters", weights, clusters)
    pool = pd.DataFrame({"cluster": range(clusters), "name": names, "units": units, "kept": kept})
    table = pool_table(pool)
    answer = f"The pool falls into {clusters} clusters; clusters.html says what each is."
    if weights is not None and not table.frame["share_of_kept"].notna().all():
        answer += " The weights keep nothing, or are of other units than the clusters."
    return [Section("What is the pool made of?", answer, (), (table,))]


def amounts_by_cluster(clusters: Path, weights: Path | None, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Units of each cluster, and the sum of their weights; NaN without weights, or where they are of other units.

    Args:
        clusters: Folder of a clusters table.
        weights: Folder of weights.
        k: Number of clusters.
    """
    weighed = parts(weights) if weights else []
    is_same, units, kept = len(weighed) == len(parts(clusters)), np.zeros(k, dtype=np.int64), np.zeros(k)
    for at, part in enumerate(parts(clusters)):
        left = read_columns(part, [*KEY, "cluster"])
        own = left["cluster"].to_numpy()
        units += np.bincount(own, minlength=k)
        if is_same:
            right = read_columns(weighed[at], [*KEY, "weight"])
            is_same = left.select(KEY).equals(right.select(KEY))
            kept += np.bincount(own, right["weight"].to_numpy(), k) if is_same else 0
    return units, kept if is_same else np.full(k, np.nan)


def pool_table(pool: pd.DataFrame) -> Table:
    """A row a cluster, those that most is kept of first.

    Args:
        pool: A row a cluster: cluster, name, units, kept (the sum of their weights; NaN where it is not known).
    """
    frame = pool.assign(share_of_units=pool["units"] / pool["units"].sum())
    frame["share_of_its_units_kept"] = pool["kept"] / pool["units"].clip(lower=1)
    frame["share_of_kept"] = pool["kept"] / pool["kept"].sum()
    frame = frame.sort_values(["share_of_kept", "units"], ascending=False, kind="stable")
    columns = (*decimals(0, "cluster"), *text_columns("name"), *decimals(0, "units"))
    columns += shares("share_of_units", "share_of_its_units_kept", "share_of_kept")
    caption = "Clusters by the words that set them apart; shares are of units. Kept is the sum of weights."
    return Table("pool_clusters", caption, frame, columns, max_rows=MOST_BARS)
