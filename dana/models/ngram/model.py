"""Back-off n-gram model: word numbers in, log-probability of each word out; perplexity of texts; ARPA files."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dana.core.files import temp_file
from dana.core.tensors import load_tensors, save_tensors
from dana.models.ngram.vocabulary import BEGIN, UNKNOWN, Vocabulary, WordIds

FILE = "ngrams"


@dataclass(frozen=True)
class Level:
    """All k-grams of a model, in ascending order of their keys; for single words, a row is the word's number.

    Attributes:
        keys: int64 of shape (k-grams,): row of the first k - 1 words among the (k-1)-grams times the number of words,
            plus the last word.
        log_probs: float32 of shape (k-grams,), log10 p(last word | the words before it), as in an ARPA file.
        backoffs: float32 of shape (k-grams,), log10 of what is left of the probability after these k words, for words
            of which no longer n-gram is in the model; 0 at the highest order.
    """

    keys: np.ndarray
    log_probs: np.ndarray
    backoffs: np.ndarray


@dataclass(frozen=True)
class NgramModel:
    """A back-off model: p(w | h) of the longest n-gram it holds, times the back-offs of the longer histories.

    Attributes:
        vocabulary: Its words; every word is a 1-gram.
        levels: The 1-grams, the 2-grams, ... to those of the highest order.
    """

    vocabulary: Vocabulary
    levels: tuple[Level, ...]

    @property
    def order(self) -> int:
        """Number of words of the longest n-gram."""
        return len(self.levels)

    def log_probs(self, texts: WordIds) -> np.ndarray:
        """log10 p of each word after the words before it in its text, and of the end mark.

        One binary search for each word and order, over all texts at once; no text's numbers depend on the others'.

        Args:
            texts: Word numbers of :attr:`vocabulary`.

        Returns:
            float32 of shape (words + 2 · texts,); 0 at begin marks, which are not predicted.
        """
        last, words = texts.ids.astype(np.int64), len(self.vocabulary)
        starts = np.flatnonzero(last == BEGIN)
        rows, scores = last, self.levels[0].log_probs[last]
        for shorter, level in zip(self.levels, self.levels[1:], strict=False):
            before = np.concatenate([[-1], rows[:-1]])  # row of the history at the lower order, -1 where unknown
            before[starts] = -1
            histories = np.flatnonzero(before >= 0)
            found = find(level.keys, before[histories] * words + last[histories])
            scores[histories] = np.where(
                found >= 0,
                level.log_probs[found] if level.keys.size else 0,
                scores[histories] + shorter.backoffs[before[histories]],
            )
            rows = np.full(last.size, -1)
            rows[histories] = found
        scores[starts] = 0
        return scores

    def phrases(self) -> Iterable[list[str]]:
        """The spelling of all n-grams, words with a space between: a list for each order, in the order of its level."""
        spelled = list(self.vocabulary.words)
        for number, level in enumerate(self.levels):
            if number:
                before, last = np.divmod(level.keys, len(self.vocabulary))
                words = self.vocabulary.words
                pairs = zip(before.tolist(), last.tolist(), strict=True)
                spelled = [f"{spelled[row]} {words[word]}" for row, word in pairs]
            yield spelled

    def save(self, folder: Path) -> None:
        """Write ``ngrams.safetensors`` and ``ngrams.json``."""
        columns = ("keys", "log_probs", "backoffs")
        joined = [torch.from_numpy(np.concatenate([getattr(part, name) for part in self.levels])) for name in columns]
        save_tensors(
            _Saved(list(self.vocabulary.words), [part.keys.size for part in self.levels], *joined), folder, FILE
        )

    @classmethod
    def load(cls, folder: Path) -> "NgramModel":
        """The model that :meth:`save` wrote.

        Raises:
            ArtifactError: If a file is missing or damaged.
        """
        saved = load_tensors(_Saved, folder, FILE)
        ends = np.cumsum(saved.sizes)[:-1]
        columns = [np.split(part.numpy(), ends) for part in (saved.keys, saved.log_probs, saved.backoffs)]
        return cls(Vocabulary(tuple(saved.words)), tuple(Level(*part) for part in zip(*columns, strict=True)))


@dataclass(frozen=True)
class _Saved:
    words: list[str]
    sizes: list[int]
    keys: Tensor
    log_probs: Tensor
    backoffs: Tensor


def find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Rows of the wanted keys among sorted distinct keys, int64; -1 where a key is not there."""
    if not keys.size:
        return np.full(wanted.shape, -1)
    rows = np.searchsorted(keys, wanted)
    rows[rows == keys.size] = 0
    rows[keys[rows] != wanted] = -1
    return rows


@dataclass(frozen=True)
class TextEntropies:
    """What some texts cost under a model.

    Attributes:
        nats: float64 of shape (texts,), minus the natural logarithm of each text's probability.
        tokens: int64 of shape (texts,), how many words that is the sum over.
    """

    nats: np.ndarray
    tokens: np.ndarray

    @property
    def per_token(self) -> np.ndarray:
        """float64 of shape (texts,), cross-entropy in nats per word; 0 for a text of no words."""
        return self.nats / np.maximum(self.tokens, 1)

    @property
    def perplexity(self) -> float:
        """Exponential of the cross-entropy per word of all texts together; 1 for no text at all."""
        return math.exp(float(self.nats.sum()) / max(int(self.tokens.sum()), 1))


def text_entropies(model: NgramModel, texts: Iterable[str] | WordIds, unknown: bool = True) -> TextEntropies:
    """Cross-entropy of each text, whose end is a word that is predicted, too.

    Args:
        model: The model.
        texts: Texts, or their numbers by the model's vocabulary.
        unknown: Whether unknown words count, at the probability of the unknown word. They are part of the histories in
            any case.

    Raises:
        DataError: If `texts` is one text.
    """
    ids = texts if isinstance(texts, WordIds) else model.vocabulary.encode(texts)
    counted = (ids.ids != BEGIN) & (unknown | (ids.ids != UNKNOWN))
    log10 = np.bincount(ids.text_of, model.log_probs(ids) * counted, minlength=len(ids))
    tokens = np.bincount(ids.text_of, counted, minlength=len(ids)).astype(np.int64)
    return TextEntropies(-math.log(10) * log10, tokens)


def write_arpa(model: NgramModel, path: Path) -> None:
    """Write an ARPA file, as SRILM and KenLM read it.

    A header with the number of n-grams of each order, then a section an order with a line an n-gram: log10 probability,
    the words and, but for the highest order, log10 back-off, each number with all its digits.
    """
    with temp_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write("\\data\\\n")
        for order, level in enumerate(model.levels, 1):
            stream.write(f"ngram {order}={level.keys.size}\n")
        for order, (level, phrases) in enumerate(zip(model.levels, model.phrases(), strict=True), 1):
            stream.write(f"\n\\{order}-grams:\n")
            rows = zip(level.log_probs.tolist(), phrases, level.backoffs.tolist(), strict=True)
            for log_prob, phrase, backoff in rows:
                stream.write(f"{log_prob:.9g}\t{phrase}" + (f"\t{backoff:.9g}\n" if order < model.order else "\n"))
        stream.write("\n\\end\\\n")
