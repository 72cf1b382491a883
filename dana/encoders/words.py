"""Words encoder: the mean of a text's word vectors, from any file in the text format of word2vec or GloVe."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import ArtifactError, nearest_path
from dana.core.files import file_digest
from dana.encoders.word_vectors import WordVectors, read_word_vectors
from dana.models.ngram.vocabulary import split_words


@dataclass(frozen=True)
class WordsEncoder:
    """Mean of the vectors of a text's words. Words are compared in lower case; those without a vector are passed over.

    A text without any word of the file is a zero vector.

    Attributes:
        vectors: File of word vectors (:func:`dana.encoders.word_vectors.read_word_vectors`).

    References:
        Aharoni and Goldberg 2020, section 2.3: word2vec, the average over the words in the model's vocabulary.
    """

    vectors: str
    version: ClassVar[int] = 1

    @cached_property
    def _read(self) -> WordVectors:
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
