"""Make one training example of each document: its selected sentences, of which every epoch reads some pieces.

A piece is a sentence, or a run of neighbouring ones. Which pieces an epoch reads is a pure function
of (seed, epoch, document id), so it does not depend on ranks, workers or the order of the
documents.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, NamedTuple

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

FEWEST_SENTENCES = 4  # a document with fewer is no example


@dataclass(frozen=True)
class PieceBatch(Batch):
    """Pieces of documents end to end in memory; see :class:`dana.train.examples.Batch`.

    Attributes:
        owners: int64 of shape (pieces,), ascending: index of each piece's document in the step.
        numbers: int64 of shape (pieces,), position of its first sentence in the document, from 0.
        totals: int64 of shape (pieces,), number of sentences of the whole document.
        source: All documents of the training.
        indices: int64 of shape (documents,), index in `source` of each document of the step.
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
            The texts. Each has the mean weight of its pieces, and the id of the piece that stands
            first in the step, even if another is read first.
        """
        pieces_a_text = order.shape[1]
        pieces = order.ravel()
        sizes = np.diff(self.offsets)[pieces]
        ends = np.cumsum(sizes)
        # How far each token of a piece stands in this step behind its place in the result.
        shifts = self.offsets[pieces] - (ends - sizes)
        positions = np.arange(ends[-1]) + np.repeat(shifts, sizes)
        text_ends = ends[pieces_a_text - 1 :: pieces_a_text]
        earliest_pieces = order.min(axis=1)
        return Batch(
            tokens=self.tokens[positions],
            offsets=np.append(0, text_ends),
            ids=self.ids[earliest_pieces],
            weights=self.weights[order].mean(axis=1),
        )

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
        first_rows: int64 of shape (pieces,), row of the piece's first sentence.
        last_rows: int64 of shape (pieces,), row of its last.
    """

    owners: np.ndarray
    first_rows: np.ndarray
    last_rows: np.ndarray


