"""Cut the selected text of a tokenised pool into training examples, each with a weight.

A run is a stretch of neighbouring selected units. Its tokens are cut into windows of equal length.
No window crosses a gap between selected units or the end of a document, and no token of a run is
discarded.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from dana.core.config import require
from dana.core.errors import ConfigError, DataError
from dana.core.logging import monitor
from dana.core.rng import derive_seed
from dana.core.schemas import Document, document_starts, whole_documents
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
    def from_tokenizer(cls, tokenizer: Any, paired: bool = False) -> "SpecialTokens":
        """Find what a tokenizer adds to a text, or to a pair of texts, by tokenising a single letter."""
        letter = tokenizer("a", add_special_tokens=False)["input_ids"]
        if not letter:
            raise ConfigError(
                "the tokenizer gives no token for the letter a, by which its special tokens are "
                "found; add the letter, or a token for unknown text, to its vocabulary"
            )
        text = tokenizer("a")["input_ids"]
        starts = range(len(text))
        found = [first for first in starts if text[first : first + len(letter)] == letter]
        if not found:
            raise ConfigError(
                "the tokenizer cuts the letter a otherwise beside its special tokens, which are "
                "found by it; take a tokenizer that adds them to the tokens of the text"
            )
        start = found[0]
        end = start + len(letter)
        before = text[:start]
        after = text[end:]
        middle: list[int] = []
        if paired:
            pair = tokenizer("a", "a")["input_ids"]
            middle = pair[end : len(pair) - len(letter) - len(after)]
        return cls(
            np.array(before, dtype=np.int32),
            np.array(after, dtype=np.int32),
            np.array(middle, dtype=np.int32),
        )

    @property
    def size(self) -> int:
        """Special tokens of an example."""
        return self.before.size + self.middle.size + self.after.size


class ExampleSet(ABC):
    """The examples of a training: what the plan counts and orders, and a step takes.

    An objective makes them (:meth:`dana.train.objectives.base.Objective.examples`). A frozen
    dataclass with these attributes.

    Attributes:
        ids: uint64 of shape (examples,). The same text has the same id, and so the same place in
            the epoch's order, in every arm.
        weights: float32 of shape (examples,), mean λ of each.
        special_tokens: Special tokens of every text.
        parts: Number of examples of each part of a mixture, in order; empty for one.
        shares: For each phase of the run, the share of the examples to draw of each part, which may
            be 0.
    """

    ids: np.ndarray
    weights: np.ndarray
    special_tokens: SpecialTokens
    parts: tuple[int, ...]
    shares: tuple[tuple[Fraction, ...], ...]

    def __len__(self) -> int:
        return self.ids.size

    @abstractmethod
    def lengths_in(self, epoch: int) -> np.ndarray:
        """Count the tokens that the model reads of each example in an epoch, special tokens included.

        Returns:
            int64 of shape (examples,).
        """

    @abstractmethod
    def take(self, indices: np.ndarray, epochs: np.ndarray | int = 0) -> Batch:
        """Copy examples by index, in that order, with their special tokens, into one batch.

        Args:
            indices: Shape (examples,).
            epochs: Shape (examples,), or one for all: epoch of each example, from 0.
        """

    @abstractmethod
    def rows(self, indices: np.ndarray) -> Self:
        """Select examples by index, in that order, without copying text; the result has no parts."""

    @classmethod
    @abstractmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Join examples with the same special tokens, without copying text; the result has no parts."""

    @staticmethod
    def mixture(parts: Mapping[str, Any], *mixes: Mapping[str, float]) -> Any:
        """Join the parts of a mixture.

        Args:
            parts: Examples by name, all of one kind and with the same special tokens.
            mixes: For each phase, the share of the tokens of text of the parts in it, above 0;
                divided by the part's mean length it gives the share of the examples, here to a
                millionth of the largest.
        """
        examples = list(parts.values())
        if len(examples) == 1:  # there are no shares to draw
            return examples[0]
        sizes = tuple(len(part) for part in examples)
        shares = tuple(_shares_of_examples(parts, mix) for mix in mixes)
        return replace(examples[0].join(examples), parts=sizes, shares=shares)

    @property
    def lengths(self) -> np.ndarray:
        """int64 of shape (examples,), tokens of each in the first epoch, special tokens included."""
        return self.lengths_in(0)

    @property
    def text_lengths(self) -> np.ndarray:
        """int64 of shape (examples,), tokens of each in the first epoch, special tokens left out."""
        return self.lengths - self.special_tokens.size

    @property
    def first_part(self) -> Self:
        """The examples of a mixture's first part; all, where there is one."""
        if not self.parts:
            return self
        return self.rows(np.arange(self.parts[0]))


