"""What shares words with evaluation texts: against a plain reading of the definition, and when hashes collide."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dana.corpus.overlap import OverlapIndex, _Block
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
    st.lists(st.sampled_from(["a", "B", "cé", "d!", "e.", "F. ", "Ĳ", "١", "\n"]), max_size=14).map(" ".join),
    max_size=6,
)


@settings(max_examples=200)
@given(TEXTS, st.dictionaries(st.sampled_from(["one", "two"]), TEXTS), st.integers(1, 5), st.integers(1, 6))
def test_what_is_found_is_what_the_definition_says(texts, evaluation, ngram, sentence):
    overlaps = OverlapIndex.build(evaluation, ngram, sentence).find(texts)
    pairs = [(overlap.row, overlap.task) for overlap in overlaps]
    assert set(pairs) == _by_definition(texts, evaluation, ngram, sentence)
    assert len(set(pairs)) == len(pairs)
    assert all(overlap.tokens == ngram or sentence <= overlap.tokens < ngram for overlap in overlaps)


@settings(max_examples=50)
@given(TEXTS, st.dictionaries(st.sampled_from(["one", "two"]), TEXTS), st.integers(2, 4))
def test_equal_hashes_of_different_words_find_nothing(texts, evaluation, ngram):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Block, "hash_runs", lambda self, runs: np.zeros(runs.starts.size, dtype=np.uint64))
        overlaps = OverlapIndex.build(evaluation, ngram, 2).find(texts)
    assert {(overlap.row, overlap.task) for overlap in overlaps} == _by_definition(texts, evaluation, ngram, 2)


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
    assert index.find(["Yes one two three four five six seven", ""]) == []  # 8 words, no sentence of its own


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
