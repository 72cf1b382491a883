"""Make training examples of documents: their selected sentences, of which every epoch reads some pieces.

A piece is a sentence, or a run of neighbouring ones. Which pieces an epoch reads is a pure function
of (seed, epoch, document id), so it does not depend on ranks, workers or the order of the
documents.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dana.core.errors import DataError
from dana.core.logging import get_logger, monitor
from dana.core.rng import derive_seed, document_key, epoch_keys, hash_uniform, unit_keys_of
from dana.train.examples import (
    Batch,
    ExampleSet,
    JoinedStream,
    SpecialTokens,
    TrainingText,
    UnitWeights,
    check_ends,
    frame_texts,
    room_for_text,
    weighted_documents,
)
from dana.train.tokens import DocumentSpan

log = get_logger(__name__)

FEWEST_SENTENCES = 4  # of a document that is an example


@dataclass(frozen=True)
class PieceBatch(Batch):
    """Pieces of documents end to end in memory; see :class:`dana.train.examples.Batch`.

    Attributes:
        owners: int64 of shape (pieces,), ascending: index of each piece's document in the step.
        numbers: int64 of shape (pieces,), position p of its first sentence in the document, from 0.
        totals: int64 of shape (pieces,), sentences n of the whole document.
        source: The documents that the step is of.
        indices: int64 of shape (documents,), which of them.
    """

    owners: np.ndarray
    numbers: np.ndarray
    totals: np.ndarray
    source: "Documents"
    indices: np.ndarray

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.indices.size

    @property
    def document_ids(self) -> np.ndarray:
        """uint64 of shape (documents,), ids of the documents."""
        ids: np.ndarray = self.source.ids[self.indices]
        return ids

    def joined(self, order: np.ndarray) -> Batch:
        """Join pieces to longer texts, each piece with its special tokens.

        Args:
            order: Shape (texts, pieces a text), the pieces of each text in the order of reading.

        Returns:
            The texts; each has the mean weight of its pieces, and the id of that which comes first
            in the step, whatever the order of reading.
        """
        pieces = order.ravel()
        sizes = np.diff(self.offsets)[pieces]
        ends = np.cumsum(sizes)
        shifts = self.offsets[:-1][pieces] - (ends - sizes)
        tokens = self.tokens[np.arange(ends[-1]) + np.repeat(shifts, sizes)]
        offsets = np.append(0, ends[order.shape[1] - 1 :: order.shape[1]])
        return Batch(tokens, offsets, self.ids[order.min(1)], self.weights[order].mean(1))

    def text(self) -> tuple[np.ndarray, np.ndarray]:
        """Copy all selected sentences of the documents, end to end, without special tokens.

        Returns:
            int32 of shape (tokens,); and int64 of shape (documents + 1,), where each document
            begins in it.
        """
        return self.source.text_of(self.indices)


@dataclass(frozen=True)
class Pieces:
    """Pieces of some documents, as rows of their table of sentences.

    Attributes:
        owners: int64 of shape (pieces,), ascending: index of the document among those asked for.
        firsts: int64 of shape (pieces,), row of the piece's first sentence.
        lasts: int64 of shape (pieces,), row of its last.
    """

    owners: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray


@dataclass(frozen=True)
class SentenceTable:
    """The selected sentences of some documents, end to end.

    Attributes:
        owners: int64 of shape (sentences,), ascending: index of the document among those asked for.
        rows: int64 of shape (sentences,), row in the documents' table of sentences.
        numbers: int64 of shape (sentences,), position in the whole document, from 0.
        firsts: int64 of shape (documents,), position of each document's first sentence here.
        counts: int64 of shape (documents,), its number of sentences.
    """

    owners: np.ndarray
    rows: np.ndarray
    numbers: np.ndarray
    firsts: np.ndarray
    counts: np.ndarray

    def followed(self) -> np.ndarray:
        """Return the indices of the sentences whose next sentence is selected, too: it is the next in the table."""
        is_next = (np.diff(self.numbers) == 1) & (np.diff(self.owners) == 0)
        return np.flatnonzero(is_next)

    def counts_of(self, candidates: np.ndarray) -> np.ndarray:
        """Count the candidates, indices of sentences, of each document."""
        return np.bincount(self.owners[candidates], minlength=self.counts.size)

    def one_of_each(self, candidates: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Choose one of the candidates of each document.

        Args:
            candidates: Indices of sentences, ascending; at least one of each document.
            draws: float64 of shape (documents,), in [0, 1).
        """
        counts = self.counts_of(candidates)
        firsts = np.cumsum(counts) - counts
        chosen: np.ndarray = candidates[firsts + (draws * counts).astype(np.int64)]
        return chosen


