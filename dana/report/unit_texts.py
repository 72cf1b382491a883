"""Texts of documents and of units, by their keys, from a corpus on disk."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dana.core.schemas import parts


def documents_of(corpus: Path, wanted: pa.Array) -> dict[str, str]:
    """Texts of some documents by their ids; only row groups that hold one are read whole.

    Args:
        corpus: Folder of the documents.
        wanted: Their ids; those that are not there are left out.
    """
    found: dict[str, str] = {}
    for part in parts(corpus):
        file = pq.ParquetFile(part)
        for group in range(file.num_row_groups):
            here = pc.is_in(file.read_row_group(group, columns=["doc_id"])["doc_id"], value_set=wanted)
            if pc.any(here).as_py():
                table = file.read_row_group(group, columns=["doc_id", "text"]).filter(here)
                found |= dict(zip(table["doc_id"].to_pylist(), table["text"].to_pylist(), strict=True))
    return found


def texts_of(units: pa.Table, corpus: Path) -> list[str]:
    """Texts of some units, in their order; of a document that is not there, nothing.

    Args:
        units: With the columns doc_id, start and end.
        corpus: Folder of the documents.
    """
    documents = documents_of(corpus, units["doc_id"].unique())
    keys = zip(*(units[name].to_pylist() for name in ("doc_id", "start", "end")), strict=True)
    return [documents.get(doc_id, "")[start:end] for doc_id, start, end in keys]
