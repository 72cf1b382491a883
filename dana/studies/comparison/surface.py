"""Surface normalisation: text to the same text without entity markers, tokenisation, digits and letter case of its set.

Task text is distributed tokenised, with marked entities, with numbers replaced by ``@`` or lower-cased, and the general
text is not. A selector of n-grams would find planted task text by these marks alone, so both go through here.
"""

import html
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

_TAG = re.compile(r"</?[A-Za-z][^<>]{0,60}>|\[/?E\d\]")
_MARKER = re.compile(r"<<|>>|\[\[|\]\]")
_NUMBER = re.compile(r"@(?:\s*[.,]\s*@)*|\d+(?:\s?[.,]\s?\d+)*")  # rct writes "@" or "@.@" for a number
_QUOTE = re.compile(r"``|''|[\"“”„«»]")  # which side of a word a spaced mark belongs to is lost: all are dropped
_APOSTROPHE = re.compile(r"[’‘`´]")
_DASH = re.compile(r"\s*(?:--+|–|—)\s*|\s+-\s+")
_CLITIC = re.compile(r"(?<=\w)\s+(?=(?:n't|'(?:s|re|ve|ll|d|m|t))\b)", re.IGNORECASE)
_BEFORE = re.compile(r"\s+(?=[,.;:!?%)\]}])")
_AFTER = re.compile(r"(?<=[(\[{$])\s+")
_SPACE = re.compile(r"\s+")
_BRACKETS = (("-LRB-", "("), ("-RRB-", ")"), ("-LSB-", "["), ("-RSB-", "]"))
LOWER_CASED = 0.005  # share of capitals among letters below which a set was lower-cased by whoever distributes it


@dataclass(frozen=True)
class Surface:
    """What is normalised in every text of a comparison.

    Attributes:
        lower: Lower-case all letters, because the task is distributed so.
    """

    lower: bool = False

    @classmethod
    def of_task(cls, texts: Iterable[str]) -> "Surface":
        """Lower case where fewer than 5 in 1,000 letters of the task's texts are capitals."""
        letters = capitals = 0
        for text in texts:
            letters += sum(map(str.isalpha, text))
            capitals += sum(map(str.isupper, text))
        return cls(lower=capitals < LOWER_CASED * letters)

    def apply(self, text: str) -> str:
        """The normalised text, on one line.

        Entity markers, tags and double quotation marks are removed, every number is ``0``, spaces that a tokeniser put
        around punctuation are taken out, dashes are spaced hyphens, accents and other letters stay. The last sentence
        loses its full stop: a piece of general text that was cut to a length has none.
        """
        text = _TAG.sub(" ", html.unescape(unicodedata.normalize("NFKC", text)))
        for code, bracket in _BRACKETS:
            text = text.replace(code, bracket)
        text = _QUOTE.sub(" ", _MARKER.sub(" ", text))
        text = _NUMBER.sub("0", _APOSTROPHE.sub("'", text))
        text = _DASH.sub(" - ", text)
        text = _AFTER.sub("", _BEFORE.sub("", _CLITIC.sub("", _SPACE.sub(" ", text))))
        text = text.strip().rstrip(" .!?;:,")
        return text.lower() if self.lower else text