def _shares_of_examples(
    parts: Mapping[str, ExampleSet], mix: Mapping[str, float]
) -> tuple[Fraction, ...]:
    """Return the share of the examples of each part that gives its text the share `mix` of all tokens of text."""
    rates = {}
    for name, part in parts.items():
        if name in mix:
            rates[name] = mix[name] / part.text_lengths.mean()
    largest = max(rates.values())
    millionths = {name: max(1, round(rate / largest * 10**6)) for name, rate in rates.items()}
    total = sum(millionths.values())
    return tuple(Fraction(millionths.get(name, 0), total) for name in parts)


@dataclass(frozen=True)
class Examples(ExampleSet):
    """Windows of a token stream, which is not copied and may be mapped from disk.

    Attributes:
        stream: Integers of shape (tokens,), without special tokens.
        starts: int64 of shape (examples,), position of each example's text in the stream.
        sizes: int64 of shape (examples,), tokens of text in each.
        ids: uint64 of shape (examples,), a hash of the document's id and the position of the last
            character of the first token.
        weights: float32 of shape (examples,), λ > 0.
        special_tokens: See :class:`ExampleSet`.
        parts: See :class:`ExampleSet`.
        shares: See :class:`ExampleSet`.
    """

    stream: "np.ndarray | JoinedStream"
    starts: np.ndarray
    sizes: np.ndarray
    ids: np.ndarray
    weights: np.ndarray
    special_tokens: SpecialTokens
    parts: tuple[int, ...] = ()
    shares: tuple[tuple[Fraction, ...], ...] = ()

    def lengths_in(self, epoch: int) -> np.ndarray:
        return self.sizes + self.special_tokens.size

    @classmethod
    def join(cls, parts: Sequence["Examples"]) -> "Examples":
        stream = JoinedStream([part.stream for part in parts])
        starts = [part.starts + edge for part, edge in zip(parts, stream.edges[:-1], strict=True)]
        return cls(
            stream,
            np.concatenate(starts),
            np.concatenate([part.sizes for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.weights for part in parts]),
            parts[0].special_tokens,
        )

    def rows(self, indices: np.ndarray) -> "Examples":
        return Examples(
            self.stream,
            self.starts[indices],
            self.sizes[indices],
            self.ids[indices],
            self.weights[indices],
            self.special_tokens,
        )

    def take(self, indices: np.ndarray, epochs: np.ndarray | int = 0) -> Batch:
        sizes = self.sizes[indices]
        tokens, offsets = frame_texts(self.stream, self.starts[indices], sizes, self.special_tokens)
        return Batch(tokens, offsets, self.ids[indices], self.weights[indices])


def frame_texts(
    stream: "np.ndarray | JoinedStream",
    starts: np.ndarray,
    sizes: np.ndarray,
    special_tokens: SpecialTokens,
) -> tuple[np.ndarray, np.ndarray]:
    """Copy spans of a token stream end to end, each with its special tokens.

    Args:
        stream: Integers of shape (tokens,).
        starts: int64 of shape (texts,), first token of each text.
        sizes: int64 of shape (texts,), number of tokens of each text.
        special_tokens: Special tokens of every text.

    Returns:
        int32 of shape (tokens,); and int64 of shape (texts + 1,), where each text begins in it.
    """
    before = special_tokens.before
    middle = special_tokens.middle
    after = special_tokens.after
    offsets = np.concatenate([[0], np.cumsum(sizes + special_tokens.size)]).astype(np.int64)
    text_starts = offsets[:-1] + before.size
    # Of each token of text: its index in its own text, and its position in the result.
    index_in_text = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    positions = np.repeat(text_starts, sizes) + index_in_text
    tokens = np.empty(int(offsets[-1]), dtype=np.int32)
    if middle.size:  # it stands between the halves of a text, so the second half moves back
        halves = (sizes + 1) // 2
        positions[index_in_text >= np.repeat(halves, sizes)] += middle.size
        tokens[(text_starts + halves)[:, None] + np.arange(middle.size)] = middle
    tokens[positions] = stream[np.repeat(starts, sizes) + index_in_text]
    tokens[offsets[:-1, None] + np.arange(before.size)] = before
    tokens[offsets[1:, None] - after.size + np.arange(after.size)] = after
    return tokens, offsets


