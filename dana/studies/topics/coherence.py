"""Coherence and diversity of topics: their top words, and how often documents have these together, to two numbers."""

from typing import Any

import numpy as np

COHERENT_WORDS = 10
DIVERSE_WORDS = 25


def top_words(beta: np.ndarray, count: int) -> np.ndarray:
    """The most probable words of each topic, the first of equally probable ones first.

    Args:
        beta: Shape (topics, words).
        count: How many; fewer where there are fewer words.

    Returns:
        int64 of shape (topics, count), places in the vocabulary.
    """
    return np.argsort(-beta, axis=1, kind="stable")[:, :count]


def topic_coherence(top: np.ndarray, counts: Any) -> np.ndarray:
    """Mean normalised pointwise mutual information of all pairs of each topic's words, by documents.

    NPMI(v, w) = log(p(v, w) / (p(v) p(w))) / −log p(v, w), where p is the share of the documents that have the word,
    or both words. −1 for two words that no document has together, 0 for two that every document has, where it is 0/0.

    Args:
        top: int of shape (topics, words a topic), of :func:`top_words`.
        counts: Sparse, shape (documents, vocabulary).

    Returns:
        float64 of shape (topics,), in [-1, 1]; higher = its words are in the same documents. nan with one word a topic.

    References:
        Bouma 2009, Normalized (pointwise) mutual information in collocation extraction. Dieng, Ruiz and Blei 2020,
        section 6: the ten most likely words; their release takes eleven.
    """
    used, places = np.unique(top, return_inverse=True)
    present = (counts[:, used] > 0).astype(np.float64)
    together = np.asarray((present.T @ present).todense()) / counts.shape[0]
    alone = together.diagonal()
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(together / np.outer(alone, alone)) / -np.log(together)
    found[together == 0] = -1.0
    found[together == 1] = 0.0
    one, other = np.triu_indices(top.shape[1], k=1)
    places = places.reshape(top.shape)
    return np.array([found[row[one], row[other]].mean() if one.size else np.nan for row in places])


def topic_diversity(top: np.ndarray) -> float:
    """Share of distinct words among the top words of all topics, in (0, 1]; 1 = no two topics share one.

    Args:
        top: Of :func:`top_words`, with 25 words a topic in Dieng, Ruiz and Blei 2020, section 6.
    """
    return np.unique(top).size / top.size
