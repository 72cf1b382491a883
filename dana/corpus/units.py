"""Segmentation: a text to character spans of its units, sentences (by sentencex) or windows of word-pieces."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from dana.core.config import require
from dana.core.errors import ConfigError

Span = tuple[int, int]
Splitter = Callable[[str], list[Span]]

# Tables, base64 and text without full stops come as one "sentence" of a whole document: bound the cost of a unit.
LONGEST_SENTENCE = 2000
# sentencex takes time that grows with the square of a stretch without white space: a book in Chinese would take hours.
LONGEST_STRETCH = 4000
_WIDE_STOPS = "。！？．｡။།"
_FILLED = re.compile(r"\S")
# Codes of ISO 639-1. Of the first the splitter knows abbreviations or marks; others take those of a related language or
# of English. Marks of one script only (。 । ؟ ።) end sentences in every language.
RULED = "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk"
OTHERS = (
    "aa ab ae af ak an as av ay az ba be bi bm bo br bs ce ch co cr cs cu cv cy dv dz ee eo et eu fa ff fj fo fy ga gd"
    " gl gn gv ha he ho hr ht hu hz ia id ie ig ii ik io is iu jv ka kg ki kj kl km ko kr ks ku kv kw ky la lb lg li ln"
    " lo lt lu lv mg mh mi mk mn ms mt na nb nd ne ng nn nr nv ny oc oj om or os pi ps qu rm rn ro rw sa sc sd se sg si"
    " sl sm sn so sq sr ss st su sv sw tg th ti tk tl tn to tr ts tt tw ty ug ur uz ve vi vo wa wo xh yi yo za zh zu"
)


@dataclass(frozen=True)
class UnitSpec:
    """``sentence``, or ``window:N``.

    Attributes:
        window: Word-pieces in a window; None for sentences.
    """

    window: int | None = None

    @property
    def needs_tokenizer(self) -> bool:
        """Whether :meth:`splitter` must be given a tokenizer."""
        return self.window is not None

    def splitter(self, tokenizer: Any = None, language: str = "en") -> Splitter:
        """The function that cuts a text.

        Args:
            tokenizer: A fast Hugging Face tokenizer, for windows.
            language: Of the sentences.

        Raises:
            ConfigError: If windows are asked for without such a tokenizer.
        """
        if self.window is None:
            return partial(sentences, language=language)
        if not getattr(tokenizer, "is_fast", False):  # only fast ones know where in the text a word-piece is
            raise ConfigError(
                f"units='window:{self.window}' counts word-pieces: choose an encoder with a fast tokenizer"
            )
        size = self.window
        return lambda text: token_windows(text, tokenizer, size)


@dataclass(frozen=True)
class WholeDocuments:
    """Documents that are not cut: each is a unit."""

    def splitter(self) -> Splitter:
        """The function that leaves a text whole."""
        return lambda text: [(0, len(text))]


def parse_units(spec: str) -> UnitSpec:
    """Read ``sentence`` or ``window:N``.

    Raises:
        ConfigError: If it is neither.
    """
    kind, _, size = spec.partition(":")
    if kind == "sentence" and not size:
        return UnitSpec()
    if kind == "window" and size.isdigit() and int(size) > 0:
        return UnitSpec(int(size))
    raise ConfigError(f"units={spec!r}: must be sentence, or window:N with N word-pieces, for example window:256")


def has_rules(code: str) -> bool:
    """Whether a language has rules of its own for where sentences end.

    Raises:
        ConfigError: If it is no code of ISO 639-1; names the languages with rules.
    """
    allowed = f"a code of ISO 639-1 such as en, de or zh (with rules of their own: {RULED})"
    require(code in RULED.split() or code in OTHERS.split(), "language", code, allowed)
    return code in RULED.split()


def sentences(text: str, language: str = "en") -> list[Span]:
    """Character spans of the sentences, trimmed, never empty, in order; none longer than 2,000 characters.

    Every character outside the spans is white space.

    Args:
        text: What to cut.
        language: ISO 639-1 code, whose abbreviations and marks count: see :func:`has_rules`.
    """
    from sentencex import get_sentence_boundaries

    spans: list[Span] = []
    found = (
        (first + sentence["start_index"], first + sentence["end_index"])
        for first, last in _stretches(text)
        for sentence in get_sentence_boundaries(language, text[first:last])
    )
    for start, end in found:
        # The loop of a whole corpus: most sentences have nothing to trim but the space behind them.
        while end > start and text[end - 1].isspace():
            end -= 1
        if start < end <= start + LONGEST_SENTENCE and not text[start].isspace():
            spans.append((start, end))
        else:
            spans += _bounded(text, *_trim(text, start, end))
    return spans


def _stretches(text: str) -> list[Span]:
    """The text, cut where it has too long a stretch without white space: behind a full stop, or anywhere."""
    cuts = [0]
    if len(text) > LONGEST_STRETCH and not text.isascii() and max(map(len, text.split()), default=0) > LONGEST_STRETCH:
        for stretch in re.finditer(r"\S+", text):
            start = stretch.start()
            while stretch.end() - start > LONGEST_STRETCH:
                limit = start + LONGEST_STRETCH
                start = max(text.rfind(stop, start, limit) for stop in _WIDE_STOPS) + 1 or limit
                cuts.append(start)
    return list(pairwise([*cuts, len(text)]))


def token_windows(text: str, tokenizer: Any, size: int) -> list[Span]:
    """Character spans of consecutive runs of `size` word-pieces, trimmed, never empty; the last may be shorter.

    A window reaches to the next one, so characters that the tokenizer drops are in one all the same. Of a character
    in several pieces (byte-level tokenizers), the window with its last piece has it.
    """
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False)
    starts = [start for start, end in encoded["offset_mapping"] if end > start]
    if not starts:
        return []
    cuts = [0, *starts[size::size], len(text)]
    spans = (_trim(text, start, end) for start, end in pairwise(cuts))
    return [(start, end) for start, end in spans if end > start]


def _trim(text: str, start: int, end: int) -> Span:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


def _bounded(text: str, start: int, end: int) -> list[Span]:
    """The span, cut at white space (or, without any, anywhere) until no piece is too long."""
    spans = []
    while end - start > LONGEST_SENTENCE:
        limit = start + LONGEST_SENTENCE
        cut = max(text.rfind(space, start, limit) for space in " \n\t")
        cut = cut if cut > start else limit
        spans.append(_trim(text, start, cut))
        following = _FILLED.search(text, cut, end)  # to trim the rest would copy all of it at every cut
        start = following.start() if following else end
    return spans + ([(start, end)] if end > start else [])
