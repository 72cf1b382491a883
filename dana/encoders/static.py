"""Encode texts as weighted means of a checkpoint's input embeddings.

This is some hundred times faster than its forward pass. A token of probability p has weight a / (a
+ p), and the leading component of the weighted embeddings is removed. Both are applied to the
embedding table once, so that encoding is a mean of its rows.
"""

import math
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
from dana.core.device import find_device
from dana.core.errors import ArtifactError
from dana.core.files import file_digest
from dana.encoders.words import pool_rows
from dana.models.convertible import is_static_model
from dana.models.encoder_folder import read_static_model, static_model_files
from dana.models.folder import load_backbone, load_own_tokenizer, loading, model_identity
from dana.models.minilm import minilm_folder

TEXTS_AT_ONCE = 8192
MAX_CACHED_WORDS = 1 << 17  # about 40 MB
LONGEST_WORD = 32
# Markers of word beginnings and continuations in vocabularies.
MARKERS = ("##", "▁", "Ġ", "</w>")


@dataclass(frozen=True)
class StaticEncoder:
    """Smooth inverse frequency embeddings of a checkpoint's vocabulary. O(characters).

    A token's probability is estimated from its id: WordPiece and BPE vocabularies list tokens by
    descending frequency (Zipf: the r-th has 1 / (r (ln V + γ))), after single characters, which get
    the probability of the first. Words (between blanks) are tokenised one by one and cached. Special
    tokens, the unknown one among them, and unused ones have weight 0; a text of no other tokens is a
    zero vector. Texts are not truncated.

    Of a static model, such as ``dana distill`` makes, the vectors are taken as they are, for all tokens
    alike.

    Attributes:
        model: A Hub name or a folder with safetensors weights, or the folder of a static model; empty
            takes the packaged MiniLM.
        a: Probability of tokens with weight 1/2; 0.001 in the paper.
        device: ``auto`` takes CUDA when there is one.

    References:
        Arora, Liang and Ma 2017, A simple but tough-to-beat baseline for sentence embeddings. There
        p and the component come from the pool, here from the checkpoint, so nothing is fitted.
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
    def _fitted(self) -> tuple[np.ndarray, Any] | None:
        """Vectors and tokenizer of a static model; None of a checkpoint."""
        if not is_static_model(self._checkpoint):
            return None
        return read_static_model(Path(self._checkpoint))

    @cached_property
    def tokenizer(self) -> Any:
        """The model's fast tokenizer."""
        if self._fitted is not None:
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast(tokenizer_object=self._fitted[1])
        return load_own_tokenizer(self._checkpoint)

    @cached_property
    def _words(self) -> Any:
        """The fast tokenizer without truncation and padding, for single words."""
        from tokenizers import Tokenizer

        if self._fitted is not None:
            return self._fitted[1]
        if not self.tokenizer.is_fast:
            raise ArtifactError(
                f"{self._checkpoint}: static needs a fast tokenizer (tokenizer.json)"
            )
        words = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        words.no_padding()
        words.no_truncation()
        return words

    @cached_property
    def _cache(self) -> dict[str, list[int]]:
        """Token ids by word."""
        return {}

    @cached_property
    def _table(self) -> Tensor:
        """Weighted embedding of each token without the common component, (vocabulary, dims)."""
        if self._fitted is not None:
            return torch.from_numpy(self._fitted[0]).float().to(find_device(self.device))
        embeddings = load_backbone(self._checkpoint).get_input_embeddings()
        rows = embeddings.weight.detach().double().cpu()
        probability = torch.zeros(len(rows), dtype=torch.double)
        estimates = zipf_probabilities(self.tokenizer)[: len(rows)]
        probability[: len(estimates)] = torch.from_numpy(estimates)
        weight = torch.where(probability > 0, self.a / (self.a + probability), 0.0)
        table = remove_leading(rows * weight[:, None], probability)
        return table.float().to(find_device(self.device))

    def identity(self) -> dict[str, Any]:
        if is_static_model(self._checkpoint):
            files = static_model_files(Path(self._checkpoint))
            with loading(self._checkpoint):
                digests = {file.name: file_digest(file) for file in files}
            return {"encoder": "static", "model": digests}
        return {"encoder": "static", "weights": model_identity(self._checkpoint), "a": self.a}

    def encode(self, texts: Sequence[str]) -> Tensor:
        starts = range(0, len(texts), TEXTS_AT_ONCE)
        parts = [self._encode(texts[start : start + TEXTS_AT_ONCE]) for start in starts]
        return torch.cat([self._table.new_zeros(0, self._table.shape[1]), *parts])

    def _encode(self, texts: Sequence[str]) -> Tensor:
        """Encode some texts: each distinct word once, and then each text by its words.

        Raises:
            ArtifactError: If a token has no row in the table.
        """
        words = [text.split() for text in texts]
        distinct = list(dict.fromkeys(chain.from_iterable(words)))
        tokens = self._tokens(distinct)
        largest = max(chain.from_iterable(tokens), default=-1)
        if largest >= len(self._table):
            raise ArtifactError(
                f"{self._checkpoint}: its tokenizer has a token {largest}, "
                f"its embeddings only {len(self._table)} rows; take the tokenizer of the model"
            )
        token_counts = [len(ids) for ids in tokens]
        word_sums = pool_rows(self._table, list(chain.from_iterable(tokens)), token_counts, "sum")
        row_of = {word: row for row, word in enumerate(distinct)}
        rows = [row_of[word] for word in chain.from_iterable(words)]
        sizes = [len(words_of_text) for words_of_text in words]
        sums = pool_rows(word_sums, rows, sizes, "sum")
        counts = torch.from_numpy(np.array(token_counts, dtype=np.float32)).to(sums.device)
        lengths = pool_rows(counts[:, None], rows, sizes, "sum")
        return sums / lengths.clamp(min=1)

    def _tokens(self, words: Sequence[str]) -> list[list[int]]:
        """Tokenise each word into ids; those of short words are cached."""
        ids = {word: self._cache[word] for word in words if word in self._cache}
        new = [word for word in words if word not in ids]
        # With a leading blank: byte-level vocabularies have other tokens for the first word of a
        # text.
        spaced = [f" {word}" for word in new]
        encodings = self._words.encode_batch_fast(spaced, add_special_tokens=False)
        for word, encoding in zip(new, encodings, strict=True):
            ids[word] = encoding.ids
            if len(word) <= LONGEST_WORD:
                self._cache[word] = ids[word]
        if len(self._cache) > MAX_CACHED_WORDS:
            self._cache.clear()
        return [ids[word] for word in words]


