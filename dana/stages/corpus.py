"""General text as an artifact: every later step reads these documents and no others."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from dana.artifacts import Artifact, Draft, make
from dana.corpus.documents import Tally, read_documents, source_digests
from dana.corpus.readers import HUB, expand
from dana.errors import DataError
from dana.logging import get_logger, tracked
from dana.schemas import DOCUMENTS, Document, write_parts
from dana.stages.hygiene import Cleaner, Hygiene

log = get_logger(__name__)

ROWS_AT_ONCE = 4096
SHARED_FROM = 1 << 28  # bytes of text from which on several processes read


def corpus_stage(
    sources: Sequence[str], folder: Path, on_bad_record: str = "fail", cleaner: Cleaner | None = None
) -> Artifact:
    """Read, clean, de-duplicate and store documents, streamed.

    Args:
        sources: Files, folders, globs, ``hf:`` names.
        folder: Where ``part-*.parquet`` (:data:`dana.schemas.DOCUMENTS`) goes.
        on_bad_record: ``fail`` or ``skip``.
        cleaner: Leaves out what hygiene asks for; None keeps every text.

    Raises:
        DataError: If a source is missing or empty, a record is bad, or no document is left.
    """
    cleaner = cleaner or Cleaner(Hygiene())
    files = source_digests(sources)
    depends_on = {"files": files, "order": list(files), "on_bad_record": on_bad_record}
    depends_on |= cleaner.identity(near_duplicates=True)

    def write(draft: Draft) -> None:
        tally = Tally()
        read = read_documents(sources, on_bad_record, tally, processes_for(files_of(sources)))
        documents = tracked(read, what="reading", unit="documents")
        write_parts(document_tables(cleaner.pool(documents, tally, draft)), draft.path, DOCUMENTS)
        if not tally.kept:
            raise DataError(f"{', '.join(sources)}: no document left: {tally}")
        draft.counts.update(tally.as_dict())
        log.info("corpus    %s", tally)

    return make(folder, "corpus", depends_on, write)


def files_of(sources: Sequence[str]) -> list[Path]:
    """The local files of all sources."""
    return [path for source in sources if not source.startswith(HUB) for path in expand(source)]


def processes_for(files: Sequence[Path]) -> int:
    """How many processes read: one unless there is so much that starting others pays."""
    size = sum(path.stat().st_size for path in files)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if size >= SHARED_FROM else 1


def document_tables(documents: Iterable[Document]) -> Iterator[pa.Table]:
    """Documents as tables of :data:`dana.schemas.DOCUMENTS`, some thousand rows each."""
    waiting: list[Document] = []
    for document in documents:
        waiting.append(document)
        if len(waiting) == ROWS_AT_ONCE:
            yield _table(waiting)
            waiting = []
    yield _table(waiting)


def _table(rows: list[Document]) -> pa.Table:
    return pa.Table.from_pydict({name: [getattr(row, name) for row in rows] for name in DOCUMENTS.names}, DOCUMENTS)
