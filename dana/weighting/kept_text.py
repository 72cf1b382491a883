"""The kept text: scores, weights and corpus to a gzipped JSON line a run of adjacent kept units."""

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.artifacts import OWN
from dana.weighting.documents import Texts, document_starts

KEPT_TEXT = f"{OWN}/selected.jsonl.gz"  # in a weights folder, which Parquet readers open as it is


class KeptText:
    """Writes a JSON line a run of adjacent units with a weight; a context manager that closes the file.

    A line holds text of one document and nothing that was left out in between: ``id``, ``doc_id``, ``source``,
    ``first_unit``, ``last_unit``, ``start``, ``end`` (characters), ``score`` (mean) and ``text``.

    Args:
        corpus: Folder of the documents.
        path: The file.

    Attributes:
        lines: How many are written.
    """

    def __init__(self, corpus: Path, path: Path) -> None:
        self._texts, self.lines = Texts(corpus), 0
        self._raw = path.open("wb")
        # mtime 0 and no name: same content, same bytes
        self._packed = gzip.GzipFile(fileobj=self._raw, mode="wb", filename="", mtime=0)
        self._stream = io.TextIOWrapper(self._packed, encoding="utf-8")

    def __enter__(self) -> "KeptText":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self._stream, self._packed, self._raw):
            stream.close()

    def add(self, table: pa.Table, weight: np.ndarray, target: np.ndarray | None = None) -> None:
        """Whole documents, in the order of the corpus.

        Args:
            table: Of :data:`dana.core.schemas.SCORES`.
            weight: Shape (units,), its weights.
            target: Shape (units,), the name of the target that each kept unit is for; a line then is of one and names
                it.
        """
        label = (weight > 0).astype(np.int64)
        if target is not None:
            label *= 1 + np.unique(target, return_inverse=True)[1]
        if not label.any():
            return
        score = table["score"].to_numpy()
        start, end, unit = (table[name].to_numpy() for name in ("start", "end", "unit"))
        sources = table["source"]
        runs = _runs(label, document_starts(table))
        first, last = next(runs)
        for doc_id, text, rows in self._texts.of(table):
            while first < rows.stop:
                record: dict[str, Any] = {
                    "id": f"{doc_id}:{unit[first]}-{unit[last]}",
                    "doc_id": doc_id,
                    "source": sources[first].as_py(),
                    "first_unit": int(unit[first]),
                    "last_unit": int(unit[last]),
                    "start": int(start[first]),
                    "end": int(end[last]),
                    "score": float(score[first : last + 1].mean()),
                    "text": text[start[first] : end[last]],
                }
                if target is not None:
                    record["target"] = str(target[first])
                self._stream.write(json.dumps(record, ensure_ascii=False) + "\n")
                self.lines += 1
                first, last = next(runs, (table.num_rows, 0))


def _runs(label: np.ndarray, starts: np.ndarray) -> Iterator[tuple[int, int]]:
    """First and last row of every run of one label above 0, none in two documents.

    Args:
        label: Shape (units,).
        starts: First row of each document.
    """
    begins = np.append(True, label[1:] != label[:-1])
    begins[starts] = True
    first = np.flatnonzero(begins)
    last = np.append(first[1:], label.size) - 1
    kept = label[first] > 0
    return zip(first[kept].tolist(), last[kept].tolist(), strict=True)
