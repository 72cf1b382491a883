"""Tokens of units: scores, corpus and a tokenizer to a column on disk, counted by as many processes as cores."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from dana.core.columns import DiskColumn
from dana.core.workers import workers
from dana.models.folder import load_own_tokenizer, tokenizer_identity
from dana.weighting.pool import UNIT, Pool
from dana.weighting.settings import WeighSettings
from dana.weighting.spans import Span, in_spans


@dataclass(frozen=True)
class CountingTokenizer:
    """A tokenizer that counts a budget: its core, which needs no transformers.

    Attributes:
        core: The content of a ``tokenizer.json``.
        split_special_tokens: Whether "[MASK]" in a text is text.
        digest: Of what decides how many tokens a text has, wherever it was loaded from.
    """

    core: str = field(repr=False)
    split_special_tokens: bool
    digest: str

    @classmethod
    def of(cls, settings: WeighSettings) -> "CountingTokenizer | None":
        """That of a weighing; None where the budget is not in tokens, and nothing is loaded.

        Raises:
            ArtifactError: If it cannot be read.
            ConfigError: If it is a slow one, which has no core.
        """
        if settings.kept.kind != "tokens":
            return None
        name = str(settings.tokenizer)
        if "torch" in sys.modules:
            return cls.load(name)
        with workers(1) as pool:  # transformers imports torch, 200 MB that would stay
            return pool.submit(cls.load, name).result()

    @classmethod
    def load(cls, name: str) -> "CountingTokenizer":
        """That of a folder or a Hub name, by transformers; raises as :meth:`of`."""
        tokenizer = load_own_tokenizer(name)
        split = tokenizer.split_special_tokens
        digest = tokenizer_identity(tokenizer, "are text" if split else "are tokens")
        return cls(tokenizer.backend_tokenizer.to_str(), split, digest)


def count_tokens(scores: Path, corpus: Path, tokenizer: CountingTokenizer, folder: Path) -> DiskColumn:
    """Tokens of each unit without special tokens, int32, in the order of the scores.

    Args:
        scores: Folder of the units.
        corpus: Folder of their documents.
        tokenizer: That counts.
        folder: For the column and the tokenizer.

    Raises:
        DataError: If a document is not in the corpus.
    """
    column, saved = DiskColumn(folder / "unit-tokens.raw", "i4"), folder / "tokenizer.json"
    saved.write_text(tokenizer.core, encoding="utf-8")
    count = partial(_count_span, scores, corpus, saved, tokenizer.split_special_tokens)
    for counts in in_spans(count, scores, corpus, "counting tokens"):
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


def _count_span(scores: Path, corpus: Path, core: Path, split: bool, number: int, span: Span) -> np.ndarray:
    count, texts = counter(core, split), span.texts(corpus)
    counts: list[int] = []
    for table in span.pool(scores).documents(list(UNIT)):
        for text, rows in texts.of(table):
            units = zip(table["start"][rows].to_pylist(), table["end"][rows].to_pylist(), strict=True)
            counts.extend(count([text[start:end] for start, end in units]))
    return np.array(counts, dtype=np.int32)


@lru_cache(1)  # a process counts in many spans
def counter(core: Path, split_special_tokens: bool) -> Callable[[list[str]], list[int]]:
    """A function that counts the tokens of each text, without special tokens.

    Args:
        core: File of a tokenizer's core.
        split_special_tokens: Whether "[MASK]" in a text is text.
    """
    tokenizer = Tokenizer.from_file(str(core))
    tokenizer.encode_special_tokens = split_special_tokens
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda texts: [len(text) for text in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