class Draw(ABC):
    """Decides which pieces of a document an epoch reads. A frozen dataclass, pure."""

    @abstractmethod
    def pieces(self, documents: "Documents", indices: np.ndarray, epochs: np.ndarray) -> Pieces:
        """Draw pieces of some documents.

        Args:
            documents: All documents.
            indices: Shape (documents,), those to draw from.
            epochs: Shape (documents,), epoch of each.
        """

    @abstractmethod
    def fits(self, documents: "Documents") -> np.ndarray:
        """Return a mask of the documents that have enough selected sentences to draw from."""


@dataclass(frozen=True)
class DrawSentences(Draw):
    """Draw single sentences.

    Attributes:
        seed: Draws of two seeds are independent.
        count: Sentences of each document, or as many as it has; None takes all.
    """

    seed: int
    count: int | None

    def pieces(self, documents: "Documents", indices: np.ndarray, epochs: np.ndarray) -> Pieces:
        table = documents.sentences_of(indices)
        if self.count is None:
            return Pieces(table.owners, table.rows, table.rows)
        keys = epoch_keys(documents.ids[indices], epochs)[table.owners]
        keys = unit_keys_of(keys, documents.numbers[table.rows])
        draws = hash_uniform(derive_seed(self.seed, "sentences"), keys)
        order = np.lexsort((draws, table.owners))
        rank_in_document = np.arange(order.size) - table.firsts[table.owners]
        drawn = np.sort(order[rank_in_document < self.count])
        return Pieces(table.owners[drawn], table.rows[drawn], table.rows[drawn])

    def fits(self, documents: "Documents") -> np.ndarray:
        return np.diff(documents.firsts) >= 1


