"""Words in ten scripts: a character each where there are no spaces, and as ever where there are."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.core.scripts import TOKEN, WordPattern, begins_unspaced, has_unspaced, separate
from dana.corpus.hashed_ngrams import word_punct
from dana.corpus.text import words
from dana.models.ngram.vocabulary import split_words
from dana.selectors.hashed_words import plain_words

RUNS = r"\w+"

UNSPACED = {
    "Han": ("今天天气", "今 天 天 气"),
    "Han beyond the first plane": ("𠮷野家", "𠮷 野 家"),
    "Han with a form of a sign": ("葛\U000e0100城", "葛\U000e0100 城"),
    "Kana": ("とてもよい", "と て も よ い"),
    "Kana in voiced halves": ("ﾃﾞｰﾀ", "デ ー タ"),
    "Thai": ("วันนี้ดี", "วั น นี้ ดี"),
    "Lao": ("ສະບາຍດີ", "ສ ະ ບ າ ຍ ດີ"),
    "Khmer": ("ខ្ញុំស្រលាញ់", "ខ្ញុំ ស្រ លា ញ់"),
    "Burmese": ("ကောင်းတယ်", "ကော င်း တ ယ်"),
    "Burmese, stacked": ("မန္တလေး", "မ န္တ လေး"),
    "two scripts in one run": ("GPT模型3号", "gpt 模 型 3 号"),
    "marks between": ("你好，世界！", "你 好 世 界"),
}
SPACED = [
    "Größe und Maß: “quoted”, don’t — 3,5 %",
    "हिन्दी में लिखा हुआ वाक्य",
    "한국어 문장은 띄어 쓴다",
    "Tiếng Việt có dấu",
    "می‌خواهم کتاب بخوانم",
    "русский текст, ещё",
    "ქართული ტექსტი",
    "የአማርኛ ጽሑፍ",
    "emoji 😀 and ﬁn ① ½",
    "ＦＵＬＬ width１２",
]


@pytest.mark.parametrize(("text", "by_hand"), UNSPACED.values(), ids=UNSPACED)
def test_each_character_of_a_script_without_spaces_is_a_word(text, by_hand):
    assert words(text) == by_hand
    assert has_unspaced(text)


@pytest.mark.parametrize("split", [word_punct, split_words, plain_words])
def test_every_way_of_splitting_finds_the_same_characters(split):
    for text, _ in UNSPACED.values():
        characters = [word for word in split(text) if has_unspaced(word)]
        assert characters == [one for one in separate(text).split() if has_unspaced(one)]


@pytest.mark.parametrize("text", SPACED)
def test_text_with_spaces_is_split_as_by_the_pattern_alone(text):
    assert not has_unspaced(text)
    assert separate(text) is text
    for pattern in (RUNS, r"\w+|[^\w\s]+", r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d+|[^\w\s]|_"):
        assert WordPattern(pattern).findall(text) == re.findall(pattern, text)
    assert re.findall(TOKEN, text) == re.findall(r"\w+|[^\w\s]", text)


@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_any_text_keeps_every_character_of_a_word(text):
    found = "".join(WordPattern(RUNS).findall(text))
    letters = [one for one in text if re.match(r"\w", one)]
    assert [one for one in found if re.match(r"\w", one)] == letters
    assert not any(word.isspace() for word in WordPattern(r"\S+").findall(text))


def test_a_mark_belongs_to_the_character_before_it():
    assert begins_unspaced("ที่")
    assert not begins_unspaced("\u0e48า"), "a tone mark"
    assert not begins_unspaced("x中")
    assert not begins_unspaced("한")


@given(st.text(st.characters(max_codepoint=127), max_size=60))
def test_ascii_takes_a_faster_way_to_the_same_words(text):
    lower = text.lower()
    assert word_punct(text) == re.findall(r"\w+|[^\w\s]+", lower)
    assert split_words(text) == re.findall(r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d+|[^\w\s]|_", lower)
    beside = f"{text} é"  # not ASCII
    assert plain_words(beside) == [*plain_words(text), "é"]
