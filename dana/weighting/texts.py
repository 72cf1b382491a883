"""Work on the texts of scored units in several processes: write the kept text, count tokens.

The kept text is a gzipped JSON line a run of adjacent kept units. A process has a span: units of whole documents.
"""

import gzip
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from dana.core.artifacts import OWN
from dana.core.errors import DataError
from dana.core.launch import cores
from dana.core.logging import progress
from dana.core.schemas import read_rows
from dana.core.workers import shared_out
from dana.models.folder import load_own_tokenizer, tokenizer_identity
from dana.weighting.pool import Pool, document_starts
from dana.weighting.settings import WeighSettings

UNITS = 1 << 19  # of a span, and on to the end of its last document
MOST = 8  # processes: each holds 160 to 180 MB
SELECTED_TEXT = f"{OWN}/selected.jsonl.gz"  # in a weights folder, which Parquet readers open as it is
ONE = ""  # the name of a target that is the only one
LEVEL = 6  # of gzip: 9 makes it 4 % smaller in 2.7 times the time

T = TypeVar("T")


class Texts:
    """Texts of a corpus, asked for document by document in its order, a few of them in memory at a time.

    Args:
        corpus: Folder of the documents.
        first: Row of the first that will be asked for, or of one before it.
    """

    def __init__(self, corpus: Path, first: int = 0) -> None:
        self._corpus = corpus
        batches = read_rows(corpus, ["doc_id", "text"], first, rows=1 << 10)
        # the texts still in Arrow's memory, since most are passed over
        self._documents = (
            row for batch in batches for row in zip(batch.column(0).to_pylist(), batch.column(1), strict=True)
        )
        self._doc_id: str | None = None
        self._text = ""

    def named(self, doc_id: str) -> str:
        """The text of a document, the same as the last one asked for or one behind it.

        Raises:
            DataError: If it is not in the corpus, or not in this order.
        """
        while self._doc_id != doc_id:
            self._doc_id, text = next(self._documents, (None, None))
            if text is None:
                raise _not_in_order(self._corpus, doc_id)
            if self._doc_id == doc_id:  # decoded once, however often it is asked for: a document may be a large file
                self._text = text.as_py()
        return self._text

    def of_units(self, table: pa.Table) -> Iterator[list[str]]:
        """Texts of the units of each document in a table of :data:`dana.core.schemas.SCORES`, in the corpus' order.

        Raises:
            DataError: If a document is not in the corpus, or not in this order.
        """
        starts = document_starts(table)
        bounds = zip(starts.tolist(), [*starts[1:].tolist(), table.num_rows], strict=True)
        spans = list(zip(table["start"].to_pylist(), table["end"].to_pylist(), strict=True))
        for doc_id, (first, last) in zip(table["doc_id"].take(starts).to_pylist(), bounds, strict=True):
            text = self.named(doc_id)
            yield [text[start:end] for start, end in spans[first:last]]


def _not_in_order(corpus: Path, doc_id: str) -> DataError:
    return DataError(f"{corpus}: document {doc_id!r} of the scores is not there, or out of order")


def unit_texts(table: pa.Table, corpus: Path) -> list[str]:
    """Text of each unit of a table, in memory; see :meth:`Texts.of_units`."""
    return [text for texts in Texts(corpus).of_units(table) for text in texts]


@dataclass(frozen=True)
class Span:
    """Neighbouring units of whole documents, and where their text is.

    Attributes:
        first: The first row.
        last: The row behind the last one.
        document: Row in the corpus of the first document, or of one before it.
    """

    first: int
    last: int
    document: int

    def pool(self, table: Path) -> Pool:
        """The units, as a table of all of them has them."""
        return Pool(table, first=self.first, last=self.last)


def map_spans(make: Callable[[int, Span], T], table: Path, corpus: Path, what: str) -> Iterator[T]:
    """What is made of each span of a table, in order; by as many processes as there are cores, eight at most.

    The spans, and so all that is made of them, are the same for any number of processes.

    Args:
        make: Called with a span's number and the span; it, and what it returns, can be pickled.
        table: Folder of the units, at least one.
        corpus: Folder of their documents.
        what: Is made, for the progress bar.

    Raises:
        DataError: If a document is not in the corpus, or not in this order.
        DanaError: If a process was killed.
    """
    rows = Pool(table).rows
    begins = dict.fromkeys([0, *(_next_document(table, row) for row in range(UNITS, rows, UNITS))])
    first = [row for row in begins if row < rows]
    names = [next(read_rows(table, ["doc_id"], row, row + 1)).column(0)[0] for row in first[1:]]
    documents = [0, *_places(names, corpus)]
    spans = [Span(*about) for about in zip(first, [*first[1:], rows], documents, strict=True)]
    with progress(what=what, unit="units", total=rows) as bar:
        count = min(cores(), MOST, len(spans))
        for span, made in zip(spans, shared_out(make, enumerate(spans), count), strict=True):
            bar.update(span.last - span.first)
            yield made


def _next_document(table: Path, row: int) -> int:
    """The first row from `row` on that begins a document; behind the last one if none does."""
    whole, starts = next(Pool(table, first=row - 1).documents([]))
    return row - 1 + (int(starts[1]) if starts.size > 1 else whole.num_rows)


