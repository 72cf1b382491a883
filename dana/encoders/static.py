"""Static encoder: weighted mean of a checkpoint's input embeddings; no forward pass, some hundred times faster.

A token of probability p has weight a / (a + p), and the leading component of the weighted embeddings is removed. Both
are applied to the embedding table once, so encoding is a mean of its rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.core.device import find_device
from dana.core.errors import ArtifactError
from dana.encoders.transformer import minilm_folder
from dana.models.folder import load_backbone, load_own_tokenizer, model_identity

TEXTS_AT_ONCE = 8192
MOST_WORDS = 1 << 17  # cached; about 40 MB
LONGEST_WORD = 32
EULER = 0.5772156649015329
# Marks of word beginnings and continuations in vocabularies.
MARKERS = ("##", "▁", "Ġ", "</w>")


@dataclass(frozen=True)
class StaticEncoder:
    """Smooth inverse frequency embeddings of a checkpoint's vocabulary. O(characters) a text.

    A token's probability is estimated from its id: WordPiece and BPE vocabularies list tokens by falling frequency
    (Zipf: the r-th has 1 / (r ln V)), after single characters, which get the probability of the first. Each word
    (between blanks) is tokenised by itself and cached. Special and unknown tokens have weight 0; a text of no others is
    a zero vector. No text is cut.

    Attributes:
        model: A Hub name or a folder with safetensors weights; empty takes the packaged MiniLM.
        a: Tokens of this probability count half; 0.001 is the source's.
        device: ``auto`` takes CUDA when there is one.

    References:
        Arora, Liang and Ma 2017, A simple but tough-to-beat baseline for sentence embeddings. There p is counted and
        the component is that of the corpus; here both come from the checkpoint, so nothing is fitted.
    """

    model: str = ""
    a: float = 1e-3
    device: str = "auto"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(self.a > 0, "a", self.a, "above 0")

    @cached_property
    def _checkpoint(self) -> str:
        return self.model or str(minilm_folder())

    @cached_property
    def tokenizer(self) -> Any:
        """The model's fast tokenizer."""
        return load_own_tokenizer(self._checkpoint)

    @cached_property
    def _words(self) -> Any:
        """The fast tokenizer without truncation and padding, for single words."""
        from tokenizers import Tokenizer

        if not self.tokenizer.is_fast:
            raise ArtifactError(f"{self._checkpoint}: static needs a fast tokenizer (tokenizer.json)")
        words = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        words.no_padding()
        words.no_truncation()
        return words

    @cached_property
    def _seen(self) -> dict[str, list[int]]:
        """Cache: word to token ids."""
        return {}

    @cached_property
    def _table(self) -> Tensor:
        """Weighted embedding of each token without the common component, shape (vocabulary, dims)."""
        rows = load_backbone(self._checkpoint).get_input_embeddings().weight.detach().double().cpu()
        probability = torch.zeros(len(rows), dtype=torch.double)
        known = zipf(self.tokenizer)[: len(rows)]
        probability[: len(known)] = torch.from_numpy(known)
        weight = torch.where(probability > 0, self.a / (self.a + probability), 0.0)
        return without_leading(rows * weight[:, None], probability).float().to(find_device(self.device))

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.encoders.base.Encoder`. A folder is known by the digest of its weights."""
        return {"encoder": "static", "weights": model_identity(self._checkpoint), "a": self.a}

    def encode(self, texts: Sequence[str]) -> Tensor:
        """See :class:`dana.encoders.base.Encoder`. The batch changes no bit."""
        parts = [self._encode(texts[first : first + TEXTS_AT_ONCE]) for first in range(0, len(texts), TEXTS_AT_ONCE)]
        return torch.cat([self._table.new_zeros(0, self._table.shape[1]), *parts])

    def _encode(self, texts: Sequence[str]) -> Tensor:
        words = [text.split() for text in texts]
        distinct = {word: place for place, word in enumerate(dict.fromkeys(chain.from_iterable(words)))}
        tokens = self._tokens(list(distinct))
        sums = self._sum(self._table, list(chain.from_iterable(tokens)), [len(ids) for ids in tokens])
        counts = np.array([len(ids) for ids in tokens], dtype=np.float32)
        places = [distinct[word] for word in chain.from_iterable(words)]
        sizes = [len(row) for row in words]
        total = self._sum(sums, places, sizes)
        lengths = self._sum(torch.from_numpy(counts).to(sums.device)[:, None], places, sizes)
        return total / lengths.clamp(min=1)

    def _tokens(self, words: Sequence[str]) -> list[list[int]]:
        """Token ids of each word; those of short words are cached."""
        ids = [self._seen.get(word) for word in words]
        new = [word for word, known in zip(words, ids, strict=True) if known is None]
        # After a blank: byte-level vocabularies have other tokens for the first word of a text.
        pieces = self._words.encode_batch_fast([f" {word}" for word in new], add_special_tokens=False)
        fresh = {word: piece.ids for word, piece in zip(new, pieces, strict=True)}
        self._seen.update((word, found) for word, found in fresh.items() if len(word) <= LONGEST_WORD)
        if len(self._seen) > MOST_WORDS:
            self._seen.clear()
        return [fresh[word] if known is None else known for word, known in zip(words, ids, strict=True)]

    def _sum(self, table: Tensor, rows: Sequence[int], sizes: Sequence[int]) -> Tensor:
        """Sums of consecutive `rows` of a table, as many as `sizes` says; shape (sizes, dims)."""
        begins = np.cumsum([0, *sizes], dtype=np.int64)[:-1]
        flat = torch.from_numpy(np.array(rows, dtype=np.int64)).to(table.device)
        return torch.nn.functional.embedding_bag(flat, table, torch.from_numpy(begins).to(table.device), mode="sum")


def zipf(tokenizer: Any) -> np.ndarray:
    """Probability of each token by its id, float64 of shape (ids,); 0 for special and unused tokens and gaps."""
    vocabulary = tokenizer.get_vocab()
    nothing = set(tokenizer.all_special_tokens)
    probability = np.zeros(max(vocabulary.values()) + 1)
    scale = math.log(len(vocabulary)) + EULER  # sum of 1 / r over the vocabulary
    rank = 0
    for token, place in sorted(vocabulary.items(), key=lambda item: item[1]):
        if token in nothing or token.startswith("[unused"):
            continue
        if len(_bare(token)) > 1:
            rank += 1
        probability[place] = 1 / (max(rank, 1) if len(_bare(token)) > 1 else 1) / scale
    return probability


def _bare(token: str) -> str:
    for marker in MARKERS:
        token = token.removeprefix(marker).removesuffix(marker)
    return token


def without_leading(rows: Tensor, probability: Tensor) -> Tensor:
    """Rows less their part along the leading direction of their second moment under `probability`.

    The direction's sign does not matter: it enters twice.
    """
    moment = rows.T @ (rows * probability[:, None])
    leading = torch.linalg.eigh(moment)[1][:, -1:]
    return rows - (rows @ leading) @ leading.T
