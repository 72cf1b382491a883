"""Count hashed n-grams of words, or of characters within words.

The counts of each text are sparse, by bucket of the SHA-256 of an n-gram.
"""

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
    """Split a text into lower-cased runs of word characters and of punctuation.

    So does NLTK's ``WordPunctTokenizer``. In scripts without spaces each character is a word
    (:mod:`dana.core.scripts`).
    """
    return _WORD_PUNCT.findall(text.lower())


class BucketCounts(ABC):
    """Counts of features of texts by hash bucket; subclasses define the features."""

    def counts(self, texts: Sequence[str]) -> sparse.csr_array:
        """Count the features of each text by bucket, float64 of shape (texts, buckets)."""
        starts = range(0, max(len(texts), 1), BATCH)
        parts = [self.count_batch(texts[start : start + BATCH]) for start in starts]
        return sparse.vstack(parts, format="csr")

    def nonempty_counts(self, texts: Sequence[str], name: str) -> sparse.csr_array:
        """Count as :meth:`counts` and refuse texts without any feature.

        Nothing could be learned from them.

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
    """Counts of the n-grams of length 1 to `order`.

    An n-gram's bucket is its SHA-256 modulo `buckets`.

    Attributes:
        order: Longest n-gram.
        buckets: Columns of the counts.
        split: Text to tokens; an n-gram is hashed as its tokens with single spaces between.

    References:
        Xie et al. 2023, Data selection for language models via importance resampling, section 3;
        the buckets are those of the package ``data-selection`` 1.0.3.
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
        # Tokens from each start to the end of its text.
        remaining = np.repeat(np.cumsum(lengths), lengths) - starts
        text_of = np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
        # The distinct n-grams of one length, and which of them begins at each start.
        grams = words
        gram_ids = numbers
        columns = [bucket_of(grams, self.buckets)[gram_ids]]
        rows = [text_of]
        for length in range(2, self.order + 1):
            fits = remaining[starts] >= length
            starts = starts[fits]
            # A longer n-gram is the one of the length before that begins here, and a last word.
            keys = gram_ids[fits] * len(words) + numbers[starts + length - 1]
            distinct, gram_ids = np.unique(keys, return_inverse=True)
            heads, ends = np.divmod(distinct, max(len(words), 1))
            pairs = zip(heads.tolist(), ends.tolist(), strict=True)
            grams = [f"{grams[head]} {words[end]}" for head, end in pairs]
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
        shape = (len(words), self.buckets)
        by_word = sparse.csr_array((np.ones(columns.size), indices), shape=shape)
        counts = by_text @ by_word
        # Their order would depend on the other texts, and with it the last bits of sums.
        counts.sort_indices()
        return counts

    def _ngrams(self, word: str) -> list[str]:
        text = f" {word} "
        ngrams: list[str] = []
        for length in range(self.shortest, min(self.longest, len(text)) + 1):
            starts = range(len(text) - length + 1)
            ngrams += [text[start : start + length] for start in starts]
        return ngrams


def bucket_of(grams: Sequence[str], buckets: int) -> np.ndarray:
    """Hash each n-gram to a bucket, int32.

    The bucket is the SHA-256 of the n-gram, as a big-endian number of 256 bits, modulo `buckets`.
    """
    encoded = [gram.encode("utf-8", "surrogatepass") for gram in grams]
    digests = b"".join([hashlib.sha256(gram).digest() for gram in encoded])
    parts = np.frombuffer(digests, dtype=">u8").reshape(-1, 4).astype(np.uint64)
    size = np.uint64(buckets)
    shift = np.uint64(2**64 % buckets)  # from one part of 64 bits to the next
    remainder = np.zeros(len(grams), dtype=np.uint64)
    for part in parts.T:
        remainder = (remainder * shift + part % size) % size
    return remainder.astype(np.int32)


def number_tokens(texts: Sequence[Sequence[str]]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Number the tokens of texts.

    Returns:
        The distinct tokens, the ids of all tokens in order, and each text's length.
    """
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new token gets the next number
    ids = np.fromiter(map(numbers.__getitem__, chain.from_iterable(texts)), dtype=np.int64)
    lengths = np.array([len(tokens) for tokens in texts], dtype=np.int64)
    return list(numbers), ids, lengths
