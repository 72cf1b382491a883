"""N-gram counting: word numbers in, for each order the sorted distinct n-grams with raw and adjusted counts out.

A k-gram is the integer ``row of its first k - 1 words among the (k-1)-grams · words + last word``. It fits 63 bits at
any order, and the sorted arrays of all orders are a trie.
"""

from dataclasses import dataclass

import numpy as np

from dana.models.ngram.vocabulary import BEGIN, WordIds


@dataclass(frozen=True)
class Counts:
    """All k-grams of some texts, in ascending order of their keys.

    Attributes:
        keys: int64 of shape (k-grams,): row of the first k - 1 words times the number of words, plus the last word.
        raw: int64 of shape (k-grams,), occurrences.
        adjusted: int64 of shape (k-grams,), the counts of Kneser-Ney smoothing: the number of distinct words before the
            k-gram (Chen and Goodman 1998, section 2.7); occurrences for the highest order, and where a text begins,
            since nothing stands before it. The begin mark by itself, which is never predicted, has 0.
        suffixes: int64 of shape (k-grams,), row of the last k - 1 words among the (k-1)-grams; zeros for single words.
    """

    keys: np.ndarray
    raw: np.ndarray
    adjusted: np.ndarray
    suffixes: np.ndarray


def count_ngrams(texts: WordIds, order: int, words: int) -> list[Counts]:
    """Count the 1-grams to `order`-grams of texts; none reaches over the begin or the end of a text.

    Time O(order · tokens · log tokens), by sorting.

    Args:
        texts: Word numbers.
        order: Highest order, from 1.
        words: Size of the vocabulary. Every word is a 1-gram, also one that the texts do not hold.
    """
    last = texts.ids.astype(np.int64)
    keys, suffixes = np.arange(words), np.zeros(words, dtype=np.int64)
    raw = np.bincount(last, minlength=words)
    begins = keys == BEGIN  # whether a k-gram is the beginning of a text
    rows = last  # of the k-gram that ends at each place; -1 where there is none
    levels = []
    for _ in range(1, order):
        before = np.concatenate([[-1], rows[:-1]])
        before[last == BEGIN] = -1
        places = np.flatnonzero(before >= 0)
        longer, found, longer_raw = np.unique(
            before[places] * words + last[places], return_inverse=True, return_counts=True
        )
        longer_suffixes = np.zeros(longer.size, dtype=np.int64)
        longer_suffixes[found] = rows[places]
        preceded = np.bincount(longer_suffixes, minlength=keys.size)
        levels.append(Counts(keys, raw, np.where(begins, raw, preceded), suffixes))
        begins = begins[longer // words]
        keys, raw, suffixes = longer, longer_raw, longer_suffixes
        rows = np.full(last.size, -1)
        rows[places] = found
    levels.append(Counts(keys, raw, raw.copy(), suffixes))
    levels[0].adjusted[BEGIN] = 0
    return levels
