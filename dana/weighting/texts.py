"""Process the texts of scored units in parallel: write the selected text, count tokens.

The selected text is a gzipped JSON file with one line per run of adjacent selected units. Each
process works on a span: the units of a range of whole documents.
"""

import gzip
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from dana.core.artifacts import META_DIR
from dana.core.errors import DataError
from dana.core.launch import cores
from dana.core.logging import progress
from dana.core.schemas import read_rows
from dana.core.workers import map_calls
from dana.models.folder import load_own_tokenizer, tokenizer_identity
from dana.weighting.pool import Pool, document_starts
from dana.weighting.settings import WeighSettings

UNITS = 1 << 19  # units of a span, extended to the end of its last document
MOST = 8  # processes; each uses 160 to 180 MB
SELECTED_TEXT = f"{META_DIR}/selected.jsonl.gz"  # in a weights folder; Parquet readers skip it
ONE = ""  # target name where there is only one
LEVEL = 6  # of gzip: 9 makes it 4 % smaller in 2.7 times the time

T = TypeVar("T")


class Texts:
    """Sequential access to the texts of a corpus, with a few documents in memory at a time.

    Args:
        corpus: Folder of the documents.
        first: Row to start from, at or before the first document requested.
    """

    def __init__(self, corpus: Path, first: int = 0) -> None:
        self._corpus = corpus
        batches = read_rows(corpus, ["doc_id", "text"], first, rows=1 << 10)
        # Texts stay in Arrow's memory, because most documents are skipped.
        pairs = (
            zip(batch.column(0).to_pylist(), batch.column(1), strict=True) for batch in batches
        )
        self._documents = chain.from_iterable(pairs)
        self._doc_id: str | None = None
        self._text = ""

    def text_of(self, doc_id: str) -> str:
        """Return the text of a document: the last one requested, or a later one.

        Raises:
            DataError: If the document is not in the corpus, or out of order.
        """
        while self._doc_id != doc_id:
            self._doc_id, text = next(self._documents, (None, None))
            if text is None:
                raise _not_in_order(self._corpus, doc_id)
            if (
                self._doc_id == doc_id
            ):  # decoded once: a document may be a large file with many units
                self._text = text.as_py()
        return self._text

    def of_units(self, table: pa.Table) -> Iterator[list[str]]:
        """Yield the unit texts of each document in a table of :data:`dana.core.schemas.SCORES`, in corpus order.

        Raises:
            DataError: If a document is not in the corpus, or out of order.
        """
        starts = document_starts(table)
        bounds = zip(starts.tolist(), [*starts[1:].tolist(), table.num_rows], strict=True)
        spans = list(zip(table["start"].to_pylist(), table["end"].to_pylist(), strict=True))
        for doc_id, (first, last) in zip(
            table["doc_id"].take(starts).to_pylist(), bounds, strict=True
        ):
            text = self.text_of(doc_id)
            yield [text[start:end] for start, end in spans[first:last]]


def _not_in_order(corpus: Path, doc_id: str) -> DataError:
    return DataError(
        f"{corpus}: document {doc_id!r} of the scores is missing or out of order; score this corpus again"
    )


def unit_texts(table: pa.Table, corpus: Path) -> list[str]:
    """Read the text of each unit of a table into memory; see :meth:`Texts.of_units`."""
    return [text for texts in Texts(corpus).of_units(table) for text in texts]


@dataclass(frozen=True)
class Span:
    """Consecutive units of whole documents, and the position of their text.

    Attributes:
        first: First row.
        last: One more than the last row.
        document: Row in the corpus of the first document, or of an earlier one.
    """

    first: int
    last: int
    document: int

    def pool(self, table: Path) -> Pool:
        """Open these units in a table of all units."""
        return Pool(table, first=self.first, last=self.last)


