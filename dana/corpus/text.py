"""Text normalisation (NFC, line ends, control characters), words for comparison, and hashes as document ids."""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from dana.core.files import text_digest

# Control characters other than tab and newline, lone surrogates, the byte-order mark and non-characters.
_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
# All that str.splitlines splits at: dropping a form feed would glue two words.
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_WORD = re.compile(r"\w+")
_ASCII_WORDS = {code: chr(code).lower() if _WORD.match(chr(code)) else " " for code in range(128)}


def normalise(text: str) -> str:
    """The text every later step sees: NFC, line ends as newlines, control characters dropped, stripped.

    Applying it twice changes nothing.
    """
    if text.isprintable():  # nothing to drop or to replace: the same, three times as fast
        return unicodedata.normalize("NFC", text).strip()
    text = _LINE_ENDS.sub("\n", text)
    return unicodedata.normalize("NFC", _UNWANTED.sub("", text)).strip()


def one_line(text: str) -> str:
    """:func:`normalise` with a space for each line end within: a text that a file holds as one line."""
    return normalise(text.strip()).replace("\n", " ")


def words(text: str) -> str:
    """The words of a text with single spaces between: NFKC, lower case, word characters only; for comparing texts."""
    if text.isascii():  # the same, twice as fast
        return " ".join(text.translate(_ASCII_WORDS).split())
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).lower()))


def wording(text: str) -> str:
    """Equal for texts with the same words; a text without words is its own."""
    return words(text) or text


def distinct_rows(texts: Sequence[str]) -> np.ndarray:
    """Places of the texts that no earlier one has the words of, ascending; int64."""
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        first.setdefault(wording(text), row)
    return np.array(list(first.values()), dtype=np.int64)


def document_id(source: str, text: str) -> str:
    """A document's name where its record gives none: a hash of source and text, so it survives reordering."""
    return text_digest(f"{source}\x1f{text}").hex()
