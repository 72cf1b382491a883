"""Encode texts as means of word vectors, which are read from a file."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import ArtifactError, Damage, DataError, nearest_path
from dana.core.files import file_digest
from dana.core.lines import read_lines
from dana.models.ngram.vocabulary import split_words


@dataclass(frozen=True)
class WordsEncoder:
    """Mean of the vectors of a text's words, in lower case. Words without a vector are ignored.

    A text without any word of the file is a zero vector.

    Attributes:
        vectors: File of word vectors (:func:`dana.encoders.words.read_word_vectors`).

    References:
        Aharoni and Goldberg 2020, section 2.3: word2vec, the average over the words in the model's
        vocabulary.
    """

    vectors: str
    version: ClassVar[int] = 1

    @cached_property
    def _read(self) -> "WordVectors":
        return read_word_vectors(Path(self.vectors))

    def identity(self) -> dict[str, Any]:
        """Identify the encoder by the digest of the file, see :class:`dana.encoders.base.Encoder`.

        Raises:
            ArtifactError: If it cannot be read.
        """
        try:
            return {"encoder": "words", "vectors": file_digest(Path(self.vectors))}
        except OSError as error:
            problem = f"cannot be read: {error.strerror}{nearest_path(self.vectors)}"
            raise ArtifactError(f"{self.vectors}: word vectors {problem}") from error

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts as :meth:`dana.encoders.base.Encoder.encode`.

        Raises:
            DataError: If the file does not hold word vectors; names the line.
        """
        row_of = self._read.row_by_word
        rows: list[int] = []
        sizes = []
        for text in texts:
            rows_of_text = [row_of[word] for word in split_words(text) if word in row_of]
            rows += rows_of_text
            sizes.append(len(rows_of_text))
        return pool_rows(self._read.vectors, rows, sizes, "mean")


def pool_rows(table: Tensor, rows: Sequence[int], sizes: Sequence[int], mode: str) -> Tensor:
    """Pool consecutive groups of `rows` of a table, of `sizes` rows each, by sum or mean."""
    begins = torch.from_numpy(np.cumsum([0, *sizes], dtype=np.int64)[:-1])
    flat = torch.from_numpy(np.array(rows, dtype=np.int64))
    return torch.nn.functional.embedding_bag(
        flat.to(table.device), table, begins.to(table.device), mode=mode
    )


@dataclass(frozen=True)
class WordVectors:
    """Words with their vectors.

    Attributes:
        words: Words in the order of the file, by convention the most frequent first.
        vectors: float32 of shape (words, dims).
    """

    words: tuple[str, ...]
    vectors: Tensor

    @cached_property
    def row_by_word(self) -> dict[str, int]:
        """Row of each word in lower case; the first row of words that differ only in case."""
        return {word.lower(): row for row, word in reversed(list(enumerate(self.words)))}


def read_word_vectors(path: Path) -> WordVectors:
    """Read a text file of word vectors, plain or compressed.

    A line is a word and its numbers, separated by blanks. A first line of two integers gives the
    numbers of words and dims (word2vec, fastText's ``.vec``); GloVe has none. The first word must
    not contain a blank, as some of GloVe's later words do.

    Args:
        path: The file.

    Raises:
        DataError: If the file cannot be read, a line has too few numbers or one that is not finite,
            or the number of words differs from the first line. Names file and line.
    """
    words: list[str] = []
    values = array("f")
    word_count = None  # as the first line says
    dims = 0
    number = 0
    try:
        for number, line in read_lines(path):
            parts = line.split()
            if number == 1 and len(parts) == 2 and all(part.isdecimal() for part in parts):
                word_count, dims = map(int, parts)
            elif parts:
                fields = line.rstrip(" \r\n").rsplit(" ", dims or -1)
                dims = dims or len(fields) - 1
                has_blank = not words and " " in fields[0]
                if len(fields) != dims + 1 or not dims or has_blank:
                    raise DataError(
                        f"{path}:{number}: expected a word and {dims or 'its'} numbers, separated "
                        f"by blanks, got {len(parts) - 1} numbers; binary files are not supported"
                    )
                words.append(fields[0])
                values.frombytes(_numbers(fields[1:]).tobytes())
    except Damage as damage:
        raise DataError(f"{path}:{damage.line}: {damage}") from damage
    except ValueError as error:
        raise DataError(f"{path}:{number}: {error}") from error
    if not words or word_count not in (None, len(words)):
        expectation = "at least one"
        if word_count is not None:
            expectation = f"{word_count:,}, as in the first line"
        raise DataError(f"{path}: {len(words):,} words with vectors; expected {expectation}")
    vectors = np.frombuffer(values, dtype=np.float32).reshape(-1, dims)
    return WordVectors(tuple(words), torch.from_numpy(vectors))


def _numbers(fields: list[str]) -> np.ndarray:
    """Parse the numbers of a line, float32; refuse those that are not finite."""
    with np.errstate(over="ignore"):
        numbers = np.array([float(field) for field in fields]).astype(np.float32)
    if not np.isfinite(numbers).all():
        raise ValueError("a number is not finite")
    return numbers
