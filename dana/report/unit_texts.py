"""Choose example units to read from a scored pool: those with the lowest and the highest scores of a few sources.

Each example is shown between its neighbours in the document.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dana.core.schemas import part_files
from dana.report.page import Examples_, SourceExamples, UnitExample, number

SOURCES = 4  # number of sources shown
UNITS = 2  # units shown per source
CANDIDATES = 20  # units looked up per source: two remain without short texts and repeats
FEWEST_WORDS, FEWEST_CHARACTERS = 8, 24  # of an example
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]"
)  # letters of Thai, Lao, Japanese and Chinese
LONGEST, LONGEST_BESIDE = 300, 120  # characters of a unit and of a neighbour


def documents_of(pool: Path, doc_ids: pa.Array) -> dict[str, str]:
    """Read the texts of documents by id; only row groups that hold one are read whole.

    Args:
        pool: Folder of the documents.
        doc_ids: Ids; missing ones are left out.
    """
    texts: dict[str, str] = {}
    for part in part_files(pool):
        file = pq.ParquetFile(part)
        for group in range(file.num_row_groups):
            matches = pc.is_in(
                file.read_row_group(group, columns=["doc_id"])["doc_id"], value_set=doc_ids
            )
            if pc.any(matches).as_py():
                table = file.read_row_group(group, columns=["doc_id", "text"]).filter(matches)
                texts |= dict(
                    zip(table["doc_id"].to_pylist(), table["text"].to_pylist(), strict=True)
                )
    return texts


def most_extreme(
    scores: pa.Table, pool: Path, weights: np.ndarray | None = None
) -> tuple[Examples_, Examples_]:
    """Choose the most relevant and the most foreign units of at least eight words: two per source, of four sources.

    With weights, the sources are those with most selected text (for foreign units, with most text
    left out); without, those with the most extreme units.

    Args:
        scores: Table of :data:`dana.core.schemas.SCORES`, the units of a document in order.
        pool: Folder of the documents; without it there are no examples.
        weights: Weight of each unit in [0, 1], of shape (units,).
    """
    if not part_files(pool) or not scores.num_rows:
        return (), ()
    source = scores["source"].combine_chunks().dictionary_encode()
    codes, names = source.indices.to_numpy(), source.dictionary.to_pylist()
    characters = scores["end"].to_numpy() - scores["start"].to_numpy()
    order = np.argsort(scores["score"].to_numpy(), kind="stable")
    order = order[characters[order] >= FEWEST_CHARACTERS]
    chosen_text, other_text = (
        (None, None) if weights is None else (characters * weights, characters * (1 - weights))
    )
    sides = [_candidates(order, codes, chosen_text), _candidates(order[::-1], codes, other_text)]
    every = np.concatenate(
        [rows for side in sides for rows in side.values()] or [np.empty(0, np.int64)]
    )
    texts = documents_of(pool, scores["doc_id"].take(pa.array(every)).unique())

    def examples_of(side: dict[int, np.ndarray]) -> Examples_:
        every = (
            SourceExamples(names[code], _examples(rows, scores, texts, weights))
            for code, rows in side.items()
        )
        return tuple(examples for examples in every if examples.units)[:SOURCES]

    return examples_of(sides[0]), examples_of(sides[1])


def _candidates(
    order: np.ndarray, codes: np.ndarray, text: np.ndarray | None
) -> dict[int, np.ndarray]:
    """Return the first rows in `order` of a few sources, by their codes; the source with most `text` first."""
    if text is None:
        sources = list(dict.fromkeys(codes[order].tolist()))
    else:
        amount = np.bincount(codes, weights=text)
        sources = [code for code in np.argsort(-amount, kind="stable").tolist() if amount[code] > 0]
    return {code: order[codes[order] == code][:CANDIDATES] for code in sources[: 2 * SOURCES]}


def _examples(
    rows: np.ndarray, scores: pa.Table, texts: dict[str, str], weights: np.ndarray | None
) -> tuple[UnitExample, ...]:
    """Make examples of the rows: one unit per document, long enough to read, without repeated texts."""
    offsets = [np.clip(rows + step, 0, scores.num_rows - 1) for step in (-1, 0, 1)]
    columns = scores.select(["doc_id", "unit", "start", "end", "score"])
    before, units, after = (
        columns.take(pa.array(neighbours)).to_pylist() for neighbours in offsets
    )
    documents: set[str] = set()
    by_text: dict[str, UnitExample] = {}
    for index, unit in enumerate(units):
        document = texts.get(unit["doc_id"], "")
        text = " ".join(document[unit["start"] : unit["end"]].split())
        if unit["doc_id"] in documents or not is_readable(text):
            continue
        documents.add(unit["doc_id"])
        context = [_beside(unit, other[index], document) for other in (before, after)]
        weight = "" if weights is None else f", weight {weights[rows[index]]:.2g}"
        note = f"score {number(unit['score'])}{weight}"
        example = UnitExample(
            beginning(text), note, _end(context[0]), beginning(context[1], LONGEST_BESIDE)
        )
        by_text.setdefault(text, example)
    return tuple(by_text.values())[:UNITS]


def _beside(unit: dict[str, Any], other: dict[str, Any], document: str) -> str:
    """Return a neighbour's text on one line; empty at the ends of a document."""
    alike = other["doc_id"] == unit["doc_id"] and other["unit"] != unit["unit"]
    return " ".join(document[other["start"] : other["end"]].split()) if alike else ""


def beginning(text: str, limit: int = LONGEST) -> str:
    """Cut a text to at most `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _end(text: str) -> str:
    return text if len(text) <= LONGEST_BESIDE else "…" + text[1 - LONGEST_BESIDE :]


def is_readable(text: str) -> bool:
    """Return True if a text has enough words to serve as an example.

    Words contain a letter and stand between spaces; in scripts without spaces, two letters count as
    a word.
    """
    words = sum(any(map(str.isalpha, word)) for word in text.split())
    return (
        len(text) >= FEWEST_CHARACTERS
        and max(words, len(_UNSPACED.findall(text)) // 2) >= FEWEST_WORDS
    )
