"""Near duplicates: judged like the exact Jaccard index, first kept, and a plain word where the library is missing."""

import numpy as np
import pytest

from dana.core.errors import ConfigError
from dana.corpus import overlap
from dana.corpus.overlap import NearDuplicates


def _text(seed, count=400):
    return [f"w{number}" for number in np.random.default_rng(seed).integers(0, 5000, count)]


def _with_changes(tokens, count):
    """`count` words far apart are others: each takes five shingles away on both sides."""
    changed = list(tokens)
    for place in range(count):
        changed[5 + place * 10] = f"new{place}"
    return changed


@pytest.mark.parametrize(("changes", "near"), [(0, True), (2, True), (4, True), (16, False), (40, False)])
def test_the_threshold_is_of_the_jaccard_index(changes, near):
    """Of 396 shingles 5 n change: the index is (396 - 5 n) / (396 + 5 n), 0.90 for four and 0.66 for sixteen."""
    seen = NearDuplicates(0.8)
    one = _text(1)
    assert seen.add("one", " ".join(one)) is None
    assert (seen.add("two", " ".join(_with_changes(one, changes))) == "one") == near


def test_the_first_in_order_is_kept_and_named():
    seen = NearDuplicates(0.8)
    one, other = _text(1), _text(2)
    rows = [("a", one), ("b", other), ("c", _with_changes(one, 1)), ("d", _with_changes(other, 1)), ("e", one)]
    assert [seen.add(name, " ".join(tokens)) for name, tokens in rows] == [None, None, "a", "b", "a"]


def test_case_and_marks_do_not_tell_texts_apart_but_every_word_of_a_short_one_does():
    seen = NearDuplicates(0.8)
    assert seen.add("a", "Two words") is None
    assert seen.add("b", "TWO, words!") == "a"
    assert seen.add("c", "two other") is None


def test_signatures_are_the_same_on_every_machine():
    signature = NearDuplicates(0.8)._signature("a b c d e f g")
    assert signature.hashvalues[:4].tolist() == [
        1186402755,
        635329635,
        1711093300,
        2225927669,
    ]


def test_texts_without_words_are_like_no_other():
    seen = NearDuplicates(0.5)
    assert [seen.add(name, "😀 ...") for name in "abc"] == [None, None, None]


def test_a_long_text_is_the_same_whatever_is_looked_at_at_once(monkeypatch):
    long = " ".join(_text(3, 3000))
    whole = NearDuplicates(0.8)._signature(long).hashvalues
    monkeypatch.setattr(overlap, "SHINGLES_AT_ONCE", 7)
    assert (NearDuplicates(0.8)._signature(long).hashvalues == whole).all()


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.1])
def test_a_threshold_out_of_range_is_named(threshold):
    with pytest.raises(ConfigError, match=rf"near_duplicates={threshold}: must be a Jaccard index in \(0, 1\]"):
        NearDuplicates(threshold)


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(overlap, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"near_duplicates=0.8: needs datasketch: pip install 'dana\[dedup\]'"):
        NearDuplicates(0.8)
