"""Windows of documents: a text and its id to a window of it, as it is and stripped to letters.

Window first, then stripping: a window is so many characters of the text as it is.
"""

import unicodedata
from dataclasses import dataclass

import numpy as np

from dana.core.config import require
from dana.core.rng import derive_seed, document_key, hash_uniform
from dana.studies.topic_gap.settings import DROP, KEEP, SHORT


@dataclass(frozen=True)
class Window:
    """How a document is cut.

    Attributes:
        length: Characters.
        short: What becomes of a shorter document: ``drop``, or ``keep`` it whole.
        seed: Root seed; with the document's id it decides where the window begins.

    References:
        Roussinov and Sharoff 2023, section 3.1.2: 1,000 characters at a random place, so that openings, such as the
        question of a thread, do not decide.
    """

    length: int = 1000
    short: str = DROP
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.length >= 1, "window", self.length, "at least 1 character")
        require(self.short in SHORT, "short", self.short, " or ".join(SHORT))

    def of(self, text: str, doc_id: str) -> str | None:
        """The window of a document, all beginnings equally likely; None of one that is dropped."""
        room = len(text) - self.length
        if room < 0:
            return text if self.short == KEEP else None
        key = np.array([document_key(doc_id)], dtype=np.uint64)
        begin = int(hash_uniform(derive_seed(self.seed, "topic gap", "window"), key)[0] * (room + 1))
        return text[begin : begin + self.length]


class _Letters(dict[int, str | None]):
    """A table for :meth:`str.translate`, filled as characters are met: letters and their marks stay."""

    def __missing__(self, code: int) -> str | None:
        kind = unicodedata.category(chr(code))
        # A format character, such as a soft hyphen, stands within a word; all else parts words.
        self[code] = chr(code) if kind[0] in "LM" else None if kind == "Cf" else " "
        return self[code]


def strip_to_letters(text: str) -> str:
    """The letters of any script in lower case, what stood between them a single space; what a classifier sees.

    Digits, punctuation and symbols go, as in Roussinov and Sharoff 2023, section 3.2.
    """
    return " ".join(text.lower().translate(_Letters()).split())
