"""Windows by seed and id, and texts stripped to letters of any script."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.studies.topic_gap.documents import Window, strip_to_letters


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


@given(st.text(max_size=80))
def test_stripping_twice_changes_nothing(text):
    once = strip_to_letters(text)
    assert strip_to_letters(once) == once
    assert not any(letter.isdigit() for letter in once)
    assert once == " ".join(once.split())
