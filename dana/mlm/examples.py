"""From a corpus and its weights to training examples: windows of text that was kept, each with one weight.

Neighbouring kept units of a document form a run; a run is tokenised as one text and cut into windows of
equal length. Nothing crosses a gap between kept units or the end of a document, and no token of a run is
discarded.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dana.config import require
from dana.errors import ConfigError, DataError
from dana.logging import tracked
from dana.rng import derive_seed
from dana.schemas import Document, iterate_documents, parts

RUNS_AT_ONCE = 1024  # enough for the tokenizer's threads, little enough to hold their offsets


@dataclass(frozen=True)
class Examples:
    """Training examples end to end.

    Attributes:
        tokens: int32 of shape (tokens,), special tokens included.
        offsets: int64 of shape (examples + 1,); example i is ``tokens[offsets[i]:offsets[i + 1]]``.
        ids: uint64 of shape (examples,), a hash of document and first character: the same text has the same
            id, and so the same masks and place in the order, in every arm.
        weights: float32 of shape (examples,), λ > 0.
    """

    tokens: np.ndarray
    offsets: np.ndarray
    ids: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return self.ids.size

    @property
    def lengths(self) -> np.ndarray:
        """int64 of shape (examples,), tokens of each."""
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray) -> "Examples":
        """The examples at `rows`, in that order."""
        pieces = [self.tokens[self.offsets[row] : self.offsets[row + 1]] for row in rows]
        tokens = np.concatenate(pieces) if pieces else self.tokens[:0]
        offsets = np.concatenate([[0], np.cumsum(self.lengths[rows])]).astype(np.int64)
        return Examples(tokens, offsets, self.ids[rows], self.weights[rows])


@dataclass(frozen=True)
class Run:
    """Text that was kept without a gap.

    Attributes:
        doc_id: Its document.
        start: Its first character in the document.
        text: The document's text from the first unit's start to the last unit's end.
        unit_starts: Shape (units,), ascending, where each unit starts in `text`.
        unit_weights: Shape (units,), λ of each.
    """

    doc_id: str
    start: int
    text: str
    unit_starts: np.ndarray
    unit_weights: np.ndarray


def build_examples(
    corpus: Path,
    weights: Path | None,
    tokenizer: Any,
    max_tokens: int,
    exclude: Collection[str] = (),
) -> tuple[Examples, dict[str, int]]:
    """Tokenise what the weights keep of a corpus.

    Args:
        corpus: Folder of :data:`dana.schemas.DOCUMENTS`.
        weights: Folder of :data:`dana.schemas.WEIGHTS` in corpus order; rows of weight 0 or segment -1 are
            left out. Without one, everything counts with weight 1.
        tokenizer: A fast Hugging Face tokenizer.
        max_tokens: Most tokens of an example, special tokens included.
        exclude: Documents never to train on, by id.

    Returns:
        The examples, and counts of documents (in = kept + left out + excluded), runs, windows and tokens.

    Raises:
        DataError: If the weights do not fit the corpus, or nothing is left.
        ConfigError: If the tokenizer is slow or `max_tokens` too small for it.
    """
    counts: Counter[str] = Counter(documents_in=0, documents_kept=0, documents_left_out=0, documents_excluded=0)
    cutter = Cutter.of(tokenizer, max_tokens)
    documents = _counted(iterate_documents(corpus), set(exclude), counts)
    runs = runs_of_weights(documents, weights, counts) if weights else _whole_documents(documents, counts)
    pieces: list[Examples] = []
    waiting: list[Run] = []
    for run in tracked(runs, what="tokenise", unit="runs"):
        waiting.append(run)
        if len(waiting) == RUNS_AT_ONCE:
            pieces.append(cutter.cut(waiting, counts))
            waiting = []
    pieces.append(cutter.cut(waiting, counts))
    examples = concatenate(pieces)
    if len(examples) == 0:
        raise DataError(f"{weights or corpus}: no text to train on is left ({dict(counts)})")
    return examples, dict(counts)


def concatenate(pieces: list[Examples]) -> Examples:
    """Examples of all pieces, in order."""
    lengths = np.concatenate([piece.lengths for piece in pieces])
    return Examples(
        np.concatenate([piece.tokens for piece in pieces]).astype(np.int32),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([piece.ids for piece in pieces]).astype(np.uint64),
        np.concatenate([piece.weights for piece in pieces]).astype(np.float32),
    )


def _counted(documents: Iterable[Document], exclude: set[str], counts: Counter[str]) -> Iterator[tuple[Document, bool]]:
    """Each document, and whether it may be trained on."""
    for document in documents:
        counts["documents_in"] += 1
        counts["documents_excluded"] += document.doc_id in exclude
        yield document, document.doc_id not in exclude


def _whole_documents(documents: Iterator[tuple[Document, bool]], counts: Counter[str]) -> Iterator[Run]:
    for document, wanted in documents:
        if wanted:
            counts["documents_kept"] += 1
            yield Run(document.doc_id, 0, document.text, np.array([0]), np.array([1.0]))


def runs_of_weights(documents: Iterator[tuple[Document, bool]], weights: Path, counts: Counter[str]) -> Iterator[Run]:
    """Runs of kept, neighbouring units, corpus and weights read side by side.

    Raises:
        DataError: If the weights name a document that is not next in the corpus.
    """
    groups = weights_by_document(weights)
    doc_id, rows = next(groups, (None, None))
    for document, wanted in documents:
        runs: list[Run] = []
        if doc_id == document.doc_id and rows is not None:
            runs = kept_runs(document, rows) if wanted else []
            doc_id, rows = next(groups, (None, None))
        counts["documents_kept"] += wanted and bool(runs)
        counts["documents_left_out"] += wanted and not runs
        yield from runs
    if doc_id is not None:
        raise DataError(f"{weights}: document {doc_id!r} is not in the corpus at its place; weigh this corpus again")


def weights_by_document(weights: Path) -> Iterator[tuple[str, pa.Table]]:
    """Each document's rows of a weights folder, in order, a batch in memory at a time."""
    columns = ["doc_id", "unit", "start", "end", "segment", "weight"]
    waiting: pa.Table | None = None
    for part in parts(weights):
        for batch in pq.ParquetFile(part).iter_batches(columns=columns):
            table = pa.Table.from_batches([batch])
            waiting = table if waiting is None else pa.concat_tables([waiting, table]).combine_chunks()
            *whole, last = _split(waiting)
            yield from whole
            waiting = last[1]  # its document may go on in the next batch
    if waiting is not None and waiting.num_rows:
        yield from _split(waiting)