@dataclass(frozen=True)
class DrawCrops(Draw):
    """Draw two disjoint pieces of two neighbouring sentences each, in random order.

    The first is drawn among the pieces that another one is disjoint from, the second among these
    others.

    Attributes:
        seed: Draws of two seeds are independent.
    """

    seed: int

    def pieces(self, documents: "Documents", indices: np.ndarray, epochs: np.ndarray) -> Pieces:
        table = documents.sentences_of(indices)
        starts, near, before = self._starts(table)
        owners = table.owners[starts]
        counts = table.counts_of(starts)
        firsts = np.cumsum(counts) - counts
        index_in_document = np.arange(starts.size) - firsts[owners]
        others = counts[owners] - near
        eligible = starts[others > 0]

        keys = epoch_keys(documents.ids[indices], epochs)
        first_draws = hash_uniform(derive_seed(self.seed, "crops", "first"), keys)
        first = np.searchsorted(starts, table.one_of_each(eligible, first_draws))
        second_draws = hash_uniform(derive_seed(self.seed, "crops", "second"), keys)
        second_index = (second_draws * others[first]).astype(np.int64)
        # Skip the first piece, and those that overlap it.
        is_after = second_index >= index_in_document[first] - before[first]
        second_index = second_index + np.where(is_after, near[first], 0)
        second = firsts + second_index
        rows = table.rows[starts[np.stack([first, second], axis=1).ravel()]]
        return Pieces(np.repeat(np.arange(indices.size), 2), rows, rows + 1)

    def fits(self, documents: "Documents") -> np.ndarray:
        table = documents.sentences_of(np.arange(len(documents)))
        starts, near, _ = self._starts(table)
        owners = table.owners[starts]
        counts = table.counts_of(starts)
        has_other = np.zeros(len(documents), dtype=bool)
        has_other[owners[counts[owners] > near]] = True
        return has_other

    @staticmethod
    def _starts(table: SentenceTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the sentences that begin a piece.

        Returns:
            Positions of these sentences in the table; for each, the number of pieces that overlap
            it, itself included; and 1 if the piece before overlaps it, else 0.
        """
        starts = table.followed()
        is_next = (np.diff(table.numbers[starts]) == 1) & (np.diff(table.owners[starts]) == 0)
        before = np.append(False, is_next)[: starts.size].astype(np.int64)
        after = np.append(is_next, False)[: starts.size].astype(np.int64)
        return starts, 1 + before + after, before


@dataclass(frozen=True)
class Documents(ExampleSet):
    """Documents as spans of a token stream, which is not copied and may be mapped from disk.

    Attributes:
        stream: Integers of shape (tokens,), without special tokens.
        firsts: int64 of shape (documents + 1,), row of each document's first sentence.
        starts: int64 of shape (sentences,), position of each selected sentence in the stream.
        sizes: int64 of shape (sentences,), its tokens, at least 1.
        numbers: int64 of shape (sentences,), its position p in the whole document, from 0.
        sentence_weights: float64 of shape (sentences,), λ > 0.
        totals: int64 of shape (documents,), sentences n of the whole document.
        ids: A hash of the document's id.
        special_tokens: See :class:`dana.train.examples.ExampleSet`.
        draw: Decides which pieces an epoch reads.
        room: Most tokens of text in a piece, which is cut there.
        parts: See :class:`dana.train.examples.ExampleSet`.
        shares: See :class:`dana.train.examples.ExampleSet`.
    """

    stream: "np.ndarray | JoinedStream"
    firsts: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    numbers: np.ndarray
    sentence_weights: np.ndarray
    totals: np.ndarray
    ids: np.ndarray
    special_tokens: SpecialTokens
    draw: Draw
    room: int
    parts: tuple[int, ...] = ()
    shares: tuple[tuple[Fraction, ...], ...] = ()

    @property
    def weights(self) -> np.ndarray:  # type: ignore[override]
        """float32 of shape (documents,), mean λ of each document's sentences."""
        sums = np.add.reduceat(self.sentence_weights, self.firsts[:-1])
        return (sums / np.diff(self.firsts)).astype(np.float32)

    def lengths_in(self, epoch: int) -> np.ndarray:
        indices = np.arange(len(self))
        pieces = self.draw.pieces(self, indices, np.full(len(self), epoch))
        lengths = self._sizes_of(pieces) + self.special_tokens.size
        return np.bincount(pieces.owners, lengths, len(self)).astype(np.int64)

    def take(self, indices: np.ndarray, epochs: np.ndarray | int = 0) -> PieceBatch:
        pieces = self.draw.pieces(self, indices, np.broadcast_to(epochs, indices.shape))
        sizes = self._sizes_of(pieces)
        starts = self.starts[pieces.firsts]
        tokens, offsets = frame_texts(self.stream, starts, sizes, self.special_tokens)
        numbers = self.numbers[pieces.firsts]
        ids = unit_keys_of(self.ids[indices][pieces.owners], numbers)
        totals = self.totals[indices][pieces.owners]
        weights = self._weights_of(pieces).astype(np.float32)
        return PieceBatch(
            tokens, offsets, ids, weights, pieces.owners, numbers, totals, self, indices
        )

    def rows(self, indices: np.ndarray) -> "Documents":
        table = self.sentences_of(indices)
        return Documents(
            self.stream,
            np.append(table.firsts, table.rows.size),
            self.starts[table.rows],
            self.sizes[table.rows],
            self.numbers[table.rows],
            self.sentence_weights[table.rows],
            self.totals[indices],
            self.ids[indices],
            self.special_tokens,
            self.draw,
            self.room,
        )

    @classmethod
    def join(cls, parts: Sequence["Documents"]) -> "Documents":
        stream = JoinedStream([part.stream for part in parts])
        starts = [part.starts + edge for part, edge in zip(parts, stream.edges, strict=False)]
        counts = np.concatenate([np.diff(part.firsts) for part in parts])
        return cls(
            stream,
            np.append(0, np.cumsum(counts)),
            np.concatenate(starts),
            np.concatenate([part.sizes for part in parts]),
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.sentence_weights for part in parts]),
            np.concatenate([part.totals for part in parts]),
            np.concatenate([part.ids for part in parts]),
            parts[0].special_tokens,
            parts[0].draw,
            parts[0].room,
        )

    def sentences_of(self, indices: np.ndarray) -> SentenceTable:
        """Collect the selected sentences of some documents."""
        counts = self.firsts[indices + 1] - self.firsts[indices]
        firsts = np.cumsum(counts) - counts
        owners = np.repeat(np.arange(indices.size), counts)
        index_in_document = np.arange(owners.size) - firsts[owners]
        rows = self.firsts[indices][owners] + index_in_document
        return SentenceTable(owners, rows, self.numbers[rows], firsts, counts)

    def text_of(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Copy all selected sentences of some documents; see :meth:`PieceBatch.text`."""
        table = self.sentences_of(indices)
        nothing = np.zeros(0, dtype=np.int32)
        text, offsets = frame_texts(
            self.stream,
            self.starts[table.rows],
            self.sizes[table.rows],
            SpecialTokens(nothing, nothing),
        )
        return text, offsets[np.append(table.firsts, table.rows.size)]

    def _sizes_of(self, pieces: Pieces) -> np.ndarray:
        """Count the tokens of text in each piece."""
        ends = self.starts[pieces.lasts] + self.sizes[pieces.lasts]
        sizes: np.ndarray = np.minimum(ends - self.starts[pieces.firsts], self.room)
        return sizes

    def _weights_of(self, pieces: Pieces) -> np.ndarray:
        """Average the weights of the tokens of each piece, of one or two sentences."""
        first_sizes = self.sizes[pieces.firsts]
        last_sizes = self.sizes[pieces.lasts]
        first_weights = self.sentence_weights[pieces.firsts]
        last_weights = self.sentence_weights[pieces.lasts]
        total = first_weights * first_sizes + last_weights * last_sizes
        means: np.ndarray = total / (first_sizes + last_sizes)
        return means


def build_documents(
    text: TrainingText, special_tokens: SpecialTokens, max_tokens: int, draw: Draw
) -> tuple[Documents, dict[str, int]]:
    """Make examples of the documents of a text that have at least four sentences.

    The sentences are the units of the weights; without weights the text is cut into sentences.

    Args:
        text: Documents and weights.
        special_tokens: Special tokens of every piece.
        max_tokens: Most tokens of a piece, special tokens included; longer ones are cut.
        draw: Decides which pieces an epoch reads.

    Returns:
        The examples, and counts of documents (in = kept + left out for lack of weight + too short
        + excluded), sentences, sentences cut at `max_tokens`, and tokens.

    Raises:
        DataError: If the weights do not fit the pool, or no example remains.
        ConfigError: If `max_tokens` is too small for the tokenizer.
    """
    room = room_for_text(special_tokens, max_tokens)
    counts: Counter[str] = Counter(
        documents_in=0,
        documents_kept=0,
        documents_left_out=0,
        documents_too_short=0,
        documents_excluded=0,
    )
    starts: list[np.ndarray] = []
    sizes: list[np.ndarray] = []
    numbers: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    sentence_counts: list[int] = []
    totals: list[int] = []
    ids: list[int] = []
    rows = _documents_with_units(text)
    for document, units in monitor(rows, what="cut into sentences", unit="documents"):
        counts["documents_in"] += 1
        if document.doc_id in text.exclude:
            counts["documents_excluded"] += 1
            continue
        if units is None or not (units.weight > 0).any():
            counts["documents_left_out"] += 1
            continue
        total = int(units.unit[-1]) + 1
        if total < FEWEST_SENTENCES:
            counts["documents_too_short"] += 1
            continue
        last = text.tokens.last[document.first : document.after]
        token_starts, token_sizes = _token_spans(document, units, last)
        is_selected = (units.weight > 0) & (token_sizes > 0)
        if not is_selected.any():
            counts["documents_too_short"] += 1
            continue
        starts.append(token_starts[is_selected])
        sizes.append(token_sizes[is_selected])
        numbers.append(units.unit[is_selected].astype(np.int64))
        weights.append(units.weight[is_selected].astype(np.float64))
        sentence_counts.append(int(is_selected.sum()))
        totals.append(total)
        ids.append(document_key(document.doc_id))
    if not ids:
        raise _no_example(text, counts)
    documents = Documents(
        text.tokens.ids,
        np.append(0, np.cumsum(sentence_counts)),
        np.concatenate(starts),
        np.concatenate(sizes),
        np.concatenate(numbers),
        np.concatenate(weights),
        np.array(totals),
        np.array(ids, dtype=np.uint64),
        special_tokens,
        draw,
        room,
    )
    fits = draw.fits(documents)
    counts["documents_too_short"] += int((~fits).sum())
    if not fits.any():
        raise _no_example(text, counts)
    if not fits.all():
        documents = documents.rows(np.flatnonzero(fits))
    counts["documents_kept"] = len(documents)
    counts["sentences"] = int(documents.sizes.size)
    counts["sentences_cut"] = int((documents.sizes > documents.room).sum())
    counts["tokens_text"] = int(documents.sizes.sum())
    _say_what_is_lost(counts, room)
    return documents, dict(counts)


def _say_what_is_lost(counts: Counter[str], room: int) -> None:
    """Log how many documents are too short, and how many sentences are cut."""
    if counts["documents_too_short"]:
        log.info(
            "text      %s of %s documents are too short: fewer than %d sentences, or too few "
            "neighbours are selected",
            f"{counts['documents_too_short']:,}",
            f"{counts['documents_in']:,}",
            FEWEST_SENTENCES,
        )
    if counts["sentences_cut"]:
        log.info(
            "text      %s of %s sentences are longer than %d tokens, and cut there; raise "
            "max_tokens to read more",
            f"{counts['sentences_cut']:,}",
            f"{counts['sentences']:,}",
            room,
        )


def _documents_with_units(text: TrainingText) -> Iterator[tuple[DocumentSpan, UnitWeights | None]]:
    """Yield every document with its units and their weights; None if none of it has a weight."""
    if text.weights is not None:
        yield from weighted_documents(text.tokens, text.weights)
        return
    for span, document in zip(text.tokens.documents(), text.documents(), strict=True):
        sentences = text.sentences(document.text)
        if not sentences:
            yield span, None
            continue
        bounds = np.array(sentences)
        unit = np.arange(len(sentences))
        yield span, UnitWeights(span.doc_id, unit, bounds[:, 0], bounds[:, 1], np.ones(unit.size))


def _token_spans(
    document: DocumentSpan, units: UnitWeights, last: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find the tokens of each unit: the position of the first in the stream, and their number.

    Raises:
        DataError: If a unit ends after the document.
    """
    check_ends(document, units)
    firsts = np.searchsorted(last, units.start.astype(last.dtype))
    afters = np.searchsorted(last, units.end.astype(last.dtype))
    return document.first + firsts, afters - firsts


def _no_example(text: TrainingText, counts: Counter[str]) -> DataError:
    """Return the error of a text without an example, which says what does work on it."""
    return DataError(
        f"{text.weights or 'the text'}: none of {counts['documents_in']:,} documents has enough "
        f"neighbouring sentences ({counts['documents_too_short']:,} have fewer than "
        f"{FEWEST_SENTENCES}, or too few are selected; {counts['documents_left_out']:,} without "
        f"selected text, {counts['documents_excluded']:,} held out); select more text, or train on "
        "text of single sentences with objective=masked"
    )
