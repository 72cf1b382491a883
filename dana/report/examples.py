"""The text of the units with the lowest and the highest anomaly scores."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dana.core.schemas import parts

SHOWN = 5
CANDIDATES = 50  # enough that, repeats of a document or a text left out, five remain
LONGEST = 200


@dataclass(frozen=True)
class UnitExample:
    """One unit.

    Attributes:
        source: Where it comes from.
        score: Its anomaly score.
        text: On one line, at most 200 characters.
    """

    source: str
    score: float
    text: str

    @property
    def shown_score(self) -> str:
        """Rounded for a page."""
        return f"{self.score:.3f}".replace("-", "−")


def most_extreme(scores: pa.Table, corpus: Path) -> tuple[tuple[UnitExample, ...], tuple[UnitExample, ...]]:
    """The most relevant and the most foreign units, five each, of distinct documents and texts.

    Args:
        scores: Of :data:`dana.core.schemas.SCORES`.
        corpus: Folder of the documents that were scored; without it there are no examples.
    """
    if not parts(corpus):
        return (), ()
    order = np.argsort(scores["score"].to_numpy(), kind="stable")
    relevant = scores.take(order[:CANDIDATES]).to_pylist()
    foreign = scores.take(order[::-1][:CANDIDATES]).to_pylist()
    texts = _texts(corpus, {row["doc_id"] for row in [*relevant, *foreign]})
    return _examples(relevant, texts), _examples(foreign, texts)


def _texts(corpus: Path, ids: set[str]) -> dict[str, str]:
    """Texts of some documents; only row groups that hold one are read whole."""
    wanted = pa.array(sorted(ids))
    found: dict[str, str] = {}
    for part in parts(corpus):
        file = pq.ParquetFile(part)
        for group in range(file.num_row_groups):
            here = pc.is_in(file.read_row_group(group, columns=["doc_id"])["doc_id"], value_set=wanted)
            if pc.any(here).as_py():
                table = file.read_row_group(group, columns=["doc_id", "text"]).filter(here)
                found |= dict(zip(table["doc_id"].to_pylist(), table["text"].to_pylist(), strict=True))
    return found


def _examples(rows: list[dict], texts: dict[str, str]) -> tuple[UnitExample, ...]:
    """The first of every document, then of every text."""
    by_document: dict[str, dict] = {}
    for row in rows:
        by_document.setdefault(row["doc_id"], row)
    by_text: dict[str, UnitExample] = {}
    for doc_id, row in by_document.items():
        text = _shorten(texts.get(doc_id, "")[row["start"] : row["end"]])
        if text:
            by_text.setdefault(text, UnitExample(row["source"], row["score"], text))
    return tuple(by_text.values())[:SHOWN]


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
