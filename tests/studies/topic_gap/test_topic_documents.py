"""The pool of a task: duplicates, ids, windows, letters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.core.errors import DataError
from dana.studies.topic_gap.documents import Window, pool_documents, strip_to_letters
from dana.tasks.examples import Example

NAMES = ("news", "blog")
WORDS = np.array([f"{a}{b}{c}" for a in "bdfg" for b in "aeio" for c in "klmn"])


def text(seed, words=30):
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


def example(name, content, label=0):
    return Example(name, content, label)


def pool(splits, window=None, labels=NAMES):
    return pool_documents(splits, NAMES, labels, window or Window(20))


def test_splits_are_one_pool_without_repeats():
    near = text(1).split()
    near[5] = "other"
    splits = {
        "train": [example("a", text(1)), example("b", text(2), 1), example("c", "- " + text(2).upper() + "!", 0)],
        "dev": [example("d", " ".join(near)), example("e", text(3))],
        "test": [example("f", text(4), 1), example("g", "Short.", 1), example("h", "1 2 3 4 5 6 7 8 9 10 11", 1)],
    }
    documents, counts = pool(splits)
    assert documents["id"].tolist() == ["a", "b", "e", "f"]
    assert documents["label"].tolist() == ["news", "blog", "news", "blog"]
    assert documents["text"].tolist() == [text(1), text(2), text(3), text(4)]
    reasons = {"repeated": 1, "near duplicate": 1, "short": 1, "no letters": 1}
    assert counts == {"in": 8, "kept": 4, "dropped": reasons}
    for doc_id, content, window_text, letters in zip(
        documents.id, documents.text, documents.whole, documents.stripped, strict=True
    ):
        assert window_text == Window(20).of(content, doc_id)
        assert letters == strip_to_letters(window_text)


def test_ids_that_recur_are_told_apart():
    splits = {
        "train": [example("1", text(1)), example("2", text(2), 1), example("2", text(3), 1)],
        "test": [example("1", text(4)), example("9", text(5))],
    }
    assert pool(splits)[0]["id"].tolist() == ["train:1", "train:2", "train:2#2", "test:1", "9"]


def test_only_the_labels_that_are_asked_for():
    documents, counts = pool({"train": [example("a", text(1)), example("b", text(2), 1)]}, labels=["blog"])
    assert documents["id"].tolist() == ["b"]
    assert counts["dropped"] == {"other label": 1}


def test_a_window_longer_than_every_text_is_refused():
    splits = {"train": [example("a", "x" * 30), example("b", "y" * 41, 1)]}
    with pytest.raises(DataError, match="window=42: must be at most 41"):
        pool(splits, Window(42))
    with pytest.raises(DataError, match="window=42"):
        pool(splits, Window(42, "keep"))


def test_a_label_of_which_nothing_is_left_is_named():
    splits = {"train": [example("a", text(1)), example("b", "A short one.", 1)]}
    with pytest.raises(DataError, match=r"label 'blog': .* window=20, short=drop; .*labels=\['news'\]"):
        pool(splits)


def test_windows_of_the_same_letters_are_one_text_to_a_classifier():
    splits = {
        "train": [example("a", "Bill 17 is paid!"), example("b", text(2), 1)],
        "test": [example("c", "Bill 18: is paid", 1), example("d", "bill is unpaid", 1)],
    }
    documents, counts = pool(splits, Window(20, "keep"))
    assert documents["id"].tolist() == ["a", "b", "d"]
    assert counts == {"in": 4, "kept": 3, "dropped": {"same letters": 1}}


@given(st.text(min_size=1, max_size=60), st.text(max_size=8), st.integers(1, 60), st.integers(0, 9))
def test_a_window_is_a_piece_of_its_length(text, doc_id, length, seed):
    window = Window(length, "drop", seed).of(text, doc_id)
    if len(text) < length:
        assert window is None
        assert Window(length, "keep", seed).of(text, doc_id) == text
    else:
        assert len(window) == length
        assert window in text
        assert Window(length, "keep", seed).of(text, doc_id) == window


def test_the_place_is_a_function_of_seed_and_id_and_every_place_is_as_likely():
    text = "".join(chr(ord("a") + at) for at in range(14))
    begins = {seed: [ord(Window(10, "drop", seed).of(text, f"d{at}")[0]) - 97 for at in range(2000)] for seed in (0, 1)}
    assert begins[0] == [ord(Window(10, "drop", 0).of(text, f"d{at}")[0]) - 97 for at in range(2000)]
    assert begins[0] != begins[1]
    counts = np.bincount(begins[0], minlength=5)
    assert counts.size == 5, "from the first character to the last place that has room"
    assert counts.min() > 330


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("It's 2023! END.Next", "it s end next"),
        ("A_b\tc\n\nD—e", "a b c d e"),
        ("Ünïcode ÉTÉ", "ünïcode été"),
        ("cafe\u0301 1½²Ⅷ", "cafe\u0301"),
        ("हिन्दी में ३", "हिन्दी में"),
        ("soft\u00adhyphen €5 🙂", "softhyphen"),
        ("42 + 7 = 49", ""),
    ],
)
def test_letters_of_any_script_are_left(text, letters):
    assert strip_to_letters(text) == letters