def map_spans(make: Callable[[int, Span], T], table: Path, corpus: Path, what: str) -> Iterator[T]:
    """Apply a function to each span of a table, in one process per core, at most eight; yields results in order.

    The spans, and so the results, are the same for any number of processes.

    Args:
        make: Called with a span's number and the span; it and its results can be pickled.
        table: Folder of the units, at least one.
        corpus: Folder of their documents.
        what: Label of the progress bar.

    Raises:
        DataError: If a document is not in the corpus, or out of order.
        DanaError: If a process was killed.
    """
    rows = Pool(table).rows
    begins = dict.fromkeys([0, *(_next_document(table, row) for row in range(UNITS, rows, UNITS))])
    first = [row for row in begins if row < rows]
    names = [next(read_rows(table, ["doc_id"], row, row + 1)).column(0)[0] for row in first[1:]]
    documents = [0, *_document_rows(names, corpus)]
    spans = [Span(*bounds) for bounds in zip(first, [*first[1:], rows], documents, strict=True)]
    with progress(what=what, unit="units", total=rows) as bar:
        count = min(cores(), MOST, len(spans))
        for span, result in zip(spans, map_calls(make, enumerate(spans), count), strict=True):
            bar.update(span.last - span.first)
            yield result


def _next_document(table: Path, row: int) -> int:
    """Find the first row at or after `row` that begins a document; the number of rows if none does."""
    rows, starts = next(Pool(table, first=row - 1).documents([]))
    return row - 1 + (int(starts[1]) if starts.size > 1 else rows.num_rows)


def _document_rows(names: list[pa.StringScalar], corpus: Path) -> Iterator[int]:
    """Find the rows of documents in a corpus, both in the same order."""
    remaining, row = names[::-1], 0
    for batch in read_rows(corpus, ["doc_id"]) if remaining else ():
        while remaining and (offset := pc.index(batch.column(0), remaining[-1]).as_py()) >= 0:
            remaining.pop()
            yield row + offset
        row += batch.num_rows
    if remaining:
        raise _not_in_order(corpus, remaining[-1].as_py())


@dataclass(frozen=True)
class SelectedText:
    """Writer of the selected text: one JSON line per run of adjacent units with a weight above 0.

    A line is contiguous text of one document: ``id``, ``doc_id``, ``source``, ``first_unit``,
    ``last_unit``, ``start``, ``end`` (characters), ``score`` (mean) and ``text``. With several
    targets a line is for one of them, in ``target``, and ``score`` is by that target's scores. The
    file has one gzip member per span; readers see one file.

    Attributes:
        weights: Folder of the weights, :data:`dana.core.schemas.WEIGHTS`, with ``target`` for
            several targets.
        scores: Folder of the scores of the same units, by target; a single target is named
            :data:`ONE`.
        corpus: Folder of the documents.
    """

    weights: Path
    scores: Mapping[str, Path]
    corpus: Path

    def write(self, path: Path) -> int:
        """Write the file; returns its number of lines."""
        lines = 0
        with path.open("wb") as stream:
            for member, count in map_spans(
                self.write_span, self.weights, self.corpus, "selected text"
            ):
                with member.open("rb") as source:
                    shutil.copyfileobj(source, stream)
                member.unlink()
                lines += count
        return lines

    def write_span(self, number: int, span: Span) -> tuple[Path, int]:
        """Write the gzip member of a span into the folder of the weights; returns its path and number of lines."""
        member, lines = self.weights / META_DIR / f"selected-{number}.gz", 0
        # Without time and name in the header, equal content gives equal bytes.
        with (
            member.open("wb") as raw,
            gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as archive,
            io.TextIOWrapper(archive, encoding="utf-8") as stream,
        ):
            for record in self._records(span):
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
                lines += 1
        return member, lines

    def _records(self, span: Span) -> Iterator[dict[str, Any]]:
        pool, texts, scores = span.pool(self.weights), Texts(self.corpus, span.document), {}
        for name, folder in self.scores.items():
            error = f"{folder}: its units are not those of {self.weights}; score and weigh again"
            tables = pool.read_aligned(span.pool(folder), ["score"], error)
            scores[f"score of {name}"] = np.concatenate(
                [table["score"].to_numpy() for table in tables]
            )
        several = [*self.scores] != [ONE]
        names = ["source", "start", "end", "weight", *scores, *(["target"] if several else [])]
        for table, starts in pool.with_columns(**scores).documents(names):
            label = (table["weight"].to_numpy() > 0).astype(np.int64)
            target = np.zeros(table.num_rows, dtype=np.int64)
            if several:
                target = (
                    pc.index_in(table["target"], pa.array([*self.scores])).fill_null(0).to_numpy()
                )
                label *= 1 + target
            score = np.stack([table[name].to_numpy() for name in scores])[
                target, np.arange(table.num_rows)
            ]
            start, end, unit = (table[name].to_numpy() for name in ("start", "end", "unit"))
            for first, last in _runs(label, starts):
                doc_id = table["doc_id"][first].as_py()
                record: dict[str, Any] = {
                    "id": f"{doc_id}:{unit[first]}-{unit[last]}",
                    "doc_id": doc_id,
                }
                record |= {"source": table["source"][first].as_py()}
                record |= {"first_unit": int(unit[first]), "last_unit": int(unit[last])}
                record |= {"start": int(start[first]), "end": int(end[last])}
                record |= {"score": float(score[first : last + 1].mean())}
                record |= {"text": texts.text_of(doc_id)[start[first] : end[last]]}
                yield {**record, "target": table["target"][first].as_py()} if several else record


