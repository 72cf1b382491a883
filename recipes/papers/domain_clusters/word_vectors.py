"""Train word vectors on texts, and write them as the encoder ``words`` reads them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from sklearn.utils.extmath import svd_flip
from threadpoolctl import threadpool_limits

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.files import temp_file
from dana.core.rng import generator
from dana.encoders.words import WordVectors
from dana.models.ngram.vocabulary import MARKS, Vocabulary

SMOOTHING = 0.75  # exponent of the frequency of context words
TEXTS_AT_ONCE = 8192


def train_word_vectors(
    texts: Sequence[str], dims: int = 100, window: int = 5, min_count: int = 5
) -> WordVectors:
    """Train word vectors by a singular value decomposition of pointwise mutual information.

    Only positive information counts. A pair of words counts by distance, from ``window`` for
    neighbours to 1 for words that are ``window`` apart, words outside the vocabulary included in
    the distance. The vectors are the leading left singular vectors times the square roots of their
    singular values. The same texts give the same bits. Memory grows with the number of distinct
    pairs.

    Args:
        texts: Texts; pairs of words are counted within each.
        dims: Length of a vector.
        window: Largest distance of a pair, in words.
        min_count: Fewest occurrences of a word with a vector.

    Raises:
        ConfigError: If a number is below 1.
        DataError: If there are not more frequent words than dims.

    References:
        Levy, Goldberg and Dagan 2015, Improving distributional similarity with lessons learned from
        word embeddings: sections 3.1 (dyn, cds), 3.2 and 3.3 (eig = 0.5). They are close to
        word2vec's vectors.
    """
    for name, value in (("dims", dims), ("window", window), ("min_count", min_count)):
        require(value >= 1, name, value, "at least 1")
    vocabulary = Vocabulary.of_texts(texts, min_count)
    words = vocabulary.words[len(MARKS) :]
    if len(words) <= dims:
        raise DataError(
            f"dims={dims}: must be below {len(words)}, "
            f"the words with at least {min_count} occurrences"
        )
    information = positive_information(count_pairs(texts, vocabulary, window))
    begin = generator(0, "word vectors").standard_normal(len(words))
    with threadpool_limits(1):  # another order of summation would change the last bits
        word_vectors, values, context_vectors = svds(information, k=dims, v0=begin)
    word_vectors, _ = svd_flip(word_vectors[:, ::-1], context_vectors[::-1])
    vectors = word_vectors * np.sqrt(np.maximum(values[::-1], 0))
    return WordVectors(words, torch.from_numpy(vectors.astype(np.float32)))


def count_pairs(texts: Sequence[str], vocabulary: Vocabulary, window: int) -> Any:
    """Count pairs of words within a window, weighted by distance.

    Args:
        texts: Texts; pairs are counted within each.
        vocabulary: Words to count.
        window: Largest distance of a pair, in words.

    Returns:
        A symmetric sparse matrix of scipy, float64 of shape (words, words) without the marks: each
        pair adds ``window + 1 - distance``.
    """
    size = len(vocabulary) - len(MARKS)
    total = csr_array((size, size))
    for first in range(0, len(texts), TEXTS_AT_ONCE):
        numbers = vocabulary.encode(texts[first : first + TEXTS_AT_ONCE])
        for distance in range(1, window + 1):
            left = numbers.ids[:-distance] - len(MARKS)
            right = numbers.ids[distance:] - len(MARKS)
            in_one_text = numbers.text_of[:-distance] == numbers.text_of[distance:]
            mask = in_one_text & (left >= 0) & (right >= 0)
            weights = np.full(mask.sum(), float(window + 1 - distance))
            total = total + csr_array((weights, (left[mask], right[mask])), shape=(size, size))
    return total + total.T


def positive_information(pairs: Any) -> Any:
    """Compute positive pointwise mutual information.

    It is max(0, log p(w, c) / (p(w) p'(c))), with p' ~ counts ** 0.75.

    Args:
        pairs: Counts from :func:`count_pairs`.

    Returns:
        A sparse matrix of the same shape, without explicit zeros.
    """
    matrix = pairs.tocoo()
    sums = np.asarray(pairs.sum(1)).ravel()
    context_sums = sums**SMOOTHING
    independent = sums[matrix.row] / sums.sum() * context_sums[matrix.col] / context_sums.sum()
    matrix.data = np.maximum(np.log(matrix.data / sums.sum() / independent), 0)
    matrix.eliminate_zeros()
    return matrix.tocsr()


def save_word_vectors(word_vectors: WordVectors, path: Path) -> None:
    """Write the text format of word2vec, whose first line has the numbers of words and dims.

    Numbers have nine digits, so that reading them gives the same bits.
    """
    with (
        temp_file(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="\n") as stream,
    ):
        stream.write(f"{len(word_vectors.words)} {word_vectors.vectors.shape[1]}\n")
        for word, row in zip(word_vectors.words, word_vectors.vectors.tolist(), strict=True):
            numbers = " ".join(f"{value:.9g}" for value in row)
            stream.write(f"{word} {numbers}\n")
