"""Units: spans that map back to the text, cover all of it, are bounded, and end as the language has it."""

import time
from dataclasses import replace
from itertools import pairwise

import pytest
import sentencex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dana.core.errors import ConfigError
from dana.corpus import units as units_module
from dana.corpus.text import normalise
from dana.corpus.units import (
    LONGEST_SENTENCE,
    LONGEST_STRETCH,
    UnitSpec,
    parse_units,
    sentences,
    token_windows,
)
from dana.scoring.settings import Selection

WORDS = ["Dr.", "it", "was", "3.5", "e.g.", "no!", "why?", "👩\u200d👩\u200d👧", "שלום.", "مرحبا؟"]
WORDS += ["日本語。", "...", "“So”", "\n\n", "\r\n", "\t"]
TEXTS = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join), st.text(max_size=200)
)


def _holds(text, spans):
    """Ordered, apart, trimmed, not empty, and nothing but white space outside."""
    position = 0
    for start, end in spans:
        assert position <= start < end <= len(text)
        assert not text[position:start].strip()
        assert text[start:end] == text[start:end].strip()
        position = end
    assert not text[position:].strip()


@settings(max_examples=150)
@given(TEXTS)
@example("")
@example(" \n ")
@example("One.\r\nTwo.\r\n\r\nThree.")
@example("Smile 😀. Next 👍🏽! שלום עולם. סוף.")
def test_sentences_cover_the_text_in_order(text):
    spans = sentences(text)
    _holds(text, spans)
    assert all(end - start <= LONGEST_SENTENCE for start, end in spans)


@pytest.mark.parametrize(
    ("text", "units"),
    [
        (
            "Dr. Smith came. He left at 3.5 hours!  Why?",
            ["Dr. Smith came.", "He left at 3.5 hours!", "Why?"],
        ),
        (
            "日本 😀 é. Then more.",
            ["日本 😀 é.", "Then more."],
        ),  # spans count characters, not bytes
        ("x" * 5000, ["x" * 2000, "x" * 2000, "x" * 1000]),
        (
            "Vorwort " + "日本語。これは！" * 9999,
            ["Vorwort 日本語。", "これは！", *["日本語。", "これは！"] * 9998],
        ),
    ],
    ids=["English", "characters", "no end", "no space"],
)
def test_sentences_by_hand(text, units):
    assert [text[start:end] for start, end in sentences(text)] == units


