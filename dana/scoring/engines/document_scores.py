"""Scores and weights of units to one number a document: means, the cut of a weighing, a table by document."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dana.core.artifacts import open_artifact
from dana.core.errors import ConfigError, DataError
from dana.core.rng import document_key
from dana.core.schemas import SCORES, WEIGHTS, parts, read_batches, table_identity


def document_means(table: pa.Table, column: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names of the documents of a table in order, mean of a column over each one's units, and their number.

    Args:
        table: A row a unit, every document's from its unit 0 on.
        column: ``score`` or ``weight``.
    """
    first = table["unit"].to_numpy() == 0
    of = np.cumsum(first) - 1
    units = np.bincount(of)
    sums = np.bincount(of, weights=table[column].to_numpy())  # in order: the same bits wherever a document lies
    return table["doc_id"].filter(pa.array(first)).to_pylist(), sums / units, units


def document_cut(run: str | Path) -> float:
    """The mean score below which the documents of a weighed run hold as many units as the weighing kept.

    What ``dana weigh`` kept is segments of documents, of a pool that it knew whole. For other documents, that come one
    by one, this is the nearest rule. Give it to :class:`dana.scoring.engines.datatrove.DanaFilter`.

    Args:
        run: A run's folder, with ``scores`` and ``weights``.

    Raises:
        ArtifactError: If either is missing or damaged.
        ConfigError: If the weights are of other scores, or leave nothing out.
    """
    scores = open_artifact(Path(run) / "scores", "scores", "dana score --task ... --general ... --out DIR")
    weights = open_artifact(Path(run) / "weights", "weights", f"dana weigh {run}")
    if weights.manifest["depends_on"].get("scores") != scores.fingerprint:
        raise ConfigError(f"{weights.path} was not made from {scores.path}; weigh these scores first: dana weigh {run}")
    units = weights.manifest["counts"]["units"]
    if units["kept"] == units["in"]:
        raise ConfigError(f"{weights.path}: leaves nothing out; weigh with policy segments or sampled")
    found = [document_means(table, "score")[1:] for table in _whole_documents(scores.path, SCORES, "score")]
    means, sizes = (np.concatenate(of_all) for of_all in zip(*found, strict=True))
    order = np.argsort(means, kind="stable")
    kept = int(np.searchsorted(np.cumsum(sizes[order]), units["kept"], side="right"))
    return float(means[order[min(max(1, kept), means.size - 1)]])


@dataclass(frozen=True)
class DocumentWeights:
    """Mean weight of the units of each document, 16 bytes a document in memory, up to 48 while it is read.

    Attributes:
        folder: Where they are from.
        keys: uint64, ascending, a hash of each name; of 10^8 documents two have the same in one pool of 3,700.
        weights: float64, of each.
    """

    folder: Path
    keys: np.ndarray
    weights: np.ndarray

    @classmethod
    def read(cls, folder: Path) -> "DocumentWeights":
        """Read a weights folder.

        Raises:
            ArtifactError: If it holds no weights, or is damaged.
            DataError: If two documents have one name.
        """
        table_identity(folder, WEIGHTS)
        hashes, means = [np.zeros(0, np.uint64)], [np.zeros(0)]
        for table in _whole_documents(folder, WEIGHTS, "weight"):
            names, values, _ = document_means(table, "weight")
            hashes.append(np.fromiter(map(document_key, names), np.uint64, len(names)))
            means.append(values)
        keys = np.concatenate(hashes)
        order = np.argsort(keys)
        keys = keys[order]
        if (keys[1:] == keys[:-1]).any():
            raise DataError(f"{folder}: two documents have one name; weights are found by it")
        return cls(folder, keys, np.concatenate(means)[order])

    def get(self, name: str) -> float | None:
        """Weight of a document; None if it has none here."""
        key = np.uint64(document_key(name))
        place = int(np.searchsorted(self.keys, key))
        return float(self.weights[place]) if place < self.keys.size and self.keys[place] == key else None


def _whole_documents(folder: Path, schema: pa.Schema, column: str) -> Iterator[pa.Table]:
    """Rows of a folder of scores or weights in order, cut between documents; nothing if it has none."""
    waiting = schema.empty_table().select(["doc_id", "unit", column])
    for part in parts(folder):
        for batch in read_batches(part, waiting.column_names):
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch]).cast(waiting.schema)])
            starts = np.flatnonzero(waiting["unit"].to_numpy() == 0)
            if starts.size > 1:
                yield waiting.slice(0, int(starts[-1]))
                waiting = waiting.slice(int(starts[-1]))
    if waiting.num_rows:
        yield waiting