def _runs(label: np.ndarray, starts: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield first and last row of each run of one label above 0 within a document.

    Args:
        label: int64 of shape (units,); 0 for units that are not selected.
        starts: First row of each document.
    """
    begins = np.append(True, label[1:] != label[:-1])
    begins[starts] = True
    first = np.flatnonzero(begins)
    last, is_selected = np.append(first[1:], label.size) - 1, label[first] > 0
    return zip(first[is_selected].tolist(), last[is_selected].tolist(), strict=True)


def counting_tokenizer(settings: WeighSettings) -> tuple[Tokenizer, str] | None:
    """Load the tokenizer that counts a budget in tokens, with a digest of all that decides its counts.

    Returns None, and loads nothing, if the budget is not in tokens.

    Raises:
        ArtifactError: If the tokenizer cannot be read.
        ConfigError: If it is not a fast tokenizer.
    """
    if settings.effective_budget.kind != "tokens":
        return None
    own_tokenizer = load_own_tokenizer(str(settings.tokenizer))
    split = own_tokenizer.split_special_tokens
    digest = tokenizer_identity(own_tokenizer, "are text" if split else "are tokens")
    tokenizer: Tokenizer = own_tokenizer.backend_tokenizer
    tokenizer.encode_special_tokens = split  # True: "[MASK]" in a text is plain text
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, digest


def count_tokens(scores: Path, corpus: Path, tokenizer: Tokenizer) -> np.ndarray:
    """Count the tokens of each unit without special tokens, int32 of shape (units,).

    Args:
        scores: Folder of the units.
        corpus: Folder of their documents.
        tokenizer: Fast tokenizer from :func:`counting_tokenizer`.

    Raises:
        DataError: If a document is not in the corpus.
    """
    count = partial(_count_span, scores, corpus, tokenizer, tokenizer.encode_special_tokens)
    return np.concatenate([*map_spans(count, scores, corpus, "counting tokens")])


def _count_span(
    scores: Path, corpus: Path, tokenizer: Tokenizer, split: bool, number: int, span: Span
) -> np.ndarray:
    tokenizer.encode_special_tokens = split  # lost by pickling
    texts, counts = Texts(corpus, span.document), np.empty(span.last - span.first, np.int32)
    row = 0
    for table, _ in span.pool(scores).documents(["start", "end"]):
        for of_document in texts.of_units(table):
            encodings = tokenizer.encode_batch_fast(of_document, add_special_tokens=False)
            counts[row : row + len(encodings)] = [len(tokens) for tokens in encodings]
            row += len(encodings)
    return counts
