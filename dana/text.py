"""Cleaning text and naming documents."""

import re
import unicodedata
from hashlib import blake2b

# Control characters other than tab and newline, lone surrogates, the byte-order mark and non-characters.
_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
# All that str.splitlines splits at: dropping a form feed would glue two words.
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_BETWEEN_WORDS = re.compile(r"\W+")


def normalise(text: str) -> str:
    """The text every later step sees: NFC, line ends as newlines, control characters dropped, stripped.

    Applying it twice changes nothing.
    """
    text = _LINE_ENDS.sub("\n", text)
    return unicodedata.normalize("NFC", _UNWANTED.sub("", text)).strip()


def words(text: str) -> str:
    """The words of a text with single spaces between: NFKC, lower case, word characters only; for comparing texts."""
    return _BETWEEN_WORDS.sub(" ", unicodedata.normalize("NFKC", text).lower()).strip()


def digest(text: str) -> bytes:
    """16 bytes that stand for a text; equal texts have equal digests."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def document_id(source: str, text: str) -> str:
    """A document's name where its record gives none: a hash of source and text, so it survives reordering."""
    return digest(f"{source}\x1f{text}").hex()
