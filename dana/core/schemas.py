"""Schemas of the Parquet tables that stages exchange, and their reading and writing. Keys are (doc_id, unit).

Every table is Parquet and opens with pandas alone. Change a schema only together with
:data:`dana.core.artifacts.SCHEMA`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import OWN, fingerprint, read_manifest
from dana.core.errors import ArtifactError
from dana.core.files import file_digest

NESTED = "nested"  # folder of a run with the results, models and scores of single seeds, which others join


def table_schema(**columns: pa.DataType) -> pa.Schema:
    """A schema of columns that hold no nulls."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


# doc_id: given, or blake2b of source and text.  source: file stem, dataset name, or the record's own.
# text: NFC, stripped, never empty.
DOCUMENTS = table_schema(doc_id=pa.string(), source=pa.string(), text=pa.string())

# unit: position in its document, from 0.  start, end: character span in the document's text.
UNIT = {"doc_id": pa.string(), "source": pa.string(), "unit": pa.int32(), "start": pa.int64(), "end": pa.int64()}

# score: anomaly score, higher = more foreign to the task, in the selector's own unit.
SCORES = table_schema(**UNIT, score=pa.float64())

HELD_OUT_TASK = f"{OWN}/held_out_task.parquet"  # in a scores folder: SCORES of task units nothing was fitted on

# segment: position in its document, from 0; -1 for a unit that no segment holds (a dropped tail).
# weight: relevance in [0, 1]; 1 = in-domain, 0 = leave out.
WEIGHTS = table_schema(**UNIT, segment=pa.int32(), weight=pa.float32())


@dataclass(frozen=True)
class Document:
    """One input record.

    Attributes:
        doc_id: Stable name, unique in its corpus.
        source: Where it came from, the grouping of every "kept by source" table.
        text: NFC text, stripped, never empty.
    """

    doc_id: str
    source: str
    text: str


def parts(folder: Path) -> list[Path]:
    """The Parquet files of a table's folder, in order; of a file itself."""
    return [folder] if folder.is_file() else sorted(folder.glob("part-*.parquet"))


def table_identity(folder: Path, schema: pa.Schema | None = None) -> str:
    """The fingerprint of a table's folder: its manifest's, or a digest of its parts.

    Args:
        folder: Where its parts are; or a Parquet file.
        schema: What they must hold, if anything is known of it.

    Raises:
        ArtifactError: If there is no table, a part is damaged, or it is another table.
    """
    if not parts(folder):
        raise ArtifactError(f"{folder}: holds no part-*.parquet, so neither documents nor weights")
    for part in parts(folder):
        with _damaged(part):
            found = pq.read_schema(part).names
        if missing := [name for name in (schema.names if schema else ()) if name not in found]:
            raise ArtifactError(f"{part}: holds {', '.join(found)}, not {', '.join(missing)}; is it the right folder?")
    made = read_manifest(folder) if folder.is_dir() else {}
    return made.get("fingerprint") or fingerprint({part.name: file_digest(part) for part in parts(folder)})


def iterate_documents(folder: Path, rows: int = 1024) -> Iterator[Document]:
    """Stream a corpus artifact's documents in order, `rows` in memory at a time."""
    for batch in read_rows(folder, DOCUMENTS.names, rows=rows):
        columns = [batch.column(name).to_pylist() for name in DOCUMENTS.names]
        for doc_id, source, text in zip(*columns, strict=True):
            yield Document(doc_id, source, text)


ROWS_PER_PART = 1 << 20
# Rows that are written, and must be read, together: few where rows are whole texts.
ROWS_PER_GROUP = {True: 1 << 10, False: 1 << 14}


def write_parts(
    batches: Iterable[pa.Table], folder: Path, schema: pa.Schema, rows_per_part: int = ROWS_PER_PART
) -> int:
    """Write a stream of tables as ``part-00000.parquet`` …, zstd; returns the rows written.

    Parts and groups are cut by row count alone, so the bytes do not depend on how the stream was batched. No more
    than a group waits in memory.
    """
    folder.mkdir(parents=True, exist_ok=True)
    group = min(ROWS_PER_GROUP["text" in schema.names], rows_per_part)
    written, waiting = 0, schema.empty_table()
    writer: pq.ParquetWriter | None = None

    def write(table: pa.Table) -> None:
        nonlocal writer, written
        if written % rows_per_part == 0:
            if writer is not None:
                writer.close()
            path = folder / f"part-{written // rows_per_part:05d}.parquet"
            writer = pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)
        writer.write_table(table.combine_chunks(), row_group_size=group)  # type: ignore[union-attr]
        written += table.num_rows

    for batch in batches:
        waiting = pa.concat_tables([waiting, batch.cast(schema)])
        while waiting.num_rows >= (size := min(group, rows_per_part - written % rows_per_part)):
            write(waiting.slice(0, size))
            waiting = waiting.slice(size)
    if waiting.num_rows or written == 0:
        write(waiting)
    if writer is not None:
        writer.close()
    return written


def read_table(folder: Path, columns: list[str] | None = None) -> pa.Table:
    """A whole table in memory, parts in order.

    Raises:
        ArtifactError: If a part is damaged.
    """
    return pa.concat_tables([_read(part, columns) for part in parts(folder)])


def _read(part: Path, columns: list[str] | None) -> pa.Table:
    with _damaged(part):
        return pq.read_table(part, columns=columns, page_checksum_verification=True)


def read_rows(
    folder: Path, columns: list[str], first: int = 0, last: int | None = None, rows: int = 1 << 16
) -> Iterator[pa.RecordBatch]:
    """Some columns of the rows `first` to before `last` of a table, at most so many rows in memory at a time.

    Raises:
        ArtifactError: If a part is damaged.
    """
    before = 0
    for part in parts(folder):
        if last is not None and before >= last:
            return
        count = count_rows(part)
        if before + count > first:
            end = count if last is None else min(count, last - before)
            yield from read_batches(part, columns, rows, max(0, first - before), end)
        before += count


def count_rows(part: Path) -> int:
    """Rows of one part.

    Raises:
        ArtifactError: If it is damaged.
    """
    about = part.stat()
    return _count_rows(part, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=1 << 16)
def _count_rows(part: Path, changed: int, size: int) -> int:
    with _damaged(part):
        return int(pq.read_metadata(part).num_rows)


def read_batches(
    part: Path, columns: list[str], rows: int = 1 << 16, first: int = 0, last: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Some columns of the rows `first` to before `last` of one part, at most so many rows in memory at a time.

    Raises:
        ArtifactError: If it is damaged.
    """
    with _damaged(part):
        file = pq.ParquetFile(part, page_checksum_verification=True, pre_buffer=False)  # else it is all read ahead
        sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        ends = list(accumulate(sizes))
        last = sum(sizes) if last is None else last
        groups = [number for number, end in enumerate(ends) if end > first and end - sizes[number] < last]
        row = ends[groups[0]] - sizes[groups[0]] if groups else 0
        for batch in file.iter_batches(batch_size=rows, columns=columns, row_groups=groups):
            start, row = row, row + batch.num_rows
            begin, end = max(start, first), min(row, last)
            if begin < end:
                yield batch.slice(begin - start, end - begin)


@contextmanager
def _damaged(part: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        said = str(error).splitlines()[0]
        raise ArtifactError(f"{part}: damaged: {said}; remove its folder and make it again") from error
