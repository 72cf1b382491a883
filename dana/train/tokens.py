"""Tokenise a pool once into one stream of token ids, with the position of the last character of each token.

Examples are cut out of the stream afterwards, so new weights, arms or window lengths need no new
tokenising.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.logging import monitor
from dana.core.schemas import Document, read_rows, table_schema, write_parts
from dana.core.tensors import ArrayWriter, map_arrays
from dana.models.folder import uncut

FILE = "tokens.safetensors"
DOCUMENT_LENGTHS = table_schema(doc_id=pa.string(), tokens=pa.int64(), characters=pa.int64())
# Enough for the tokenizer's threads, few enough to hold their offsets in memory.
DOCUMENTS_AT_ONCE = 512


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
    """A tokenised pool, without special tokens, documents end to end.

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
        return cls(**arrays, batches=lambda: read_rows(folder, DOCUMENT_LENGTHS.names))

    @classmethod
    def from_documents(cls, documents: Iterable[Document], tokenizer: Any) -> "Tokens":
        """Tokenise documents in memory."""
        ids = [np.zeros(0, dtype=np.uint32)]
        last = [np.zeros(0, dtype=np.uint32)]
        tables = [DOCUMENT_LENGTHS.empty_table()]
        for block_ids, block_last, table in tokenise(documents, tokenizer):
            ids.append(block_ids)
            last.append(block_last)
            tables.append(table)
        return cls(np.concatenate(ids), np.concatenate(last), pa.concat_tables(tables).to_batches)

    def characters_per_token(self) -> float:
        """Return the mean length of a token in characters, by which losses of tokenizers compare."""
        characters = sum(document.characters for document in self.documents())
        return characters / max(1, self.ids.size)

    def documents(self) -> Iterator[DocumentSpan]:
        """Yield every document in pool order."""
        after = 0
        for batch in self.batches():
            columns = [column.to_pylist() for column in batch.columns]
            for doc_id, tokens, characters in zip(*columns, strict=True):
                yield DocumentSpan(doc_id, after, after + tokens, characters)
                after += tokens


def tokenise(
    documents: Iterable[Document], tokenizer: Any, selected: Collection[str] | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray, pa.Table]]:
    """Tokenise documents in blocks; yields token ids, last characters and the table of documents of each block.

    Args:
        documents: Documents in pool order.
        tokenizer: A fast Hugging Face tokenizer; its threads share the work.
        selected: Ids of the documents that get tokens; None gives all of them some.

    Raises:
        ConfigError: If the tokenizer is a slow one, which does not report where its tokens end.
    """
    encoder = uncut(tokenizer)
    stream = iter(documents)
    while True:
        block = list(islice(stream, DOCUMENTS_AT_ONCE))
        if not block:
            return
        texts = [
            document.text if selected is None or document.doc_id in selected else ""
            for document in block
        ]
        ids = []
        last = []
        for encoding in encoder.encode_batch(texts, add_special_tokens=False):
            ids.append(np.array(encoding.ids, dtype=np.uint32))
            positions = [max(first, end - 1) for first, end in encoding.offsets]
            last.append(np.maximum.accumulate(np.array(positions, dtype=np.uint32)))
        lengths = {
            "doc_id": [document.doc_id for document in block],
            "tokens": [document_ids.size for document_ids in ids],
            "characters": [len(document.text) for document in block],
        }
        table = pa.Table.from_pydict(lengths, schema=DOCUMENT_LENGTHS)
        yield np.concatenate(ids), np.concatenate(last), table


def write_tokens(
    documents: Iterable[Document],
    tokenizer: Any,
    folder: Path,
    total: int | None = None,
    selected: Collection[str] | None = None,
) -> int:
    """Tokenise a pool into a folder: ``tokens.safetensors`` (ids, last) and ``part-*.parquet`` (documents).

    Args:
        documents: Documents in pool order.
        tokenizer: A fast tokenizer.
        folder: Target folder; must exist.
        total: Number of documents, for the progress bar.
        selected: See :func:`tokenise`.

    Returns:
        The number of tokens.
    """
    largest_id = max(tokenizer.get_vocab().values())  # there may be fewer tokens than ids
    id_type = "uint16" if largest_id < 1 << 16 else "uint32"
    writer = ArrayWriter(folder / FILE, {"ids": id_type, "last": "uint32"})
    tokens = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal tokens
        documents_with_progress = monitor(documents, what="tokenise", unit="documents", total=total)
        for ids, last, table in tokenise(documents_with_progress, tokenizer, selected):
            writer.append(ids=ids, last=last)
            tokens += ids.size
            yield table

    write_parts(tables(), folder, DOCUMENT_LENGTHS)
    writer.close()
    return tokens
