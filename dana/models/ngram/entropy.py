"""Cross-entropy and perplexity: texts and an n-gram model in, nats per word out, with unknown words counted apart."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dana.models.ngram.model import NgramModel
from dana.models.ngram.vocabulary import BEGIN, END, UNKNOWN, WordIds


@dataclass(frozen=True)
class TextEntropies:
    """What some texts cost under a model.

    Attributes:
        nats: float64 of shape (texts,), minus the natural logarithm of each text's probability.
        tokens: int64 of shape (texts,), how many words that is the sum over.
        unknown: int64 of shape (texts,), how many of each text's words the model does not know.
    """

    nats: np.ndarray
    tokens: np.ndarray
    unknown: np.ndarray

    @classmethod
    def of_log10(cls, log10: np.ndarray, tokens: np.ndarray) -> "TextEntropies":
        """Of log10 probabilities of whole texts, float64 of shape (texts,), which tell nothing of unknown words."""
        return cls(-math.log(10) * log10, tokens, np.zeros_like(tokens))

    @property
    def per_token(self) -> np.ndarray:
        """float64 of shape (texts,), cross-entropy in nats per word; 0 for a text of no words."""
        return self.nats / np.maximum(self.tokens, 1)


@dataclass(frozen=True)
class Perplexity:
    """Texts taken together under a model.

    Attributes:
        nats: Cross-entropy, nats per word.
        tokens: Words that it is the mean over.
        unknown_share: Share of the texts' words that the model does not know. Beside models of another vocabulary,
            perplexities say little: the more words are unknown, the lower they are.
    """

    nats: float
    tokens: int
    unknown_share: float

    @property
    def perplexity(self) -> float:
        """Exponential of the cross-entropy."""
        return math.exp(self.nats)


def text_entropies(
    model: NgramModel, texts: Iterable[str] | WordIds, ends: bool = True, unknown: bool = True
) -> TextEntropies:
    """Cross-entropy of each text.

    Args:
        model: The model.
        texts: Texts, or their numbers by the model's vocabulary.
        ends: Whether the end of a text counts as a word that is predicted.
        unknown: Whether unknown words count, at the probability of the unknown word. They are part of the histories in
            any case.

    Raises:
        DataError: If `texts` is one text.
    """
    ids = texts if isinstance(texts, WordIds) else model.vocabulary.encode(texts)
    counted = ids.ids != BEGIN
    if not ends:
        counted &= ids.ids != END
    if not unknown:
        counted &= ids.ids != UNKNOWN
    size = len(ids)
    log10 = np.bincount(ids.text_of, model.log_probs(ids) * counted, minlength=size)
    tokens = np.bincount(ids.text_of, counted, minlength=size).astype(np.int64)
    return TextEntropies(
        -math.log(10) * log10, tokens, np.bincount(ids.text_of, ids.ids == UNKNOWN, size).astype(np.int64)
    )


def perplexity(
    model: NgramModel, texts: Iterable[str] | WordIds, ends: bool = True, unknown: bool = True
) -> Perplexity:
    """Perplexity of texts taken together; see :func:`text_entropies`.

    A text of no words adds its end, where ends count. No text at all has a cross-entropy of 0.
    """
    ids = texts if isinstance(texts, WordIds) else model.vocabulary.encode(texts)
    found = text_entropies(model, ids, ends, unknown)
    tokens = int(found.tokens.sum())
    words = int(ids.sizes.sum()) - 2 * len(ids)
    return Perplexity(float(found.nats.sum()) / max(tokens, 1), tokens, float(found.unknown.sum()) / max(words, 1))
