"""Define the Parquet tables that stages exchange, and read and write them. Keys are (doc_id, unit).

pandas opens every table. Change a schema only together with :data:`dana.core.artifacts.SCHEMA`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dana.core.artifacts import META_DIR, check_tables, fingerprint, read_manifest
from dana.core.errors import ArtifactError
from dana.core.files import file_digest

NESTED = "nested"  # folder of a run with results, models and scores of single seeds
# Folder of a run with what makes its model: choices, and an adaptation by all texts.
FINAL = "final"


def table_schema(**columns: pa.DataType) -> pa.Schema:
    """Build a schema of columns without nulls."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


# doc_id: from the record, or blake2b of source and text.  source: from the record, or file stem or data set name.
# text: NFC, stripped, never empty.
DOCUMENTS = table_schema(doc_id=pa.string(), source=pa.string(), text=pa.string())

# unit: position in its document, from 0.  start, end: character span in the document's text.
UNIT = {
    "doc_id": pa.string(),
    "source": pa.string(),
    "unit": pa.int32(),
    "start": pa.int64(),
    "end": pa.int64(),
}

# score: anomaly score, higher = more foreign to the target text, on the selector's scale.
# short: whether the unit has too few words (selection.min_words); it then has the largest score of the table.
SCORES = table_schema(**UNIT, score=pa.float64(), short=pa.bool_())

# In a scores folder: SCORES of held-out target units.
HELD_OUT_TARGET = f"{META_DIR}/held_out_target.parquet"

# segment: position in its document, from 0; -1 for a unit in no segment (a dropped tail).
# weight: relevance in [0, 1]; 1 = in-domain, 0 = leave out.
WEIGHTS = table_schema(**UNIT, segment=pa.int32(), weight=pa.float32())


@dataclass(frozen=True)
class Document:
    """One input record.

    Attributes:
        doc_id: Stable id, unique in its pool.
        source: Origin of the text, by which tables group documents.
        text: NFC text, stripped, never empty.
    """

    doc_id: str
    source: str
    text: str


def part_files(folder: Path) -> list[Path]:
    """List the Parquet files of a table's folder, in order; a file is its own only part."""
    return [folder] if folder.is_file() else sorted(folder.glob("part-*.parquet"))


def table_identity(folder: Path, schema: pa.Schema | None = None) -> str:
    """Return the fingerprint of a table: that of its manifest, or a digest of its parts.

    Args:
        folder: Folder of the parts; or a Parquet file.
        schema: Columns that the table must have; None checks none.

    Raises:
        ArtifactError: If there is no table, a part is missing or damaged, or a column is missing.
    """
    manifest = read_manifest(folder) if folder.is_dir() else {}
    check_tables(folder, manifest)
    if not part_files(folder):
        raise ArtifactError(
            f"{folder}: no table here (no part-*.parquet); name a folder with documents or weights"
        )
    required = schema.names if schema else []
    for part in part_files(folder):
        with name_damage(part):
            columns = pq.read_schema(part).names
        missing = [name for name in required if name not in columns]
        if missing:
            raise ArtifactError(
                f"{part}: expected columns {', '.join(missing)}, got {', '.join(columns)}"
            )
    saved: str | None = manifest.get("fingerprint")
    if saved:
        return saved
    return fingerprint({part.name: file_digest(part) for part in part_files(folder)})


def documents_of(rows: pa.Table | pa.RecordBatch) -> Iterator[Document]:
    """Yield the documents of rows of a pool."""
    # By columns: half the time of to_pylist on the rows.
    columns = [rows[name].to_pylist() for name in DOCUMENTS.names]
    return starmap(Document, zip(*columns, strict=True))


def iterate_documents(folder: Path) -> Iterator[Document]:
    """Yield the documents of a pool in order, reading 1,024 at a time."""
    for batch in read_rows(folder, DOCUMENTS.names, rows=1024):
        yield from documents_of(batch)


ROWS_PER_PART = 1 << 20
ROWS_PER_GROUP = 1 << 14  # rows of a row group, which is read as a whole
DOCUMENTS_PER_SHARD = 1 << 10  # fewer if rows hold whole texts: a row group is a shard of scoring


