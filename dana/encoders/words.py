"""Words encoder: the mean of a text's word vectors, read from a file of word2vec's format or made of texts."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.core.errors import ArtifactError, Damage, DataError, nearest_path
from dana.core.files import file_digest, temp_file
from dana.core.lines import read_lines
from dana.core.rng import generator
from dana.models.ngram.vocabulary import MARKS, Vocabulary, split_words


@dataclass(frozen=True)
class WordsEncoder:
    """Mean of the vectors of a text's words. Words are compared in lower case; those without a vector are passed over.

    A text without any word of the file is a zero vector.

    Attributes:
        vectors: File of word vectors (:func:`dana.encoders.words.read_word_vectors`).

    References:
        Aharoni and Goldberg 2020, section 2.3: word2vec, the average over the words in the model's vocabulary.
    """

    vectors: str
    version: ClassVar[int] = 1

    @cached_property
    def _read(self) -> "WordVectors":
        return read_word_vectors(Path(self.vectors))

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.encoders.base.Encoder`. The file is known by the digest of its bytes.

        Raises:
            ArtifactError: If it cannot be read.
        """
        try:
            return {"encoder": "words", "vectors": file_digest(Path(self.vectors))}
        except OSError as error:
            said = f"{self.vectors}: no file of word vectors that can be read: {error.strerror}"
            raise ArtifactError(said + nearest_path(self.vectors)) from error

    def encode(self, texts: Sequence[str]) -> Tensor:
        """See :class:`dana.encoders.base.Encoder`. The batch changes no bit.

        Raises:
            DataError: If the file is not one of word vectors; names the line.
        """
        place = self._read.places.get
        found = [[at for word in split_words(text) if (at := place(word)) is not None] for text in texts]
        begins = np.cumsum([0, *map(len, found)], dtype=np.int64)[:-1]
        flat = np.fromiter(chain.from_iterable(found), dtype=np.int64)
        return torch.nn.functional.embedding_bag(
            torch.from_numpy(flat), self._read.vectors, torch.from_numpy(begins), mode="mean"
        )


@dataclass(frozen=True)
class WordVectors:
    """A vector a word.

    Attributes:
        words: In the file's order; the most frequent first in all common ones.
        vectors: float32 of shape (words, dims).
    """

    words: tuple[str, ...]
    vectors: Tensor

    @cached_property
    def places(self) -> dict[str, int]:
        """Row of each word in lower case; of words that differ only in case the first one's."""
        found: dict[str, int] = {}
        for place, word in enumerate(self.words):
            found.setdefault(word.lower(), place)
        return found

    def save(self, path: Path) -> None:
        """Write the text format of word2vec, whose first line has the numbers of words and dims.

        Nine digits a number: what is read back has the same bits.
        """
        with temp_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(f"{len(self.words)} {self.vectors.shape[1]}\n")
            for word, row in zip(self.words, self.vectors.tolist(), strict=True):
                stream.write(f"{word} {' '.join(f'{value:.9g}' for value in row)}\n")


def read_word_vectors(path: Path) -> WordVectors:
    """Read a file with a word and its numbers a line, separated by blanks; ``.gz`` and ``.zst`` are unpacked.

    A first line of two whole numbers says how many words and dims there are (word2vec, fastText's ``.vec``); GloVe has
    none. The first word has no blank in it; some of GloVe's later ones have.

    Args:
        path: The file.

    Raises:
        DataError: Naming file and line, if it cannot be read, a line has too few numbers or one that is not finite, or
            there are other words than the first line says.
    """
    words: list[str] = []
    values = array("f")
    declared, dims, number = None, 0, 0
    try:
        for number, line in read_lines(path):
            counts = line.split()
            if number == 1 and len(counts) == 2 and all(count.isdecimal() for count in counts):
                declared, dims = map(int, counts)
            elif counts:
                fields = line.rstrip(" \r\n").rsplit(" ", dims or -1)
                dims = dims or len(fields) - 1
                if len(fields) != dims + 1 or not dims or (not words and " " in fields[0]):
                    raise DataError(
                        f"{path}:{number}: {len(counts) - 1} numbers after a word, not {dims or 'at least one'}; a "
                        "text file of word vectors has a word and its numbers a line, separated by blanks (binary "
                        "files are not read)"
                    )
                words.append(fields[0])
                values.frombytes(_numbers(fields[1:]).tobytes())
    except Damage as damage:
        raise DataError(f"{path}:{damage.line}: {damage}") from damage
    except ValueError as error:
        raise DataError(f"{path}:{number}: {error}") from error
    if not words or declared not in (None, len(words)):
        expected = "it is empty" if declared is None else f"the first line says {declared:,}"
        raise DataError(f"{path}: {len(words):,} words with vectors, but {expected}")
    return WordVectors(tuple(words), torch.from_numpy(np.frombuffer(values, dtype=np.float32).reshape(-1, dims)))


def _numbers(fields: list[str]) -> np.ndarray:
    """A line's numbers, float32."""
    with np.errstate(over="ignore"):
        numbers = np.array([float(field) for field in fields]).astype(np.float32)
    if not np.isfinite(numbers).all():
        raise ValueError("a number is not finite")
    return numbers


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
            one, other = encoded.ids[:-distance] - len(MARKS), encoded.ids[distance:] - len(MARKS)
            known = (encoded.text_of[:-distance] == encoded.text_of[distance:]) & (one >= 0) & (other >= 0)
            weights = np.full(known.sum(), float(window + 1 - distance))
            total = total + csr_array((weights, (one[known], other[known])), shape=(size, size))
    return total + total.T


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
