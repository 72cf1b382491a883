"""Segments of a pool on disk: mean score, size and what a budget counts of each, gathered in one pass over the pool."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from dana.core.columns import DiskColumn
from dana.core.errors import DataError
from dana.core.rng import derive_seed, document_key, hash_uniform, keyed_units
from dana.core.statistics import PairwiseSum, streamed_sum
from dana.weighting.groups import GROUP, segment_groups
from dana.weighting.pool import Block, Pool, require_finite
from dana.weighting.settings import WeighSettings
from dana.weighting.weights import Components, segment_means

TOKENS = "tokens"  # column of a pool whose budget counts tokens


@dataclass(frozen=True)
class Segments:
    """The segments of a pool, numbered from 0 in its order.

    Attributes:
        columns: Of one row a segment: ``mean`` and ``size``, and where they are needed ``tokens``, ``document`` (its
            number), ``group``, and ``luck``, the logarithm of its number in a draw.
        units: In segments.
        documents: Of the pool; 0 where segments run across them.
        components: What the means are shrunk by; None where they are not.
    """

    columns: dict[str, DiskColumn]
    units: int
    documents: int
    components: Components | None = None

    @property
    def count(self) -> int:
        """How many segments there are."""
        return self.columns["mean"].size

    def values(self, first: int, last: int) -> np.ndarray:
        """What segments are ranked by: mean scores, shrunk where they are; of those from `first` to before `last`."""
        means = self.columns["mean"].read(first, last)
        return (
            means if self.components is None else self.components.shrink(means, self.columns["size"].read(first, last))
        )

    def amounts(self, settings: WeighSettings) -> Iterator[np.ndarray]:
        """What a budget counts of each segment, see :meth:`dana.weighting.weights.Held.add`, in order."""
        name = {"tokens": TOKENS, "documents": "document"}.get(settings.kept.kind, "size")
        return self.columns[name].blocks()

    def groups(self, first: int, last: int) -> np.ndarray:
        """The group of each of some segments; 0 where they have none."""
        own = self.columns.get(GROUP)
        return np.zeros(last - first, dtype=np.int64) if own is None else own.read(first, last)

    def blocks(self, *names: str) -> Iterator[tuple[np.ndarray, ...]]:
        """Some columns of all segments, and their values last, in order."""
        first = 0
        for rows in zip(*(self.columns[name].blocks() for name in ("mean", *names)), strict=True):
            last = first + rows[0].size
            yield (*rows[1:], self.values(first, last))
            first = last


def gather(pool: Pool, settings: WeighSettings, folder: Path) -> Segments:
    """Cut a pool into segments and put what is known of them on disk.

    Args:
        pool: With ``tokens`` where the budget counts them, and ``group`` where it is balanced.
        settings: How segments are cut, and what a budget counts.
        folder: For the columns.

    Raises:
        DataError: If no unit is in a segment, naming ``min_tail``; if a score is not finite.
    """
    extra = {"tokens": {TOKENS: "f8"}, "documents": {"document": "i8"}}.get(settings.kept.kind, {})
    dtypes = {"mean": "f8", "size": "i8", **extra}
    dtypes |= {GROUP: "i4"} if settings.balance is not None else {}
    dtypes |= {"luck": "f8"} if settings.policy == "sampled" else {}
    columns = {name: DiskColumn(folder / f"{name}.raw", dtype) for name, dtype in dtypes.items()}
    units = row = documents = 0
    needed = ["score", *(name for name in (TOKENS, GROUP) if name in columns)]
    for block in pool.blocks(needed, settings, "segments"):
        require_finite(block.table["score"].to_numpy(), row)
        units, row = units + int(block.inside.sum()), row + block.table.num_rows
        documents = block.document + block.starts.size
        for name, rows in _of_block(block, columns, settings).items():
            columns[name].append(rows)
    if units == 0:
        whole = "the corpus" if settings.stream else "every document"
        raise DataError(f"min_tail={settings.min_tail}: {whole} is shorter; no segment is left")
    found = Segments(columns, units, documents)
    return replace(found, components=_components(pool, found, settings)) if settings.shrink else found


def _of_block(block: Block, names: dict[str, DiskColumn], settings: WeighSettings) -> dict[str, np.ndarray]:
    """A row a segment of a block."""
    inside = block.inside
    if not inside.any():
        return {}
    segment = block.segment[inside] - block.first
    score = block.table["score"].to_numpy()[inside]
    first_rows = np.flatnonzero(inside)[np.searchsorted(segment, np.arange(segment[-1] + 1))]
    found = {"mean": segment_means(score, segment), "size": np.bincount(segment)}
    if TOKENS in names:
        found[TOKENS] = np.bincount(segment, weights=block.table[TOKENS].to_numpy()[inside])
    if "document" in names:
        found["document"] = block.documents[first_rows]
    if GROUP in names:
        found[GROUP] = segment_groups(segment, block.table[GROUP].to_numpy()[inside])
    if "luck" in names:
        found["luck"] = _luck(block.table.select(["doc_id", "unit"]).take(first_rows), settings.seed)
    return found


def _luck(first_units: pa.Table, seed: int) -> np.ndarray:
    """The logarithm of each segment's number in (0, 1), a hash of its first unit, whatever the order of the pool."""
    ids = first_units["doc_id"].combine_chunks().dictionary_encode()
    of_documents = np.array([document_key(doc_id) for doc_id in ids.dictionary.to_pylist()], dtype=np.uint64)
    keys = keyed_units(of_documents[ids.indices.to_numpy()], first_units["unit"].to_numpy())
    return np.log(np.maximum(hash_uniform(derive_seed(seed, "weights", "sampled"), keys), 2.0**-60))


def _components(pool: Pool, segments: Segments, settings: WeighSettings) -> Components:
    """The analysis of variance of :meth:`dana.weighting.weights.Components.of`, in two passes more."""
    residual, mean = PairwiseSum(segments.units), segments.columns["mean"]
    for block in pool.blocks(["score"], settings, "segments"):
        inside, means = block.inside, mean.read(block.first, block.after)
        score = block.table["score"].to_numpy()
        residual.add(np.square(score[inside] - means[block.segment[inside] - block.first]))

    def total(of: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
        rows = zip(mean.blocks(), segments.columns["size"].blocks(), strict=True)
        return streamed_sum(segments.count, (of(means, sizes.astype(np.float64)) for means, sizes in rows))

    return Components.of(residual.value, segments.units, segments.count, total)