@settings(max_examples=20)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=12))
def test_a_sentence_without_end_is_cut_at_white_space(lengths):
    text = " ".join("x" * length for length in lengths)
    spans = sentences(text)
    _holds(text, spans)
    assert max(end - start for start, end in spans) <= LONGEST_SENTENCE
    short = [length for length in lengths if length <= LONGEST_SENTENCE // 2]
    if len(short) == len(lengths):
        assert all(end == len(text) or text[end] == " " for _, end in spans)


@pytest.mark.parametrize("language", ["en", "fr", "de", "zh", "ru"])
def test_wide_white_space_before_a_full_stop_is_no_panic(language, capfd):
    """sentencex 1.0.32 panics on it after a capital; a panic of Rust is no Exception."""
    for space in ("\xa0", "\u2009", "\u202f", "\u3000", "\u2028"):
        assert sentences(f"Vitamin C{space}.", language)
        text = f"See plan B{space}. Then go on."
        assert [text[start:end] for start, end in sentences(text, language)][-1].endswith("go on.")
    assert "panicked" not in capfd.readouterr().err


def test_a_text_on_which_the_library_panics_is_one_sentence(monkeypatch):
    class PanicException(BaseException):
        pass

    def panic(language, text):
        raise PanicException

    monkeypatch.setattr("sentencex.get_sentence_boundaries", panic)
    assert sentences(" One. Two. ") == [(1, 10)]

    def interrupt(language, text):
        raise KeyboardInterrupt

    monkeypatch.setattr("sentencex.get_sentence_boundaries", interrupt)
    with pytest.raises(KeyboardInterrupt):
        sentences("One.")


@pytest.mark.parametrize("piece", ["Ab?", "x!=y&&", "中?"])
def test_code_without_white_space_is_cut_so_that_time_is_in_proportion(piece, monkeypatch):
    longest = []
    original = sentencex.get_sentence_boundaries

    def measured(language, text):
        longest.append(len(text))
        return original(language, text)

    monkeypatch.setattr("sentencex.get_sentence_boundaries", measured)
    text = piece * 5_000
    spans = sentences(text)
    assert max(longest) <= LONGEST_STRETCH
    assert "".join(text[start:end] for start, end in spans) == text


def test_a_stretch_that_is_not_too_long_is_never_cut(monkeypatch):
    texts = []
    monkeypatch.setattr(
        "sentencex.get_sentence_boundaries", lambda language, text: texts.append(text) or []
    )
    exactly = "é" * LONGEST_STRETCH
    sentences(f"{exactly} {exactly}\n{exactly}")
    sentences(f"a {exactly}y b")
    assert texts == [f"{exactly} {exactly}\n{exactly}", f"a {exactly}", "y b"]


@pytest.mark.parametrize("size", [1, 5, 64])
@pytest.mark.parametrize("text", ["", "  ", "one", "A line.\r\nAnother, 日本 😀 שלום " * 20])
def test_windows_hold_the_asked_number_of_word_pieces(tiny_tokenizer, text, size):
    text = normalise(text)
    spans = token_windows(text, tiny_tokenizer, size)
    _holds(text, spans)
    counts = [
        len(tiny_tokenizer(text[a:b], add_special_tokens=False)["input_ids"]) for a, b in spans
    ]
    if size > 1:  # a window of one piece may begin within a word, and be cut again on its own
        assert all(abs(count - size) <= size // 2 + 2 for count in counts[:-1])
    pieces = len(tiny_tokenizer(text, add_special_tokens=False)["input_ids"])
    assert len(spans) == -(-pieces // size)


@settings(max_examples=60)
@given(text=TEXTS, size=st.integers(1, 9))
@example(text="\U000f0000 one two", size=1)
def test_windows_cover_the_text_in_order(tiny_tokenizer, byte_level, text, size):
    text = normalise(text)
    _holds(text, token_windows(text, byte_level, size))
    spans = token_windows(text, tiny_tokenizer, size)
    if spans:  # text that is nothing but characters the tokenizer drops has no unit
        _holds(text, spans)
    else:
        assert tiny_tokenizer.tokenize(text) == []


def test_windows_of_bytes_never_share_a_character(byte_level):
    assert token_windows("a 😀😀", byte_level, 4) == [
        (0, 1),
        (2, 3),
        (3, 4),
    ]  # pieces 0, 4 and 8 begin the windows


def test_a_spec_names_a_splitter_and_a_bad_one_is_refused(tiny_tokenizer):
    assert parse_units("sentence") == UnitSpec()
    assert parse_units("window:256") == UnitSpec(256)
    assert not parse_units("sentence").needs_tokenizer
    assert parse_units("sentence").splitter()("One. Two.") == [(0, 4), (5, 9)]
    text = "the default of the settings"
    assert parse_units("window:4").splitter(tiny_tokenizer)(text) == token_windows(
        text, tiny_tokenizer, 4
    )
    for no_tokenizer in (None, object()):
        with pytest.raises(ConfigError, match="window:8"):
            parse_units("window:8").splitter(no_tokenizer)
    for spec in ("", "word", "sentence:3", "window", "window:0", "window:-1", "window:x"):
        with pytest.raises(ConfigError, match=f"units='{spec}': must be sentence, or window:N"):
            parse_units(spec)


def test_a_line_of_sixteen_megabytes_without_punctuation_takes_time_in_proportion():
    """Each cut copied all that came after it: 16 MB took over a hundred times as long as one."""

    def seconds(text):
        start = time.process_time()
        spans = sentences(text)
        assert all(after[0] == before[1] + 1 for before, after in pairwise(spans))
        return time.process_time() - start

    one = max(0.02, seconds("word and more " * 75_000))
    assert seconds("word and more " * 1_200_000) < 50 * one


# Sentences as the language has them; "!" where the rules of English find others.
SENTENCES = {
    "de": [
        "!",
        "Der Versuch dauerte ca. Zwölf Stunden, vgl. Abb. 3.",
        "Am 3. Oktober war es aus.",
        "Gut so!",
    ],
    "fr": ["!", "Elle habite av. Foch à Paris.", "Est-ce vrai ?", "Oui !"],
    "es": [
        "!",
        "El Sr. García vive en la Avda. Goya.",
        "La Dra. Ruiz llegó tarde.",
        "¿Qué hora es?",
        "¡Es tarde!",
    ],
    "ru": [
        "!",
        "Он живёт на ул. Ленина в г. Москве.",
        "Это было в 1999 г. и позже.",
        "Как дела?",
        "Хорошо!",
    ],
    "el": ["!", "Ο κ. Παπαδόπουλος ήρθε χθες.", "Πού πήγες;", "Δεν ξέρω."],
    "it": ["!", "Il sig. Rossi abita in via Roma.", "Perché?", "Non lo so!"],
    "nl": ["!", "Dhr. De Vries woont in Utrecht.", "Hij kwam om 3 uur.", "Echt waar?"],
    "uk": ["!", "Він живе на вул. Франка.", "Це було в 1999 р. і пізніше.", "Справді?"],
    "hi": ["", "यह पहला वाक्य है।", "क्या यह दूसरा है?", "हाँ!"],
    "ar": ["", "هذه جملة أولى.", "هل هذه جملة ثانية؟", "نعم!"],
    "zh": ["", "这是第一句。", "这是第二句！", "真的吗？", "是的。"],
    "ja": ["", "これは一つ目です。", "本当ですか？", "はい！"],
    "tr": ["", "Bu ilk cümle.", "İkinci cümle mi?", "Evet!", "Prof. Yılmaz geldi."],
    "ko": ["", "이것은 첫 문장이다.", "두 번째인가?", "그렇다!"],
}
SPACELESS = ("zh", "ja")


@pytest.mark.parametrize("language", SENTENCES)
def test_sentences_end_where_the_language_says_and_windows_have_none(language, byte_level):
    differs, *units = SENTENCES[language]
    text = ("" if language in SPACELESS else " ").join(units)
    for spans in (
        sentences(text, language),
        Selection(encoder="hashing", language=language).splitter()(text),
    ):
        assert [text[start:end] for start, end in spans] == units
    assert ([text[start:end] for start, end in sentences(text, "en")] != units) == bool(differs)
    windows = parse_units("window:16").splitter(byte_level, language)(text)
    assert "".join("".join(text[start:end] for start, end in windows).split()) == "".join(
        text.split()
    )
    assert len(windows) == -(-len(text.encode()) // 16)


@pytest.mark.parametrize("code", ["xx", "", "EN", "german", "en-GB", "no"])
def test_what_is_no_language_is_refused(code):
    with pytest.raises(
        ConfigError, match=rf"language={code!r}: must be a code of ISO 639-1 .* am ar bg .* uk\)"
    ):
        Selection(language=code)


def test_codes_are_distinct():
    codes = f"{units_module.RULED} {units_module.OTHERS}".split()
    assert len(codes) == len(set(codes)) == 182


def test_the_language_belongs_to_the_fingerprint_unless_units_are_windows():
    one, two = (Selection(encoder="hashing", language=code) for code in ("en", "de"))
    assert one.identity() != two.identity()
    assert replace(one, units="window:8").identity() == replace(two, units="window:8").identity()