class JoinedStream:
    """Read token streams end to end by position, without copying them.

    Args:
        streams: Integers, each of shape (tokens,).

    Attributes:
        edges: Position of each stream's first token, and the number of tokens.
    """

    def __init__(self, streams: Sequence[Any]) -> None:
        self._streams = streams
        self.edges = np.cumsum([0, *(stream.size for stream in streams)])

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        """Look up the tokens at positions, int32 of the same shape."""
        tokens = np.empty(positions.shape, np.int32)
        stream_of = np.searchsorted(self.edges, positions, side="right") - 1
        for index, stream in enumerate(self._streams):
            is_here = stream_of == index
            tokens[is_here] = stream[positions[is_here] - self.edges[index]]
        return tokens


@dataclass(frozen=True)
class UnitWeights:
    """The rows of one document in a table of weights.

    Attributes:
        doc_id: Id of the document.
        unit: Shape (units,), position of each unit in the document.
        start: Shape (units,), its first character.
        end: Shape (units,), the position after its last character.
        weight: Shape (units,), λ; 0 for a unit in no segment.
    """

    doc_id: str
    unit: np.ndarray
    start: np.ndarray
    end: np.ndarray
    weight: np.ndarray


def read_weights(weights: Path) -> Iterator[UnitWeights]:
    """Stream the rows of each document of a weights folder, in order."""
    columns = ["doc_id", "unit", "start", "end", "segment", "weight"]
    for rows in whole_documents(weights, columns):
        starts = document_starts(rows)
        doc_ids = rows["doc_id"].take(starts).to_pylist()
        unit = rows["unit"].to_numpy()
        start = rows["start"].to_numpy()
        end = rows["end"].to_numpy()
        weight = np.where(rows["segment"].to_numpy() < 0, 0, rows["weight"].to_numpy())
        is_bad = ~(np.isfinite(weight) & (weight >= 0))
        if is_bad.any():
            row = int(is_bad.argmax())
            raise DataError(
                f"{weights}: the weight of {rows['doc_id'][row].as_py()!r}, unit {unit[row]}, is "
                f"{weight[row]}; it must be a number of at least 0"
            )
        bounds = pairwise([*starts.tolist(), rows.num_rows])
        for doc_id, (first, after) in zip(doc_ids, bounds, strict=True):
            span = slice(first, after)
            yield UnitWeights(doc_id, unit[span], start[span], end[span], weight[span])


@dataclass(frozen=True)
class TrainingText:
    """The text of one part of a mixture, from which an objective makes examples.

    Attributes:
        tokens: Its tokenised documents.
        weights: Folder of the weights of their units in pool order
            (:data:`dana.core.schemas.WEIGHTS`); rows of weight 0 or segment -1 are left out. None
            gives all text weight 1.
        documents: Returns the documents themselves, in the same order.
        sentences: Cuts a document's text into the character spans of its sentences.
        exclude: Ids of documents to leave out.
    """

    tokens: Tokens
    weights: Path | None
    documents: Callable[[], Iterable[Document]]
    sentences: Callable[[str], list[tuple[int, int]]]
    exclude: Collection[str] = ()


def weighted_documents(
    tokens: Tokens, weights: Path | None
) -> Iterator[tuple[DocumentSpan, UnitWeights | None]]:
    """Yield every document of a pool in order, with the weights of its units.

    They are None for a document that has none, and for all documents without a folder of weights.

    Raises:
        DataError: If the documents of the weights are not in the pool, or in another order.
    """
    tables = read_weights(weights) if weights else iter(())
    units = next(tables, None)
    for document in tokens.documents():
        if units is None or units.doc_id != document.doc_id:
            yield document, None
        else:
            yield document, units
            units = next(tables, None)
    if units is not None:
        raise DataError(
            f"{weights}: document {units.doc_id!r} is not next in the pool; "
            "run dana weigh on this pool"
        )


def check_ends(document: DocumentSpan, units: UnitWeights) -> None:
    """Check that units end within their document.

    Raises:
        DataError: If one does not.
    """
    if units.end.size and units.end.max() > document.characters:
        raise DataError(
            f"weights of {document.doc_id!r} reach character {units.end.max()}, "
            f"but it has {document.characters}"
        )


