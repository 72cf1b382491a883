"""Count hashed n-grams of words, or of characters within words: sparse counts of each text by bucket of the SHA-256."""

import hashlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from scipy import sparse

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.scripts import WordPattern

BATCH = 1024  # texts; each distinct n-gram of a batch is hashed once

_WORD_PUNCT = WordPattern(r"\w+|[^\w\s]+", r"[a-z0-9_]+|[^a-z0-9_\s]+")  # of lower case


def word_punct(text: str) -> list[str]:
    """Split a text into lower-cased runs of word characters and of punctuation, as NLTK's ``WordPunctTokenizer`` does.

    In scripts without spaces each character is a word (:mod:`dana.core.scripts`).
    """
    return _WORD_PUNCT.findall(text.lower())


class BucketCounts(ABC):
    """Counts of features of texts by hash bucket; subclasses define the features."""

    def counts(self, texts: Sequence[str]) -> sparse.csr_array:
        """Count the features of each text by bucket, float64 of shape (texts, buckets)."""
        parts = [
            self.count_batch(texts[start : start + BATCH])
            for start in range(0, max(len(texts), 1), BATCH)
        ]
        return sparse.vstack(parts, format="csr")

    def nonempty_counts(self, texts: Sequence[str], name: str) -> sparse.csr_array:
        """Count as :meth:`counts` and refuse texts without any feature, from which nothing can be learned.

        Raises:
            DataError: If no text has a feature; the message names the texts `name`.
        """
        counts = self.counts(texts)
        if not counts.nnz:
            raise DataError(f"the {name} has no word in any of its {len(texts)} units")
        return counts

    @abstractmethod
    def count_batch(self, texts: Sequence[str]) -> sparse.csr_array:
        """Count as :meth:`counts` for at most 1,024 texts, perhaps none."""


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
        require(1 <= self.buckets < 2**31, "buckets", self.buckets, f"from 1 to {2**31 - 1}")

    def count_batch(self, texts: Sequence[str]) -> sparse.csr_array:
        words, numbers, lengths = number_tokens([self.split(text) for text in texts])
        starts = np.arange(numbers.size)
        remaining = (
            np.repeat(np.cumsum(lengths), lengths) - starts
        )  # tokens from here to the end of the text
        text_of = np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
        grams, gram_ids = (
            words,
            numbers,
        )  # the distinct n-grams of one length, and which of them begins at each start
        columns, rows = [bucket_of(grams, self.buckets)[gram_ids]], [text_of]
        for length in range(2, self.order + 1):
            fits = remaining[starts] >= length
            starts = starts[fits]
            keys = gram_ids[fits] * len(words) + numbers[starts + length - 1]
            distinct, gram_ids = np.unique(keys, return_inverse=True)
            heads, ends = np.divmod(distinct, max(len(words), 1))
            grams = [
                f"{grams[head]} {words[end]}"
                for head, end in zip(heads.tolist(), ends.tolist(), strict=True)
            ]
            columns.append(bucket_of(grams, self.buckets)[gram_ids])
            rows.append(text_of[starts])
        ones = np.ones(sum(row.size for row in rows))
        indices = (np.concatenate(rows), np.concatenate(columns))
        return sparse.csr_array((ones, indices), shape=(len(texts), self.buckets))


@dataclass(frozen=True)
class CharacterNgrams(BucketCounts):
    """Counts of the character n-grams of each word, with a space before and after it.

    They share endings, stems and parts of compounds between words that a small task has and words
    that it lacks.

    Attributes:
        shortest: Fewest characters of an n-gram.
        longest: Most characters of an n-gram.
        buckets: Columns of the counts; an n-gram's bucket is its SHA-256 modulo their number.
        split: Text to words.
    """

    shortest: int
    longest: int
    buckets: int
    split: Callable[[str], list[str]]

    def __post_init__(self) -> None:
        require(
            1 <= self.shortest <= self.longest,
            "shortest",
            self.shortest,
            f"from 1 to longest={self.longest}",
        )
        require(1 <= self.buckets < 2**31, "buckets", self.buckets, f"from 1 to {2**31 - 1}")

    def count_batch(self, texts: Sequence[str]) -> sparse.csr_array:
        # Counts of n-grams by text are the product of counts of words by text and of n-grams by
        # distinct word.
        words, numbers, lengths = number_tokens([self.split(text) for text in texts])
        rows = np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
        indices = (rows, numbers.astype(np.int32))
        by_text = sparse.csr_array((np.ones(numbers.size), indices), shape=(len(texts), len(words)))
        distinct, gram_ids, sizes = number_tokens([self._ngrams(word) for word in words])
        columns = bucket_of(distinct, self.buckets)[gram_ids]
        indices = (np.repeat(np.arange(len(words), dtype=np.int32), sizes), columns)
        counts = by_text @ sparse.csr_array(
            (np.ones(columns.size), indices), shape=(len(words), self.buckets)
        )
        counts.sort_indices()  # their order would depend on the other texts, and with it the last bits of sums
        return counts

    def _ngrams(self, word: str) -> list[str]:
        text = f" {word} "
        lengths = range(self.shortest, min(self.longest, len(text)) + 1)
        return [
            text[start : start + length]
            for length in lengths
            for start in range(len(text) - length + 1)
        ]


def bucket_of(grams: Sequence[str], buckets: int) -> np.ndarray:
    """Hash each n-gram to a bucket, int32: its SHA-256 as a big-endian number of 256 bits, modulo `buckets`."""
    digests = b"".join(
        [hashlib.sha256(gram.encode("utf-8", "surrogatepass")).digest() for gram in grams]
    )
    parts = np.frombuffer(digests, dtype=">u8").reshape(-1, 4).astype(np.uint64)
    size, shift = np.uint64(buckets), np.uint64(2**64 % buckets)
    remainder = np.zeros(len(grams), dtype=np.uint64)
    for part in parts.T:
        remainder = (remainder * shift + part % size) % size
    return remainder.astype(np.int32)


def number_tokens(texts: Sequence[Sequence[str]]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Number the tokens of texts: return distinct tokens, the ids of all tokens in order, and each text's length."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new token gets the next number
    ids = np.fromiter(map(numbers.__getitem__, chain.from_iterable(texts)), dtype=np.int64)
    return list(numbers), ids, np.array([len(tokens) for tokens in texts], dtype=np.int64)
