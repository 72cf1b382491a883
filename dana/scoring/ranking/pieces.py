"""Pieces: task and general units to runs of units of like lengths, which selectors are compared on.

What is kept of a corpus is a segment of a document, so a selector is judged by mean scores over such runs. The general
runs are cut to the lengths of the task's: of two means over many units and over few, the first lies nearer the middle
whatever it is of.
"""

from dataclasses import dataclass

import numpy as np

from dana.core.rng import generator
from dana.corpus.unit_stream import Units


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


def cut_like(pieces: Pieces, lengths: np.ndarray, seed: int) -> Pieces:
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
