"""Segment a text into units, as character spans: sentences, or windows of word-pieces."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from dana.core.config import require
from dana.core.errors import ConfigError

Span = tuple[int, int]
Splitter = Callable[[str], list[Span]]

# Most characters of a sentence. It bounds the cost of a unit: tables, base64 and text without full
# stops can make a whole document one sentence.
LONGEST_SENTENCE = 2000
# Most characters without white space that sentencex gets at once. Its time is quadratic in the length
# of a stretch in which sentences end: hours for a book in Chinese.
LONGEST_STRETCH = 4000
# A longer stretch is cut after one of these, which scripts write without a space after them.
_WIDE_STOPS = "。！？．｡။།"
# In ASCII alone, sentences rarely end within a stretch; with more of these in it, its time is
# quadratic, too, as of minified code.
_STOPS = ".?!"
MOST_STOPS = 100
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")  # white space that is not ASCII
# White space on which sentencex may panic, with a trace on the screen: before a full stop.
_PANICS = re.compile(r"[^\S\x00-\x7f]+(?=\s*\.)")
_FILLED = re.compile(r"\S")  # a character that is no white space
# Codes of ISO 639-1. For the languages of RULED sentencex has its own abbreviations and marks; for
# those of OTHERS it uses those of a related language or of English. Marks of one script only
# (。 । ؟ ።) end sentences in every language. Both are texts because error messages list them.
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
        """Whether :meth:`splitter` needs a tokenizer."""
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
        # Only fast tokenizers return the character offsets of word-pieces.
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigError(
                f"units='window:{self.window}': needs an encoder with a fast tokenizer, "
                "to count pieces"
            )
        return partial(token_windows, tokenizer=tokenizer, size=self.window)


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
    if kind == "window" and size.isdecimal() and int(size) > 0:
        return UnitSpec(int(size))
    raise ConfigError(
        f"units={spec!r}: must be sentence, or window:N with N word-pieces, for example window:256"
    )


def has_rules(code: str) -> bool:
    """Return True if sentencex has segmentation rules for a language.

    Raises:
        ConfigError: If `code` is not a code of ISO 639-1; names the languages with rules.
    """
    has_own_rules = code in RULED.split()
    is_known = has_own_rules or code in OTHERS.split()
    codes = f"a code of ISO 639-1 such as en, de or zh (with segmentation rules: {RULED})"
    require(is_known, "language", code, codes)
    return has_own_rules


def sentences(text: str, language: str = "en") -> list[Span]:
    """Split a text into the character spans of its sentences, in order.

    The spans are trimmed, not empty, and at most :data:`LONGEST_SENTENCE` characters long. Every
    character outside the spans is white space.

    Args:
        text: The text.
        language: ISO 639-1 code, for abbreviations and marks: see :func:`has_rules`. It is not
            checked here.
    """
    spans: list[Span] = []
    for start, end in _sentence_bounds(text, language):
        # This is the hot loop of a whole corpus. Most sentences need no more than the space after
        # them trimmed, which is done here without a function call and without copying the sentence.
        while end > start and text[end - 1].isspace():
            end -= 1
        fits = start < end <= start + LONGEST_SENTENCE
        if fits and not text[start].isspace():
            spans.append((start, end))
        else:
            first, last = _trim(text, start, end)
            spans += _bounded_pieces(text, first, last)
    return spans


def _sentence_bounds(text: str, language: str) -> Iterator[Span]:
    """Yield the spans of the sentences that sentencex finds, with the white space around them."""
    for first, last in _stretches(text):
        for sentence in _boundaries(text[first:last], language):
            yield first + sentence["start_index"], first + sentence["end_index"]


def _boundaries(text: str, language: str) -> Sequence[Mapping[str, int]]:
    """Return the bounds that sentencex finds; of a text on which it panics those of the whole text.

    It panics where white space that is not ASCII stands between a single capital and a full stop
    (1.0.32). A text with plain spaces in its place has the same length.
    """
    from sentencex import get_sentence_boundaries

    if not text.isascii():
        text = _PANICS.sub(lambda found: " " * len(found.group()), text)
    try:
        found: Sequence[Mapping[str, int]] = get_sentence_boundaries(language, text)
    except BaseException as error:  # a panic of Rust is no Exception
        if type(error).__name__ != "PanicException":
            raise
        plainer = _WIDE_SPACE.sub(" ", text)
        if plainer != text:
            return _boundaries(plainer, language)
        return [{"start_index": 0, "end_index": len(text)}]
    return found


def _stretches(text: str) -> list[Span]:
    """Return adjacent spans that cover a text, so that none has an overlong stretch without white space.

    A stretch of more than :data:`LONGEST_STRETCH` characters is cut after the last wide full stop among
    its first so many characters, or after all of these where there is none; its rest likewise. No
    other text is cut.
    """
    if not _has_long_stretch(text):
        return [(0, len(text))]
    cuts = [0]
    for stretch in re.finditer(r"\S+", text):
        start = stretch.start()
        while stretch.end() - start > LONGEST_STRETCH:
            limit = start + LONGEST_STRETCH
            last_stop = max(text.rfind(stop, start, limit) for stop in _WIDE_STOPS)
            start = limit
            if last_stop != -1:
                start = last_stop + 1
            cuts.append(start)
    return list(pairwise([*cuts, len(text)]))


def _has_long_stretch(text: str) -> bool:
    """Return whether a text has an overlong stretch without white space, which sentencex is slow on.

    In text of ASCII alone a stretch counts only with many full stops: where sentencex ends no
    sentence within it, its time is not quadratic.
    """
    if len(text) <= LONGEST_STRETCH:
        return False
    stretches = [stretch for stretch in text.split() if len(stretch) > LONGEST_STRETCH]
    if not text.isascii():
        return bool(stretches)
    return any(sum(map(stretch.count, _STOPS)) > MOST_STOPS for stretch in stretches)


def token_windows(text: str, tokenizer: Any, size: int) -> list[Span]:
    """Split a text into the character spans of windows of `size` word-pieces.

    The spans are trimmed and not empty. The last window may have fewer pieces. A window reaches to
    the next one, so that characters that the tokenizer drops are part of a window too. A character
    of several pieces (byte-level tokenizers) belongs to the window with its last piece. A text
    without a piece has no window.

    Args:
        text: The text.
        tokenizer: A fast Hugging Face tokenizer.
        size: Word-pieces in a window, at least 1.
    """
    encoding = tokenizer(
        text, add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False
    )
    # A piece without characters is not counted.
    piece_starts = [start for start, end in encoding["offset_mapping"] if end > start]
    if not piece_starts:
        return []
    window_starts = piece_starts[size::size]  # without the first window, which starts with the text
    cuts = [0, *window_starts, len(text)]
    spans = []
    for cut, next_cut in pairwise(cuts):
        start, end = _trim(text, cut, next_cut)
        if end > start:
            spans.append((start, end))
    return spans


def _trim(text: str, start: int, end: int) -> Span:
    """Return a span without the white space at its ends.

    Of white space alone, the end that is returned is not after the start.
    """
    piece = text[start:end]
    leading = len(piece) - len(piece.lstrip())
    return start + leading, start + len(piece.rstrip())


def _bounded_pieces(text: str, start: int, end: int) -> list[Span]:
    """Return the spans of pieces of a trimmed span, each of at most :data:`LONGEST_SENTENCE` characters.

    The span is cut at the last space or line break that makes a piece short enough, or within a word
    where there is none. The pieces are trimmed. A span whose end is not after its start has none.
    """
    spans = []
    while end - start > LONGEST_SENTENCE:
        limit = start + LONGEST_SENTENCE
        cut = max(text.rfind(space, start, limit) for space in " \n\t")
        if cut <= start:  # there is no white space to cut at
            cut = limit
        spans.append(_trim(text, start, cut))
        # The next piece starts at the next character that is no white space. It is searched for,
        # because trimming the rest of the span would copy it at every cut.
        following = _FILLED.search(text, cut, end)
        start = end
        if following is not None:
            start = following.start()
    if end > start:
        spans.append((start, end))
    return spans