def zipf_probabilities(tokenizer: Any) -> np.ndarray:
    """Estimate token probabilities by id with Zipf's law, float64 of shape (ids,).

    Special and unused ids have 0.
    """
    vocabulary = tokenizer.get_vocab()
    special = set(tokenizer.all_special_tokens)
    probability = np.zeros(max(vocabulary.values()) + 1)
    scale = math.log(len(vocabulary)) + np.euler_gamma  # sum of 1 / r over the vocabulary
    rank = 0
    for token, token_id in sorted(vocabulary.items(), key=lambda item: item[1]):
        if token in special or token.startswith("[unused"):
            continue
        if len(_bare(token)) > 1:
            rank += 1
            probability[token_id] = 1 / rank / scale
        else:
            probability[token_id] = 1 / scale
    return probability


def _bare(token: str) -> str:
    """Return a token without the markers of a word's beginning and continuation."""
    for marker in MARKERS:
        token = token.removeprefix(marker).removesuffix(marker)
    return token


def remove_leading(rows: Tensor, probability: Tensor) -> Tensor:
    """Project out the leading eigenvector of the rows' second moment under `probability`."""
    moment = rows.T @ (rows * probability[:, None])
    _, eigenvectors = torch.linalg.eigh(moment)
    leading = eigenvectors[:, -1:]  # its sign cancels
    others: Tensor = rows - (rows @ leading) @ leading.T
    return others