def room_for_text(special_tokens: SpecialTokens, max_tokens: int) -> int:
    """Return the most tokens of text in an example of at most `max_tokens`.

    Raises:
        ConfigError: If there is no room for a token of text.
    """
    fewest = special_tokens.size + 1
    require(max_tokens >= fewest, "max_tokens", max_tokens, f"at least {fewest} for this tokenizer")
    return max_tokens - special_tokens.size


def selected_runs(
    document: DocumentSpan, units: UnitWeights, last: np.ndarray
) -> list[tuple[int, np.ndarray]]:
    """Group the selected units of a document into runs of neighbouring units.

    Args:
        document: The document.
        units: The weights of its units.
        last: Position of the last character of each of its tokens.

    Returns:
        For each run with a token, the index of its first token in the document, and each token's
        weight λ, float64.

    Raises:
        DataError: If a unit ends after the document.
    """
    check_ends(document, units)
    selected = np.flatnonzero(units.weight > 0)
    if not selected.size:
        return []
    gaps = np.flatnonzero(np.diff(units.unit[selected]) != 1) + 1
    runs = []
    for run in np.split(selected, gaps):
        span = np.array([units.start[run[0]], units.end[run[-1]]], dtype=last.dtype)
        first, after = np.searchsorted(last, span).tolist()
        if first < after:
            unit_of_token = np.searchsorted(units.start[run], last[first:after], side="right") - 1
            runs.append((first, units.weight[run].astype(np.float64)[unit_of_token]))
    return runs


def build_examples(
    tokens: Tokens,
    weights: Path | None,
    special_tokens: SpecialTokens,
    max_tokens: int,
    exclude: Collection[str] = (),
) -> tuple[Examples, dict[str, int]]:
    """Cut the selected text of a pool into examples.

    A run is cut into the fewest windows of at most `max_tokens`, equally long to within one token.
    The weight of a window is the mean weight of its tokens.

    Args:
        tokens: The tokenised pool.
        weights: Folder of :data:`dana.core.schemas.WEIGHTS` in pool order; rows of weight 0 or
            segment -1 are left out. None makes each document one run of weight 1.
        special_tokens: Special tokens of every example.
        max_tokens: Most tokens of an example, special tokens included.
        exclude: Ids of documents to leave out.

    Returns:
        The examples, and counts of documents (in = kept + left out for lack of weight or tokens +
        excluded), runs, windows and tokens.

    Raises:
        DataError: If the weights do not fit the pool, or no example remains.
        ConfigError: If `max_tokens` is too small for the tokenizer.
    """
    room = room_for_text(special_tokens, max_tokens)
    counts: Counter[str] = Counter(
        documents_in=0, documents_kept=0, documents_left_out=0, documents_excluded=0
    )
    starts: list[np.ndarray] = []
    sizes: list[np.ndarray] = []
    example_weights: list[np.ndarray] = []
    ids: list[int] = []
    documents = weighted_documents(tokens, weights)
    for document, units in monitor(documents, what="cut into examples", unit="documents"):
        counts["documents_in"] += 1
        if document.doc_id in exclude:
            counts["documents_excluded"] += 1
            continue
        last = tokens.last[document.first : document.after]
        runs: list[tuple[int, np.ndarray]] = []
        if units is not None:
            runs = selected_runs(document, units, last)
        elif weights is None and last.size:
            runs = [(0, np.ones(last.size))]
        counts["documents_kept" if runs else "documents_left_out"] += 1
        counts["runs"] += len(runs)
        for first, weight in runs:
            windows = -(-weight.size // room)
            edges = np.arange(windows + 1) * weight.size // windows
            firsts = first + edges[:-1]
            starts.append(document.first + firsts)
            sizes.append(np.diff(edges))
            example_weights.append(np.add.reduceat(weight, edges[:-1]) / sizes[-1])
            for character in last[firsts].tolist():
                ids.append(derive_seed(0, "example", document.doc_id, character))
    if not ids:
        raise DataError(
            f"{weights or 'the corpus'}: no text to train on remains of "
            f"{counts['documents_in']:,} documents "
            f"({counts['documents_left_out']:,} without selected text, "
            f"{counts['documents_excluded']:,} held out); select more text"
        )
    examples = Examples(
        tokens.ids,
        np.concatenate(starts),
        np.concatenate(sizes),
        np.array(ids, dtype=np.uint64),
        np.concatenate(example_weights).astype(np.float32),
        special_tokens,
    )
    counts["windows"] = len(ids)
    counts["tokens_text"] = int(examples.sizes.sum())
    counts["tokens_with_special"] = int(examples.lengths.sum())
    return examples, dict(counts)