def write_parts(
    batches: Iterable[pa.Table], folder: Path, schema: pa.Schema, rows_per_part: int = ROWS_PER_PART
) -> int:
    """Write a stream of tables as ``part-00000.parquet`` …, and return the number of rows.

    They are compressed with zstd. Parts and row groups have fixed row counts, so the bytes do not
    depend on the batches of the stream. At most one group is buffered.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows_per_group = DOCUMENTS_PER_SHARD if "text" in schema.names else ROWS_PER_GROUP
    count = 0
    writer: pq.ParquetWriter | None = None
    for group in _row_groups(batches, schema, rows_per_group, rows_per_part):
        if writer is None or count % rows_per_part == 0:
            if writer is not None:
                writer.close()
            path = folder / f"part-{count // rows_per_part:05d}.parquet"
            writer = pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)
        writer.write_table(group, row_group_size=rows_per_group)
        count += group.num_rows
    if writer is not None:
        writer.close()
    return count


def _row_groups(
    batches: Iterable[pa.Table], schema: pa.Schema, rows_per_group: int, rows_per_part: int
) -> Iterator[pa.Table]:
    """Cut a stream of tables into row groups, none of which reaches into the next part."""
    left_in_part = rows_per_part
    is_empty = True
    buffer = schema.empty_table()
    for batch in batches:
        buffer = pa.concat_tables([buffer, batch.cast(schema)])
        size = min(rows_per_group, left_in_part)
        while buffer.num_rows >= size:
            yield buffer.slice(0, size).combine_chunks()
            is_empty = False
            buffer = buffer.slice(size)
            left_in_part = left_in_part - size or rows_per_part
            size = min(rows_per_group, left_in_part)
    if buffer.num_rows or is_empty:
        yield buffer.combine_chunks()


def read_table(folder: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a whole table into memory, parts in order.

    Raises:
        ArtifactError: If a part is damaged.
    """
    return pa.concat_tables([_read(part, columns) for part in part_files(folder)])


def _read(part: Path, columns: list[str] | None) -> pa.Table:
    """Read a part into memory."""
    with name_damage(part):
        return pq.read_table(part, columns=columns, page_checksum_verification=True)


def read_rows(folder: Path, columns: list[str], rows: int = 1 << 16) -> Iterator[pa.RecordBatch]:
    """Yield columns of a table, parts in order, in batches of at most `rows`.

    Raises:
        ArtifactError: If a part is damaged.
    """
    for part in part_files(folder):
        yield from read_batches(part, columns, rows)


def whole_documents(folder: Path, columns: list[str]) -> Iterator[pa.Table]:
    """Yield columns of a table of units, parts in order, in tables of whole documents.

    Args:
        folder: Folder of the table.
        columns: Names of the columns; ``doc_id`` is one of them.

    Raises:
        ArtifactError: If a part is damaged.
    """
    # The last document read so far, which the next batch may go on with.
    unfinished: list[pa.Table] = []
    for batch in read_rows(folder, columns):
        rows = pa.concat_tables([*unfinished, pa.Table.from_batches([batch])])
        last = int(document_starts(rows)[-1]) if rows.num_rows else 0
        if last:
            yield rows.slice(0, last)
        unfinished = [rows.slice(last)]
    if unfinished and unfinished[0].num_rows:
        yield unfinished[0]


def document_starts(rows: pa.Table) -> np.ndarray:
    """Return the position of each document's first row, int64 of shape (documents,)."""
    names = rows["doc_id"].cast(pa.string()).combine_chunks()
    if not len(names):
        return np.zeros(0, dtype=np.int64)
    is_next = pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)
    return np.append(0, np.flatnonzero(is_next) + 1)


def count_rows(folder: Path) -> int:
    """Count the rows of a table.

    Raises:
        ArtifactError: If a part is damaged.
    """
    count = 0
    for part in part_files(folder):
        with name_damage(part):
            count += pq.read_metadata(part).num_rows
    return count


def read_batches(part: Path, columns: list[str], rows: int = 1 << 16) -> Iterator[pa.RecordBatch]:
    """Yield columns of one part in batches of at most `rows`.

    Raises:
        ArtifactError: If it is damaged.
    """
    with name_damage(part):
        # With a buffer all of the part would be read ahead.
        file = pq.ParquetFile(part, page_checksum_verification=True, pre_buffer=False)
        yield from file.iter_batches(batch_size=rows, columns=columns)


@contextmanager
def name_damage(part: Path) -> Iterator[None]:
    """Turn the error of a damaged part into one that names it.

    Raises:
        ArtifactError: If the part cannot be read.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        folder = part.parent.parent if part.parent.name == META_DIR else part.parent
        raise ArtifactError(
            f"{part}: damaged: {reason}; remove {folder} and run its command again"
        ) from error
