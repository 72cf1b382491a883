"""Cut the selected text of a tokenised corpus into training examples, each with a weight.

A run is a stretch of neighbouring selected units. Its tokens are cut into windows of equal length.
No window crosses a gap between selected units or the end of a document, and no token of a run is
discarded.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.logging import monitor
from dana.core.rng import derive_seed
from dana.core.schemas import part_files, read_batches
from dana.train.tokens import DocumentSpan, Tokens


@dataclass(frozen=True)
class Batch:
    """Examples end to end in memory.

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
        before: int32, before the text.
        after: int32, after the text.
        middle: int32, between the two halves of a text that is read as a pair; else empty.
    """

    before: np.ndarray
    after: np.ndarray
    middle: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int32))

    @classmethod
    def of(cls, tokenizer: Any, paired: bool = False) -> "SpecialTokens":
        """Find what a tokenizer adds to a text, or to a pair of texts, by tokenising a single letter."""
        bare = tokenizer("a", add_special_tokens=False)["input_ids"]
        full = tokenizer("a")["input_ids"]
        at = next(start for start in range(len(full)) if full[start : start + len(bare)] == bare)
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
    """Training examples as spans of a token stream, which is not copied and may be mapped from disk.

    Attributes:
        stream: Integers of shape (tokens,), without special tokens.
        starts: int64 of shape (examples,), position of each example's text in the stream.
        sizes: int64 of shape (examples,), tokens of text in each.
        ids: uint64 of shape (examples,), a hash of document id and character position: the same
            text has the same id, and so the same masks and rank in the epoch's order, in every arm.
        weights: float32 of shape (examples,), λ > 0.
        special_tokens: Special tokens of every example.
        parts: Number of examples of each part of a mixture, in order; empty for one.
        shares: For each phase of the run, the share of the examples to draw of each part, which may
            be 0.
    """

    stream: "np.ndarray | JoinedStream"
    starts: np.ndarray
    sizes: np.ndarray
    ids: np.ndarray
    weights: np.ndarray
    special_tokens: SpecialTokens
    parts: tuple[int, ...] = ()
    shares: tuple[tuple[Fraction, ...], ...] = ()

    def __len__(self) -> int:
        return self.ids.size

    @classmethod
    def mixture(cls, parts: Mapping[str, "Examples"], *mixes: Mapping[str, float]) -> "Examples":
        """Join the parts of a mixture.

        Args:
            parts: Examples by name, all with the same special tokens.
            mixes: For each phase, the share of the tokens of text of the parts in it, above 0;
                divided by the part's mean length it gives the share of the examples, here to a
                millionth of the largest.
        """
        if len(parts) == 1:
            return next(iter(parts.values()))
        all_parts = list(parts.values())
        stream = JoinedStream([part.stream for part in all_parts])
        starts = [part.starts + edge for part, edge in zip(all_parts, stream.edges, strict=False)]
        columns = ("sizes", "ids", "weights")
        sizes, ids, weights = (
            np.concatenate([getattr(part, name) for part in all_parts]) for name in columns
        )
        shares = []
        for mix in mixes:
            rates = {
                name: mix[name] / part.sizes.mean() for name, part in parts.items() if name in mix
            }
            millionths = {
                name: max(1, round(rate / max(rates.values()) * 10**6))
                for name, rate in rates.items()
            }
            shares.append(
                tuple(Fraction(millionths.get(name, 0), sum(millionths.values())) for name in parts)
            )
        counts = tuple(map(len, all_parts))
        return cls(
            stream,
            np.concatenate(starts),
            sizes,
            ids,
            weights,
            all_parts[0].special_tokens,
            counts,
            tuple(shares),
        )

    @property
    def first_part(self) -> "Examples":
        """The examples of a mixture's first part; all, where there is one."""
        return self.rows(np.arange(self.parts[0])) if self.parts else self

    @property
    def lengths(self) -> np.ndarray:
        """int64 of shape (examples,), tokens of each, special tokens included."""
        return self.sizes + self.special_tokens.size

    def rows(self, indices: np.ndarray) -> "Examples":
        """Select examples by index, in that order, without copying text."""
        columns = (
            self.starts[indices],
            self.sizes[indices],
            self.ids[indices],
            self.weights[indices],
        )
        return Examples(self.stream, *columns, self.special_tokens)

    def take(self, indices: np.ndarray) -> Batch:
        """Copy examples by index, in that order, with their special tokens, into one batch."""
        sizes, frame = self.sizes[indices], self.special_tokens
        offsets = np.concatenate([[0], np.cumsum(sizes + frame.size)]).astype(np.int64)
        index_in_text = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        tokens = np.empty(int(offsets[-1]), dtype=np.int32)
        text = self.stream[np.repeat(self.starts[indices], sizes) + index_in_text]
        positions = np.repeat(offsets[:-1] + frame.before.size, sizes) + index_in_text
        if frame.middle.size:
            halves = (sizes + 1) // 2
            positions[index_in_text >= np.repeat(halves, sizes)] += frame.middle.size
            between = offsets[:-1] + frame.before.size + halves
            tokens[between[:, None] + np.arange(frame.middle.size)] = frame.middle
        tokens[positions] = text
        tokens[offsets[:-1, None] + np.arange(frame.before.size)] = frame.before
        tokens[offsets[1:, None] - frame.after.size + np.arange(frame.after.size)] = frame.after
        return Batch(tokens, offsets, self.ids[indices], self.weights[indices])


