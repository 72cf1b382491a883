"""Trigram encoder: a text's vector counts its character trigrams, hashed into a fixed number of dimensions."""

from dataclasses import asdict, dataclass
from zlib import crc32

import torch


@dataclass(frozen=True)
class Trigrams:
    """Hashed counts of character trigrams, each vector of length 1."""

    dims: int = 256

    def encode(self, texts):
        """Vectors, float32 of shape (texts, dims)."""
        vectors = torch.zeros(len(texts), self.dims)
        for row, text in enumerate(texts):
            for start in range(max(1, len(text) - 2)):
                vectors[row, crc32(text[start : start + 3].encode()) % self.dims] += 1
        return torch.nn.functional.normalize(vectors)

    def identity(self):
        """All that decides the vectors."""
        return {"encoder": "trigrams", **asdict(self)}
