"""The kept text: weights, scores and corpus to a gzipped JSON line a run of adjacent kept units."""

import gzip
import io
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dana.core.artifacts import OWN
from dana.weighting.documents import Texts, document_starts
from dana.weighting.pool import alongside
from dana.weighting.spans import Span, in_spans

KEPT_TEXT = f"{OWN}/selected.jsonl.gz"  # in a weights folder, which Parquet readers open as it is
ONE = ""  # the name of a target that is the only one
LEVEL = 6  # of gzip: 9 makes it 4 % smaller in 2.7 times the time


@dataclass(frozen=True)
class KeptText:
    """Writes a JSON line a run of adjacent units with a weight.

    A line holds text of one document and nothing that was left out in between: ``id``, ``doc_id``, ``source``,
    ``first_unit``, ``last_unit``, ``start``, ``end`` (characters), ``score`` (mean) and ``text``; of several targets it
    is of one, its ``target``, by whose scores ``score`` is. The file is one member of gzip a span
    (:mod:`dana.weighting.spans`), which every reader takes for one file.

    Attributes:
        weights: Folder of the weights: :data:`dana.core.schemas.WEIGHTS`, with ``target`` where there are several.
        scores: Folders of the scores of the same units, by target; of one target it is named :data:`ONE`.
        corpus: Folder of the documents.
    """

    weights: Path
    scores: Mapping[str, Path]
    corpus: Path

    def write(self, path: Path) -> int:
        """Write the file; returns its lines."""
        lines = 0
        with path.open("wb") as whole:
            for member, count in in_spans(self.write_span, self.weights, self.corpus, "kept text"):
                with member.open("rb") as packed:
                    shutil.copyfileobj(packed, whole)
                member.unlink()
                lines += count
        return lines

    def write_span(self, number: int, span: Span) -> tuple[Path, int]:
        """Write a member, in the folder of the weights; returns it and its lines."""
        member, lines, texts = self.weights / OWN / f"selected-{number}.gz", 0, span.texts(self.corpus)
        # mtime 0 and no name: same content, same bytes
        with (
            member.open("wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0, compresslevel=LEVEL) as packed,
            io.TextIOWrapper(packed, encoding="utf-8") as stream,
        ):
            for table in self._tables(span):
                for record in self._records(table, texts):
                    stream.write(json.dumps(record, ensure_ascii=False) + "\n")
                    lines += 1
        return member, lines

    def _tables(self, span: Span) -> Iterator[pa.Table]:
        pool = span.pool(self.weights)
        for name, folder in self.scores.items():
            said = f"{folder}: holds other units than {self.weights}"
            pool = alongside(pool, span.pool(folder), "score", _score_of(name), said)
        target = ["target"] if self._has_targets else []
        return pool.documents(["source", "start", "end", "weight", *map(_score_of, self.scores), *target])

    @property
    def _has_targets(self) -> bool:
        return [*self.scores] != [ONE]

    def _records(self, table: pa.Table, texts: Texts) -> Iterator[dict[str, Any]]:
        """A record a run of whole documents."""
        label = (table["weight"].to_numpy() > 0).astype(np.int64)
        score = np.stack([table[_score_of(name)].to_numpy() for name in self.scores])
        target = None
        if self._has_targets:
            target = pc.index_in(table["target"], pa.array([*self.scores])).fill_null(0).to_numpy()
            label *= 1 + target
        score = score[0 if target is None else target, np.arange(table.num_rows)]
        start, end, unit = (table[name].to_numpy() for name in ("start", "end", "unit"))
        doc_ids, sources = table["doc_id"], table["source"]
        for first, last in _runs(label, document_starts(table)):
            doc_id = doc_ids[first].as_py()
            record = {
                "id": f"{doc_id}:{unit[first]}-{unit[last]}",
                "doc_id": doc_id,
                "source": sources[first].as_py(),
                "first_unit": int(unit[first]),
                "last_unit": int(unit[last]),
                "start": int(start[first]),
                "end": int(end[last]),
                "score": float(score[first : last + 1].mean()),
                "text": texts.named(doc_id)[start[first] : end[last]],
            }
            if self._has_targets:
                record["target"] = table["target"][first].as_py()
            yield record


def _score_of(target: str) -> str:
    return f"score of {target}"


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
