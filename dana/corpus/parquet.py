"""Parquet files to records, a row each."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from dana.core.errors import Damage, DataError
from dana.core.storage import File, RemoteFile, readable
from dana.corpus.records import Record


def read_parquet(path: File, groups: range | None = None) -> Iterator[Record]:
    """Stream the rows of a file, or of some of its row groups; rows are numbered from the file's beginning.

    What lies before a damaged place is read: whole row groups, and of the damaged one what its reader gives before it.

    Raises:
        DataError: Naming file and row, if the machine cannot read the file.
        Damage: If it is no Parquet file, or a damaged one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = 0
    try:
        about = metadata_of(path) if groups else None
        wanted = readable(path, _end_of(about.row_group(groups[-1])) if about and groups else None)
        file = pq.ParquetFile(wanted, metadata=about, pre_buffer=False)  # else the whole file is read ahead
        row = sum(file.metadata.row_group(group).num_rows for group in range(groups.start)) if groups else 0
        for group in groups or range(file.num_row_groups):  # a batch of two would be lost with either
            for batch in file.iter_batches(batch_size=1024, row_groups=[group]):
                for fields, problem in _rows(batch):
                    row += 1
                    yield Record(str(path), row, fields, problem)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{path}:{row + 1}: cannot be read: {error}") from error
        raise Damage(row + 1, f"not a Parquet file, or a damaged one: {' '.join(str(error).split())}") from error


def metadata_of(path: File) -> Any:
    """What a file's end tells of its row groups: of a remote file fetched once for all slices that a process reads."""
    return _fetched(path) if isinstance(path, RemoteFile) and path.mark else _metadata(path)


def _metadata(path: File) -> Any:
    import pyarrow.parquet as pq

    return pq.read_metadata(readable(path))


_fetched = lru_cache(maxsize=1)(_metadata)  # slices come in the order of their files


def _end_of(group: Any) -> int:
    """The byte behind a row group's last."""
    columns = (group.column(number) for number in range(group.num_columns))
    # A dictionary, where there is one, is the first page.
    return max(((c.dictionary_page_offset or c.data_page_offset) + c.total_compressed_size for c in columns), default=0)


def _rows(batch: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Fields of each row, and its problem; empty for a good one."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError):  # text that is not UTF-8, a date Python does not know: see which row has it
        rows = None
    columns = list(zip(batch.schema.names, batch.columns, strict=True))
    for row in range(batch.num_rows):
        try:
            fields = rows[row] if rows else {name: _value(column[row]) for name, column in columns}
        except (ValueError, OverflowError) as error:
            yield {}, f"a value cannot be read: {error}"
        else:
            yield fields, ""


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        if not hasattr(scalar, "as_buffer"):  # within a list or struct
            raise
        return scalar.as_buffer().to_pybytes().decode("utf-8", "replace")
