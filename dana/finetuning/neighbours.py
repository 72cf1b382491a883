"""Measure what vectors say without a fit: labels of a text's neighbours, and retrieval of a document by a sentence."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dana.finetuning.probe import LabelledVectors
from dana.tasks.kinds.base import Kind

NUMBERS = (1, 3, 5, 9, 15, 25)  # of neighbours, of which the training texts choose
MOST_CHOOSING = 2_000  # training texts that choose: each is compared with all the others
DEPTH = 10  # of a ranking, as in MRR@10 and nDCG@10
BLOCK = 1_000  # texts whose similarities are held at a time


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Divide each vector by its norm; a vector of zeros stays."""
    vectors = vectors.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    norms[norms == 0] = 1.0
    directions: np.ndarray = vectors / norms
    return directions


def nearest_rows(
    vectors: np.ndarray,
    others: np.ndarray,
    count: int,
    groups: np.ndarray | None = None,
    other_groups: np.ndarray | None = None,
) -> np.ndarray:
    """Find the most similar of other vectors by cosine, the nearest first; of equals the first row.

    Args:
        vectors: Shape (texts, width).
        others: Shape (others, width).
        count: Number of neighbours; at most as many as there are others.
        groups: Group of each text; neighbours of its own group come last.
        other_groups: Group of each of the others.

    Returns:
        Rows of `others`, int64 of shape (texts, count).
    """
    others = unit_length(others)
    rows = []
    for start in range(0, len(vectors), BLOCK):
        block = unit_length(vectors[start : start + BLOCK])
        # Rounded, so that equal texts tie whatever the block.
        similarities = np.round(block @ others.T, 9)
        if groups is not None and other_groups is not None:
            is_own = groups[start : start + BLOCK, None] == other_groups
            similarities[is_own] = -np.inf
        rows.append(np.argsort(-similarities, axis=1, kind="stable")[:, :count])
    return np.concatenate(rows) if rows else np.zeros((0, count), dtype=np.int64)


def vote(labels: np.ndarray, kind: Kind, neighbours: np.ndarray) -> np.ndarray:
    """Predict labels from those of neighbours: the most frequent, of equally frequent ones the nearest.

    Of several labels a text gets each that more than half of its neighbours have; of numbers it
    gets their mean.

    Args:
        labels: Labels of the texts among which the neighbours are.
        kind: Kind of the labels.
        neighbours: Rows of these texts, of shape (texts, count), nearest first.
    """
    if not kind.has_labels:
        means: np.ndarray = labels[neighbours].mean(1)
        return means
    if kind.dtype is object:
        indicators = kind.loss_labels(labels.tolist())
        shares = indicators[neighbours].mean(1)
        return kind.gather([tuple(np.flatnonzero(row > 0.5).tolist()) for row in shares])
    winners: list[Any] = []
    for row in labels[neighbours].tolist():
        winners.append(Counter(row).most_common(1)[0][0])
    return kind.gather(winners)


def choose_number(texts: LabelledVectors) -> int:
    """Choose the number of neighbours with the best score of each training text by the others.

    A text is not predicted by its own group. Of many texts the first :data:`MOST_CHOOSING` choose.
    """
    part = texts.take(np.arange(len(texts.labels))[:MOST_CHOOSING])
    kind = part.kind
    sign = -1 if kind.metrics[part.metric] == "lower" else 1
    groups = np.arange(len(part.labels)) if part.groups is None else part.groups
    others = len(groups) - int(np.unique(groups, return_counts=True)[1].max())
    numbers = [number for number in NUMBERS if number <= others]
    if len(numbers) < 2:
        return 1
    found = nearest_rows(part.vectors, part.vectors, numbers[-1], groups, groups)
    scores = []
    for number in numbers:
        predictions = vote(part.labels, kind, found[:, :number])
        scores.append(sign * kind.score(predictions, part.labels, part.metric))
    return numbers[int(np.argmax(scores))]


def ranks_of_own(queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Rank the candidate of each query's own row among all candidates by cosine; 1 is the first.

    Candidates that are as similar as the own one come before it: a model that maps all texts to one
    vector finds nothing.

    Args:
        queries: Shape (documents, width), a sentence of each document.
        candidates: Shape (documents, width), the rest of each.
    """
    similarities = np.round(unit_length(queries) @ unit_length(candidates).T, 9)
    own = similarities.diagonal()[:, None]
    ranks: np.ndarray = (similarities >= own).sum(1)
    return ranks


def retrieval_scores(ranks: Sequence[int] | np.ndarray) -> dict[str, float]:
    """Compute MRR@10 and nDCG@10 of queries with one relevant document each, from its ranks."""
    ranks = np.asarray(ranks, dtype=np.float64)
    is_found = ranks <= DEPTH
    return {
        f"mrr_{DEPTH}": float(np.where(is_found, 1 / ranks, 0.0).mean()),
        f"ndcg_{DEPTH}": float(np.where(is_found, 1 / np.log2(ranks + 1), 0.0).mean()),
    }
