"""Grouped folds: units to folds that part neither a document nor a group of near-duplicate documents.

Units of one document resemble each other, and relation data repeats a sentence with other marks, so a split by unit
would test a detector on text it was fitted on.
"""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from dana.core.rng import generator
from dana.corpus.overlap import shingle_matrix

ALIKE = 0.5  # share of the shorter document's shingles that makes two documents near duplicates
STRETCHES = 10  # pieces of consecutive units that a document becomes where it is most of the task


def groups_of(texts: Sequence[str], documents: Sequence[str]) -> np.ndarray:
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
    rows: dict[str, list[str]] = {}
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


def stretches(groups: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, bool]:
    """Cut a group that holds more than half of the units into ten stretches of consecutive units.

    A task of one long document has no second one to hold out. Neighbouring stretches are of one text, so what is
    measured over them flatters.

    Args:
        groups: Shape (units,), from :func:`groups_of`.
        order: Shape (units,), place of each unit in the task's text.

    Returns:
        The groups, and whether one was cut.
    """
    sizes = np.bincount(groups)
    largest = int(sizes.argmax())
    if sizes[largest] <= groups.size / 2:
        return groups, False
    inside = np.flatnonzero(groups == largest)
    inside = inside[np.argsort(order[inside], kind="stable")]
    cut = groups.copy()
    cut[inside] = groups.max() + 1 + np.arange(inside.size) * STRETCHES // inside.size
    return np.unique(cut, return_inverse=True)[1], True


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
