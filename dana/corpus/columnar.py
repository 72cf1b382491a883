"""Read Parquet and Arrow files as records."""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from dana.core.errors import Damage, DataError
from dana.core.storage import File, RemoteFile, pyarrow_source
from dana.corpus.inputs import Record

ROWS_AT_ONCE = 1024
FEATURES = b"huggingface"  # of the metadata of a schema, in which datasets writes its features


def read_parquet(path: File, groups: range | None = None) -> Iterator[Record]:
    """Stream one record per row of a Parquet file, numbered from its beginning.

    Rows before a damaged part are read.

    Args:
        path: The file.
        groups: Row groups to read; None for all.

    Raises:
        DataError: If the file cannot be read; names file and row.
        Damage: If it is not a Parquet file, or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = 0
    try:
        metadata = None
        end = None  # the end of the file
        if groups:
            metadata = read_metadata(path)
            end = _end_of(metadata.row_group(groups[-1]))  # a remote file is not read beyond it
        stream = pyarrow_source(path, end)
        # Without pre_buffer=False the whole file is read ahead.
        file = pq.ParquetFile(stream, metadata=metadata, pre_buffer=False)
        _check_names(file.schema_arrow.names)
        wanted = groups or range(file.num_row_groups)
        groups_before = range(wanted.start)
        row = sum(file.metadata.row_group(group).num_rows for group in groups_before)
        for group in wanted:  # one at a time, so that damage in one loses no other
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, row_groups=[group]):
                for fields, problem in _rows(batch):
                    row += 1
                    yield Record(str(path), row, fields, problem)
    except (pa.ArrowException, OSError) as error:
        raise _as_damage(error, path, row + 1, "a Parquet file") from error


def read_arrow(path: File) -> Iterator[Record]:
    """Stream one record per row of an Arrow file, such as those of ``Dataset.save_to_disk``.

    Raises:
        DataError: If the file cannot be read; names file and row.
        Damage: If it is not an Arrow file, or damaged.
    """
    import pyarrow as pa

    row = 0
    try:
        with path.open() if isinstance(path, RemoteFile) else pa.OSFile(str(path)) as stream:
            for batch in _arrow_batches(stream):
                for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                    for fields, problem in _rows(batch.slice(start, ROWS_AT_ONCE)):
                        row += 1
                        yield Record(str(path), row, fields, problem)
    except (pa.ArrowException, OSError) as error:
        raise _as_damage(error, path, row + 1, "an Arrow file") from error


def class_names(path: File) -> dict[str, list[str]]:
    """Return the names of classes that ``datasets`` writes as numbers, by column (ClassLabel).

    The column may have one class a row, or a list of them. There are none for a file of another
    format, and for one that cannot be read, which reading it reports.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.suffix.lower() == ".parquet":
            schema = pq.read_schema(pyarrow_source(path))
        elif path.suffix.lower() == ".arrow":
            with path.open("rb") as stream:
                schema = _open_arrow(stream).schema
        else:
            return {}
        written = json.loads((schema.metadata or {}).get(FEATURES, b"{}"))
        names_by_column = {}
        for column, feature in written["info"]["features"].items():
            value = _feature_of_values(feature)
            if value.get("_type") == "ClassLabel":
                names_by_column[column] = [str(name) for name in value["names"]]
        return names_by_column
    except (pa.ArrowException, OSError, ValueError, LookupError, AttributeError, TypeError):
        return {}


def _feature_of_values(feature: Any) -> dict[str, Any]:
    """Return the feature of the values of a column, which may be lists of values.

    Releases of ``datasets`` before 4 write the feature of a list as a list of one feature.
    """
    items = feature[0] if isinstance(feature, list) else feature.get("feature", feature)
    return items if isinstance(items, dict) else {}


def _open_arrow(stream: Any) -> Any:
    """Open an Arrow file, of its form for streams or for random access."""
    import pyarrow as pa

    is_for_random_access = stream.read(6) == b"ARROW1"
    stream.seek(0)
    if is_for_random_access:
        return pa.ipc.open_file(stream)
    return pa.ipc.open_stream(stream)


def _arrow_batches(stream: Any) -> Iterator[Any]:
    """Stream the batches of an Arrow file."""
    import pyarrow as pa

    reader = _open_arrow(stream)
    _check_names(reader.schema.names)
    if isinstance(reader, pa.RecordBatchFileReader):
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        yield from reader


def _check_names(names: list[str]) -> None:
    """Refuse columns of the same name."""
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise Damage(1, f"two columns are named {twice[0]!r}; rename one")


def _as_damage(error: Exception, path: File, row: int, kind: str) -> Exception:
    """Return the error for a file: DataError if the system cannot read it, Damage if its content is wrong."""
    if isinstance(error, OSError) and error.errno is not None:
        return DataError(f"{path}:{row}: cannot be read: {error}")
    return Damage(row, f"not {kind}, or damaged: {' '.join(str(error).split())}")


def read_metadata(path: File) -> Any:
    """Read the metadata of a Parquet file.

    That of a remote file is read once per process, for all of its slices, if the file has a mark,
    by which it is told from one with other content.
    """
    if isinstance(path, RemoteFile) and path.mark:
        return _cached_metadata(path)
    return _metadata(path)


def _metadata(path: File) -> Any:
    import pyarrow.parquet as pq

    return pq.read_metadata(pyarrow_source(path))


# One is enough: slices come in the order of their files.
_cached_metadata = lru_cache(maxsize=1)(_metadata)


def _end_of(group: Any) -> int:
    """Return the position after the last byte of a row group."""
    end = 0
    for number in range(group.num_columns):
        column = group.column(number)
        # The dictionary, if there is one, is the first page of a column.
        start = column.dictionary_page_offset or column.data_page_offset
        end = max(end, start + column.total_compressed_size)
    return end


def _rows(batch: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Stream the fields of each row with its problem, empty for a good one."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError):  # text that is not UTF-8, a date out of range: find the row
        yield from _rows_one_by_one(batch)
        return
    for fields in rows:
        yield fields, ""


def _rows_one_by_one(batch: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Stream the fields of each row as :func:`_rows` does, converting each row alone."""
    for number in range(batch.num_rows):
        row = batch.slice(number, 1)
        try:
            yield row.to_pylist()[0], ""
        except (ValueError, OverflowError) as error:
            yield {}, f"a value cannot be read: {error}"
