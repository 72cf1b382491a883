"""Files of records, as the tests of this folder write them."""

import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

PACK = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


def json_lines(rows) -> bytes:
    """One line a record; a record that is a string is a line as it is."""
    return "".join(
        (row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows
    ).encode()


def write_rows(path, rows) -> str:
    path.write_bytes(json_lines(rows))
    return str(path)


def parquet(columns, **options) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, **options)
    return stream.getvalue()
