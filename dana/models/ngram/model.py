"""Compute log-probabilities of words and perplexities with a back-off n-gram model."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dana.core.tensors import load_tensors, save_tensors
from dana.models.ngram.vocabulary import BEGIN, UNKNOWN, Vocabulary, WordIds

FILE = "ngrams"


@dataclass(frozen=True)
class Level:
    """All k-grams of a model, in ascending order of their keys.

    For single words, a row is the word's number.

    Attributes:
        keys: int64 of shape (k-grams,): row of the first k - 1 words among the (k-1)-grams times
            the number of words, plus the last word.
        log_probs: float32 of shape (k-grams,), log10 p(last word | earlier words), as in an ARPA
            file.
        backoffs: float32 of shape (k-grams,), log10 of the probability mass after these k words for
            words that form no longer n-gram of the model; 0 at the highest order.
    """

    keys: np.ndarray
    log_probs: np.ndarray
    backoffs: np.ndarray


@dataclass(frozen=True)
class NgramModel:
    """A back-off model of texts.

    p(w | h) is that of the longest n-gram in the model, times the back-offs of longer histories.

    Attributes:
        vocabulary: Its words; every word is a 1-gram.
        levels: N-grams of each order, from 1-grams to the highest order.
    """

    vocabulary: Vocabulary
    levels: tuple[Level, ...]

    @property
    def order(self) -> int:
        """Number of words of the longest n-gram."""
        return len(self.levels)

    def log_probs(self, texts: WordIds) -> np.ndarray:
        """Compute log10 p of each word given the earlier words of its text, and of the end mark.

        One vectorised binary search per order; results of a text do not depend on the other texts.

        Args:
            texts: Word numbers of :attr:`vocabulary`.

        Returns:
            float32 of shape (words + 2 · texts,); 0 at begin marks, which are not predicted.
        """
        last = texts.ids.astype(np.int64)
        words = len(self.vocabulary)
        starts = np.flatnonzero(last == BEGIN)
        rows = last  # of the k-gram that ends at each word, -1 where the model has none
        scores = self.levels[0].log_probs[last]
        for shorter, level in pairwise(self.levels):
            # The row of the history at the lower order, -1 where it is unknown.
            before = np.concatenate([[-1], rows[:-1]])
            before[starts] = -1
            histories = np.flatnonzero(before >= 0)
            matches = find(level.keys, before[histories] * words + last[histories])
            probs = level.log_probs[matches] if level.keys.size else 0
            backed_off = scores[histories] + shorter.backoffs[before[histories]]
            scores[histories] = np.where(matches >= 0, probs, backed_off)
            rows = np.full(last.size, -1)
            rows[histories] = matches
        scores[starts] = 0
        return scores

    def save(self, folder: Path) -> None:
        """Write ``ngrams.safetensors`` and ``ngrams.json``."""
        keys = np.concatenate([level.keys for level in self.levels])
        log_probs = np.concatenate([level.log_probs for level in self.levels])
        backoffs = np.concatenate([level.backoffs for level in self.levels])
        columns = _Columns(
            words=list(self.vocabulary.words),
            sizes=[level.keys.size for level in self.levels],
            keys=torch.from_numpy(keys),
            log_probs=torch.from_numpy(log_probs),
            backoffs=torch.from_numpy(backoffs),
        )
        save_tensors(columns, folder, FILE)

    @classmethod
    def load(cls, folder: Path) -> "NgramModel":
        """Load the model that :meth:`save` wrote.

        Raises:
            ArtifactError: If a file is missing or damaged.
        """
        content = load_tensors(_Columns, folder, FILE)
        ends = np.cumsum(content.sizes)[:-1]
        keys = np.split(content.keys.numpy(), ends)
        log_probs = np.split(content.log_probs.numpy(), ends)
        backoffs = np.split(content.backoffs.numpy(), ends)
        levels = tuple(map(Level, keys, log_probs, backoffs))
        return cls(Vocabulary(tuple(content.words)), levels)


@dataclass(frozen=True)
class _Columns:
    """The content of a model's files: the columns of all levels end to end, and their sizes."""

    words: list[str]
    sizes: list[int]
    keys: Tensor
    log_probs: Tensor
    backoffs: Tensor


def find(keys: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Look up queries in sorted distinct keys and return their rows, int64; -1 for missing ones."""
    if not keys.size:
        return np.full(queries.shape, -1)
    rows = np.searchsorted(keys, queries)
    rows[rows == keys.size] = 0
    rows[keys[rows] != queries] = -1
    return rows


@dataclass(frozen=True)
class TextEntropies:
    """Negative log-likelihoods of texts under a model.

    Attributes:
        nats: float64 of shape (texts,), minus the natural logarithm of each text's probability.
        tokens: int64 of shape (texts,), number of words in the sum.
    """

    nats: np.ndarray
    tokens: np.ndarray

    @property
    def per_token(self) -> np.ndarray:
        """float64 of shape (texts,), cross-entropy in nats per word; 0 for a text of no words."""
        nats_per_token: np.ndarray = self.nats / np.maximum(self.tokens, 1)
        return nats_per_token

    @property
    def perplexity(self) -> float:
        """Exponential of the cross-entropy per word of all texts together; 1 for no text."""
        return math.exp(float(self.nats.sum()) / max(int(self.tokens.sum()), 1))


def text_entropies(
    model: NgramModel, texts: Iterable[str] | WordIds, unknown: bool = True
) -> TextEntropies:
    """Compute the cross-entropy of each text, including the prediction of its end.

    Args:
        model: The model.
        texts: Texts, or their numbers by the model's vocabulary.
        unknown: Whether to count unknown words, with the probability of the unknown word. They are
            part of histories in any case.

    Raises:
        DataError: If `texts` is one text.
    """
    ids = texts
    if not isinstance(ids, WordIds):
        ids = model.vocabulary.encode(ids)
    mask = (ids.ids != BEGIN) & (unknown | (ids.ids != UNKNOWN))
    log10 = np.bincount(ids.text_of, model.log_probs(ids) * mask, minlength=len(ids))
    tokens = np.bincount(ids.text_of, mask, minlength=len(ids)).astype(np.int64)
    return TextEntropies(-math.log(10) * log10, tokens)
