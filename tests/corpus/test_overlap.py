"""What shares words with evaluation texts or is nearly an earlier text: against plain readings of the definitions."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dana.core.errors import ConfigError
from dana.core.scripts import has_unspaced
from dana.corpus import overlap
from dana.corpus.overlap import (
    MOST_DOCUMENTS,
    ROWS_AT_ONCE,
    NearDuplicates,
    OverlapIndex,
    repeats_earlier,
    shingle_matrix,
)
from dana.corpus.text import words
from dana.corpus.units import sentences

TEXT = "The quick brown fox jumps over a lazy dog while thirteen other words stand by and wait"
ALPHABET = TEXT.split()
THIRTEEN = " ".join(ALPHABET[:13])


def _plain(text):
    return re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower())


def _by_definition(texts, evaluation, ngram, sentence):
    """Pairs (row, task) by sets of tuples, a run at a time."""
    runs_by_task = {}
    for task, task_texts in evaluation.items():
        runs = runs_by_task[task] = set()
        for text in task_texts:
            tokens = _plain(text)
            runs |= {tuple(tokens[at : at + ngram]) for at in range(len(tokens) - ngram + 1)}
            pieces = [tokens, *(_plain(text[start:end]) for start, end in sentences(text))]
            runs |= {tuple(piece) for piece in pieces if sentence <= len(piece) < ngram}
    pairs = set()
    for row, text in enumerate(texts):
        tokens = _plain(text)
        for length in range(min(sentence, ngram), ngram + 1):
            for at in range(len(tokens) - length + 1):
                run = tuple(tokens[at : at + length])
                pairs |= {(row, task) for task, runs in runs_by_task.items() if run in runs}
    return pairs


TEXTS = st.lists(
    st.lists(st.sampled_from(["a", "B", "cé", "d!", "e.", "F. ", "Ĳ", "١", "\n"]), max_size=14).map(
        " ".join
    ),
    max_size=6,
)


@settings(max_examples=200)
@given(
    TEXTS,
    st.dictionaries(st.sampled_from(["one", "two"]), TEXTS),
    st.integers(1, 5),
    st.integers(1, 6),
)
def test_what_is_found_is_what_the_definition_says(texts, evaluation, ngram, sentence):
    overlaps = OverlapIndex.build(evaluation, ngram, sentence).find(texts)
    pairs = [(overlap.row, overlap.task) for overlap in overlaps]
    assert set(pairs) == _by_definition(texts, evaluation, ngram, sentence)
    assert len(set(pairs)) == len(pairs)
    assert all(
        overlap.tokens == ngram or sentence <= overlap.tokens < ngram for overlap in overlaps
    )


@settings(max_examples=50)
@given(TEXTS, st.dictionaries(st.sampled_from(["one", "two"]), TEXTS), st.integers(2, 4))
def test_equal_hashes_of_different_words_find_nothing(texts, evaluation, ngram):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            overlap._Block,
            "hash_runs",
            lambda self, runs: np.zeros(runs.starts.size, dtype=np.uint64),
        )
        overlaps = OverlapIndex.build(evaluation, ngram, 2).find(texts)
    assert {(overlap.row, overlap.task) for overlap in overlaps} == _by_definition(
        texts, evaluation, ngram, 2
    )


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        (f"Before that, {THIRTEEN.upper()}!", True),
        (THIRTEEN.replace(" ", " << \n"), True),
        (THIRTEEN.replace("quick", "\uff51uick"), True),  # a full-width letter
        (" ".join(ALPHABET[1:13]) + " and more", False),
    ],
)
def test_case_marks_and_line_ends_hide_nothing_and_twelve_words_are_no_ngram(text, is_found):
    assert bool(OverlapIndex.build({"t": [TEXT]}).find([text])) == is_found


def test_a_whole_sentence_of_eight_words_is_found_wherever_it_stands():
    index = OverlapIndex.build({"t": ["Yes. One two three four five six seven eight. No one."]})
    (overlap,) = index.find(["and one, two, three; four five six seven EIGHT and so on"])
    assert (overlap.kind, overlap.tokens) == ("sentence", 8)
    assert (
        index.find(["Yes one two three four five six seven", ""]) == []
    )  # 8 words, no sentence of its own


def test_the_first_run_is_named_by_a_digest_that_does_not_depend_on_the_block():
    index = OverlapIndex.build({"b": [TEXT], "a": [" ".join(ALPHABET[2:])]})
    alone = index.find([TEXT])
    assert [(overlap.row, overlap.task) for overlap in alone] == [(0, "b"), (0, "a")]
    among = index.find(["", "no, " * 5000, TEXT])
    assert [overlap._replace(row=0) for overlap in among] == alone
    assert alone[0].digest != alone[1].digest
    assert len(alone[0].digest) == 32


@given(st.text(alphabet=st.characters(max_codepoint=0x24F)))
def test_ascii_takes_no_other_way_to_the_same_words(text):
    assert words(text) == " ".join(_plain(text))


def _text(seed, count=400):
    return [f"w{number}" for number in np.random.default_rng(seed).integers(0, 5000, count)]


def _with_changes(tokens, count):
    """`count` words far apart are others: each takes five shingles away on both sides."""
    changes = {5 + number * 10: f"new{number}" for number in range(count)}
    return [changes.get(at, token) for at, token in enumerate(tokens)]


@pytest.mark.parametrize(
    ("changes", "near"), [(0, True), (2, True), (4, True), (16, False), (40, False)]
)
def test_the_threshold_is_of_the_jaccard_index(changes, near):
    """Of 396 shingles 5 n change: the index is (396 - 5 n) / (396 + 5 n), 0.90 for four and 0.66 for sixteen."""
    texts = NearDuplicates(0.8)
    one = _text(1)
    assert texts.add("one", " ".join(one)) is None
    assert (texts.add("two", " ".join(_with_changes(one, changes))) == "one") == near


def test_the_first_in_order_is_kept_and_named():
    texts = NearDuplicates(0.8)
    one, other = _text(1), _text(2)
    rows = [
        ("a", one),
        ("b", other),
        ("c", _with_changes(one, 1)),
        ("d", _with_changes(other, 1)),
        ("e", one),
    ]
    assert [texts.add(name, " ".join(tokens)) for name, tokens in rows] == [
        None,
        None,
        "a",
        "b",
        "a",
    ]


@pytest.mark.parametrize(
    ("texts", "earlier"),
    [
        (["Two words", "TWO, words!", "two other"], [None, 0, None]),
        (["😀 ..."] * 3, [None, None, None]),
    ],
)
def test_every_word_of_a_short_text_counts_and_case_marks_and_no_words_do_not(texts, earlier):
    near_duplicates = NearDuplicates(0.8)
    assert [near_duplicates.add(number, text) for number, text in enumerate(texts)] == earlier


def test_signatures_are_the_same_on_every_machine():
    signature = NearDuplicates(0.8)._signature("a b c d e f g")
    assert signature.hashvalues[:4].tolist() == [1186402755, 635329635, 1711093300, 2225927669]


def test_a_long_text_is_the_same_whatever_is_looked_at_at_once(monkeypatch):
    long = " ".join(_text(3, 3000))
    at_once = NearDuplicates(0.8)._signature(long).hashvalues
    monkeypatch.setattr(overlap, "SHINGLES_AT_ONCE", 7)
    assert (NearDuplicates(0.8)._signature(long).hashvalues == at_once).all()


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(overlap, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"near_duplicates=0.8: needs datasketch: pip install 'datasketch<3,>=2'"
    ):
        NearDuplicates(0.8)


def test_a_document_holds_the_runs_of_four_words_of_each_of_its_texts():
    matrix, sizes = shingle_matrix(
        [["a b c d e", "f g"], ["B, c d: E"], ["..."], ["a b c d a b c d"]]
    )
    assert matrix.sum(axis=1).tolist() == sizes.tolist() == [3, 1, 0, 4]
    common = (matrix @ matrix.T).toarray()
    assert common[0, 1] == 1  # b c d e, whatever the case and marks
    assert common[0, 3] == 1  # a b c d, counted once


def test_common_shingles_join_nothing_but_count_for_the_size():
    texts = [["we thank them all"]] * MOST_DOCUMENTS + [["one two three four"]]
    assert shingle_matrix(texts)[0].shape[1] == 2
    matrix, sizes = shingle_matrix([*texts, ["we thank them all"]])
    assert matrix.shape[1] == 1
    assert sizes.tolist() == [1] * (MOST_DOCUMENTS + 2)


def _shingles(text):
    parts = text.split()
    return {" ".join(parts[at : at + 4]) for at in range(max(1, len(parts) - 3))} - {""}


@given(
    st.lists(st.text("abc ", max_size=14).map(" ".join), min_size=2, max_size=12),
    st.sampled_from([0.2, 0.5, 1.0]),
)
def test_what_repeats_an_earlier_document_is_that_of_all_pairs(texts, threshold):
    repeats = repeats_earlier(*shingle_matrix([[text] for text in texts]), threshold)
    for at, text in enumerate(texts):
        pairs = [(_shingles(text), _shingles(other)) for other in texts[:at]]
        assert repeats[at] == any(
            one & two and len(one & two) >= threshold * len(one | two) for one, two in pairs
        )


def test_blocks_of_rows_are_compared_with_all_earlier_ones():
    texts = [
        [f"{number} b{number} c{number} d{number} e{number}"] for number in range(ROWS_AT_ONCE + 9)
    ]
    repeats = repeats_earlier(*shingle_matrix([*texts, texts[0], texts[ROWS_AT_ONCE + 1]]), 0.5)
    assert np.flatnonzero(repeats).tolist() == [ROWS_AT_ONCE + 9, ROWS_AT_ONCE + 10]


HAN = "医生建议患者每天服用两次药物并且注意休息和饮食还要定期检查血压与心脏"


@pytest.mark.parametrize(
    ("shared", "is_found"),
    [
        (HAN[:25], True),
        (HAN[:24], False),
        ("BERT " + HAN[:23], True),
        ("BERT " + HAN[:22], False),
        (" ".join(HAN[:25]), True),
    ],
)
def test_two_characters_of_a_script_without_spaces_are_a_word(shared, is_found):
    index = OverlapIndex.build(
        {"task": [f"以前{shared}以后的事情没有人知道也没有人去问过他们的想法"]}
    )
    found = index.find(["别的文字", f"完全不同{shared}别的句子在这里继续下去", "a court"])
    assert [one.row for one in found] == ([1] if is_found else [])
    assert all(one.kind == "ngram" for one in found)


@pytest.mark.parametrize(("length", "is_found"), [(14, False), (15, True), (24, True)])
def test_a_whole_sentence_of_fifteen_characters_is_found_wherever_it_stands(length, is_found):
    sentence = HAN[:length]
    index = OverlapIndex.build({"task": [f"{sentence}。今天。"]})
    [*found] = index.find([f"人们常说{sentence}而且很多人都同意这一点", sentence[:-1]])
    assert [one.row for one in found] == ([0] if is_found else [])
    assert all(one.kind == "sentence" and one.tokens == length for one in found)


CHARACTERS = st.lists(st.sampled_from([*"中文天ก์", "a", "bc", " ", "。"]), max_size=30).map("".join)


def _halves(tokens):
    return sum(1 if has_unspaced(token) else 2 for token in tokens)


@given(
    st.lists(CHARACTERS, max_size=4),
    st.lists(CHARACTERS, max_size=3),
    st.integers(1, 4),
    st.integers(1, 4),
)
@settings(max_examples=200)
def test_what_is_found_of_any_script_is_what_the_definition_says(texts, tests, ngram, sentence):
    def runs(text):
        tokens = words(text).split()
        for first in range(len(tokens)):
            for last in range(first + 1, len(tokens) + 1):
                yield tuple(tokens[first:last])

    wanted = set()
    for text in tests:
        pieces = [text, *(text[start:end] for start, end in sentences(text))]
        lines = [tuple(words(piece).split()) for piece in pieces]
        wanted |= {line for line in lines if 2 * sentence - 1 <= _halves(line) < 2 * ngram - 1}
        reach = 2 * ngram - 1
        wanted |= {run for run in runs(text) if _halves(run) >= reach > _halves(run[:-1])}
    rows = [row for row, text in enumerate(texts) if wanted & set(runs(text))]
    found = OverlapIndex.build({"task": tests}, ngram, sentence).find(texts)
    assert [one.row for one in found] == rows


def test_a_run_that_reaches_its_length_by_characters_is_an_ngram():
    line = "中 " + " ".join(f"alpha{number}" for number in range(20))
    [found] = OverlapIndex.build({"task": [line]}).find([line])
    assert (found.kind, found.tokens) == ("ngram", 13)  # twelve words and a character
    short = "中 " + " ".join(f"alpha{number}" for number in range(9))
    [found] = OverlapIndex.build({"task": [short]}).find([short])
    assert (found.kind, found.tokens) == ("sentence", 10)
