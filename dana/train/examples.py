"""Training examples: a tokenised corpus and its weights in, windows of kept text with a weight each out.

A run is a stretch of neighbouring kept units. Its tokens are cut into windows of equal length: nothing crosses a gap
between kept units or the end of a document, and no token of a run is discarded.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.logging import tracked
from dana.core.rng import derive_seed
from dana.core.schemas import parts, read_batches
from dana.train.tokens import Tokenised, Tokens


@dataclass(frozen=True)
class Batch:
    """Some examples, end to end in memory.

    Attributes:
        tokens: int32 of shape (tokens,), special tokens included.
        offsets: int64 of shape (examples + 1,); example i is ``tokens[offsets[i]:offsets[i + 1]]``.
        ids: uint64 of shape (examples,).
        weights: float32 of shape (examples,).
    """

    tokens: np.ndarray
    offsets: np.ndarray
    ids: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return self.ids.size


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of every example.

    Attributes:
        before: int32, put before the text.
        after: int32, put behind it.
        middle: int32, put between the two halves of it; empty unless they are to be a pair.
    """

    before: np.ndarray
    after: np.ndarray
    middle: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int32))

    @classmethod
    def of(cls, tokenizer: Any, paired: bool = False) -> "SpecialTokens":
        """What a tokenizer adds to a text, or to a pair of texts, read off what it adds to a letter."""
        bare = tokenizer("a", add_special_tokens=False)["input_ids"]
        full = tokenizer("a")["input_ids"]
        at = next(place for place in range(len(full)) if full[place : place + len(bare)] == bare)
        before, after, middle = full[:at], full[at + len(bare) :], []
        if paired:
            both = tokenizer("a", "a")["input_ids"]
            middle = both[at + len(bare) : len(both) - len(bare) - len(after)]
        return cls(*(np.array(part, dtype=np.int32) for part in (before, after, middle)))

    @property
    def size(self) -> int:
        """Special tokens of an example."""
        return self.before.size + self.middle.size + self.after.size


@dataclass(frozen=True)
class Examples:
    """Training examples: spans of a token stream, which is not copied and may be mapped from disk.

    Attributes:
        stream: Integers of shape (tokens,), without special tokens.
        starts: int64 of shape (examples,), where each example's text begins in the stream.
        sizes: int64 of shape (examples,), tokens of text of each.
        ids: uint64 of shape (examples,), a hash of document and place: the same text has the same id, and so
            the same masks and place in the order, in every arm.
        weights: float32 of shape (examples,), λ > 0.
        special_tokens: Of each.
        replayed: How many of them, the last ones, are not what was kept but text to be drawn from on the side.
    """

    stream: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    ids: np.ndarray
    weights: np.ndarray
    special_tokens: SpecialTokens
    replayed: int = 0

    def __len__(self) -> int:
        return self.ids.size

    @property
    def kept_weights(self) -> np.ndarray:
        """The weights of what was kept."""
        return self.weights[: self.ids.size - self.replayed]

    def with_replay(self, others: "Examples") -> "Examples":
        """These examples, and others of the same stream to be drawn from on the side."""
        columns = ("starts", "sizes", "ids", "weights")
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in columns
        }
        return replace(self, **joined, replayed=len(others))

    @property
    def lengths(self) -> np.ndarray:
        """int64 of shape (examples,), tokens of each, special tokens included."""
        return self.sizes + self.special_tokens.size

    def rows(self, chosen: np.ndarray) -> "Examples":
        """The examples at `chosen`, in that order, of the same stream."""
        columns = (self.starts[chosen], self.sizes[chosen], self.ids[chosen], self.weights[chosen])
        return Examples(self.stream, *columns, self.special_tokens)

    def take(self, chosen: np.ndarray) -> Batch:
        """The examples at `chosen`, in that order, with their special tokens, in memory."""
        sizes, frame = self.sizes[chosen], self.special_tokens
        offsets = np.concatenate([[0], np.cumsum(sizes + frame.size)]).astype(np.int64)
        position = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        tokens = np.empty(int(offsets[-1]), dtype=np.int32)
        text = self.stream[np.repeat(self.starts[chosen], sizes) + position]
        places = np.repeat(offsets[:-1] + frame.before.size, sizes) + position
        if frame.middle.size:
            halves = (sizes + 1) // 2
            places[position >= np.repeat(halves, sizes)] += frame.middle.size
            between = offsets[:-1] + frame.before.size + halves
            tokens[between[:, None] + np.arange(frame.middle.size)] = frame.middle
        tokens[places] = text
        tokens[offsets[:-1, None] + np.arange(frame.before.size)] = frame.before
        tokens[offsets[1:, None] - frame.after.size + np.arange(frame.after.size)] = frame.after
        return Batch(tokens, offsets, self.ids[chosen], self.weights[chosen])


def weighted_documents(tokens: Tokens, weights: Path | None) -> Iterator[tuple[Tokenised, pa.Table | None]]:
    """Every document of a corpus in order, with its rows of the weights; None where it has none.

    Raises:
        DataError: If the weights name a document that is not next in the corpus.
    """
    groups = weights_by_document(weights) if weights else iter(())
    doc_id, rows = next(groups, (None, None))
    for document in tokens.documents():
        if doc_id != document.doc_id:
            yield document, None
            continue
        yield document, rows
        doc_id, rows = next(groups, (None, None))
    if doc_id is not None:
        raise DataError(f"{weights}: document {doc_id!r} is not next in the corpus; weigh this corpus")


