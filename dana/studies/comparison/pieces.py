"""Pieces of general text: documents to runs of whole sentences whose lengths are those of the planted texts.

A pool of whole documents among planted sentences would be told apart by length. Every piece is given the length of one
plant, so that the two distributions agree; no two pieces are of one document.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dana.core.errors import DataError
from dana.core.rng import generator
from dana.corpus.units import sentences

TOLERANCE = 0.2  # share of its length by which a piece may differ before words are cut off its end


def shares_of(available: Mapping[str, int], count: int) -> dict[str, int]:
    """Pieces of each source: as even as its documents allow, one piece a document; the others make up for a small one.

    Args:
        available: Documents of each source.
        count: Pieces in all.

    Raises:
        DataError: If there are fewer documents than pieces.
    """
    if sum(available.values()) < count:
        raise DataError(f"{sum(available.values()):,} general documents cannot give {count:,} pieces, one each")
    shares: dict[str, int] = {}
    left = count
    for done, source in enumerate(sorted(available, key=lambda name: (available[name], name))):
        shares[source] = min(available[source], round(left / (len(available) - done)))
        left -= shares[source]
    return shares


def longest_for_all(sizes: Mapping[str, np.ndarray], shares: Mapping[str, int]) -> int:
    """Words that a piece of any source can have: so many documents as it gives pieces, or half of them, are as long.

    Args:
        sizes: Words of each document, by source.
        shares: Pieces of each source.
    """
    return min(int(np.sort(found)[-max(1, min(shares[name], found.size // 2))]) for name, found in sizes.items())


def lengths_by_source(plants: Sequence[int], shares: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    """Deal piece lengths to sources, each with the plants' distribution.

    Args:
        plants: Words of each plant.
        shares: Pieces of each source.
        seed: Decides which lengths are drawn.

    Returns:
        Words of the pieces of each source, int64, by source.
    """
    ordered = np.sort(np.asarray(plants, dtype=np.int64))
    dealt = {}
    for source in sorted(shares):
        drawn = generator(seed, "comparison", "lengths", source).random(shares[source])
        places = (np.arange(shares[source]) + drawn) / max(1, shares[source])  # one from every stretch of quantiles
        dealt[source] = ordered[(places * ordered.size).astype(np.int64)]
    return dealt


def documents_for(sizes: np.ndarray, wanted: np.ndarray, seed: int, source: str) -> np.ndarray:
    """Choose a document for every piece: at random among those that are long enough, each once.

    Args:
        sizes: Words of each document of a source, int64 of shape (documents,).
        wanted: Words of each piece, int64 of shape (pieces,), no more of them than documents.
        seed: Root seed.
        source: Its name.

    Returns:
        int64 of shape (pieces,): a document's row for each piece. Where none is long enough, the longest left.
    """
    order = generator(seed, "comparison", "documents", source).permutation(sizes.size)
    free = np.ones(sizes.size, dtype=bool)
    chosen = np.empty(wanted.size, dtype=np.int64)
    for piece in np.argsort(-wanted, kind="stable"):  # the longest first: few documents can hold them
        fits = free[order] & (sizes[order] >= wanted[piece])
        row = order[fits.argmax()] if fits.any() else int(np.where(free, sizes, -1).argmax())
        free[row] = False
        chosen[piece] = row
    return chosen


def cut_to(text: str, length: int, language: str = "en") -> str:
    """The run of consecutive sentences whose number of words is nearest to a given one.

    Where none is within a fifth of it, words are cut off the end of one that is longer. Of runs that are equally near
    the first is taken.

    Args:
        text: A document.
        length: Words wanted.
        language: ISO 639-1 code, for where sentences end.
    """
    spans = sentences(text, language)
    sizes = [len(text[start:end].split()) for start, end in spans]
    found, best = (0, len(spans)), (True, float("inf"))
    for first in range(len(spans)):
        total = 0
        for last in range(first, len(spans)):
            total += sizes[last]
            if (key := (total < length * (1 - TOLERANCE), abs(total - length))) < best:
                found, best = (first, last + 1), key
            if total >= length:
                break
    if not spans:
        return text
    piece = text[spans[found[0]][0] : spans[found[1] - 1][1]].split()
    return " ".join(piece if len(piece) <= length * (1 + TOLERANCE) else piece[:length])
