"""The documents of a score table: where each begins, its text, and the tokens of its units."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.errors import DataError
from dana.core.schemas import Document, iterate_documents


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
    """Texts of a corpus, asked for document by document in its order, one in memory at a time.

    Args:
        corpus: Folder of the documents.
    """

    def __init__(self, corpus: Path) -> None:
        self._corpus, self._documents = corpus, iterate_documents(corpus)
        self._now: Document | None = None

    def of(self, table: pa.Table) -> Iterator[tuple[str, str, slice]]:
        """Each document's id, text and rows in a table of its units; documents without units are passed over.

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
            while self._now is None or self._now.doc_id != doc_id:
                self._now = next(self._documents, None)
                if self._now is None:
                    raise DataError(f"{self._corpus}: document {doc_id!r} of the scores is not there, or out of order")
            yield doc_id, self._now.text, slice(first, last)


def token_counts(table: pa.Table, texts: Texts, tokenizer: Any) -> np.ndarray:
    """Tokens of each unit without special tokens, float64 of shape (units,).

    Args:
        table: See :meth:`Texts.of`.
        texts: Of its documents.
        tokenizer: A Hugging Face tokenizer.
    """
    counts: list[int] = []
    for _, text, rows in texts.of(table):
        spans = zip(table["start"][rows].to_pylist(), table["end"][rows].to_pylist(), strict=True)
        encoded = tokenizer([text[start:end] for start, end in spans], add_special_tokens=False, verbose=False)
        counts.extend(map(len, encoded["input_ids"]))
    return np.array(counts, dtype=np.float64)
