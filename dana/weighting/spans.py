"""Spans of a table of units: pieces of whole documents, each with its place in the corpus, that processes share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from dana.core.launch import cores
from dana.core.logging import progress
from dana.core.schemas import count_rows, parts, read_rows
from dana.core.workers import shared_out
from dana.weighting.documents import Texts, document_starts, not_in_order
from dana.weighting.pool import Pool

UNITS = 1 << 19  # of a span, and on to the end of its last document
MOST = 8  # processes: each holds 160 to 180 MB

T = TypeVar("T")


@dataclass(frozen=True)
class Span:
    """Neighbouring units of whole documents, and where their text is.

    Attributes:
        first: The first row.
        last: The row behind the last one.
        document: Row in the corpus of the first document, or of one before it.
    """

    first: int
    last: int
    document: int

    def pool(self, table: Path) -> Pool:
        """The units, as a table of all of them has them."""
        return Pool.of_rows(table, self.first, self.last)

    def texts(self, corpus: Path) -> Texts:
        """Texts of the documents."""
        return Texts(corpus, self.document)


def in_spans(make: Callable[[int, Span], T], table: Path, corpus: Path, what: str) -> Iterator[T]:
    """What is made of each span of a table, in order; by as many processes as there are cores, eight at most.

    The spans, and so all that is made of them, are the same for any number of processes.

    Args:
        make: Called with a span's number and the span; it, and what it returns, can be pickled.
        table: Folder of the units, at least one.
        corpus: Folder of their documents.
        what: Is made, for the progress bar.

    Raises:
        DataError: If a document is not in the corpus, or not in this order.
        DanaError: If a process was killed.
    """
    spans = _spans(table, corpus)
    with progress(what=what, unit="units", total=spans[-1].last) as bar:
        count = min(cores(), MOST, len(spans))
        for span, made in zip(spans, shared_out(make, enumerate(spans), count), strict=True):
            bar.update(span.last - span.first)
            yield made


def _spans(table: Path, corpus: Path) -> list[Span]:
    rows = sum(map(count_rows, parts(table)))
    begins = dict.fromkeys([0, *(_next_document(table, row, rows) for row in range(UNITS, rows, UNITS))])
    first = [row for row in begins if row < rows]
    names = [next(read_rows(table, ["doc_id"], row, row + 1)).column(0)[0] for row in first[1:]]
    return [Span(*about) for about in zip(first, [*first[1:], rows], [0, *_places(names, corpus)], strict=True)]


def _next_document(table: Path, row: int, rows: int) -> int:
    """The first row from `row` on that begins a document; behind the last one if none does."""
    before, first = None, row - 1
    for batch in read_rows(table, ["doc_id", "unit"], first):
        here = pa.Table.from_batches([batch] if before is None else [before, batch])
        if (starts := document_starts(here)).size > 1:
            return first + int(starts[1])
        before, first = batch.slice(batch.num_rows - 1), first + here.num_rows - 1
    return rows


def _places(names: list[pa.StringScalar], corpus: Path) -> Iterator[int]:
    """Rows in the corpus of documents that are in its order."""
    left, row = names[::-1], 0
    for batch in read_rows(corpus, ["doc_id"]) if left else ():
        while left and (place := pc.index(batch.column(0), left[-1]).as_py()) >= 0:
            left.pop()
            yield row + place
        row += batch.num_rows
    if left:
        raise not_in_order(corpus, left[-1].as_py())
