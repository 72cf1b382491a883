"""Cleaning text and naming documents."""

import unicodedata
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.core.files import text_digest
from dana.corpus.text import _LINE_ENDS, _UNWANTED, document_id, normalise, one_line, strip_markers

ANYTHING = st.text(st.characters(codec=None, exclude_categories=()), max_size=80)


CLEAN_BY_HAND = [("  a b \n", "a b"), ("a\r\nb\rc\u2028d\u2029e", "a\nb\nc\nd\ne")]
CLEAN_BY_HAND += [
    ("page\x0cpage\x0bline\x85line", "page\npage\nline\nline"),
    ("a\x00b\x07c\x1bd\x7fe\x9ff", "abcdef"),
]
CLEAN_BY_HAND += [
    ("\ufeffa\ufffe\uffffb", "ab"),
    ("a\ud800b\udfffc", "abc"),
    ("a\tb", "a\tb"),
    ("e\u0301", "\u00e9"),
]
CLEAN_BY_HAND += [("\u0000\n \t\ufeff", ""), ("שלום 👩‍👩‍👧 مرحبا", "שלום 👩‍👩‍👧 مرحبا")]


@pytest.mark.parametrize(("raw", "clean"), CLEAN_BY_HAND)
def test_normalise_by_hand(raw, clean):
    assert normalise(raw) == clean


@given(ANYTHING)
def test_normalise_twice_is_once_and_the_result_is_clean(text):
    clean = normalise(text)
    assert normalise(clean) == clean
    assert clean == clean.strip()
    assert unicodedata.is_normalized("NFC", clean)
    clean.encode("utf-8")
    assert not any(unicodedata.category(c) == "Cc" and c not in "\t\n" for c in clean)


def test_digest_is_sixteen_bytes_of_blake2b_and_takes_lone_surrogates():
    assert text_digest("héllo") == blake2b("héllo".encode(), digest_size=16).digest()
    assert len(text_digest("\ud800")) == 16
    assert text_digest("\ud800") != text_digest("\ud801")


def test_document_id_depends_on_source_and_text_and_on_where_they_part():
    assert document_id("a", "b") == document_id("a", "b")
    assert (
        len(
            {
                document_id("a", "b"),
                document_id("a", "c"),
                document_id("c", "b"),
                document_id("ab", ""),
            }
        )
        == 4
    )
    assert len(document_id("a", "b")) == 32


def test_printable_text_needs_no_search_for_what_is_unwanted():
    """The short way of `normalise` is taken by characters alone that the long way leaves as they are."""
    printable = "".join(chr(code) for code in range(0x110000) if chr(code).isprintable())
    assert not _UNWANTED.search(printable)
    assert not _LINE_ENDS.search(printable)
    assert normalise("  e\u0301 ") == "é"


def test_a_text_as_one_line():
    assert one_line(" a\r\nb\u2028c\x00 \n") == "a b c"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("<< Gefitinib >> inhibits [[ EGFR ]] .", "Gefitinib inhibits EGFR ."),
        ("<e1>The cell</e1> divides [E2]fast[/E2]", "The cell divides fast"),
        ("cells -LRB- two -RRB- die", "cells ( two ) die"),
        ("a < b and c > d, f[i] = 2  twice", "a < b and c > d, f[i] = 2  twice"),
        ("<< >>", "<< >>"),
    ],
)
def test_marks_of_annotated_data_are_removed_and_nothing_else(text, plain):
    assert strip_markers(text) == plain
    assert strip_markers(plain) == plain
