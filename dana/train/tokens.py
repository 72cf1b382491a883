"""Tokenise a corpus once into one stream of token ids, with the position of the last character of each token.

Examples are cut out of the stream afterwards, so new weights, arms or window lengths need no new
tokenising.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.logging import monitor
from dana.core.schemas import Document, part_files, read_batches, table_schema, write_parts
from dana.core.tensors import ArrayWriter, map_arrays
from dana.models.folder import uncut

FILE = "tokens.safetensors"
DOCUMENT_LENGTHS = table_schema(doc_id=pa.string(), tokens=pa.int64(), characters=pa.int64())
DOCUMENTS_AT_ONCE = (
    512  # enough for the tokenizer's threads, few enough to hold their offsets in memory
)


@dataclass(frozen=True)
class DocumentSpan:
    """The tokens ``first:after`` of one document in the stream.

    Attributes:
        doc_id: Id of the document.
        first: Index of its first token.
        after: Index after its last token.
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
        last: uint32 of shape (tokens,), position of each token's last character in its document,
            ascending within a document. (A token's first character may be the space before its
            word; its last one is always its own.)
        batches: Returns the table of documents, :data:`DOCUMENT_LENGTHS`, in memory or from a
            folder.
    """

    ids: np.ndarray
    last: np.ndarray
    batches: Callable[[], Iterable[pa.RecordBatch]]

    @classmethod
    def open(cls, folder: Path) -> "Tokens":
        """Map the files of :func:`write_tokens`.

        Raises:
            ArtifactError: If the file is missing or damaged.
        """
        arrays = map_arrays(folder / FILE)
        parts, names = part_files(folder), DOCUMENT_LENGTHS.names
        return cls(
            **arrays, batches=lambda: (rows for part in parts for rows in read_batches(part, names))
        )

    @classmethod
    def of(cls, documents: Iterable[Document], tokenizer: Any) -> "Tokens":
        """Tokenise documents in memory."""
        empty = np.zeros(0, dtype=np.uint32)
        nothing = (empty, empty, DOCUMENT_LENGTHS.empty_table())
        ids, last, tables = zip(nothing, *tokenise(documents, tokenizer), strict=True)
        return cls(np.concatenate(ids), np.concatenate(last), pa.concat_tables(tables).to_batches)

    def documents(self) -> Iterator[DocumentSpan]:
        """Yield every document in corpus order."""
        after = 0
        for batch in self.batches():
            for doc_id, tokens, characters in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            ):
                yield DocumentSpan(doc_id, after, after + tokens, characters)
                after += tokens


def tokenise(
    documents: Iterable[Document], tokenizer: Any
) -> Iterator[tuple[np.ndarray, np.ndarray, pa.Table]]:
    """Tokenise documents in blocks; yields token ids, last characters and the table of documents of each block.

    Args:
        documents: Documents in corpus order.
        tokenizer: A fast Hugging Face tokenizer; its threads share the work.

    Raises:
        ConfigError: If the tokenizer is a slow one, which does not report where its tokens end.
    """
    encoder, stream = uncut(tokenizer), iter(documents)
    while block := list(islice(stream, DOCUMENTS_AT_ONCE)):
        encodings = encoder.encode_batch(
            [document.text for document in block], add_special_tokens=False
        )
        ids = [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]
        offsets = (
            [max(first, end - 1) for first, end in encoding.offsets] for encoding in encodings
        )
        last = [
            np.maximum.accumulate(np.array(positions, dtype=np.uint32)) for positions in offsets
        ]
        rows: dict[str, list] = {
            "doc_id": [document.doc_id for document in block],
            "tokens": [one.size for one in ids],
        }
        rows |= {"characters": [len(document.text) for document in block]}
        yield (
            np.concatenate(ids),
            np.concatenate(last),
            pa.Table.from_pydict(rows, schema=DOCUMENT_LENGTHS),
        )


def write_tokens(
    documents: Iterable[Document], tokenizer: Any, folder: Path, total: int | None = None
) -> int:
    """Tokenise a corpus into a folder: ``tokens.safetensors`` (ids, last) and ``part-*.parquet`` (documents).

    Args:
        documents: Documents in corpus order.
        tokenizer: A fast tokenizer.
        folder: Target folder; must exist.
        total: Number of documents, for the progress bar.

    Returns:
        The number of tokens.
    """
    small = max(tokenizer.get_vocab().values()) < 1 << 16  # there may be fewer tokens than ids
    writer = ArrayWriter(folder / FILE, {"ids": "uint16" if small else "uint32", "last": "uint32"})
    tokens = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal tokens
        documents_with_progress = monitor(documents, what="tokenise", unit="documents", total=total)
        for ids, last, table in tokenise(documents_with_progress, tokenizer):
            writer.append(ids=ids, last=last)
            tokens += ids.size
            yield table

    write_parts(tables(), folder, DOCUMENT_LENGTHS)
    writer.close()
    return tokens
