"""Tokenised corpus: documents in, one stream of token ids with the last character of each token out.

Text is tokenised once; whatever the weights keep of it is cut out of the stream afterwards, so that a change of
weights, arm or window length costs no tokenising.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.logging import tracked
from dana.core.schemas import Document, parts, read_batches, table_schema, write_parts
from dana.core.tensors import ArrayWriter, map_arrays
from dana.models.folder import uncut

FILE = "tokens.safetensors"
TOKENISED = table_schema(doc_id=pa.string(), tokens=pa.int64(), characters=pa.int64())
DOCUMENTS_AT_ONCE = 512  # enough for the tokenizer's threads, little enough to hold their offsets


@dataclass(frozen=True)
class Tokenised:
    """One document's place in the stream.

    Attributes:
        doc_id: Its id.
        first: Its first token.
        after: The token behind its last.
        characters: Length of its text.
    """

    doc_id: str
    first: int
    after: int
    characters: int


@dataclass(frozen=True)
class Tokens:
    """A tokenised corpus, without special tokens, documents end to end.

    Attributes:
        ids: Integers of shape (tokens,), in memory or mapped from disk.
        last: uint32 of shape (tokens,), the last character of each token in its document, never falling
            within a document. (The first may be a space before the word, the last never is behind it.)
        batches: Gives the documents, :data:`TOKENISED`, in memory or from a folder.
    """

    ids: np.ndarray
    last: np.ndarray
    batches: Callable[[], Iterable[pa.RecordBatch]]

    @classmethod
    def open(cls, folder: Path) -> "Tokens":
        """What :func:`write_tokens` wrote, mapped.

        Raises:
            ArtifactError: If the file is missing or broken.
        """
        arrays = map_arrays(folder / FILE)
        names = TOKENISED.names
        return cls(**arrays, batches=lambda: (some for part in parts(folder) for some in read_batches(part, names)))

    @classmethod
    def of(cls, documents: Iterable[Document], tokenizer: Any) -> "Tokens":
        """Tokenise a little text in memory."""
        empty = np.zeros(0, dtype=np.uint32)
        ids, last, tables = zip((empty, empty, TOKENISED.empty_table()), *tokenise(documents, tokenizer), strict=True)
        return cls(np.concatenate(ids), np.concatenate(last), pa.concat_tables(tables).to_batches)

    def documents(self) -> Iterator[Tokenised]:
        """Every document in corpus order."""
        after = 0
        for batch in self.batches():
            for doc_id, tokens, characters in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield Tokenised(doc_id, after, after + tokens, characters)
                after += tokens


def tokenise(documents: Iterable[Document], tokenizer: Any) -> Iterator[tuple[np.ndarray, np.ndarray, pa.Table]]:
    """Token ids, last characters and a table of documents, some hundred documents at a time.

    Args:
        documents: In corpus order.
        tokenizer: A fast Hugging Face tokenizer; its threads share the work.

    Raises:
        ConfigError: If the tokenizer is slow: it does not know where its tokens end.
    """
    whole, stream = uncut(tokenizer), iter(documents)
    while some := list(islice(stream, DOCUMENTS_AT_ONCE)):
        encodings = whole.encode_batch([document.text for document in some], add_special_tokens=False)
        ids = [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]
        last = [
            np.maximum.accumulate(np.array([max(first, end - 1) for first, end in encoding.offsets], dtype=np.uint32))
            for encoding in encodings
        ]
        rows = {
            "doc_id": [document.doc_id for document in some],
            "tokens": [one.size for one in ids],
            "characters": [len(document.text) for document in some],
        }
        yield np.concatenate(ids), np.concatenate(last), pa.Table.from_pydict(rows, schema=TOKENISED)


def write_tokens(documents: Iterable[Document], tokenizer: Any, folder: Path, total: int | None = None) -> int:
    """Tokenise a corpus into a folder: ``tokens.safetensors`` (ids, last) and ``part-*.parquet`` (documents).

    Args:
        documents: In corpus order.
        tokenizer: A fast tokenizer.
        folder: Where; it must exist.
        total: How many documents there are, for the progress bar.

    Returns:
        The number of tokens.
    """
    small = len(tokenizer) <= 1 << 16
    writer = ArrayWriter(folder / FILE, {"ids": "uint16" if small else "uint32", "last": "uint32"})
    tokens = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal tokens
        counted = tracked(documents, what="tokenise", unit="documents", total=total)
        for ids, last, table in tokenise(counted, tokenizer):
            writer.append(ids=ids, last=last)
            tokens += ids.size
            yield table

    write_parts(tables(), folder, TOKENISED)
    writer.close()
    return tokens
