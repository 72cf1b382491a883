"""Training of word vectors: texts to the leading singular directions of their words' positive mutual information."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.rng import generator
from dana.encoders.word_vectors import WordVectors
from dana.models.ngram.vocabulary import MARKS, Vocabulary, WordIds

SMOOTHING = 0.75  # exponent of the frequency of context words
TEXTS_AT_ONCE = 8192


def train_word_vectors(texts: Sequence[str], dims: int = 100, window: int = 5, min_count: int = 5) -> WordVectors:
    """Vectors of the words of texts, as alike as the company that the words keep.

    A pair of words counts by its distance, ``window`` for neighbours down to 1 for words that are ``window`` apart;
    words outside the vocabulary keep their place. The vectors are the leading left singular vectors of the matrix of
    positive pointwise mutual information, times the square root of the singular value. Nothing is drawn: the same texts
    give the same bits. Memory grows with the number of distinct pairs.

    Args:
        texts: Words do not meet across them.
        dims: Length of a vector.
        window: Most words to either side.
        min_count: Rarer words get no vector.

    Raises:
        ConfigError: If a number is below 1.
        DataError: If fewer words are as frequent as that than there are dims.

    References:
        Levy, Goldberg and Dagan 2015, Improving distributional similarity with lessons learned from word embeddings:
        sections 3.1 (dyn, cds), 3.2 and 3.3 (eig = 0.5). They come near to word2vec's vectors.
    """
    from scipy.sparse.linalg import svds
    from sklearn.utils.extmath import svd_flip
    from threadpoolctl import threadpool_limits

    for name, value in (("dims", dims), ("window", window), ("min_count", min_count)):
        require(value >= 1, name, value, "at least 1")
    vocabulary = Vocabulary.of_texts(texts, min_count)
    words = vocabulary.words[len(MARKS) :]
    if len(words) <= dims:
        raise DataError(f"dims={dims}: {len(words)} words are at least {min_count} times in the texts; ask for fewer")
    information = positive_information(count_pairs(texts, vocabulary, window))
    begin = generator(0, "word vectors").standard_normal(len(words))
    with threadpool_limits(1):  # sums in another order would change the last bits
        left, values, right = svds(information, k=dims, v0=begin)
    left = svd_flip(left[:, ::-1], right[::-1])[0]
    vectors = left * np.sqrt(np.maximum(values[::-1], 0))
    return WordVectors(words, torch.from_numpy(vectors.astype(np.float32)))


def count_pairs(texts: Sequence[str], vocabulary: Vocabulary, window: int) -> Any:
    """How often words stand near each other, by distance.

    Args:
        texts: Words do not meet across them.
        vocabulary: The words that count.
        window: Most words between them, and one.

    Returns:
        A symmetric sparse matrix, float64 of shape (words, words) without the marks, of scipy: each pair adds
        ``window + 1 - distance``.
    """
    from scipy.sparse import csr_array

    size = len(vocabulary) - len(MARKS)
    total = csr_array((size, size))
    for first in range(0, len(texts), TEXTS_AT_ONCE):
        encoded = vocabulary.encode(texts[first : first + TEXTS_AT_ONCE])
        for distance in range(1, window + 1):
            one, other = _pairs(encoded, distance)
            weights = np.full(one.size, float(window + 1 - distance))
            total = total + csr_array((weights, (one, other)), shape=(size, size))
    return total + total.T


def _pairs(encoded: WordIds, distance: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers, without the marks, of all known words of one text that are so far apart."""
    one, other = encoded.ids[:-distance] - len(MARKS), encoded.ids[distance:] - len(MARKS)
    kept = (encoded.text_of[:-distance] == encoded.text_of[distance:]) & (one >= 0) & (other >= 0)
    return one[kept], other[kept]


def positive_information(pairs: Any) -> Any:
    """Positive pointwise mutual information, max(0, log p(w, c) / (p(w) p'(c))), p' smoothed by an exponent of 0.75.

    Args:
        pairs: Of :func:`count_pairs`.

    Returns:
        A sparse matrix of the same shape, without explicit zeros.
    """
    found = pairs.tocoo()
    sums = np.asarray(pairs.sum(1)).ravel()
    smoothed = sums**SMOOTHING
    expected = sums[found.row] / sums.sum() * smoothed[found.col] / smoothed.sum()
    found.data = np.maximum(np.log(found.data / sums.sum() / expected), 0)
    found.eliminate_zeros()
    return found.tocsr()
