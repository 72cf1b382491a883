"""Texts of units, by their keys, from a corpus on disk: examples to read of a few sources.

Examples are the units with the lowest and the highest scores, each between its neighbours in its document.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dana.core.schemas import parts
from dana.report.page import Shown, SourceExamples, UnitExample, number

SOURCES = 4  # shown
UNITS = 2  # shown of a source
CANDIDATES = 20  # of a source: enough that, repeats of a document or a text and short ones left out, two remain
FEWEST_WORDS, FEWEST_CHARACTERS = 8, 24  # of a text that is shown as an example
_UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")  # letters of Thai, Lao, Japanese and Chinese
LONGEST, LONGEST_BESIDE = 300, 120  # characters of a unit, and of a neighbour


def documents_of(corpus: Path, wanted: pa.Array) -> dict[str, str]:
    """Texts of some documents by their ids; only row groups that hold one are read whole.

    Args:
        corpus: Folder of the documents.
        wanted: Their ids; those that are not there are left out.
    """
    found: dict[str, str] = {}
    for part in parts(corpus):
        file = pq.ParquetFile(part)
        for group in range(file.num_row_groups):
            here = pc.is_in(file.read_row_group(group, columns=["doc_id"])["doc_id"], value_set=wanted)
            if pc.any(here).as_py():
                table = file.read_row_group(group, columns=["doc_id", "text"]).filter(here)
                found |= dict(zip(table["doc_id"].to_pylist(), table["text"].to_pylist(), strict=True))
    return found


def most_extreme(scores: pa.Table, corpus: Path, weights: np.ndarray | None = None) -> tuple[Shown, Shown]:
    """The most relevant and the most foreign units of at least eight words: two a source, of four sources.

    With weights the sources are those with most text kept, of foreign units those with most text left out; without,
    those with the most extreme units.

    Args:
        scores: Of :data:`dana.core.schemas.SCORES`, a document's units in a row.
        corpus: Folder of the documents that were scored; without it there are no examples.
        weights: Relevance of shape (units,).
    """
    if not parts(corpus) or not scores.num_rows:
        return (), ()
    source = scores["source"].combine_chunks().dictionary_encode()
    codes = source.indices.to_numpy()
    names = source.dictionary.to_pylist()
    characters = scores["end"].to_numpy() - scores["start"].to_numpy()
    order = np.argsort(scores["score"].to_numpy(), kind="stable")
    order = order[characters[order] >= FEWEST_CHARACTERS]
    kept, left_out = (None, None) if weights is None else (characters * weights, characters * (1 - weights))
    found = [_candidates(order, codes, kept), _candidates(order[::-1], codes, left_out)]
    every = np.concatenate([rows for side in found for rows in side.values()] or [np.empty(0, np.int64)])
    texts = documents_of(corpus, scores["doc_id"].take(pa.array(every)).unique())

    def shown(side: dict[int, np.ndarray]) -> Shown:
        every = (SourceExamples(names[code], _examples(rows, scores, texts, weights)) for code, rows in side.items())
        return tuple(examples for examples in every if examples.units)[:SOURCES]

    return shown(found[0]), shown(found[1])


def _candidates(order: np.ndarray, codes: np.ndarray, text: np.ndarray | None) -> dict[int, np.ndarray]:
    """The first rows in `order` of each of a few sources, by its code; the one with most `text` first."""
    if text is None:
        ranked = list(dict.fromkeys(codes[order].tolist()))
    else:
        amount = np.bincount(codes, weights=text)
        ranked = [code for code in np.argsort(-amount, kind="stable").tolist() if amount[code] > 0]
    return {code: order[codes[order] == code][:CANDIDATES] for code in ranked[: 2 * SOURCES]}


def _examples(
    rows: np.ndarray, scores: pa.Table, texts: dict[str, str], weights: np.ndarray | None
) -> tuple[UnitExample, ...]:
    """The first unit of every document that is long enough, then the first of every text."""
    beside = [np.clip(rows + step, 0, scores.num_rows - 1) for step in (-1, 0, 1)]
    columns = scores.select(["doc_id", "unit", "start", "end", "score"])
    before, units, after = (columns.take(pa.array(places)).to_pylist() for places in beside)
    documents: set[str] = set()
    by_text: dict[str, UnitExample] = {}
    for place, unit in enumerate(units):
        document = texts.get(unit["doc_id"], "")
        text = " ".join(document[unit["start"] : unit["end"]].split())
        if unit["doc_id"] in documents or not is_readable(text):
            continue
        documents.add(unit["doc_id"])
        around = [_beside(unit, other[place], document) for other in (before, after)]
        weight = "" if weights is None else f", weight {weights[rows[place]]:.2g}"
        note = f"score {number(unit['score'])}{weight}"
        by_text.setdefault(
            text, UnitExample(beginning(text), note, _end(around[0]), beginning(around[1], LONGEST_BESIDE))
        )
    return tuple(by_text.values())[:UNITS]


def _beside(unit: dict[str, Any], other: dict[str, Any], document: str) -> str:
    """A neighbour's text on one line; empty where the row beside a unit is of another document, or is itself."""
    alike = other["doc_id"] == unit["doc_id"] and other["unit"] != unit["unit"]
    return " ".join(document[other["start"] : other["end"]].split()) if alike else ""


def beginning(text: str, most: int = LONGEST) -> str:
    """A text, cut to so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _end(text: str) -> str:
    return text if len(text) <= LONGEST_BESIDE else "…" + text[1 - LONGEST_BESIDE :]


def is_readable(text: str) -> bool:
    """Whether a text is long enough to show what it is an example of: headings and fragments say little.

    Counted are words with a letter, between spaces; in scripts that have no spaces two letters count as one.
    """
    spaced = sum(any(map(str.isalpha, word)) for word in text.split())
    words = max(spaced, len(_UNSPACED.findall(text)) // 2)
    return len(text) >= FEWEST_CHARACTERS and words >= FEWEST_WORDS
