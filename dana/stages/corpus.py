"""General text as an artifact: every later step reads these documents and no others."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from dana.artifacts import Artifact, Draft, make
from dana.corpus.documents import Tally, read_documents, source_digests
from dana.errors import DataError
from dana.logging import get_logger, tracked
from dana.schemas import DOCUMENTS, Document, write_parts
from dana.stages.hygiene import Cleaner, Hygiene

log = get_logger(__name__)

ROWS_AT_ONCE = 4096


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
        documents = tracked(read_documents(sources, on_bad_record, tally), what="reading", unit="documents")
        write_parts(document_tables(cleaner.pool(documents, tally, draft)), draft.path, DOCUMENTS)
        if not tally.kept:
            raise DataError(f"{', '.join(sources)}: no document left: {tally}")
        draft.counts.update(tally.as_dict())
        log.info("corpus    %s", tally)

    return make(folder, "corpus", depends_on, write)


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
