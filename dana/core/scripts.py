"""Find words in scripts that are written without spaces, where each character counts as a word.

These are Han, Kana, Thai, Lao, Khmer and Burmese. A character is a letter with the vowel signs and
tone marks that follow it. Pairs of such words, which n-grams count, are the bigrams that retrieval
in these languages works with. Text in other scripts is left to the pattern of the caller.

References:
    Nie, Gao, Zhang and Zhou 2000, On the use of words and n-grams for Chinese information
    retrieval.
"""

import re
from collections.abc import Iterator

# Letters by block, without digits and punctuation, which other scripts share or treat alike.
_LETTERS = (
    "\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9d"  # Kana
    "\U0001aff0-\U0001b16f"  # old forms of Kana
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46"  # Thai
    "\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd\u0ec0-\u0ec6\u0edc-\u0edf"  # Lao
    "\u1780-\u17b3\u17d7\u17dc"  # Khmer
    "\u1000-\u102a\u103f\u1050-\u1055\u105a-\u105d\u1061\u1065\u1066\u106e-\u1070\u1075-\u1081"
    "\u108e"  # Burmese
)
_MARKS = (
    "\u3099\u309a\uff9e\uff9f\ufe00-\ufe0f\U000e0100-\U000e01ef"  # of Kana; forms of a sign
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"  # Thai
    "\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece"  # Lao
    "\u17b4-\u17d3\u17dd"  # Khmer
    "\u102b-\u103e\u1056-\u1059\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d"
    "\u108f\u109a-\u109d"  # Burmese
)
# Khmer and Burmese stack a letter under another by a mark between the two.
_STACKS = "\u17d2\u1039"
CHARACTER = f"[{_LETTERS}](?:[{_STACKS}][{_LETTERS}]|[{_MARKS}])*"
_CHARACTER = re.compile(CHARACTER)
# Words and single marks as one expression, for tools that take no more; slower than WordPattern.
TOKEN = rf"{CHARACTER}|(?:(?![{_LETTERS}])\w)+|[^\w\s]"
# First bytes of these characters in UTF-8, some of which begin other characters, too.
_FIRST_BYTES = bytes([0xE0, 0xE1, *range(0xE3, 0xEA), 0xEF, 0xF0])


def has_unspaced(text: str) -> bool:
    """Return True if a text has a character of a script without spaces."""
    # Most text is told apart by its bytes, several times as fast as by the pattern.
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded.translate(None, _FIRST_BYTES)) == len(encoded):
        return False
    return _CHARACTER.search(text) is not None


def begins_unspaced(text: str) -> bool:
    """Return True if a text begins with a character of a script without spaces, not with a mark."""
    return _CHARACTER.match(text) is not None


def separate(text: str) -> str:
    """Put spaces around each character of a script without spaces; leave other text unchanged."""
    if not has_unspaced(text):
        return text
    return _CHARACTER.sub(r" \g<0> ", text)


class WordPattern:
    """A regular expression of words that works in scripts without spaces, too.

    The check for such scripts costs a twentieth of the search for words.
    """

    def __init__(self, pattern: str, ascii_pattern: str | None = None) -> None:
        """Compile the pattern.

        Args:
            pattern: What a word is between spaces.
            ascii_pattern: A pattern that finds the same words in ASCII text, and faster.
        """
        self._spaced = re.compile(pattern)
        self._ascii = self._spaced if ascii_pattern is None else re.compile(ascii_pattern)
        self._every = re.compile(f"{CHARACTER}|{pattern}")

    def findall(self, text: str) -> list[str]:
        """List the words of a text. The pattern must not have a group."""
        if text.isascii():
            return self._ascii.findall(text)
        if has_unspaced(text):
            return self._every.findall(separate(text))
        return self._spaced.findall(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Iterate over the matches of words, whose groups are those of the pattern."""
        if text.isascii():
            return self._ascii.finditer(text)
        if has_unspaced(text):
            return self._every.finditer(separate(text))
        return self._spaced.finditer(text)
