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
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: Toy\nVersion: 1.0\n\n{readme}"
        )
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        (info / "RECORD").write_text("".join(f"{name},,\n" for name in files))
        return PathDistribution(info)

    return make


def item(text: str, name: str = "a") -> PackageText:
    return PackageText(name, "toy", "toy/a.py", "docstring", text)


def texts_of(distribution: PathDistribution) -> list[str]:
    return [entry.text for entry in iterate_docstrings("toy", distribution, 100)]


RAW = """Mean of an array.

    Parameters
    ----------
    a : array
        As in :func:`numpy.mean`, ``nan`` counts.
    :mod:`scipy.stats`

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

    See Also
    --------
    >>> 1
    1
"""


def test_clean_keeps_prose_and_drops_examples_directives_underlines_footnotes_and_names_of_modules():
    prose = "Mean of an array.\n\nParameters\na : array\n    As in numpy.mean, nan counts."
    assert clean(RAW, 1000) == f"{prose}\n\nReferences\n\nExamples\n\nAfter."
    assert (
        clean(
            "Text.\n\nReferences\n----------\n.. [1] Book\n\nExamples\n--------\n>>> 1\n1\n", 1000
        )
        == "Text."
    )
    for line in ("scipy.stats", "  (scipy.stats.mstats)"):
        assert (
            clean(f"First.\n{line}\nLast, of scipy.stats.", 1000) == "First.\nLast, of scipy.stats."
        )


def test_clean_cuts_at_a_line_end_or_else_a_word_or_else_anywhere():
    assert clean("one two\nthree four\nfive", 14) == "one two"
    assert clean("one two three", 9) == "one two"
    assert clean("abcdefgh", 3) == "abc"


@given(st.text(), st.integers(1, 60))
def test_clean_is_stripped_and_never_longer_than_asked(text, limit):
    clean_text = clean(text, limit)
    assert len(clean_text) <= limit
    assert clean_text == clean_text.strip()


def test_docstrings_carry_their_qualified_name_and_what_is_defined_again_a_number(
    make_distribution,
):
    again = "".join(
        f'    async def m(self):\n        """Method {number}."""\n' for number in range(3)
    )
    source = f'"""Module."""\nclass C:\n    """Class."""\n{again}\ndef m():\n    """Outer."""\ndef f(): pass\n'
    entries = list(iterate_docstrings("toy", make_distribution({"toy/a.py": source}), 100))
    names = {entry.id.removeprefix("toy/toy/a.py:"): entry.text[:6] for entry in entries}
    methods = dict.fromkeys(("C.m", "C.m (2)", "C.m (3)"), "Method")
    assert names == {"module": "Module", "C": "Class.", "m": "Outer.", **methods}
    assert len({entry.text for entry in entries}) == len(entries)


def test_files_are_parsed_and_never_run_and_one_that_is_not_there_is_passed_over(
    make_distribution, tmp_path
):
    source = f'"""Text."""\nopen({str(tmp_path / "ran")!r}, "w").close()\nraise SystemExit\n'
    distribution = make_distribution({"toy/a.py": source, "toy/b.py": '"""B."""'})
    assert texts_of(distribution) == ["Text.", "B."]
    assert not (tmp_path / "ran").exists()
    (tmp_path / "toy/a.py").unlink()
    assert texts_of(distribution) == ["B."]


def test_tests_vendored_generated_and_broken_files_are_skipped(make_distribution):
    names = "toy/tests/a.py toy/test_a.py toy/_vendor/b/a.py toy/externals/a.py toy/a_pb2.py toy/data.txt"
    sources = ['"""Open', '# Do not edit.\n"""Text."""', '"""Text."""\nx = "\0"', ""]
    files = dict.fromkeys(names.split(), '"""Text."""')
    files |= {f"toy/broken_{number}.py": source for number, source in enumerate(sources)}
    assert texts_of(make_distribution({**files, "toy/attest.py": '"""Attest."""'})) == ["Attest."]


def test_readme_goes_under_the_distribution_and_licences_under_licences(make_distribution):
    files = {
        "toy-1.0.dist-info/licenses/LICENSE": "You may.",
        "toy/license.py": "x",
        "COPYING.md": "You must.",
    }
    entries = iterate_package_texts("toy", make_distribution(files, "About toy."), 100)
    texts = [("toy", "readme", "About toy.")]
    texts += [("licences", "licence", text) for text in ("You may.", "You must.")]
    assert [(entry.distribution, entry.kind, entry.text) for entry in entries] == texts


def test_short_texts_and_known_beginnings_are_dropped():
    beginnings: set[bytes] = set()
    long = "x" * 150
    items = [item(long + "one"), item(long + "two"), item("short"), item("y" * 150)]
    assert list(drop_repeats(items, 6, beginnings)) == [items[0], items[3]]
    assert list(drop_repeats([item(long)], 6, beginnings)) == []


def test_near_duplicates_by_hand():
    """Of a…j (6 shingles of 5) and a…i (5), 5 of 6 are shared; of a…j and f…o, 1 of 11."""
    items = [
        item(text) for text in ("a b c d e f g h i j", "A b c d e f g h i", "f g h i j k l m n o")
    ]
    assert list(drop_near_duplicates(iter(items), 5 / 6)) == [items[0], items[2]]
    assert len(list(drop_near_duplicates(iter(items), 0.84))) == 3
    assert len(list(drop_near_duplicates(iter(items), 1 / 11))) == 1
    chain = [
        item(" ".join("abcdefghijklmnop"[start : start + 10])) for start in (0, 3, 6)
    ]  # 3 of 9 are shared
    assert list(drop_near_duplicates(iter(chain), 1 / 3)) == [chain[0], chain[2]], (
        "what is dropped drops no other"
    )


def test_installed_names_are_lower_case_sorted_and_hold_this_test_runner():
    distributions = list_distributions()
    assert list(distributions) == sorted(name.lower() for name in distributions)
    assert any(file.suffix == ".py" for file in distributions["pytest"].files or ())