@dataclass(frozen=True)
class SentenceTable:
    """The selected sentences of some documents, end to end.

    Attributes:
        owners: int64 of shape (sentences,), ascending: index of the document among those asked for.
        rows: int64 of shape (sentences,), row in the documents' table of sentences.
        numbers: int64 of shape (sentences,), position in the whole document, from 0.
        offsets: int64 of shape (documents,), position of each document's first sentence here.
        counts: int64 of shape (documents,), its number of sentences.
    """

    owners: np.ndarray
    rows: np.ndarray
    numbers: np.ndarray
    offsets: np.ndarray
    counts: np.ndarray

    def followed(self) -> np.ndarray:
        """Return the indices of the sentences that the next row follows directly in their document."""
        is_next = (np.diff(self.numbers) == 1) & (np.diff(self.owners) == 0)
        return np.flatnonzero(is_next)

    def counts_of(self, candidates: np.ndarray) -> np.ndarray:
        """Count how many of the given sentences (indices in this table) each document has.

        Returns:
            int64 of shape (documents,).
        """
        return np.bincount(self.owners[candidates], minlength=self.counts.size)

    def one_of_each(self, candidates: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Choose one of the candidates of each document.

        Args:
            candidates: Indices of sentences, ascending, so that those of a document stand together;
                at least one of each document.
            draws: float64 of shape (documents,), in [0, 1).

        Returns:
            int64 of shape (documents,), index of the chosen sentence.
        """
        counts = self.counts_of(candidates)
        offsets = np.cumsum(counts) - counts
        chosen: np.ndarray = candidates[offsets + (draws * counts).astype(np.int64)]
        return chosen


class Draw(ABC):
    """Decides which pieces of a document an epoch reads.

    Subclasses are frozen dataclasses, and draw the same for the same arguments.

    Attributes:
        noun: What a piece is, in the plural, for messages.
    """

    noun: ClassVar[str] = "sentences"

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

    def all_pieces(self, documents: "Documents") -> Pieces:
        """Return every piece that an epoch may read, so that those that are cut can be counted.

        By default each selected sentence is one.
        """
        table = documents.sentences_of(np.arange(len(documents)))
        return Pieces(table.owners, table.rows, table.rows)


@dataclass(frozen=True)
class DrawSentences(Draw):
    """Draw single sentences.

    Attributes:
        seed: Draws of two seeds are independent.
        count: Number of sentences to draw from each document, or all if it has fewer; None draws all.
    """

    seed: int
    count: int | None

    def pieces(self, documents: "Documents", indices: np.ndarray, epochs: np.ndarray) -> Pieces:
        table = documents.sentences_of(indices)
        if self.count is None:
            return Pieces(table.owners, table.rows, table.rows)
        document_keys = epoch_keys(documents.ids[indices], epochs)
        keys = unit_keys_of(document_keys[table.owners], documents.numbers[table.rows])
        draws = hash_uniform(derive_seed(self.seed, "sentences"), keys)
        # The order keeps each document's sentences in its own stretch of the table, so the owners are
        # the same before and after it.
        order = np.lexsort((draws, table.owners))
        rank_in_document = np.arange(order.size) - table.offsets[table.owners]
        drawn = np.sort(order[rank_in_document < self.count])
        return Pieces(table.owners[drawn], table.rows[drawn], table.rows[drawn])

    def fits(self, documents: "Documents") -> np.ndarray:
        return np.diff(documents.firsts) >= 1


class _CropCandidates(NamedTuple):
    """The pieces that a crop may be; each is two neighbouring sentences. int64 of shape (candidates,).

    Attributes:
        starts: Index of the piece's first sentence in the table.
        overlapping: Number of pieces that overlap it, itself included.
        disjoint: Number of pieces of its document that do not.
        overlaps_before: 1 if the candidate before overlaps it, else 0.
    """

    starts: np.ndarray
    overlapping: np.ndarray
    disjoint: np.ndarray
    overlaps_before: np.ndarray


@dataclass(frozen=True)
class DrawCrops(Draw):
    """Draw two disjoint pieces of two neighbouring sentences each, in random order.

    The first is drawn among the pieces that leave room for a disjoint one, the second among the
    pieces that are disjoint from the first.

    Attributes:
        seed: Draws of two seeds are independent.
    """

    seed: int
    noun: ClassVar[str] = "pairs of neighbouring sentences"

    def pieces(self, documents: "Documents", indices: np.ndarray, epochs: np.ndarray) -> Pieces:
        table = documents.sentences_of(indices)
        candidates = self._candidates(table)
        counts = table.counts_of(candidates.starts)
        offsets = np.cumsum(counts) - counts
        index_in_document = np.arange(candidates.starts.size)
        index_in_document -= offsets[table.owners[candidates.starts]]
        eligible = candidates.starts[candidates.disjoint > 0]

        keys = epoch_keys(documents.ids[indices], epochs)
        first_draws = hash_uniform(derive_seed(self.seed, "crops", "first"), keys)
        first_starts = table.one_of_each(eligible, first_draws)
        first = np.searchsorted(candidates.starts, first_starts)  # index among the candidates
        second_draws = hash_uniform(derive_seed(self.seed, "crops", "second"), keys)
        second_index = (second_draws * candidates.disjoint[first]).astype(np.int64)
        # Skip the first piece, and those that overlap it.
        first_overlapping = index_in_document[first] - candidates.overlaps_before[first]
        is_after = second_index >= first_overlapping
        second_index = second_index + np.where(is_after, candidates.overlapping[first], 0)
        second = offsets + second_index
        drawn = np.stack([first, second], axis=1).ravel()
        rows = table.rows[candidates.starts[drawn]]
        return Pieces(np.repeat(np.arange(indices.size), 2), rows, rows + 1)

    def fits(self, documents: "Documents") -> np.ndarray:
        table = documents.sentences_of(np.arange(len(documents)))
        candidates = self._candidates(table)
        eligible = candidates.starts[candidates.disjoint > 0]
        return table.counts_of(eligible) > 0

    def all_pieces(self, documents: "Documents") -> Pieces:
        table = documents.sentences_of(np.arange(len(documents)))
        starts = table.followed()
        rows = table.rows[starts]
        return Pieces(table.owners[starts], rows, rows + 1)

    @staticmethod
    def _candidates(table: SentenceTable) -> _CropCandidates:
        """Find the pieces that a crop may be."""
        starts = table.followed()
        owners = table.owners[starts]
        # Two pieces overlap if the second sentence of one is the first of the other.
        overlaps_next = (np.diff(table.numbers[starts]) == 1) & (np.diff(owners) == 0)
        before = np.zeros(starts.size, dtype=np.int64)
        before[1:] = overlaps_next
        after = np.zeros(starts.size, dtype=np.int64)
        after[:-1] = overlaps_next
        overlapping = 1 + before + after
        disjoint = table.counts_of(starts)[owners] - overlapping
        return _CropCandidates(starts, overlapping, disjoint, before)


@dataclass(frozen=True)
class Documents(ExampleSet):
    """Documents as spans of a token stream, which is not copied and may be mapped from disk.

    Attributes:
        stream: Integers of shape (tokens,), without special tokens.
        firsts: int64 of shape (documents + 1,), row of each document's first sentence.
        starts: int64 of shape (sentences,), position of each selected sentence in the stream.
        sizes: int64 of shape (sentences,), its tokens, at least 1.
        numbers: int64 of shape (sentences,), its position in the whole document, from 0.
        sentence_weights: float64 of shape (sentences,), λ > 0.
        totals: int64 of shape (documents,), number of sentences of the whole document.
        ids: uint64 of shape (documents,), a hash of each document's id.
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
        """float32 of shape (documents,), mean λ of each document's sentences, which count alike."""
        sums = np.add.reduceat(self.sentence_weights, self.firsts[:-1])
        return (sums / np.diff(self.firsts)).astype(np.float32)

    def lengths_in(self, epoch: int) -> np.ndarray:
        return self._lengths_in(epoch, self.special_tokens.size)

    @property
    def text_lengths(self) -> np.ndarray:
        return self._lengths_in(0, 0)

    def _lengths_in(self, epoch: int, special: int) -> np.ndarray:
        """Count the tokens of each document's pieces in an epoch, with so many special ones a piece."""
        indices = np.arange(len(self))
        pieces = self.draw.pieces(self, indices, np.full(len(self), epoch))
        lengths = self._sizes_of(pieces) + special
        sums = np.bincount(pieces.owners, weights=lengths, minlength=len(self))
        return sums.astype(np.int64)

    def take(self, indices: np.ndarray, epochs: np.ndarray | int = 0) -> PieceBatch:
        pieces = self.draw.pieces(self, indices, np.broadcast_to(epochs, indices.shape))
        sizes = self._sizes_of(pieces)
        starts = self.starts[pieces.first_rows]
        tokens, offsets = frame_texts(self.stream, starts, sizes, self.special_tokens)
        numbers = self.numbers[pieces.first_rows]
        ids = unit_keys_of(self.ids[indices][pieces.owners], numbers)
        totals = self.totals[indices][pieces.owners]
        weights = self._weights_of(pieces).astype(np.float32)
        return PieceBatch(
            tokens=tokens,
            offsets=offsets,
            ids=ids,
            weights=weights,
            owners=pieces.owners,
            numbers=numbers,
            totals=totals,
            source=self,
            indices=indices,
        )

    def rows(self, indices: np.ndarray) -> "Documents":
        table = self.sentences_of(indices)
        return replace(
            self,
            firsts=np.append(table.offsets, table.rows.size),
            starts=self.starts[table.rows],
            sizes=self.sizes[table.rows],
            numbers=self.numbers[table.rows],
            sentence_weights=self.sentence_weights[table.rows],
            totals=self.totals[indices],
            ids=self.ids[indices],
            parts=(),
            shares=(),
        )

    @classmethod
    def join(cls, parts: Sequence["Documents"]) -> "Documents":
        stream = JoinedStream([part.stream for part in parts])
        starts = [part.starts + edge for part, edge in zip(parts, stream.edges[:-1], strict=True)]
        counts = np.concatenate([np.diff(part.firsts) for part in parts])
        return cls(
            stream=stream,
            firsts=np.append(0, np.cumsum(counts)),
            starts=np.concatenate(starts),
            sizes=np.concatenate([part.sizes for part in parts]),
            numbers=np.concatenate([part.numbers for part in parts]),
            sentence_weights=np.concatenate([part.sentence_weights for part in parts]),
            totals=np.concatenate([part.totals for part in parts]),
            ids=np.concatenate([part.ids for part in parts]),
            special_tokens=parts[0].special_tokens,
            draw=parts[0].draw,
            room=parts[0].room,
        )

    def sentences_of(self, indices: np.ndarray) -> SentenceTable:
        """Collect the selected sentences of some documents."""
        counts = self.firsts[indices + 1] - self.firsts[indices]
        offsets = np.cumsum(counts) - counts
        owners = np.repeat(np.arange(indices.size), counts)
        index_in_document = np.arange(owners.size) - offsets[owners]
        rows = self.firsts[indices][owners] + index_in_document
        return SentenceTable(owners, rows, self.numbers[rows], offsets, counts)

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
        return text, offsets[np.append(table.offsets, table.rows.size)]

    def uncut_sizes(self, pieces: Pieces) -> np.ndarray:
        """Count the tokens of text of each piece before it is cut; int64 of shape (pieces,)."""
        ends = self.starts[pieces.last_rows] + self.sizes[pieces.last_rows]
        sizes: np.ndarray = ends - self.starts[pieces.first_rows]
        return sizes

    def _sizes_of(self, pieces: Pieces) -> np.ndarray:
        """Count the tokens of text of each piece."""
        sizes: np.ndarray = np.minimum(self.uncut_sizes(pieces), self.room)
        return sizes

    def _weights_of(self, pieces: Pieces) -> np.ndarray:
        """Average λ over the tokens of each piece before it is cut."""
        # A piece is one or two sentences; one alone counts twice in both sums.
        first_sizes = self.sizes[pieces.first_rows]
        last_sizes = self.sizes[pieces.last_rows]
        first_weights = self.sentence_weights[pieces.first_rows]
        last_weights = self.sentence_weights[pieces.last_rows]
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
        + excluded), selected sentences, pieces that are longer than `max_tokens`, and tokens.

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
    documents_with_units = _documents_with_units(text)
    for document, units in monitor(
        documents_with_units, what="cut into sentences", unit="documents"
    ):
        counts["documents_in"] += 1
        if document.doc_id in text.exclude:
            counts["documents_excluded"] += 1
            continue
        if units is None or not (units.weight > 0).any():
            counts["documents_left_out"] += 1
            continue
        total = int(units.unit[-1]) + 1  # a row for every unit, selected or not
        if total < FEWEST_SENTENCES:
            counts["documents_too_short"] += 1
            continue
        last = text.tokens.last[document.first : document.after]
        token_starts, token_sizes = _token_spans(document, units, last)
        is_selected = (units.weight > 0) & (token_sizes > 0)
        if not is_selected.any():  # its selected sentences have no tokens
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
        stream=text.tokens.ids,
        firsts=np.append(0, np.cumsum(sentence_counts)),
        starts=np.concatenate(starts),
        sizes=np.concatenate(sizes),
        numbers=np.concatenate(numbers),
        sentence_weights=np.concatenate(weights),
        totals=np.array(totals),
        ids=np.array(ids, dtype=np.uint64),
        special_tokens=special_tokens,
        draw=draw,
        room=room,
    )
    fits = draw.fits(documents)
    counts["documents_too_short"] += int((~fits).sum())
    if not fits.any():
        raise _no_example(text, counts)
    if not fits.all():
        documents = documents.rows(np.flatnonzero(fits))
    counts["documents_kept"] = len(documents)
    counts["sentences"] = int(documents.sizes.size)
    piece_sizes = documents.uncut_sizes(draw.all_pieces(documents))
    counts["pieces_cut"] = int((piece_sizes > room).sum())
    counts["tokens_text"] = int(documents.sizes.sum())
    _say_what_is_lost(counts, piece_sizes.size, draw.noun, room)
    return documents, dict(counts)


