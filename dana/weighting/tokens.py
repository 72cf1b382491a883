"""Tokens of units: scores, corpus and a tokenizer to a column on disk, counted by as many processes as cores."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.columns import DiskColumn
from dana.models.folder import load_own_tokenizer
from dana.weighting.documents import Texts
from dana.weighting.pool import UNIT, Pool
from dana.weighting.spans import Span, in_spans


def count_tokens(scores: Path, corpus: Path, tokenizer: str, folder: Path) -> DiskColumn:
    """Tokens of each unit without special tokens, int32, in the order of the scores.

    Args:
        scores: Folder of the units.
        corpus: Folder of their documents.
        tokenizer: Folder or Hub name.
        folder: For the column.

    Raises:
        ArtifactError: If the tokenizer cannot be read.
        DataError: If a document is not in the corpus.
    """
    column = DiskColumn(folder / "unit-tokens.raw", "i4")
    for counts in in_spans(partial(_count_span, scores, corpus, tokenizer), scores, corpus, "counting tokens"):
        column.append(counts)
    return column


def with_tokens(pool: Pool, counted: DiskColumn) -> Pool:
    """A pool with ``tokens``, float64.

    Args:
        pool: The units.
        counted: Of the same units.
    """

    def make() -> Callable[[pa.Table], np.ndarray]:
        row = 0

        def of(table: pa.Table) -> np.ndarray:
            nonlocal row
            first, row = row, row + table.num_rows
            return counted.read(first, row).astype(np.float64)

        return of

    return pool.with_column("tokens", ["doc_id"], make)


def _count_span(scores: Path, corpus: Path, tokenizer: str, number: int, span: Span) -> np.ndarray:
    load, texts = _tokenizer(tokenizer), span.texts(corpus)
    counts = [token_counts(table, texts, load) for table in span.pool(scores).documents(list(UNIT))]
    return np.concatenate(counts)


_tokenizer = cache(load_own_tokenizer)  # a process takes many spans


def token_counts(table: pa.Table, texts: Texts, tokenizer: Any) -> np.ndarray:
    """Tokens of each unit without special tokens, int32 of shape (units,).

    Args:
        table: See :meth:`dana.weighting.documents.Texts.of`.
        texts: Of its documents.
        tokenizer: A Hugging Face tokenizer.
    """
    counts: list[int] = []
    for text, rows in texts.of(table):
        spans = zip(table["start"][rows].to_pylist(), table["end"][rows].to_pylist(), strict=True)
        encoded = tokenizer([text[start:end] for start, end in spans], add_special_tokens=False, verbose=False)
        counts.extend(map(len, encoded["input_ids"]))
    return np.array(counts, dtype=np.int32)
