"""Documents to pyarrow tables of some thousand rows, for :func:`dana.core.schemas.write_parts`."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from dana.core.schemas import DOCUMENTS, Document

ROWS_AT_ONCE = 4096


def document_tables(documents: Iterable[Document]) -> Iterator[pa.Table]:
    """Stream documents as tables of :data:`dana.core.schemas.DOCUMENTS`, at most 4,096 rows each."""
    waiting: list[Document] = []
    for document in documents:
        waiting.append(document)
        if len(waiting) == ROWS_AT_ONCE:
            yield _table(waiting)
            waiting = []
    yield _table(waiting)


def _table(rows: list[Document]) -> pa.Table:
    return pa.Table.from_pydict({name: [getattr(row, name) for row in rows] for name in DOCUMENTS.names}, DOCUMENTS)