class JoinedStream:
    """Read token streams end to end by position, without copying them.

    Args:
        streams: Integers, each of shape (tokens,).

    Attributes:
        edges: Position of each stream's first token, and the number of tokens.
    """

    def __init__(self, streams: Sequence[Any]) -> None:
        self._streams, self.edges = streams, np.cumsum([0, *(stream.size for stream in streams)])

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        """Look up the tokens at positions, int32 of the same shape."""
        tokens, which = (
            np.empty(positions.shape, np.int32),
            np.searchsorted(self.edges, positions, side="right") - 1,
        )
        for index, stream in enumerate(self._streams):
            tokens[which == index] = stream[positions[which == index] - self.edges[index]]
        return tokens


def weighted_documents(
    tokens: Tokens, weights: Path | None
) -> Iterator[tuple[DocumentSpan, pa.Table | None]]:
    """Yield every document of a corpus in order, with its rows of the weights or None.

    Raises:
        DataError: If the documents of the weights are not in the corpus, or in another order.
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
        raise DataError(
            f"{weights}: document {doc_id!r} is not next in the corpus; run dana weigh on this corpus"
        )


def weights_by_document(weights: Path) -> Iterator[tuple[str, pa.Table]]:
    """Stream each document's rows of a weights folder, in order."""
    columns = ["doc_id", "unit", "start", "end", "segment", "weight"]
    pieces = (
        piece
        for part in part_files(weights)
        for batch in read_batches(part, columns)
        for piece in _split(batch)
    )
    groups = groupby(pieces, key=itemgetter(0))  # a document may span batches
    return (
        (doc_id, pa.Table.from_batches([rows for _, rows in group])) for doc_id, group in groups
    )


def _split(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    names = batch["doc_id"].to_numpy(zero_copy_only=False)
    bounds = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), names.size]
    return (
        (names[first], batch.slice(first, last - first))
        for first, last in pairwise(bounds)
        if first < last
    )


