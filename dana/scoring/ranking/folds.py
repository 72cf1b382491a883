"""Deal units into folds, and cut documents into pieces of γ units.

Folds keep near-duplicate documents together. Units of one document resemble each other, and
relation data repeats a sentence with other entity marks, so a split by unit would test a detector
on text it was fitted on.

Pieces are runs of consecutive units. Selection takes segments of documents, so selectors are
compared by mean scores of pieces. Pool pieces get the lengths of the target's, because the mean of
fewer scores has a larger variance.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from dana.core.logging import get_logger
from dana.core.rng import generator
from dana.corpus.overlap import shingle_matrix
from dana.corpus.unit_stream import Units

log = get_logger(__name__)

ALIKE = 0.5  # near duplicates share this part of the shorter document's shingles
STRETCHES = 10  # parts of a document that is most of the task


def groups_of(texts: Sequence[str], documents: Sequence[Hashable]) -> np.ndarray:
    """Group near-duplicate documents by their shared shingles of four words.

    Two documents are near duplicates if they share half of the shingles of the document with fewer;
    groups are the connected components. Only words count (:func:`dana.corpus.text.words`), so marks
    do not hide a repeated sentence. Memory and time are O(500 · words) at worst, in practice
    O(words).

    Args:
        texts: Text of each unit.
        documents: Document of each unit.

    Returns:
        Group of each unit, int64 of shape (units,), from 0 in order of first appearance.
    """
    rows: dict[Hashable, list[str]] = {}
    for text, document in zip(texts, documents, strict=True):
        rows.setdefault(document, []).append(text)
    shingles, _ = shingle_matrix(rows.values())
    overlap = coo_array(shingles @ shingles.T)
    sizes = np.diff(shingles.indptr)
    left, right = overlap.coords
    alike = overlap.data >= ALIKE * np.minimum(sizes[left], sizes[right])
    ones = np.ones(alike.sum())
    links = csr_array((ones, (left[alike], right[alike])), shape=(len(rows), len(rows)))
    _, labels = connected_components(links, directed=False)  # in order of first appearance
    group_of = dict(zip(rows, labels, strict=True))
    return np.array([group_of[document] for document in documents], dtype=np.int64)


def stretches(groups: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Cut a group that holds more than half of the units into ten stretches, with a warning.

    A stretch is of consecutive units. A task of one long document has no second one to hold out.
    Stretches of one text resemble each other, so measurements over them are optimistic.

    Args:
        groups: Group of each unit, shape (units,), from :func:`groups_of`.
        order: Position of each unit in the target's text, shape (units,).
    """
    sizes = np.bincount(groups)
    largest = int(sizes.argmax())
    if sizes[largest] <= groups.size / 2:
        return groups
    log.warning(
        "ranking   most of the task is one document, or near duplicates of one; "
        "stretches of it are held out, so the numbers are optimistic"
    )
    inside = np.flatnonzero(groups == largest)
    inside = inside[np.argsort(order[inside], kind="stable")]
    cut = groups.copy()
    cut[inside] = groups.max() + 1 + np.arange(inside.size) * STRETCHES // inside.size
    _, numbers = np.unique(cut, return_inverse=True)
    return numbers


def target_groups(target: Units) -> np.ndarray:
    """Group a target's units that must be held out together.

    See :func:`groups_of` and :func:`stretches`.
    """
    positions = np.argsort(np.lexsort((target.numbers, target.owners)))
    return stretches(groups_of(target.texts, target.document_numbers.tolist()), positions)


def folds_of(groups: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Deal whole groups at random into folds of nearly equal size.

    Args:
        groups: Group of each unit, shape (units,).
        count: Number of folds; with fewer groups the last ones are empty.
        seed: Seed of the deal.

    Returns:
        Fold that holds each unit out, int64 of shape (units,).
    """
    sizes = np.bincount(groups)
    random_order = generator(seed, "folds").permutation(sizes.size)
    load = np.zeros(count, dtype=np.int64)
    fold = np.empty(sizes.size, dtype=np.int64)
    # The largest first evens out the loads.
    by_size = random_order[np.argsort(-sizes[random_order], kind="stable")]
    for group in by_size:
        fold[group] = load.argmin()
        load[fold[group]] += sizes[group]
    fold_of_unit: np.ndarray = fold[groups]
    return fold_of_unit


@dataclass(frozen=True)
class Pieces:
    """Units in pieces of consecutive units.

    Attributes:
        units: All units, ordered by piece.
        of: Piece of each unit, int64 of shape (units,), from 0, ascending.
        groups: Group of each piece, int64 of shape (pieces,). The pieces of a group are held out
            and drawn together.
    """

    units: Units
    of: np.ndarray
    groups: np.ndarray

    def __len__(self) -> int:
        return self.groups.size

    @property
    def lengths(self) -> np.ndarray:
        """Number of units of each piece, int64 of shape (pieces,)."""
        return np.bincount(self.of, minlength=len(self))

    def means(self, scores: np.ndarray) -> np.ndarray:
        """Average scores of shape (units,) over the units of each piece; return shape (pieces,)."""
        means: np.ndarray = np.bincount(self.of, weights=scores, minlength=len(self)) / self.lengths
        return means


def pieces_of(units: Units, groups: np.ndarray, gamma: int) -> Pieces:
    """Order units by document and cut each document into pieces of at most γ units.

    Args:
        units: Units in any order; each plain text counts as a document.
        groups: Group of each unit, int64 of shape (units,); a piece has units of one group only.
        gamma: Most units of a piece.
    """
    document = units.document_numbers
    order = np.lexsort((units.numbers, groups, document))
    document = document[order]
    group = groups[order]
    piece_of_document = units.numbers[order].astype(np.int64) // gamma
    is_first = np.ones(order.size, dtype=bool)  # of its piece
    is_first[1:] = (
        (document[1:] != document[:-1])
        | (group[1:] != group[:-1])
        | (piece_of_document[1:] != piece_of_document[:-1])
    )
    return Pieces(units.rows(order), np.cumsum(is_first) - 1, group[is_first])


def match_lengths(pieces: Pieces, lengths: np.ndarray, seed: int) -> Pieces:
    """Shorten pieces, at their end, to lengths drawn from the target's.

    Args:
        pieces: Pieces of pool text.
        lengths: Lengths of the target's pieces, in units.
        seed: Seed of the draw.
    """
    limits = generator(seed, "ranking", "lengths").choice(lengths, size=len(pieces))
    starts = np.cumsum(pieces.lengths) - pieces.lengths
    offsets = np.arange(pieces.of.size) - starts[pieces.of]
    rows = np.flatnonzero(offsets < limits[pieces.of])
    return Pieces(pieces.units.rows(rows), pieces.of[rows], pieces.groups)
