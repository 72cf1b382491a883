"""Tokens of units: scores, corpus and a tokenizer to a column on disk, counted by as many processes as cores."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.artifacts import fingerprint
from dana.core.columns import DiskColumn
from dana.core.errors import ArtifactError
from dana.core.files import file_digest
from dana.models.folder import load_own_tokenizer
from dana.models.tokenizer import tokenizer_identity
from dana.weighting.documents import Texts
from dana.weighting.pool import UNIT, Pool
from dana.weighting.settings import WeighSettings
from dana.weighting.spans import Span, in_spans


@dataclass(frozen=True)
class CountingTokenizer:
    """A tokenizer that counts a budget.

    Attributes:
        name: Folder or Hub name.
        digest: Of its content, which may change under the name.
    """

    name: str
    digest: str

    @classmethod
    def of(cls, settings: WeighSettings) -> "CountingTokenizer | None":
        """That of a weighing; None where the budget is not in tokens, and nothing is loaded.

        Raises:
            ArtifactError: If it cannot be read.
        """
        if settings.kept.kind != "tokens":
            return None
        name = str(settings.tokenizer)
        return cls(name, _digest(load_own_tokenizer(name)))

    def load(self) -> Any:
        """The Hugging Face tokenizer.

        Raises:
            ArtifactError: If it cannot be read, or is another one by now.
        """
        tokenizer = load_own_tokenizer(self.name)
        if _digest(tokenizer) != self.digest:
            raise ArtifactError(f"{self.name}: its tokenizer changed while tokens were counted; run the command again")
        return tokenizer


def _digest(tokenizer: Any) -> str:
    """Digest of what decides how many tokens a text has; of a slow tokenizer, of the files it would be saved as."""
    special = "are text" if tokenizer.split_special_tokens else "are tokens"
    if tokenizer.is_fast:
        return tokenizer_identity(tokenizer, special)
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return fingerprint({file.name: file_digest(file) for file in Path(folder).iterdir() if file.is_file()})


def count_tokens(scores: Path, corpus: Path, tokenizer: CountingTokenizer, folder: Path) -> DiskColumn:
    """Tokens of each unit without special tokens, int32, in the order of the scores.

    Args:
        scores: Folder of the units.
        corpus: Folder of their documents.
        tokenizer: That counts.
        folder: For the column.

    Raises:
        ArtifactError: If the tokenizer cannot be read, or is another one by now.
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


def _count_span(scores: Path, corpus: Path, tokenizer: CountingTokenizer, number: int, span: Span) -> np.ndarray:
    loaded, texts = _loaded(tokenizer), span.texts(corpus)
    counts = [token_counts(table, texts, loaded) for table in span.pool(scores).documents(list(UNIT))]
    return np.concatenate(counts)


_loaded = lru_cache(1)(CountingTokenizer.load)  # a process takes many spans; of one tokenizer's content


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
