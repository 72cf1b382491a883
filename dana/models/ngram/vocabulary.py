"""Texts to word numbers: a tokeniser, and a vocabulary with an unknown word and marks for begin and end of a text."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, repeat

import numpy as np

from dana.core.config import require
from dana.core.errors import DataError

UNKNOWN, BEGIN, END = 0, 1, 2
MARKS = ("<unk>", "<s>", "</s>")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d+|[^\w\s]|_")
_ASCII_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*|[0-9]+|\S")  # the same words of an ASCII text, half again as fast
_BATCH = 8192  # texts numbered at a time, so that the list of their words stays small


def split_words(text: str) -> list[str]:
    """Lower-cased words of a text in order; a run of digits and each other character but white space is a word too.

    ``Don't pay $1,200!`` has the words ``don't pay $ 1 , 200 !``. No word holds white space, so that words can stand in
    an ARPA file.
    """
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text.lower())


@dataclass(frozen=True)
class WordIds:
    """Texts as one row of word numbers, each text between a begin and an end mark.

    Attributes:
        ids: int32 of shape (words + 2 · texts,).
        sizes: int64 of shape (texts,), the numbers that each text has, its two marks among them.
    """

    ids: np.ndarray
    sizes: np.ndarray

    def __len__(self) -> int:
        return self.sizes.size

    @cached_property
    def text_of(self) -> np.ndarray:
        """int64 of shape (words + 2 · texts,), which text each number is of."""
        return np.repeat(np.arange(self.sizes.size), self.sizes)

    def rows(self, chosen: np.ndarray) -> "WordIds":
        """The texts at `chosen`, in that order.

        Args:
            chosen: Integers of shape (chosen texts,).
        """
        sizes = self.sizes[chosen]
        firsts = (np.cumsum(self.sizes) - self.sizes)[chosen]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return WordIds(self.ids[np.repeat(firsts, sizes) + within], sizes)


@dataclass(frozen=True)
class Vocabulary:
    """The words that a model knows. Every other word is the unknown word, number 0.

    Attributes:
        words: Words by number, each once: ``<unk>``, ``<s>``, ``</s>``, then the words proper.
    """

    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @classmethod
    def of_words(cls, words: Iterable[str]) -> "Vocabulary":
        """These words, each once, in their order."""
        return cls((*MARKS, *dict.fromkeys(word for word in words if word not in MARKS)))

    @classmethod
    def of_texts(cls, texts: Sequence[str], min_count: int = 1) -> "Vocabulary":
        """Words that the texts hold at least `min_count` times, the most frequent first, equally frequent by spelling.

        Raises:
            ConfigError: If `min_count` is less than 1.
            DataError: If `texts` is one text.
        """
        require(min_count >= 1, "min_count", min_count, "at least 1")
        _require_list(texts)
        counts = Counter(chain.from_iterable(map(split_words, texts)))
        frequent = sorted((-count, word) for word, count in counts.items() if count >= min_count)
        return cls.of_words(word for _, word in frequent)

    def encode(self, texts: Iterable[str]) -> WordIds:
        """Numbers of the words of texts, as :func:`split_words` finds them.

        Raises:
            DataError: If `texts` is one text.
        """
        _require_list(texts)
        number = self._numbers.get
        parts, sizes = [np.zeros(0, dtype=np.int32)], [np.zeros(0, dtype=np.int64)]
        rest = iter(texts)
        while split := [split_words(text) for text in islice(rest, _BATCH)]:
            known = [chain((BEGIN,), map(number, words, repeat(UNKNOWN)), (END,)) for words in split]
            sizes.append(np.array([len(words) + 2 for words in split], dtype=np.int64))
            parts.append(np.fromiter(chain.from_iterable(known), dtype=np.int32, count=int(sizes[-1].sum())))
        return WordIds(np.concatenate(parts), np.concatenate(sizes))


def _require_list(texts: Iterable[str]) -> None:
    """Refuse one text where several are wanted, whose characters would be taken for texts."""
    if isinstance(texts, str):
        raise DataError(f"texts={texts[:50]!r}: is one text; give a list of texts")
