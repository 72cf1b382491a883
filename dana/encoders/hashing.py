"""Encode texts by hashing: L2-normalised signed counts of hashed words and word pairs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from dana.core.config import require
from dana.core.scripts import CHARACTER, has_unspaced, separate

WORD = r"\b\w\w+\b"  # the default of scikit-learn


@dataclass(frozen=True)
class HashingEncoder:
    """Signed hashed counts of words and word pairs, L2-normalised. O(characters), no training.

    Words have two characters or more; in scripts without spaces each character is a word
    (:mod:`dana.core.scripts`).

    Attributes:
        dims: Length of a vector.
        words: Longest word n-gram.

    References:
        Weinberger et al. 2009, Feature hashing for large scale multitask learning.
    """

    dims: int = 512
    words: int = 2
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(self.dims >= 1, "dims", self.dims, "at least 1")
        require(self.words >= 1, "words", self.words, "at least 1")

    def identity(self) -> dict[str, Any]:
        return {"encoder": "hashing", **asdict(self)}

    def encode(self, texts: Sequence[str]) -> Tensor:
        from sklearn.feature_extraction.text import HashingVectorizer

        if not texts:
            return torch.zeros(0, self.dims)
        options: dict[str, Any] = {}
        if any(map(has_unspaced, texts)):
            options["preprocessor"] = _separate_lower
            options["token_pattern"] = rf"{CHARACTER}|{WORD}"
        vectorizer = HashingVectorizer(
            n_features=self.dims, ngram_range=(1, self.words), norm="l2", **options
        )
        return torch.from_numpy(vectorizer.transform(texts).astype("float32").toarray())


def _separate_lower(text: str) -> str:
    return separate(text.lower())