def _places(names: list[pa.StringScalar], corpus: Path) -> Iterator[int]:
    """Rows in the corpus of documents that are in its order."""
    left, row = names[::-1], 0
    for batch in read_rows(corpus, ["doc_id"]) if left else ():
        while left and (place := pc.index(batch.column(0), left[-1]).as_py()) >= 0:
            left.pop()
            yield row + place
        row += batch.num_rows
    if left:
        raise _not_in_order(corpus, left[-1].as_py())


@dataclass(frozen=True)
class SelectedText:
    """Writes a JSON line a run of adjacent units with a weight.

    A line holds text of one document and nothing that was left out in between: ``id``, ``doc_id``, ``source``,
    ``first_unit``, ``last_unit``, ``start``, ``end`` (characters), ``score`` (mean) and ``text``; of several targets it
    is of one, its ``target``, by whose scores ``score`` is. The file is one member of gzip a span, which every reader
    takes for one file.

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
            for member, count in map_spans(self.write_span, self.weights, self.corpus, "kept text"):
                with member.open("rb") as packed:
                    shutil.copyfileobj(packed, whole)
                member.unlink()
                lines += count
        return lines

    def write_span(self, number: int, span: Span) -> tuple[Path, int]:
        """Write a member, in the folder of the weights; returns it and its lines."""
        member, lines = self.weights / OWN / f"selected-{number}.gz", 0
        # mtime 0 and no name: same content, same bytes
        with (
            member.open("wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0, compresslevel=LEVEL) as packed,
            io.TextIOWrapper(packed, encoding="utf-8") as stream,
        ):
            for record in self._records(span):
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
                lines += 1
        return member, lines

    def _records(self, span: Span) -> Iterator[dict[str, Any]]:
        pool, texts, scores = span.pool(self.weights), Texts(self.corpus, span.document), {}
        for name, folder in self.scores.items():
            error = f"{folder}: holds other units than {self.weights}"
            tables = pool.read_aligned(span.pool(folder), ["score"], error)
            scores[f"score of {name}"] = np.concatenate([table["score"].to_numpy() for table in tables])
        several = [*self.scores] != [ONE]
        names = ["source", "start", "end", "weight", *scores, *(["target"] if several else [])]
        for table, starts in pool.with_columns(**scores).documents(names):
            label = (table["weight"].to_numpy() > 0).astype(np.int64)
            target = np.zeros(table.num_rows, dtype=np.int64)
            if several:
                target = pc.index_in(table["target"], pa.array([*self.scores])).fill_null(0).to_numpy()
                label *= 1 + target
            score = np.stack([table[name].to_numpy() for name in scores])[target, np.arange(table.num_rows)]
            start, end, unit = (table[name].to_numpy() for name in ("start", "end", "unit"))
            for first, last in _runs(label, starts):
                doc_id = table["doc_id"][first].as_py()
                record = {
                    "id": f"{doc_id}:{unit[first]}-{unit[last]}",
                    "doc_id": doc_id,
                    "source": table["source"][first].as_py(),
                    "first_unit": int(unit[first]),
                    "last_unit": int(unit[last]),
                    "start": int(start[first]),
                    "end": int(end[last]),
                    "score": float(score[first : last + 1].mean()),
                    "text": texts.named(doc_id)[start[first] : end[last]],
                }
                yield {**record, "target": table["target"][first].as_py()} if several else record


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


def counting_tokenizer(settings: WeighSettings) -> tuple[Tokenizer, str] | None:
    """The tokenizer that counts a budget, and a digest of what decides how many tokens a text has.

    None where the budget is not in tokens, and nothing is loaded.

    Raises:
        ArtifactError: If it cannot be read.
        ConfigError: If it is a slow one, which does not count by itself.
    """
    if settings.effective_budget.kind != "tokens":
        return None
    loaded = load_own_tokenizer(str(settings.tokenizer))
    split = loaded.split_special_tokens
    digest = tokenizer_identity(loaded, "are text" if split else "are tokens")
    tokenizer: Tokenizer = loaded.backend_tokenizer
    tokenizer.encode_special_tokens = split  # whether "[MASK]" in a text is text
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, digest


def count_tokens(scores: Path, corpus: Path, tokenizer: Tokenizer) -> np.ndarray:
    """Tokens of each unit without special tokens, int32 of shape (units,).

    Args:
        scores: Folder of the units.
        corpus: Folder of their documents.
        tokenizer: That counts.

    Raises:
        DataError: If a document is not in the corpus.
    """
    count = partial(_count_span, scores, corpus, tokenizer, tokenizer.encode_special_tokens)
    return np.concatenate([*map_spans(count, scores, corpus, "counting tokens")])


def _count_span(scores: Path, corpus: Path, tokenizer: Tokenizer, split: bool, number: int, span: Span) -> np.ndarray:
    tokenizer.encode_special_tokens = split  # which pickling forgets
    texts, counts = Texts(corpus, span.document), np.empty(span.last - span.first, np.int32)
    row = 0
    for table, _ in span.pool(scores).documents(["start", "end"]):
        for of_document in texts.of_units(table):
            encoded = tokenizer.encode_batch_fast(of_document, add_special_tokens=False)
            counts[row : row + len(encoded)] = [len(tokens) for tokens in encoded]
            row += len(encoded)
    return counts
