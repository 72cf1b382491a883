"""Choose example units to read from a scored pool.

They are those with the lowest and the highest scores of a few sources. Each is shown between its
neighbours in the document.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dana.core.schemas import part_files
from dana.report.page import ExamplesBySource, SourceExamples, UnitExample, number

SOURCES = 4  # number of sources shown
UNITS = 2  # units shown per source
CANDIDATES = 20  # units looked up per source: two remain without short texts and repeats
# An example has at least so many.
FEWEST_WORDS = 8
FEWEST_CHARACTERS = 24
# Letters of Thai, Lao, Japanese and Chinese.
_UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")
LONGEST = 300  # characters of a unit
LONGEST_BESIDE = 120  # characters of a neighbour


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
            ids = file.read_row_group(group, columns=["doc_id"])["doc_id"]
            is_wanted = pc.is_in(ids, value_set=doc_ids)
            if not pc.any(is_wanted).as_py():
                continue
            table = file.read_row_group(group, columns=["doc_id", "text"]).filter(is_wanted)
            for row in table.to_pylist():
                texts[row["doc_id"]] = row["text"]
    return texts


def most_extreme(
    scores: pa.Table, pool: Path, weights: np.ndarray | None = None
) -> tuple[ExamplesBySource, ExamplesBySource]:
    """Choose the most relevant and the most foreign units to read, two of each of four sources.

    A unit has at least eight words. With weights, the sources are those with most selected text
    (for foreign units, with most text left out); without, those with the most extreme units.

    Args:
        scores: Table of :data:`dana.core.schemas.SCORES`, the units of a document in order.
        pool: Folder of the documents; without it there are no examples.
        weights: Weight of each unit in [0, 1], of shape (units,).

    Returns:
        The most relevant units, and the most foreign ones, by source.
    """
    if not part_files(pool) or not scores.num_rows:
        return (), ()
    source = scores["source"].combine_chunks().dictionary_encode()
    codes = source.indices.to_numpy()
    characters = scores["end"].to_numpy() - scores["start"].to_numpy()
    order = np.argsort(scores["score"].to_numpy(), kind="stable")
    order = order[characters[order] >= FEWEST_CHARACTERS]
    selected = None
    left_out = None
    if weights is not None:
        selected = characters * weights
        left_out = characters * (1 - weights)
    relevant = _candidates(order, codes, selected)
    foreign = _candidates(order[::-1], codes, left_out)
    rows = np.concatenate([np.empty(0, np.int64), *relevant.values(), *foreign.values()])
    texts = documents_of(pool, scores["doc_id"].take(pa.array(rows)).unique())
    names = source.dictionary.to_pylist()

    def examples_of(candidates: dict[int, np.ndarray]) -> ExamplesBySource:
        by_source = []
        for code, rows in candidates.items():
            units = _examples(rows, scores, texts, weights)
            if units:
                by_source.append(SourceExamples(names[code], units))
        return tuple(by_source[:SOURCES])

    return examples_of(relevant), examples_of(foreign)


def _candidates(
    order: np.ndarray, codes: np.ndarray, text: np.ndarray | None
) -> dict[int, np.ndarray]:
    """Return the units of a few sources that may become examples, by the code of the source.

    Args:
        order: Rows of units, the best example first.
        codes: Source of each unit, of shape (units,).
        text: Amount of text that each unit stands for, of shape (units,); the source with most
            comes first. None: the source of the best example comes first.
    """
    if text is None:
        sources = list(dict.fromkeys(codes[order].tolist()))
    else:
        amount = np.bincount(codes, weights=text)
        sources = [code for code in np.argsort(-amount, kind="stable").tolist() if amount[code] > 0]
    candidates = {}
    for code in sources[: 2 * SOURCES]:  # some may have no readable unit
        candidates[code] = order[codes[order] == code][:CANDIDATES]
    return candidates


def _examples(
    rows: np.ndarray, scores: pa.Table, texts: dict[str, str], weights: np.ndarray | None
) -> tuple[UnitExample, ...]:
    """Make examples of units: one per document, long enough to read, without repeated texts.

    Args:
        rows: Rows of the units, the best example first.
        scores: Table of :data:`dana.core.schemas.SCORES`.
        texts: Texts of the documents by id.
        weights: Weight of each unit in [0, 1], of shape (units,), for the note; None without.
    """
    columns = scores.select(["doc_id", "unit", "start", "end", "score"])

    def units_at(offset: int) -> list[dict[str, Any]]:
        neighbours = np.clip(rows + offset, 0, scores.num_rows - 1)
        units: list[dict[str, Any]] = columns.take(pa.array(neighbours)).to_pylist()
        return units

    documents: set[str] = set()
    by_text: dict[str, UnitExample] = {}
    every = zip(rows, units_at(-1), units_at(0), units_at(1), strict=True)
    for row, previous, unit, following in every:
        document = texts.get(unit["doc_id"], "")
        text = _on_one_line(unit, document)
        if unit["doc_id"] in documents or not is_readable(text):
            continue
        documents.add(unit["doc_id"])
        note = f"score {number(unit['score'])}"
        if weights is not None:
            note += f", weight {weights[row]:.2g}"
        before = _beside(unit, previous, document)
        after = _beside(unit, following, document)
        example = UnitExample(beginning(text), note, _end(before), beginning(after, LONGEST_BESIDE))
        by_text.setdefault(text, example)
    return tuple(by_text.values())[:UNITS]


def _on_one_line(unit: dict[str, Any], document: str) -> str:
    """Return the text of a unit on one line."""
    return " ".join(document[unit["start"] : unit["end"]].split())


def _beside(unit: dict[str, Any], other: dict[str, Any], document: str) -> str:
    """Return a neighbour's text on one line; empty at the ends of a document."""
    is_neighbour = other["doc_id"] == unit["doc_id"] and other["unit"] != unit["unit"]
    return _on_one_line(other, document) if is_neighbour else ""


def beginning(text: str, limit: int = LONGEST) -> str:
    """Cut a text to at most `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _end(text: str) -> str:
    """Cut the beginning of a neighbour's text if it is too long."""
    return text if len(text) <= LONGEST_BESIDE else "…" + text[1 - LONGEST_BESIDE :]


def is_readable(text: str) -> bool:
    """Return True if a text has enough words to serve as an example.

    Words contain a letter and stand between spaces; in scripts without spaces, two letters count as
    a word.
    """
    spaced_words = sum(any(map(str.isalpha, word)) for word in text.split())
    unspaced_words = len(_UNSPACED.findall(text)) // 2
    words = max(spaced_words, unspaced_words)
    return len(text) >= FEWEST_CHARACTERS and words >= FEWEST_WORDS
