"""JSON lines: rows to text, or to a gzipped file whose bytes depend on nothing but the rows."""

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as JSON, a line a row."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_packed_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows as gzipped JSON lines, without name and time in them; says how many."""
    count = 0
    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as stream:
        for row in rows:
            stream.write(json_lines([row]).encode())
            count += 1
    return count