def selected_runs(
    document: DocumentSpan, rows: pa.Table, last: np.ndarray
) -> list[tuple[int, np.ndarray]]:
    """Group the selected units of a document into runs of neighbouring units.

    Args:
        document: The document.
        rows: Its rows of the weights.
        last: Position of the last character of each of its tokens.

    Returns:
        For each run with a token, the index of its first token in the document, and each token's
        weight λ, float64.

    Raises:
        DataError: If a unit ends after the document.
    """
    unit, start, end, weight = (
        rows[name].to_numpy() for name in ("unit", "start", "end", "weight")
    )
    selection = np.flatnonzero((weight > 0) & (rows["segment"].to_numpy() >= 0))
    if end.size and end.max() > document.characters:
        raise DataError(
            f"weights of {document.doc_id!r} reach character {end.max()}, but it has {document.characters}"
        )
    runs = []
    for run in (
        np.split(selection, np.flatnonzero(np.diff(unit[selection]) != 1) + 1)
        if selection.size
        else ()
    ):
        span = np.array([start[run[0]], end[run[-1]]], dtype=last.dtype)
        first, after = np.searchsorted(last, span).tolist()
        if first < after:
            token_weights = np.searchsorted(start[run], last[first:after], side="right") - 1
            runs.append((first, weight[run].astype(np.float64)[token_weights]))
    return runs


def build_examples(
    tokens: Tokens,
    weights: Path | None,
    special_tokens: SpecialTokens,
    max_tokens: int,
    exclude: Collection[str] = (),
) -> tuple[Examples, dict[str, int]]:
    """Cut the selected text of a corpus into examples.

    A run is cut into the fewest windows of at most `max_tokens`, equally long to within one token.
    The weight of a window is the mean weight of its tokens.

    Args:
        tokens: The tokenised corpus.
        weights: Folder of :data:`dana.core.schemas.WEIGHTS` in corpus order; rows of weight 0 or
            segment -1 are left out. None makes each document one run of weight 1.
        special_tokens: Special tokens of every example.
        max_tokens: Most tokens of an example, special tokens included.
        exclude: Ids of documents to leave out.

    Returns:
        The examples, and counts of documents (in = kept + left out for lack of weight or tokens +
        excluded), runs, windows and tokens.

    Raises:
        DataError: If the weights do not fit the corpus, or no example remains.
        ConfigError: If `max_tokens` is too small for the tokenizer.
    """
    room = max_tokens - special_tokens.size
    require(
        room >= 1,
        "max_tokens",
        max_tokens,
        f"at least {special_tokens.size + 1} for this tokenizer",
    )
    counts: Counter[str] = Counter(
        documents_in=0, documents_kept=0, documents_left_out=0, documents_excluded=0
    )
    starts, sizes, means, ids = [], [], [], list[int]()
    for document, rows in monitor(
        weighted_documents(tokens, weights), what="cut into examples", unit="documents"
    ):
        counts["documents_in"] += 1
        if document.doc_id in exclude:
            counts["documents_excluded"] += 1
            continue
        last = tokens.last[document.first : document.after]
        runs = [(0, np.ones(last.size))] if weights is None and last.size else []
        if rows is not None:
            runs = selected_runs(document, rows, last)
        counts["documents_kept" if runs else "documents_left_out"] += 1
        counts["runs"] += len(runs)
        for first, token_weights in runs:
            windows = -(-token_weights.size // room)
            edges = np.arange(windows + 1) * token_weights.size // windows
            starts.append(document.first + first + edges[:-1])
            sizes.append(np.diff(edges))
            means.append(np.add.reduceat(token_weights, edges[:-1]) / sizes[-1])
            ids += [
                derive_seed(0, "example", document.doc_id, at)
                for at in last[first + edges[:-1]].tolist()
            ]
    if not ids:
        raise DataError(
            f"{weights or 'the corpus'}: no text to train on remains of {counts['documents_in']:,} documents "
            f"({counts['documents_left_out']:,} without selected text, {counts['documents_excluded']:,} held out); "
            "select more text"
        )
    columns = (np.concatenate(starts), np.concatenate(sizes), np.array(ids, dtype=np.uint64))
    examples = Examples(
        tokens.ids, *columns, np.concatenate(means).astype(np.float32), special_tokens
    )
    counts["windows"] = len(ids)
    counts["tokens_text"] = int(examples.sizes.sum())
    counts["tokens_with_special"] = int(examples.lengths.sum())
    return examples, dict(counts)