def _split(table: pa.Table) -> list[tuple[str, pa.Table]]:
    names = table["doc_id"].to_numpy(zero_copy_only=False)
    bounds = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), names.size]
    return [
        (names[first], table.slice(first, last - first)) for first, last in zip(bounds[:-1], bounds[1:], strict=True)
    ]


def kept_runs(document: Document, rows: pa.Table) -> list[Run]:
    """Runs of one document: its kept units, broken wherever a unit between them was not kept.

    Raises:
        DataError: If a span ends behind the document.
    """
    unit, start, end = (rows[name].to_numpy() for name in ("unit", "start", "end"))
    weight = rows["weight"].to_numpy()
    kept = np.flatnonzero((weight > 0) & (rows["segment"].to_numpy() >= 0))
    if end.size and end.max() > len(document.text):
        raise DataError(
            f"weights of document {document.doc_id!r} reach character {end.max()}, but it has {len(document.text)}"
        )
    breaks = np.flatnonzero(np.diff(unit[kept]) != 1) + 1
    return [
        Run(
            document.doc_id,
            int(start[run[0]]),
            document.text[start[run[0]] : end[run[-1]]],
            start[run] - start[run[0]],
            weight[run].astype(np.float64),
        )
        for run in np.split(kept, breaks)
        if run.size
    ]


@dataclass(frozen=True)
class Cutter:
    """Tokenises runs and cuts them into windows.

    Attributes:
        tokenizer: A fast tokenizer.
        room: Tokens of text in a window.
        before: Special tokens put before them.
        after: Special tokens put behind them.
    """

    tokenizer: Any
    room: int
    before: np.ndarray
    after: np.ndarray

    @classmethod
    def of(cls, tokenizer: Any, max_tokens: int) -> "Cutter":
        """The cutter of a tokenizer, its special tokens found by looking at what it adds to a letter."""
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigError(f"tokenizer {type(tokenizer).__name__} is slow; character offsets need a fast one")
        bare = tokenizer("a", add_special_tokens=False)["input_ids"]
        full = tokenizer("a")["input_ids"]
        at = next(place for place in range(len(full)) if full[place : place + len(bare)] == bare)
        before, after = full[:at], full[at + len(bare) :]
        room = max_tokens - len(before) - len(after)
        require(room >= 1, "max_tokens", max_tokens, f"at least {max_tokens - room + 1} for this tokenizer")
        return cls(tokenizer, room, np.array(before, dtype=np.int32), np.array(after, dtype=np.int32))

    def cut(self, runs: list[Run], counts: Counter[str]) -> Examples:
        """Windows of all runs, in order."""
        pieces: list[np.ndarray] = []
        ids: list[int] = []
        weights: list[float] = []
        encodings = self.tokenizer(
            [run.text for run in runs], add_special_tokens=False, return_offsets_mapping=True, verbose=False
        ).encodings if runs else []
        for run, encoding in zip(runs, encodings, strict=True):
            tokens = np.array(encoding.ids, dtype=np.int32)
            starts = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)[:, 0]
            of_unit = run.unit_weights[np.searchsorted(run.unit_starts, starts, side="right") - 1]
            # Equal windows rather than full ones and a rest: a rest of two tokens is no context to learn from.
            for window in np.array_split(np.arange(tokens.size), -(-tokens.size // self.room) or 1):
                if window.size:
                    pieces += [self.before, tokens[window], self.after]
                    ids.append(derive_seed(0, "example", run.doc_id, run.start + int(starts[window[0]])))
                    weights.append(float(of_unit[window].mean()))
            counts["tokens_text"] += tokens.size
        special = self.before.size + self.after.size
        counts["runs"] += len(runs)
        counts["windows"] += len(ids)
        lengths = np.array([piece.size for piece in pieces[1::3]], dtype=np.int64) + special
        counts["tokens_with_special"] += int(lengths.sum())
        return Examples(
            np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int32),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.array(ids, dtype=np.uint64),
            np.array(weights, dtype=np.float32),
        )
