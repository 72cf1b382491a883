"""Normalise text (NFC, line ends, control characters), reduce it to words, and hash it to an id."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dana.core.files import text_digest
from dana.core.scripts import WordPattern

# Control characters other than tab and newline, lone surrogates, the byte-order mark and
# non-characters; and marks of formatting that no reader sees: soft hyphens, spaces of no width,
# directions of writing, invisible operators, annotations. Joiners stay: Persian, the scripts of
# India and emoji are spelt with them.
_UNWANTED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufeff\ufffe\uffff"
    "\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufff9-\ufffb\U000e0001]"
)
REPLACEMENT = "\ufffd"  # stands for what cannot be read
_SURROGATES = re.compile("[\ud800-\udfff]")
# All line ends of str.splitlines: dropping a form feed would join two words.
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# Marks of annotated data, with their replacements: tags, entity markers, brackets as treebanks
# write them.
_BRACKETS = (
    ("-LRB-", "("),
    ("-RRB-", ")"),
    ("-LSB-", "["),
    ("-RSB-", "]"),
    (r"<<|>>|\[\[|\]\]", " "),
)
_TAGS = (r"</?[A-Za-z][^<>]{0,60}>|\[/?E\d\]", " ")
MARKERS = [(re.compile(pattern), replacement) for pattern, replacement in (_TAGS, *_BRACKETS)]
# Before the two entities of a relation.
ENTITY_MARKERS = [("<<", "[["), ("[E1]", "[E2]"), ("<e1>", "<e2>")]
_WORD = WordPattern(r"\w+")


def _ascii_words() -> dict[int, str]:
    """Return the table by which ``str.translate`` lowers ASCII text and blanks what is no word."""
    table = {}
    for code in range(128):
        character = chr(code)
        table[code] = character.lower() if _WORD.findall(character) else " "
    return table


_ASCII_WORDS = _ascii_words()


def normalise(text: str) -> str:
    """Clean a text: NFC, newlines as line ends, no white space at either end; idempotent.

    Control characters, lone surrogates and invisible marks of formatting are dropped. Every text
    that enters is cleaned here, by whatever door.
    """
    if text.isprintable():  # nothing to drop or replace: the same result, three times as fast
        return unicodedata.normalize("NFC", text).strip()
    text = _LINE_ENDS.sub("\n", text)
    return unicodedata.normalize("NFC", _UNWANTED.sub("", text)).strip()


def without_surrogates(value: Any) -> Any:
    """Drop lone surrogates from a value of JSON, names of fields included.

    No file and no table can hold them.
    """
    if isinstance(value, str):
        return _SURROGATES.sub("", value)
    if isinstance(value, list):
        return [without_surrogates(part) for part in value]
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(part) for key, part in value.items()}
    return value


def strip_markers(text: str) -> str:
    """Remove the marks of annotated data from a text; a text of marks alone stays as it is.

    A selector would tell the task by them: with them Moore-Lewis separates relation data perfectly
    from any text.
    """
    plain = text
    for pattern, replacement in MARKERS:
        plain = pattern.sub(replacement, plain)
    if plain == text:
        return text
    return re.sub(r"[ \t]+", " ", plain).strip() or text


def entity_markers(texts: Iterable[str]) -> tuple[str, ...]:
    """Find the marks of two entities, each of which stands exactly once in every text.

    The result is empty if there are none.
    """
    pairs = ENTITY_MARKERS
    for text in texts:
        pairs = [(a, b) for a, b in pairs if text.count(a) == 1 and text.count(b) == 1]
        if not pairs:
            return ()
    return pairs[0]


def one_line(text: str) -> str:
    """Normalise a text and replace line ends by spaces, so that it fits on one line of a file."""
    return normalise(text.strip()).replace("\n", " ")


def words(text: str) -> str:
    """Reduce a text to its words, joined by spaces, for comparison.

    They are in NFKC and lower case, and have word characters only. In scripts without spaces each
    character is a word (:mod:`dana.core.scripts`).
    """
    if text.isascii():  # the same result, twice as fast
        return " ".join(text.translate(_ASCII_WORDS).split())
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).lower()))


_TWO_WORDS = re.compile(r"\w\W+\w")


def has_words(text: str, least: int) -> bool:
    """Return True if a text has at least so many words, as :func:`words` finds them."""
    if least == 2 and _TWO_WORDS.search(text):  # nearly every text, many times as fast
        return True
    return least <= 0 or len(words(text).split()) >= least


def wording(text: str) -> str:
    """Return a comparison key, equal for texts with the same words; a text without words itself."""
    return words(text) or text


def distinct_rows(texts: Sequence[str]) -> np.ndarray:
    """Return the positions of texts whose words differ from every earlier text's, ascending."""
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        first.setdefault(wording(text), row)
    return np.array(list(first.values()), dtype=np.int64)


def document_id(source: str, text: str) -> str:
    """Compute the id of a document whose record has none: a hash of source and text."""
    return text_digest(f"{source}\x1f{text}").hex()
