"""Word shingles: documents to a sparse matrix of the runs of four words they hold, and to their nearest near duplicate.

Words alone count (:func:`dana.corpus.text.words`), so marks, punctuation and case make no difference.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from scipy.sparse import coo_array, csr_array

from dana.corpus.text import words

SHINGLE = 4  # words
COMMON = 500  # shingles of more documents are boilerplate: they join nothing, which also bounds the work
COLUMNS = 2**31 - 1  # that a shingle is hashed to: of 200,000 shingles some ten pairs fall together
ROWS_AT_ONCE = 256


def shingle_matrix(documents: Iterable[Sequence[str]]) -> tuple[csr_array, np.ndarray]:
    """Which document holds which run of four words; one of fewer words is a single run. O(words).

    Args:
        documents: Each a list of texts; no run goes from one text into the next.

    Returns:
        Ones, shape (documents, distinct shingles), without the shingles of more than 500 documents; and the distinct
        shingles of each document with those, int64 of shape (documents,).
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(analyzer=_shingles, n_features=COLUMNS, binary=True, norm=None, alternate_sign=False)
    hashed = hashing.transform(documents)
    _, columns, counts = np.unique(hashed.indices, return_inverse=True, return_counts=True)
    held = csr_array((hashed.data, columns, hashed.indptr), shape=(hashed.shape[0], max(1, counts.size)))
    rare = np.flatnonzero(counts <= COMMON)
    return csr_array(held[:, rare]), np.diff(hashed.indptr).astype(np.int64)


def nearest_rows(held: csr_array, sizes: np.ndarray, rows: np.ndarray, others: np.ndarray, least: float) -> np.ndarray:
    """The most similar of some documents for each of some, by the Jaccard index of their shingles.

    Common shingles count as not shared, so an index is never too high. Work grows with the shingles of `rows` times
    the documents that hold one, 500 at most; memory is that of 256 rows.

    Args:
        held: From :func:`shingle_matrix`, as is `sizes`.
        sizes: Distinct shingles of each document.
        rows: Documents, shape (rows,).
        others: Documents to look among, none of them in `rows`.
        least: Smallest Jaccard index that counts.

    Returns:
        int64 of shape (rows,): a document of `others`, of a tie the first; -1 where none is similar enough.
    """
    found = np.full(rows.size, -1, dtype=np.int64)
    among = held[others].T
    for start in range(0, rows.size, ROWS_AT_ONCE):
        block = rows[start : start + ROWS_AT_ONCE]
        at, other, jaccard = _jaccard(held[block], among, sizes[block], sizes[others])
        order = np.lexsort((other, -jaccard, at))
        best = order[np.unique(at[order], return_index=True)[1]]
        best = best[jaccard[best] >= least]
        found[start + at[best]] = others[other[best]]
    return found


def repeats_earlier(held: csr_array, sizes: np.ndarray, least: float) -> np.ndarray:
    """Which documents are similar to an earlier one, whether or not that one is to one before it.

    Args:
        held: From :func:`shingle_matrix`, as is `sizes`.
        sizes: Distinct shingles of each document.
        least: Smallest Jaccard index that counts; common shingles count as not shared.

    Returns:
        bool of shape (documents,).
    """
    found = np.zeros(sizes.size, dtype=bool)
    for start in range(0, sizes.size, ROWS_AT_ONCE):
        end = min(start + ROWS_AT_ONCE, sizes.size)
        at, other, jaccard = _jaccard(held[start:end], held[:end].T, sizes[start:end], sizes[:end])
        at = at + start
        found[at[(other < at) & (jaccard >= least)]] = True
    return found


def _jaccard(
    held: csr_array, among: csr_array, sizes: np.ndarray, other_sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, column and Jaccard index of the pairs that share a shingle; `among` has a column a document."""
    shared = coo_array(held @ among)
    at, other = shared.coords
    return at, other, shared.data / (sizes[at] + other_sizes[other] - shared.data)


def _shingles(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        parts = words(text).split()
        for start in range(max(min(len(parts), 1), len(parts) - SHINGLE + 1)):
            yield " ".join(parts[start : start + SHINGLE])
