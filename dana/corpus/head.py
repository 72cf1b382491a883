"""Read the first documents of every file, and estimate the number of all from their size."""

import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq

from dana.core.errors import ConfigError
from dana.core.lines import codec_of
from dana.core.schemas import Document
from dana.core.storage import File, file_size, pyarrow_source
from dana.corpus.documents import Tally, read_documents
from dana.corpus.hub import is_hub
from dana.corpus.inputs import Inputs
from dana.corpus.sources import Source, expand, find_files, format_of

RECORD_SHARE = 1.05  # size of a record relative to that of its text


def sample_documents(
    sources: Sequence[str], out: Path, inputs: Inputs, on_bad_record: str, count: int
) -> tuple[list[Document], float]:
    """Read the head of every file; return its documents, and the estimated number in all.

    Args:
        sources: Files, folders, globs and URLs.
        out: Folder of the run, which is not read.
        inputs: How records become documents.
        on_bad_record: ``fail`` or ``skip``.
        count: Number of documents to read over all files, at least one of each.

    Raises:
        ConfigError: If there is no document, or a source is a streamed data set.
    """
    for dataset in filter(is_hub, sources):
        raise ConfigError(f"{dataset}: is streamed, so its size is unknown; name files")
    files: list[tuple[Source, File]] = []
    for source in find_files(sources, out):
        files += [(source, file) for file in expand(source)]
    count_per_file = max(1, count // len(files))
    documents: list[Document] = []
    total = 0.0
    tally = Tally()
    for source, file in files:
        records = read_documents([source], on_bad_record, tally, inputs=inputs)
        head = list(islice(records, count_per_file))
        documents += head
        if len(head) < count_per_file:
            total += len(head)
        else:
            total += _count_documents(file, head)
    if not documents:
        raise ConfigError(f"{', '.join(sources)}: no document in the sample")
    return documents, total


def _count_documents(file: File, head: Sequence[Document]) -> float:
    """Count the rows of a Parquet file; estimate those of another from the size of its head."""
    if format_of(file) == ".parquet":
        rows: int = pq.read_metadata(pyarrow_source(file)).num_rows
        return rows
    text = "\n".join(document.text for document in head).encode("utf-8", "replace")
    size_of_head = len(text) * RECORD_SHARE
    if codec_of(file) is not None:
        size_of_head = len(zlib.compress(text, 6))
    return file_size(file) * len(head) / size_of_head
