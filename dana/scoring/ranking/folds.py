"""Grouped folds: units to folds that part neither a document nor a group of near-duplicate documents; and pieces.

Units of one document resemble each other, and relation data repeats a sentence with other marks, so a split by unit
would test a detector on text it was fitted on.

Pieces are runs of units of like lengths. What is kept of a corpus is a segment of a document, so a selector is judged
by mean scores over such runs. The general runs are cut to the lengths of the task's: of two means over many units and
over few, the first lies nearer the middle whatever it is of.
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

ALIKE = 0.5  # share of the shorter document's shingles that makes two documents near duplicates
STRETCHES = 10  # pieces of consecutive units that a document becomes where it is most of the task


def groups_of(texts: Sequence[str], documents: Sequence[Hashable]) -> np.ndarray:
    """Number the groups of documents that must not be parted, by shared runs of four words.

    Two documents are near duplicates if they share half of the shingles of the one that has fewer; groups are the
    connected components. Words alone count (:func:`dana.corpus.text.words`), so marks do not hide a repeated sentence.
    Memory and time grow with words · 500 at worst, in practice with words.

    Args:
        texts: Of the units.
        documents: Document of each unit.

    Returns:
        int64 of shape (units,), from 0 in order of first appearance.
    """
    rows: dict[Hashable, list[str]] = {}
    for text, document in zip(texts, documents, strict=True):
        rows.setdefault(document, []).append(text)
    held, _ = shingle_matrix(rows.values())
    shared = coo_array(held @ held.T)
    sizes = np.diff(held.indptr)
    one, two = shared.coords
    alike = shared.data >= ALIKE * np.minimum(sizes[one], sizes[two])
    links = csr_array((np.ones(alike.sum()), (one[alike], two[alike])), shape=(len(rows), len(rows)))
    _, labels = connected_components(links, directed=False)
    _, first, group = np.unique(labels, return_index=True, return_inverse=True)
    number = dict(zip(rows, np.argsort(np.argsort(first))[group], strict=True))
    return np.array([number[document] for document in documents], dtype=np.int64)


def stretches(groups: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Cut a group that holds more than half of the units into ten stretches of consecutive units, with a warning.

    A task of one long document has no second one to hold out. Neighbouring stretches are of one text, so what is
    measured over them flatters.

    Args:
        groups: Shape (units,), from :func:`groups_of`.
        order: Shape (units,), place of each unit in the task's text.
    """
    sizes = np.bincount(groups)
    largest = int(sizes.argmax())
    if sizes[largest] <= groups.size / 2:
        return groups
    log.warning(
        "ranking   most of the task is one document, or near copies of one: stretches of it are held out, "
        "and they are like the rest of it, so the numbers flatter"
    )
    inside = np.flatnonzero(groups == largest)
    inside = inside[np.argsort(order[inside], kind="stable")]
    cut = groups.copy()
    cut[inside] = groups.max() + 1 + np.arange(inside.size) * STRETCHES // inside.size
    return np.unique(cut, return_inverse=True)[1]


def task_groups(task: Units) -> np.ndarray:
    """Groups of a task's units that are held out together; see :func:`groups_of` and :func:`stretches`."""
    places = np.argsort(np.lexsort((task.numbers, task.owners)))
    return stretches(groups_of(task.texts, task.document_numbers.tolist()), places)


def folds_of(groups: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Deal whole groups into folds of nearly equal size, at random.

    Args:
        groups: Shape (units,).
        count: Folds; as many as groups where there are fewer.
        seed: Decides which group goes where.

    Returns:
        int64 of shape (units,): the fold that holds each unit out.
    """
    sizes = np.bincount(groups)
    shuffled = generator(seed, "folds").permutation(sizes.size)
    load = np.zeros(min(count, sizes.size), dtype=np.int64)
    fold = np.empty(sizes.size, dtype=np.int64)
    for group in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:  # the largest first, so that loads even out
        fold[group] = load.argmin()
        load[fold[group]] += sizes[group]
    return fold[groups]


@dataclass(frozen=True)
class Pieces:
    """Units, and the runs that they form.

    Attributes:
        units: All of them.
        of: int64 of shape (units,), the piece that each is of, from 0, ascending.
        groups: int64 of shape (pieces,), pieces of one number are held out and resampled together.
    """

    units: Units
    of: np.ndarray
    groups: np.ndarray

    def __len__(self) -> int:
        return self.groups.size

    @property
    def lengths(self) -> np.ndarray:
        """Units of each piece, int64 of shape (pieces,)."""
        return np.bincount(self.of, minlength=len(self))

    def means(self, scores: np.ndarray) -> np.ndarray:
        """Mean over the units of each piece: scores of shape (units,) to shape (pieces,)."""
        return np.bincount(self.of, weights=scores, minlength=len(self)) / self.lengths


def pieces_of(units: Units, groups: np.ndarray, gamma: int) -> Pieces:
    """Order units by document and cut each document into runs of at most γ units.

    Args:
        units: In any order, of documents or, as plain texts, each of its own.
        groups: int64 of shape (units,); units of two groups are in two pieces.
        gamma: Units in a segment.
    """
    document = units.document_numbers
    order = np.lexsort((units.numbers, groups, document))
    document, group, number = document[order], groups[order], units.numbers[order].astype(np.int64)
    new = np.ones(order.size, dtype=bool)
    new[1:] = (
        (document[1:] != document[:-1]) | (group[1:] != group[:-1]) | (number[1:] // gamma != number[:-1] // gamma)
    )
    return Pieces(units.rows(order), np.cumsum(new) - 1, group[new])


def match_lengths(pieces: Pieces, lengths: np.ndarray, seed: int) -> Pieces:
    """Shorten pieces, at their end, to lengths drawn from those given.

    Args:
        pieces: Of general text.
        lengths: Of the task's pieces, in units.
        seed: Of the draw.
    """
    most = generator(seed, "ranking", "lengths").choice(lengths, size=len(pieces))
    starts = np.cumsum(pieces.lengths) - pieces.lengths
    place = np.arange(pieces.of.size) - starts[pieces.of]
    rows = np.flatnonzero(place < most[pieces.of])
    return Pieces(pieces.units.rows(rows), pieces.of[rows], pieces.groups)