def weights_by_document(weights: Path) -> Iterator[tuple[str, pa.Table]]:
    """Each document's rows of a weights folder, in order, a batch in memory at a time."""
    columns = ["doc_id", "unit", "start", "end", "segment", "weight"]
    pieces = (piece for part in parts(weights) for batch in read_batches(part, columns) for piece in _split(batch))
    for doc_id, own in groupby(pieces, key=itemgetter(0)):  # a document may go on in the next batch
        yield doc_id, pa.Table.from_batches([rows for _, rows in own])


def _split(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    names = batch["doc_id"].to_numpy(zero_copy_only=False)
    bounds = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), names.size]
    return ((names[first], batch.slice(first, last - first)) for first, last in pairwise(bounds) if first < last)


def kept_runs(document: Tokenised, rows: pa.Table, last: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Runs of one document: its kept units, broken wherever a unit between them was not kept.

    Args:
        document: The document.
        rows: Its weights.
        last: The last character of each of its tokens.

    Returns:
        Of each run that has a token, the place of the first, and the weight λ of each, float64.

    Raises:
        DataError: If a span ends behind the document.
    """
    unit, start, end, weight = (rows[name].to_numpy() for name in ("unit", "start", "end", "weight"))
    kept = np.flatnonzero((weight > 0) & (rows["segment"].to_numpy() >= 0))
    if end.size and end.max() > document.characters:
        raise DataError(f"weights of {document.doc_id!r} reach character {end.max()}, but it has {document.characters}")
    runs = []
    for run in np.split(kept, np.flatnonzero(np.diff(unit[kept]) != 1) + 1) if kept.size else ():
        span = np.array([start[run[0]], end[run[-1]]], dtype=last.dtype)
        first, after = np.searchsorted(last, span).tolist()
        if first < after:
            of_token = np.searchsorted(start[run], last[first:after], side="right") - 1
            runs.append((first, weight[run].astype(np.float64)[of_token]))
    return runs


def build_examples(
    tokens: Tokens,
    weights: Path | None,
    special_tokens: SpecialTokens,
    max_tokens: int,
    exclude: Collection[str] = (),
) -> tuple[Examples, dict[str, int]]:
    """Cut what the weights keep of a corpus into examples.

    A run is cut into the fewest windows that hold at most `max_tokens`, equally long to within one token; a window has
    the mean weight of its tokens.

    Args:
        tokens: The corpus.
        weights: Folder of :data:`dana.core.schemas.WEIGHTS` in corpus order; rows of weight 0 or segment -1 are
            left out. Without one, a document is one run, and everything counts with weight 1.
        special_tokens: Of each example.
        max_tokens: Most tokens of an example, special tokens included.
        exclude: Documents never to train on, by id.

    Returns:
        The examples, and counts of documents (in = kept + left out: nothing of weight, or no token + excluded), runs,
        windows and tokens.

    Raises:
        DataError: If the weights do not fit the corpus, or nothing is left.
        ConfigError: If `max_tokens` is too small for the tokenizer.
    """
    room = max_tokens - special_tokens.size
    require(room >= 1, "max_tokens", max_tokens, f"at least {special_tokens.size + 1} for this tokenizer")
    counts: Counter[str] = Counter(documents_in=0, documents_kept=0, documents_left_out=0, documents_excluded=0)
    starts, sizes, means, ids = [], [], [], list[int]()
    for document, rows in tracked(weighted_documents(tokens, weights), what="cut into examples", unit="documents"):
        counts["documents_in"] += 1
        if document.doc_id in exclude:
            counts["documents_excluded"] += 1
            continue
        last = tokens.last[document.first : document.after]
        runs = [(0, np.ones(last.size))] if weights is None and last.size else []
        if rows is not None:
            runs = kept_runs(document, rows, last)
        counts["documents_kept" if runs else "documents_left_out"] += 1
        counts["runs"] += len(runs)
        for first, of_token in runs:
            many = -(-of_token.size // room)
            edges = np.arange(many + 1) * of_token.size // many
            starts.append(document.first + first + edges[:-1])
            sizes.append(np.diff(edges))
            means.append(np.add.reduceat(of_token, edges[:-1]) / sizes[-1])
            ids += [derive_seed(0, "example", document.doc_id, at) for at in last[first + edges[:-1]].tolist()]
    if not ids:
        raise DataError(f"{weights or 'the corpus'}: no text to train on is left ({dict(counts)})")
    columns = (np.concatenate(starts), np.concatenate(sizes), np.array(ids, dtype=np.uint64))
    examples = Examples(tokens.ids, *columns, np.concatenate(means).astype(np.float32), special_tokens)
    counts["windows"] = len(ids)
    counts["tokens_text"] = int(examples.sizes.sum())
    counts["tokens_with_special"] = int(examples.lengths.sum())
    return examples, dict(counts)
