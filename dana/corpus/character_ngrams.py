"""Character n-grams inside words: texts in, sparse counts by bucket of a hash out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from dana.core.config import require
from dana.corpus.hashed_ngrams import BucketCounts, bucket_of, number_tokens


@dataclass(frozen=True)
class CharacterNgrams(BucketCounts):
    """Counts of the runs of `shortest` to `longest` characters of each word, a space before and after it.

    Endings, stems and compounds that a few texts of a task show are found in words that none of them has.

    Attributes:
        shortest: Characters.
        longest: Characters.
        buckets: Columns of the counts; a run's bucket is its SHA-256 modulo these.
        split: Text to words.
    """

    shortest: int
    longest: int
    buckets: int
    split: Callable[[str], list[str]]

    def __post_init__(self) -> None:
        require(1 <= self.shortest <= self.longest, "shortest", self.shortest, f"from 1 to longest={self.longest}")
        require(1 <= self.buckets < 2**31, "buckets", self.buckets, "from 1 to 2147483647")

    def count_batch(self, texts: Sequence[str]) -> sparse.csr_array:
        """Words counted by text, runs by distinct word; their product is runs by text."""
        words, numbers, lengths = number_tokens([self.split(text) for text in texts])
        rows = np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
        where = (rows, numbers.astype(np.int32))
        by_text = sparse.csr_array((np.ones(numbers.size), where), shape=(len(texts), len(words)))
        runs = [self._runs(word) for word in words]
        distinct, found, sizes = number_tokens(runs)
        columns = bucket_of(distinct, self.buckets)[found]
        where = (np.repeat(np.arange(len(words), dtype=np.int32), sizes), columns)
        counts = by_text @ sparse.csr_array((np.ones(columns.size), where), shape=(len(words), self.buckets))
        counts.sort_indices()  # else in an order that follows from the other texts, and so do the last bits of sums
        return counts

    def _runs(self, word: str) -> list[str]:
        padded = f" {word} "
        return [
            padded[start : start + length]
            for length in range(self.shortest, min(self.longest, len(padded)) + 1)
            for start in range(len(padded) - length + 1)
        ]
