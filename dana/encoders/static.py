"""A checkpoint's input embeddings, averaged: no forward pass, no weights of its own, some hundred times faster.

Frequent words say little, so a token counts a / (a + p), and what all texts share is removed: the leading component of
the weighted embeddings. Both are folded into the table once, which leaves a mean of rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.config import require
from dana.encoders.checkpoint import checkpoint_identity, load_backbone
from dana.encoders.minilm import minilm_folder
from dana.errors import ArtifactError

TEXTS_AT_ONCE = 8192
MOST_WORDS = 1 << 17  # remembered; about 40 MB
LONGEST_WORD = 32
EULER = 0.5772156649015329
# How tokenizers mark the beginning of a word or the going on of one.
MARKERS = ("##", "▁", "Ġ", "</w>")


@dataclass(frozen=True)
class StaticEncoder:
    """Smooth inverse frequency embeddings of a checkpoint's vocabulary. O(characters) a text.

    How frequent a token is, is read off its id: WordPiece and BPE vocabularies list whole words and pieces by falling
    frequency (Zipf: p of the r-th is 1 / (r ln V)), after the characters that any text is spelled from, which count as
    the most frequent. Each word (between blanks) is tokenised by itself, and rarely twice: that is what makes
    it fast. Special and unknown tokens count nothing; a text of no others is a zero vector. No text is cut.

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

    def __post_init__(self) -> None:
        require(self.a > 0, "a", self.a, "above 0")

    @cached_property
    def _checkpoint(self) -> str:
        return self.model or str(minilm_folder())

    @cached_property
    def tokenizer(self) -> Any:
        """The model's fast tokenizer."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self._checkpoint)

    @cached_property
    def _words(self) -> Any:
        """The tokenizer behind it, that of words: nothing is cut or padded."""
        from tokenizers import Tokenizer

        if not self.tokenizer.is_fast:
            raise ArtifactError(f"{self._checkpoint}: static needs a fast tokenizer (tokenizer.json)")
        words = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        words.no_padding()
        words.no_truncation()
        return words

    @cached_property
    def _seen(self) -> dict[str, list[int]]:
        """Words and their tokens, so far."""
        return {}

    @cached_property
    def _table(self) -> Tensor:
        """What each token adds, shape (vocabulary, dims)."""
        rows = load_backbone(self._checkpoint).get_input_embeddings().weight.detach().double().cpu()
        probability = torch.zeros(len(rows), dtype=torch.double)
        known = zipf(self.tokenizer)[: len(rows)]
        probability[: len(known)] = torch.from_numpy(known)
        weight = torch.where(probability > 0, self.a / (self.a + probability), 0.0)
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        return without_leading(rows * weight[:, None], probability).float().to(device)

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.encoders.base.Encoder`. A folder is known by the digest of its weights."""
        return {"encoder": "static", "weights": checkpoint_identity(self._checkpoint), "a": self.a}

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
        """Token ids of each word. Those of short words are remembered: text repeats them."""
        ids = [self._seen.get(word) for word in words]
        new = [word for word, known in zip(words, ids, strict=True) if known is None]
        # Behind a blank, as words mostly stand: byte-level vocabularies have other tokens for a text's first word.
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
