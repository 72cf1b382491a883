"""Names of clusters: texts and their clusters to the words that set each apart, by class-based TF-IDF."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

WORD = r"(?u)\b[^\W\d_]+(?:['’][^\W\d_]+)+\b|\b[^\W\d_]{2,}\b"  # two letters or more; I've is one word
FEWEST_UNITS = 3  # of a cluster, that a word of its name must be in
LIFT = 3.0  # so many times as frequent as in the other clusters: what is said everywhere names none
WORDS = 10
IN_NAME = 3


def cluster_words(texts: Sequence[str], clusters: np.ndarray, k: int) -> pd.DataFrame:
    """The words that set each cluster apart, the strongest first.

    A word's weight is the square root of its share of the cluster's words times log(1 + A / f), where f is how often it
    comes in all texts and A the mean number of words of a cluster. Root and lift stand for a list of stop words, which
    would be one language's: only words at least three times as frequent in the cluster as in all others count.

    Args:
        texts: Units.
        clusters: int of shape (units,), from 0.
        k: How many clusters there are.

    Returns:
        At most ten rows a cluster: cluster, rank (from 1), word, weight, lift (frequency over that elsewhere, infinite
        for a word that is only there), units (of the cluster, that have it).

    References:
        Grootendorst 2022, BERTopic: neural topic modeling with a class-based TF-IDF procedure, section 3.3; the root is
        its implementation's `reduce_frequent_words`.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(token_pattern=WORD)
    try:
        counts = vectorizer.fit_transform(texts).tocsr()
    except ValueError:  # not one word in all texts
        return pd.DataFrame({name: [] for name in ("cluster", "rank", "word", "weight", "lift", "units")})
    vocabulary = vectorizer.get_feature_names_out()
    by_cluster = np.stack([np.asarray(counts[clusters == at].sum(0)).ravel() for at in range(k)]).astype(float)
    units = np.stack([np.asarray((counts[clusters == at] > 0).sum(0)).ravel() for at in range(k)])
    sizes, totals = by_cluster.sum(1), by_cluster.sum(0)
    shares = by_cluster / np.maximum(sizes, 1)[:, None]
    weights = np.sqrt(shares) * np.log1p(sizes.mean() / totals)
    elsewhere = (totals - by_cluster) / np.maximum(sizes.sum() - sizes, 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        lift = shares / elsewhere
    rows = []
    for cluster in range(k):
        able = np.flatnonzero((units[cluster] >= FEWEST_UNITS) & (lift[cluster] >= LIFT))
        order = able[np.lexsort((vocabulary[able], -weights[cluster, able]))][:WORDS]
        for rank, word in enumerate(order, start=1):
            row = {"cluster": cluster, "rank": rank, "word": vocabulary[word], "weight": weights[cluster, word]}
            rows.append(row | {"lift": lift[cluster, word], "units": units[cluster, word]})
    return pd.DataFrame(rows, columns=["cluster", "rank", "word", "weight", "lift", "units"])


def cluster_names(words: pd.DataFrame, k: int) -> list[str]:
    """A name a cluster, its three strongest words; its number where it has none.

    Args:
        words: Of :func:`cluster_words`.
        k: How many clusters there are.
    """
    found = [words.loc[words["cluster"] == cluster, "word"].head(IN_NAME) for cluster in range(k)]
    return [", ".join(own) or f"cluster {cluster}" for cluster, own in enumerate(found)]
