"""The documents of a score table: where each begins, and its text."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from dana.core.errors import DataError
from dana.core.schemas import read_rows


def document_starts(table: pa.Table) -> np.ndarray:
    """Row of each document's first unit, int64 of shape (documents,), ascending.

    Args:
        table: With ``doc_id`` and ``unit``, the rows of a document together. Its first units may be missing.
    """
    unit = table["unit"].to_numpy()
    document = table["doc_id"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return np.flatnonzero((np.diff(document, prepend=-1) != 0) | (unit == 0))


def document_numbers(table: pa.Table) -> np.ndarray:
    """Document of each unit, numbered from 0 in their order; int64 of shape (units,).

    Args:
        table: See :func:`document_starts`.
    """
    first = np.zeros(table.num_rows, dtype=np.int64)
    first[document_starts(table)] = 1
    return np.cumsum(first) - 1


class Texts:
    """Texts of a corpus, asked for document by document in its order, a few of them in memory at a time.

    Args:
        corpus: Folder of the documents.
        first: Row of the first that will be asked for, or of one before it.
    """

    def __init__(self, corpus: Path, first: int = 0) -> None:
        self._corpus = corpus
        self._documents = _named_texts(corpus, first)
        self._now: tuple[str, pa.StringScalar] | None = None
        self._text: str | None = None

    def named(self, doc_id: str) -> str:
        """The text of a document, the same as the last one asked for or one behind it.

        Raises:
            DataError: If it is not in the corpus, or not in this order.
        """
        while self._now is None or self._now[0] != doc_id:
            self._now, self._text = next(self._documents, None), None
            if self._now is None:
                raise not_in_order(self._corpus, doc_id)
        if self._text is None:  # decoded once, however often it is asked for: a document may be a large file
            self._text = self._now[1].as_py()
        return self._text

    def of(self, table: pa.Table) -> Iterator[tuple[str, slice]]:
        """Each document's text and rows in a table of its units; documents without units are passed over.

        Args:
            table: Of :data:`dana.core.schemas.SCORES`, in the order of the corpus; its first document may be the last
                of the table before.

        Raises:
            DataError: If a document is not in the corpus, or not in this order.
        """
        starts = document_starts(table)
        ends = np.append(starts[1:], table.num_rows)
        ids = table["doc_id"].take(starts).to_pylist()
        for doc_id, first, last in zip(ids, starts.tolist(), ends.tolist(), strict=True):
            yield self.named(doc_id), slice(first, last)


def _named_texts(corpus: Path, first: int) -> Iterator[tuple[str, pa.StringScalar]]:
    """Name and text of each document from a row on; the text still in Arrow's memory, since most are passed over."""
    for batch in read_rows(corpus, ["doc_id", "text"], first, rows=1 << 10):
        yield from zip(batch.column("doc_id").to_pylist(), batch.column("text"), strict=True)


def not_in_order(corpus: Path, doc_id: str) -> DataError:
    """What is wrong where a scored document is not found."""
    return DataError(f"{corpus}: document {doc_id!r} of the scores is not there, or out of order")
