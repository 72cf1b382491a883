"""Runs of kept text: a tokenised corpus and the weights of its units in, stretches of neighbouring kept units out."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from dana.core.errors import DataError
from dana.core.schemas import parts, read_batches
from dana.train.sequences.tokens import Tokenised, Tokens


@dataclass(frozen=True)
class Run:
    """Text that was kept without a gap.

    Attributes:
        document: Its document.
        start: Its first character in the document.
        end: The character behind its last.
        unit_starts: Shape (units,), ascending, where each unit starts in the document.
        unit_weights: Shape (units,), λ of each.
    """

    document: Tokenised
    start: int
    end: int
    unit_starts: np.ndarray
    unit_weights: np.ndarray

    def bounds(self, inside: np.ndarray) -> np.ndarray:
        """Shape (2,): its first token, and the one behind its last, among those of its document.

        Args:
            inside: The last character of each of the document's tokens.
        """
        return np.searchsorted(inside, np.array([self.start, self.end], dtype=inside.dtype))


def corpus_runs(tokens: Tokens, weights: Path | None, exclude: Collection[str], counts: Counter[str]) -> Iterator[Run]:
    """Every run of a corpus that holds a token, in order; without weights a document is one run of weight 1.

    Args:
        tokens: The corpus.
        weights: Folder of :data:`dana.core.schemas.WEIGHTS` in corpus order.
        exclude: Ids of documents to leave out whatever their weights.
        counts: Documents are counted here: in = kept + left out (nothing of weight, or no token) + excluded.

    Raises:
        DataError: If the weights name a document that is not next in the corpus.
    """
    groups = weights_by_document(weights) if weights else iter(())
    doc_id, rows = next(groups, (None, None))
    start, weight = np.zeros(1, dtype=np.int64), np.ones(1)
    for document in tokens.documents():
        runs = [] if weights else [Run(document, 0, document.characters, start, weight)]
        if rows is not None and doc_id == document.doc_id:
            runs = kept_runs(document, rows)
            doc_id, rows = next(groups, (None, None))
        inside = tokens.last[document.first : document.after]
        runs = [run for run in runs if np.diff(run.bounds(inside)) > 0]
        excluded = document.doc_id in exclude
        counts["documents_in"] += 1
        counts["documents_excluded"] += excluded
        counts["documents_left_out"] += not excluded and not runs
        counts["documents_kept"] += not excluded and bool(runs)
        if not excluded:
            yield from runs
    if doc_id is not None:
        raise DataError(f"{weights}: document {doc_id!r} is not next in the corpus; weigh this corpus")


def weights_by_document(weights: Path) -> Iterator[tuple[str, pa.Table]]:
    """Each document's rows of a weights folder, in order, a batch in memory at a time."""
    columns = ["doc_id", "unit", "start", "end", "segment", "weight"]
    waiting: pa.Table | None = None
    for part in parts(weights):
        for batch in read_batches(part, columns):
            table = pa.Table.from_batches([batch])
            waiting = table if waiting is None else pa.concat_tables([waiting, table]).combine_chunks()
            *whole, last = _split(waiting)
            yield from whole
            waiting = last[1]  # its document may go on in the next batch
    if waiting is not None and waiting.num_rows:
        yield from _split(waiting)


def _split(table: pa.Table) -> list[tuple[str, pa.Table]]:
    names = table["doc_id"].to_numpy(zero_copy_only=False)
    bounds = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), names.size]
    return [(names[first], table.slice(first, last - first)) for first, last in pairwise(bounds)]


def kept_runs(document: Tokenised, rows: pa.Table) -> list[Run]:
    """Runs of one document: its kept units, broken wherever a unit between them was not kept.

    Raises:
        DataError: If a span ends behind the document.
    """
    unit, start, end = (rows[name].to_numpy() for name in ("unit", "start", "end"))
    weight = rows["weight"].to_numpy()
    kept = np.flatnonzero((weight > 0) & (rows["segment"].to_numpy() >= 0))
    if end.size and end.max() > document.characters:
        raise DataError(f"weights of {document.doc_id!r} reach character {end.max()}, but it has {document.characters}")
    breaks = np.flatnonzero(np.diff(unit[kept]) != 1) + 1
    return [
        Run(document, int(start[run[0]]), int(end[run[-1]]), start[run], weight[run].astype(np.float64))
        for run in np.split(kept, breaks)
        if run.size
    ]
