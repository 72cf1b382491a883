"""Docstrings, READMEs and licences of distributions: made-up ones on disk, then the installed ones."""

from importlib.metadata import PathDistribution

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.corpus.harvest import (
    PackageText,
    clean,
    drop_near_duplicates,
    drop_repeats,
    iterate_docstrings,
    iterate_package_texts,
    list_distributions,
)


@pytest.fixture
def make_distribution(tmp_path):
    """Writes a distribution's files and RECORD; returns it."""

    def make(files: dict[str, str], readme: str = "") -> PathDistribution:
        info = tmp_path / "toy-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: Toy\nVersion: 1.0\n\n{readme}")
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        (info / "RECORD").write_text("".join(f"{name},,\n" for name in files))
        return PathDistribution(info)

    return make


def item(text: str, name: str = "a") -> PackageText:
    return PackageText(name, "toy", "toy/a.py", "docstring", text)


def test_clean_keeps_prose_and_drops_examples_directives_underlines_and_footnotes():
    raw = """Mean of an array.

    Parameters
    ----------
    a : array
        As in :func:`numpy.mean`, ``nan`` counts.

    .. versionadded:: 1.0

    References
    ----------
    .. [1] A. Author,
           "A title".

    Examples
    --------
    >>> mean([1, 3])
    2.0

    After.
    """
    expected = (
        "Mean of an array.\n\nParameters\na : array\n    As in numpy.mean, nan counts.\n\n"
        "References\n\nExamples\n\nAfter."
    )
    assert clean(raw, 1000) == expected


def test_clean_drops_headings_that_nothing_follows():
    assert clean("Text.\n\nReferences\n----------\n.. [1] Book\n\nExamples\n--------\n>>> 1\n1\n", 1000) == "Text."


@pytest.mark.parametrize("line", ["scipy.stats", "  (scipy.stats.mstats)", ":mod:`scipy.stats`"])
def test_clean_drops_a_line_that_only_names_a_module(line):
    assert clean(f"First.\n{line}\nLast, of scipy.stats.", 1000) == "First.\nLast, of scipy.stats."


def test_clean_cuts_at_a_line_end_or_else_a_word_or_else_anywhere():
    assert clean("one two\nthree four\nfive", 14) == "one two"
    assert clean("one two three", 9) == "one two"
    assert clean("abcdefgh", 3) == "abc"


@given(st.text(), st.integers(1, 60))
def test_clean_is_stripped_and_never_longer_than_asked(text, most):
    cleaned = clean(text, most)
    assert len(cleaned) <= most
    assert cleaned == cleaned.strip()


def test_docstrings_of_modules_classes_and_functions_carry_their_qualified_name(make_distribution):
    source = (
        '"""Module."""\nclass C:\n    """Class."""\n    async def m(self):\n        """Method."""\n\ndef f(): pass\n'
    )
    found = {entry.id: entry.text for entry in iterate_docstrings("toy", make_distribution({"toy/a.py": source}), 100)}
    assert found == {"toy/toy/a.py:module": "Module.", "toy/toy/a.py:C": "Class.", "toy/toy/a.py:C.m": "Method."}


def test_files_are_parsed_and_never_run(make_distribution, tmp_path):
    source = f'"""Text."""\nopen({str(tmp_path / "ran")!r}, "w").close()\nraise SystemExit\n'
    assert [entry.text for entry in iterate_docstrings("toy", make_distribution({"toy/a.py": source}), 100)] == [
        "Text."
    ]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "file",
    ["toy/tests/a.py", "toy/test_a.py", "toy/_vendor/b/a.py", "toy/externals/a.py", "toy/a_pb2.py", "toy/data.txt"],
)
def test_tests_vendored_and_generated_files_are_skipped(make_distribution, file):
    distribution = make_distribution({file: '"""Text."""', "toy/attest.py": '"""Kept."""'})
    assert [entry.text for entry in iterate_docstrings("toy", distribution, 100)] == ["Kept."]


@pytest.mark.parametrize("source", ['"""Open', '# Do not edit.\n"""Text."""', '"""Text."""\nx = "\0"', ""])
def test_broken_and_self_declared_generated_files_give_nothing(make_distribution, source):
    assert list(iterate_docstrings("toy", make_distribution({"toy/a.py": source}), 100)) == []


def test_a_listed_file_that_is_not_there_is_passed_over(make_distribution, tmp_path):
    distribution = make_distribution({"toy/a.py": '"""A."""', "toy/b.py": '"""B."""'})
    (tmp_path / "toy/a.py").unlink()
    assert [entry.text for entry in iterate_docstrings("toy", distribution, 100)] == ["B."]


def test_readme_goes_under_the_distribution_and_licences_under_licences(make_distribution):
    files = {"toy-1.0.dist-info/licenses/LICENSE": "You may.", "toy/license.py": "x", "COPYING.md": "You must."}
    found = [
        (e.distribution, e.kind, e.text)
        for e in iterate_package_texts("toy", make_distribution(files, "About toy."), 100)
    ]
    assert found == [
        ("toy", "readme", "About toy."),
        ("licences", "licence", "You may."),
        ("licences", "licence", "You must."),
    ]


def test_distinct_drops_short_texts_and_known_beginnings():
    seen: set[bytes] = set()
    long = "x" * 150
    kept = list(drop_repeats([item(long + "one"), item(long + "two"), item("short"), item("y" * 150)], 6, seen))
    assert [entry.text[:1] + entry.text[150:] for entry in kept] == ["xone", "y"]
    assert list(drop_repeats([item(long)], 6, seen)) == []


def test_near_duplicates_by_hand():
    """Of a…j (6 shingles of 5) and a…i (5), 5 of 6 are shared; of a…j and f…o, 1 of 11."""
    texts = ["a b c d e f g h i j", "A b c d e f g h i", "f g h i j k l m n o"]
    kept = [entry.text[0] for entry in drop_near_duplicates(map(item, texts), 5 / 6)]
    assert kept == ["a", "f"]
    assert len(list(drop_near_duplicates(map(item, texts), 0.84))) == 3
    assert len(list(drop_near_duplicates(map(item, texts), 1 / 11))) == 1


def test_installed_names_are_lower_case_sorted_and_hold_this_test_runner():
    found = list_distributions()
    assert list(found) == sorted(name.lower() for name in found)
    assert any(file.suffix == ".py" for file in found["pytest"].files or ())


def test_what_a_file_defines_again_has_an_id_of_its_own(make_distribution):
    overloads = "".join(f'    def call(self):\n        """Text {number}."""\n' for number in range(3))
    made = make_distribution(
        {"toy/a.py": f'class A:\n    """Text of A."""\n{overloads}def call():\n    """Outer."""\n'}
    )
    found = {one.id: one.text for one in iterate_docstrings("toy", made, 1000)}
    again = ["", " (2)", " (3)"]
    assert set(found) == {"toy/toy/a.py:A", "toy/toy/a.py:call", *(f"toy/toy/a.py:A.call{end}" for end in again)}
    assert sorted(found.values()) == ["Outer.", "Text 0.", "Text 1.", "Text 2.", "Text of A."]
