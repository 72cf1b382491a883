"""Clusters of a run's pool: clusters, weights and vectors to a report's section on what is like the task, and kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dana.core.artifacts import MANIFEST, fingerprint
from dana.core.schemas import HELD_OUT_TASK, SCORES, parts
from dana.encoders.cache import META, stored_vectors
from dana.report.figures import MOST_BARS
from dana.report.files import read_columns, read_object, reading
from dana.report.page import Section, Table, decimals, number, percent, shares, text_columns
from dana.report.run import RunFrames, embedding_store, scores_folder, weight_folders
from dana.report.unit_texts import texts_of
from dana.weighting.weights import effective_number

KEY = ["doc_id", "unit"]
FEWEST = 10  # of the task's units; fewer say nothing of its shares
UNKNOWN_TASK = (
    "How the task's text falls into them is not known here: the vectors of its held-out units by the clusters' encoder "
    "are not stored."
)


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
    amounts = cluster_amounts(run.path / "clusters", weight_folders(run.path), clusters)
    pool = pd.DataFrame({"cluster": range(clusters), "name": names, "units": amounts["units"]})
    pool["kept"] = amounts.iloc[:, 1] if amounts.shape[1] > 1 else np.nan
    table = pool_table(pool.assign(task_units=_task_units(run.path, manifest)))
    is_weighed = run.selected is not None and "weight" in run.selected.units
    answer, spread = pool_finding(table.frame, is_weighed), spread_table(amounts)
    if len(spread.frame):
        row = spread.frame.iloc[0]
        answer += (
            f" By the effective number of clusters the kept text is spread over {number(row['kept'], 1)} of"
            f" {row['clusters']}, the pool over {number(row['pool'], 1)}."
        )
    return [Section("What is the pool made of?", answer, (), (table, spread))]


def cluster_amounts(clusters: Path, weights: Mapping[str, Path], k: int) -> pd.DataFrame:
    """Units of each cluster, and the sum of their weights in each arm; NaN where an arm was weighed in other units.

    Args:
        clusters: Folder of a clusters table.
        weights: Arm to folder of its weights.
        k: Number of clusters.

    Returns:
        A row a cluster: units, then a column an arm.
    """
    labels = (read_columns(part, ["cluster"])["cluster"].to_numpy() for part in parts(clusters))
    amounts = pd.DataFrame({"units": sum(np.bincount(part, minlength=k) for part in labels)})
    for arm, folder in weights.items():
        amounts[arm] = 0.0 if len(parts(folder)) == len(parts(clusters)) else np.nan
        for of_clusters, of_weights in zip(parts(clusters), parts(folder), strict=False):
            left, right = read_columns(of_clusters, [*KEY, "cluster"]), read_columns(of_weights, [*KEY, "weight"])
            if not left.select(KEY).equals(right.select(KEY)):
                amounts[arm] = np.nan
                break
            amounts[arm] += np.bincount(left["cluster"].to_numpy(), weights=right["weight"].to_numpy(), minlength=k)
    return amounts


def _task_units(path: Path, manifest: dict[str, Any]) -> np.ndarray | float:
    """Distinct held-out units of the task by cluster, shape (k,); NaN where their vectors are not stored."""
    scores = scores_folder(path)
    folder = embedding_store(path) / fingerprint(manifest["depends_on"].get("encoder"))
    if scores is None or not ((scores / HELD_OUT_TASK).is_file() and (folder / META).is_file()):
        return np.nan
    texts = texts_of(read_columns(scores / HELD_OUT_TASK, SCORES.names), path / "task" / "held_out")
    vectors = stored_vectors(folder, texts)
    if len(vectors) < FEWEST:
        return np.nan
    from dana.studies.clusters.description import FOLDER  # with torch, which a report needs only here
    from dana.studies.clusters.model import FittedClusters

    fitted = FittedClusters.load(path / "clusters" / FOLDER)
    clusters = fitted.assign(vectors).clusters
    return np.bincount(clusters, minlength=manifest["k"])


def spread_table(amounts: pd.DataFrame) -> Table:
    """A row an arm that keeps something of these units: over how many clusters pool and kept text are spread.

    Args:
        amounts: Of :func:`cluster_amounts`.
    """
    k, pool = len(amounts), effective_number(amounts["units"].to_numpy())
    rows = [
        {"arm": arm, "clusters": k, "pool": pool, "kept": effective_number(amounts[arm].to_numpy())}
        for arm in amounts.columns[1:]
        if amounts[arm].sum() > 0
    ]
    caption = (
        "Clusters that text is spread over: the exponential of the entropy of their shares (Hill 1973). It is the"
        " number of clusters where all hold the same, and 1 where one holds all."
    )
    columns = (*text_columns("arm"), *decimals(1, "kept", "pool"), *decimals(0, "clusters"))
    return Table("spread", caption, pd.DataFrame(rows), columns)


def pool_table(pool: pd.DataFrame) -> Table:
    """A row a cluster, those that look most like the task first; without the task those that most is kept of.

    Args:
        pool: A row a cluster: cluster, name, units, kept (the sum of their weights), task_units (of the task's held-out
            text); NaN where one is not known.
    """
    frame = pool.assign(share_of_units=pool["units"] / pool["units"].sum())
    for name in ("task_units", "kept"):
        frame[f"share_of_{name}"] = pool[name] / max(pool[name].sum(), 1e-300)
    frame["times_in_task"] = frame["share_of_task_units"] / frame["share_of_units"].clip(lower=1e-300)
    frame["share_of_its_units_kept"] = pool["kept"] / pool["units"].clip(lower=1)
    order = ["times_in_task", "share_of_kept", "units"]
    frame = frame.sort_values(order, ascending=False, kind="stable").reset_index(drop=True)
    columns = (*decimals(0, "cluster"), *text_columns("name"), *decimals(0, "units"), *shares("share_of_units"))
    caption = "Clusters by the words that set them apart; shares are of units. Kept is the sum of weights."
    if _is_known(frame, "task_units"):
        columns += (*shares("share_of_task_units"), *decimals(1, "times_in_task"))
        count = number(pool["task_units"].sum(), 0)
        caption += f" The task's: {count} distinct held-out units, each in its likeliest cluster."
    if _is_known(frame, "kept"):
        columns += shares("share_of_its_units_kept", "share_of_kept")
    return Table("pool_clusters", caption, frame, columns, most=MOST_BARS)


def _is_known(frame: pd.DataFrame, name: str) -> bool:
    return bool(frame[name].notna().all() and frame[name].sum() > 0)


def pool_finding(frame: pd.DataFrame, is_weighed: bool) -> str:
    """Sentences on which clusters look like the task, and how much of them is kept.

    Args:
        frame: Of :func:`pool_table`.
        is_weighed: Whether the run has weights.
    """
    sentences = [f"The pool falls into {len(frame)} clusters; clusters.html says what each is."]
    is_kept = _is_known(frame, "kept")
    similar = frame[frame["times_in_task"] > 1]
    if not _is_known(frame, "task_units"):
        sentences.append(UNKNOWN_TASK)
    elif len(similar):
        names = ", ".join(map(repr, similar["name"].head(3))) + (" and others" if len(similar) > 3 else "")
        task, units, kept = (percent(similar[f"share_of_{part}"].sum()) for part in ("task_units", "units", "kept"))
        holds = f"{task} of the task's held-out text, {units} of the pool" + f" and {kept} of what is kept" * is_kept
        sentences.append(f"Where the task has a larger share than the pool ({names}), there is {holds}.")
    if is_weighed and not is_kept:
        sentences.append("The weights keep nothing, or are of other units than the clusters.")
    return " ".join(sentences)