def _say_what_is_lost(counts: Counter[str], pieces: int, noun: str, room: int) -> None:
    """Log how many documents are too short, and how many pieces are cut."""
    if counts["documents_too_short"]:
        log.info(
            "text      %s of %s documents are too short: fewer than %d sentences, or too few "
            "neighbours are selected",
            f"{counts['documents_too_short']:,}",
            f"{counts['documents_in']:,}",
            FEWEST_SENTENCES,
        )
    if counts["pieces_cut"]:
        log.info(
            "text      %s of %s %s are longer than %d tokens, and cut there; raise max_tokens to "
            "read more",
            f"{counts['pieces_cut']:,}",
            f"{pieces:,}",
            noun,
            room,
        )


def _documents_with_units(text: TrainingText) -> Iterator[tuple[DocumentSpan, UnitWeights | None]]:
    """Yield every document with its units and their weights.

    They are None for a document that the weights leave out or, without weights, that has no sentence.
    """
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
    """Find the tokens of each unit.

    Args:
        document: The document.
        units: Its units.
        last: Shape (tokens,), position of the last character of each of the document's tokens.

    Returns:
        Two arrays of shape (units,): position of the first token in the stream, and number of tokens.

    Raises:
        DataError: If a unit ends after the document.
    """
    check_ends(document, units)
    first_tokens = np.searchsorted(last, units.start.astype(last.dtype))
    after_tokens = np.searchsorted(last, units.end.astype(last.dtype))
    return document.first + first_tokens, after_tokens - first_tokens


def _no_example(text: TrainingText, counts: Counter[str]) -> DataError:
    """Return the error of a text without an example, which says what does work on it."""
    return DataError(
        f"{text.weights or 'the text'}: none of {counts['documents_in']:,} documents has enough "
        f"neighbouring sentences ({counts['documents_too_short']:,} have fewer than "
        f"{FEWEST_SENTENCES}, or too few are selected; {counts['documents_left_out']:,} without "
        f"selected text, {counts['documents_excluded']:,} held out); select more text, or train on "
        "text of single sentences with objective=masked"
    )
