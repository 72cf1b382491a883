"""Segment a text into units, as character spans: sentences, or windows of word-pieces."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from dana.core.config import require
from dana.core.errors import ConfigError

Span = tuple[int, int]
Splitter = Callable[[str], list[Span]]

# Bounds the cost of a unit: tables, base64 and text without full stops can make a whole document
# one sentence.
LONGEST_SENTENCE = 2000
# The time of sentencex is quadratic in the length of a stretch without white space: hours for a
# book in Chinese.
LONGEST_STRETCH = 4000
_WIDE_STOPS = "。！？．｡။།"
_FILLED = re.compile(r"\S")
# Codes of ISO 639-1. For the first, sentencex has its own abbreviations and marks; the others use
# those of a related language or of English. Marks of one script only (。 । ؟ ።) end sentences in
# every language.
RULED = (
    "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk"
)
OTHERS = (
    "aa ab ae af ak an as av ay az ba be bi bm bo br bs ce ch co cr cs cu cv cy dv dz ee eo et eu"
    " fa ff fj fo fy ga gd gl gn gv ha he ho hr ht hu hz ia id ie ig ii ik io is iu jv ka kg ki kj"
    " kl km ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk mn ms mt na nb nd ne ng nn"
    " nr nv ny oc oj om or os pi ps qu rm rn ro rw sa sc sd se sg si sl sm sn so sq sr ss st su sv"
    " sw tg th ti tk tl tn to tr ts tt tw ty ug ur uz ve vi vo wa wo xh yi yo za zh zu"
)


@dataclass(frozen=True)
class UnitSpec:
    """Kind of unit: ``sentence``, or ``window:N``.

    Attributes:
        window: Word-pieces in a window; None for sentences.
    """

    window: int | None = None

    @property
    def needs_tokenizer(self) -> bool:
        """True if :meth:`splitter` needs a tokenizer."""
        return self.window is not None

    def splitter(self, tokenizer: Any = None, language: str = "en") -> Splitter:
        """Return the function that splits a text into spans.

        Args:
            tokenizer: A fast Hugging Face tokenizer, for windows.
            language: ISO 639-1 code, for sentences.

        Raises:
            ConfigError: If windows are to be counted without a fast tokenizer.
        """
        if self.window is None:
            return partial(sentences, language=language)
        if not getattr(tokenizer, "is_fast", False):  # only fast ones return character offsets
            raise ConfigError(
                f"units='window:{self.window}': needs an encoder with a fast tokenizer, "
                "to count pieces"
            )
        size = self.window
        return lambda text: token_windows(text, tokenizer, size)


@dataclass(frozen=True)
class WholeDocuments:
    """Whole documents as units."""

    def splitter(self) -> Splitter:
        """Return the function that makes a whole text one span."""
        return lambda text: [(0, len(text))]


def parse_units(spec: str) -> UnitSpec:
    """Parse ``sentence`` or ``window:N``.

    Raises:
        ConfigError: If `spec` is neither.
    """
    kind, _, size = spec.partition(":")
    if kind == "sentence" and not size:
        return UnitSpec()
    if kind == "window" and size.isdigit() and int(size) > 0:
        return UnitSpec(int(size))
    raise ConfigError(
        f"units={spec!r}: must be sentence, or window:N with N word-pieces, for example window:256"
    )


def has_rules(code: str) -> bool:
    """Return True if sentencex has segmentation rules for a language.

    Raises:
        ConfigError: If `code` is not a code of ISO 639-1; names the languages with rules.
    """
    codes = f"a code of ISO 639-1 such as en, de or zh (with segmentation rules: {RULED})"
    require(code in RULED.split() or code in OTHERS.split(), "language", code, codes)
    return code in RULED.split()


def sentences(text: str, language: str = "en") -> list[Span]:
    """Split a text into the character spans of its sentences, in order.

    They are trimmed and at most 2,000 characters long. Every character outside the spans is white
    space.

    Args:
        text: The text.
        language: ISO 639-1 code, for abbreviations and marks: see :func:`has_rules`.
    """
    spans: list[Span] = []
    for start, end in _sentence_bounds(text, language):
        # The hot loop of a whole corpus: most sentences need no more than the space after them
        # trimmed.
        while end > start and text[end - 1].isspace():
            end -= 1
        if start < end <= start + LONGEST_SENTENCE and not text[start].isspace():
            spans.append((start, end))
        else:
            spans += _bound(text, *_trim(text, start, end))
    return spans


def _sentence_bounds(text: str, language: str) -> Iterator[Span]:
    """Stream the spans of the sentences that sentencex finds, with the white space around them."""
    from sentencex import get_sentence_boundaries

    for first, last in _stretches(text):
        for sentence in get_sentence_boundaries(language, text[first:last]):
            yield first + sentence["start_index"], first + sentence["end_index"]


def _stretches(text: str) -> list[Span]:
    """Cut a text in overlong stretches without white space: after a full stop, or else anywhere."""
    if not _has_long_stretch(text):
        return [(0, len(text))]
    cuts = [0]
    for stretch in re.finditer(r"\S+", text):
        start = stretch.start()
        while stretch.end() - start > LONGEST_STRETCH:
            limit = start + LONGEST_STRETCH
            last_stop = max(text.rfind(stop, start, limit) for stop in _WIDE_STOPS)
            start = last_stop + 1 or limit
            cuts.append(start)
    return list(pairwise([*cuts, len(text)]))


def _has_long_stretch(text: str) -> bool:
    """Return whether a text has an overlong stretch without white space that is not ASCII."""
    if len(text) <= LONGEST_STRETCH or text.isascii():
        return False
    return max(map(len, text.split()), default=0) > LONGEST_STRETCH


def token_windows(text: str, tokenizer: Any, size: int) -> list[Span]:
    """Split a text into the character spans of windows of `size` word-pieces, trimmed.

    The last may be shorter. A window reaches to the next one, so that characters that the tokenizer
    drops are part of a window too. A character of several pieces (byte-level tokenizers) belongs to
    the window with its last piece.
    """
    encoding = tokenizer(
        text, add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False
    )
    starts = [start for start, end in encoding["offset_mapping"] if end > start]
    if not starts:
        return []
    cuts = [0, *starts[size::size], len(text)]
    spans = (_trim(text, start, end) for start, end in pairwise(cuts))
    return [(start, end) for start, end in spans if end > start]


def _trim(text: str, start: int, end: int) -> Span:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


def _bound(text: str, start: int, end: int) -> list[Span]:
    """Cut a span into pieces of bounded length, at white space if there is any."""
    spans = []
    while end - start > LONGEST_SENTENCE:
        limit = start + LONGEST_SENTENCE
        cut = max(text.rfind(space, start, limit) for space in " \n\t")
        if cut <= start:
            cut = limit
        spans.append(_trim(text, start, cut))
        following = _FILLED.search(text, cut, end)  # trimming the rest would copy it at every cut
        start = following.start() if following else end
    if end > start:
        spans.append((start, end))
    return spans
