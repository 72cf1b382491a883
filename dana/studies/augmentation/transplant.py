"""Keyword transplant: texts of a label and other keywords to these texts with their own keywords replaced by those."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dana.core.rng import generator
from dana.studies.augmentation.base import Pair
from dana.studies.augmentation.keywords import Keywords
from dana.studies.topics.model import WORD


@dataclass(frozen=True)
class KeywordTransplant:
    """Writes a text of a label by putting new keywords in the places of a real text's own; needs no checkpoint.

    All that is no keyword stays: function words, punctuation, layout, and with them the genre's style.
    """

    version: ClassVar[int] = 1

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.studies.augmentation.base.Generator`."""
        return {"generator": "keyword transplant"}

    def fit(self, pairs: Sequence[Pair], seed: int) -> "FittedTransplant":
        """See :class:`dana.studies.augmentation.base.Generator`: keeps the pairs; the seed decides nothing."""
        return FittedTransplant(tuple((tuple(keywords), text) for keywords, text in pairs))


@dataclass(frozen=True)
class FittedTransplant:
    """Texts to put keywords into.

    Attributes:
        pairs: Each with its own keywords.
    """

    pairs: tuple[Pair, ...]

    def generate(self, keywords: Sequence[Keywords], seeds: Sequence[int]) -> list[str]:
        """See :class:`~dana.studies.augmentation.base.FittedGenerator`: a text is drawn by the seed, keywords replaced.

        Without keywords it stays as it is. Among texts that have no keyword none is drawn as long as others are there.
        """
        able = [pair for pair in self.pairs if pair[0]] or list(self.pairs)
        made = []
        for new, seed in zip(keywords, seeds, strict=True):
            drawn = able if new else self.pairs
            own, text = drawn[int(generator(seed, "transplant").integers(len(drawn)))]
            made.append(transplant(text, own, new))
        return made


def transplant(text: str, own: Keywords, new: Keywords) -> str:
    """A text with its own keywords replaced by new ones: each word, wherever it stands, by one and the same.

    The first distinct keyword of the text becomes the first distinct new one, and so on; after the last new one the
    first is taken again. Where the replaced word has a capital, or is all capitals, so has what replaces it.

    Args:
        text: Any text.
        own: Its keywords, in lower case; repeats count once.
        new: What replaces them; where empty, nothing is replaced.
    """
    words = list(dict.fromkeys(new))
    if not words:
        return text
    instead = {word: words[place % len(words)] for place, word in enumerate(dict.fromkeys(own))}

    def replaced(found: re.Match[str]) -> str:
        word = found[0]
        return _as_cased(instead[word.lower()], word) if word.lower() in instead else word

    return re.sub(WORD, replaced, text)


def _as_cased(word: str, like: str) -> str:
    if like.isupper():
        return word.upper()
    return word.capitalize() if like[0].isupper() else word
