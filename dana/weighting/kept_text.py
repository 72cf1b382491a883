"""The kept text: scores, weights and corpus to a gzipped JSON line a run of adjacent kept units."""

import gzip
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.artifacts import OWN
from dana.weighting.documents import document_rows

KEPT_TEXT = f"{OWN}/selected.jsonl.gz"  # in a weights folder, which Parquet readers open as it is


def write_kept_text(
    table: pa.Table, weight: np.ndarray, corpus: Path, path: Path, target: np.ndarray | None = None
) -> int:
    """Write one JSON line a run of adjacent units with a weight; returns the number of lines.

    A line holds text of one document and nothing that was left out in between: ``id``, ``doc_id``, ``source``,
    ``first_unit``, ``last_unit``, ``start``, ``end`` (characters), ``score`` (mean) and ``text``.

    Args:
        table: Of :data:`dana.core.schemas.SCORES`.
        weight: Shape (units,), its weights.
        corpus: Folder of the documents.
        path: The file.
        target: Shape (units,), the name of the target that each kept unit is for; a line then is of one and names it.
    """
    label = (weight > 0).astype(np.int64)
    if target is not None:
        label *= 1 + np.unique(target, return_inverse=True)[1]
    score = table["score"].to_numpy()
    start, end, unit = (table[name].to_numpy() for name in ("start", "end", "unit"))
    sources = table["source"]
    lines = 0
    # mtime 0 and no name: same content, same bytes
    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
        stream = io.TextIOWrapper(packed, encoding="utf-8")
        for doc_id, text, rows in document_rows(table, corpus):
            for first, last in _runs(label[rows]):
                a, b = rows.start + first, rows.start + last
                record: dict[str, Any] = {
                    "id": f"{doc_id}:{unit[a]}-{unit[b]}",
                    "doc_id": doc_id,
                    "source": sources[a].as_py(),
                    "first_unit": int(unit[a]),
                    "last_unit": int(unit[b]),
                    "start": int(start[a]),
                    "end": int(end[b]),
                    "score": float(score[a : b + 1].mean()),
                    "text": text[start[a] : end[b]],
                }
                if target is not None:
                    record["target"] = str(target[a])
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
                lines += 1
        stream.flush()
    return lines


def _runs(label: np.ndarray) -> list[tuple[int, int]]:
    """First and last index of every run of one label above 0."""
    edges = np.flatnonzero(np.diff(label, prepend=-1, append=-1))
    return [(int(first), int(after) - 1) for first, after in pairwise(edges) if label[first] > 0]
