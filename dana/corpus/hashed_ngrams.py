"""Hashed n-grams of words, and of characters in words: texts in, sparse counts by bucket of their SHA-256 out."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from scipy import sparse

from dana.core.config import require
from dana.core.errors import DataError

BATCH = 1024  # texts whose distinct n-grams are hashed once, together

_WORD_PUNCT = re.compile(r"\w+|[^\w\s]+")


def word_punct(text: str) -> list[str]:
    """Lower-cased runs of word characters and of punctuation, as NLTK's ``WordPunctTokenizer`` splits."""
    return _WORD_PUNCT.findall(text.lower())


class BucketCounts(ABC):
    """Counts of what texts hold, by bucket of a hash; subclasses count a batch of texts."""

    def counts(self, texts: Sequence[str]) -> sparse.csr_array:
        """How often a text has something of a bucket, float64 of shape (texts, buckets)."""
        parts = [self.count_batch(texts[start : start + BATCH]) for start in range(0, max(len(texts), 1), BATCH)]
        return sparse.vstack(parts, format="csr")

    def nonempty_counts(self, texts: Sequence[str], name: str) -> sparse.csr_array:
        """As :meth:`counts`, of texts that something is to be learned from.

        Raises:
            DataError: If none of them has a word; it says `name`.
        """
        found = self.counts(texts)
        if not found.nnz:
            raise DataError(f"the {name} has no word in any of its {len(texts)} units")
        return found

    @abstractmethod
    def count_batch(self, texts: Sequence[str]) -> sparse.csr_array:
        """As :meth:`counts`, of at most 1,024 texts, maybe none."""


@dataclass(frozen=True)
class HashedNgrams(BucketCounts):
    """Counts of the n-grams of length 1 to `order`; an n-gram's bucket is its SHA-256 modulo `buckets`.

    Attributes:
        order: Longest n-gram.
        buckets: Columns of the counts.
        split: Text to tokens; an n-gram is hashed as its tokens with single spaces between.

    References:
        Xie et al. 2023, Data selection for language models via importance resampling, section 3; the buckets are
        those of the package ``data-selection`` 1.0.3.
    """

    order: int = 2
    buckets: int = 10_000
    split: Callable[[str], list[str]] = word_punct

    def __post_init__(self) -> None:
        require(self.order >= 1, "order", self.order, "at least 1")
        require(1 <= self.buckets < 2**31, "buckets", self.buckets, "from 1 to 2147483647")

    def count_batch(self, texts: Sequence[str]) -> sparse.csr_array:
        """Counts of a few texts; each distinct n-gram is hashed once."""
        words, numbers, lengths = number_tokens([self.split(text) for text in texts])
        places = np.arange(numbers.size)
        left = np.repeat(np.cumsum(lengths), lengths) - places  # tokens from here to the end of the text
        text_of = np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
        grams, found = words, numbers  # the distinct n-grams of one length, and which of them begins at each place
        columns, rows = [bucket_of(grams, self.buckets)[found]], [text_of]
        for length in range(2, self.order + 1):
            long = left[places] >= length
            places = places[long]
            keys = found[long] * len(words) + numbers[places + length - 1]
            distinct, found = np.unique(keys, return_inverse=True)
            heads, ends = np.divmod(distinct, max(len(words), 1))
            grams = [f"{grams[head]} {words[end]}" for head, end in zip(heads.tolist(), ends.tolist(), strict=True)]
            columns.append(bucket_of(grams, self.buckets)[found])
            rows.append(text_of[places])
        ones = np.ones(sum(row.size for row in rows))
        where = (np.concatenate(rows), np.concatenate(columns))
        return sparse.csr_array((ones, where), shape=(len(texts), self.buckets))


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


def bucket_of(grams: Sequence[str], buckets: int) -> np.ndarray:
    """Bucket of each n-gram, int32: its SHA-256 as one big-endian number of 256 bits, modulo the buckets."""
    digests = b"".join([hashlib.sha256(gram.encode("utf-8", "surrogatepass")).digest() for gram in grams])
    parts = np.frombuffer(digests, dtype=">u8").reshape(-1, 4).astype(np.uint64)
    size, shift = np.uint64(buckets), np.uint64(2**64 % buckets)
    rest = np.zeros(len(grams), dtype=np.uint64)
    for part in parts.T:
        rest = (rest * shift + part % size) % size
    return rest.astype(np.int32)


def number_tokens(texts: Sequence[Sequence[str]]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Distinct tokens, the number of each token of all texts in order, and the tokens of each text."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new token gets the next number
    found = np.fromiter(map(numbers.__getitem__, chain.from_iterable(texts)), dtype=np.int64)
    return list(numbers), found, np.array([len(tokens) for tokens in texts], dtype=np.int64)
