"""Delimited text: separator, quotes, header and encoding are found by looking."""

import gzip

import pytest

from dana.corpus.readers import read_delimited


def rows_of(path, columns, header=True):
    records = list(read_delimited(path, columns, header))
    assert not [record.problem for record in records if record.problem]
    return [record.fields for record in records]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separator_quotes_and_encoding_are_found(tmp_path, separator, encoding):
    marks = "".join(mark for mark in ",;\t|" if mark != separator)
    quoted = f"a na\u00efve \u2013 text{separator} with\nlines"
    plain = f"one{marks}other"
    text = f'n{separator}sentence\n1{separator}"{quoted}"\n2{separator}{plain}\n'
    file = tmp_path / "new.csv"
    file.write_bytes(text.encode(encoding))
    expected = [{"n": "1", "sentence": quoted}, {"n": "2", "sentence": plain}]
    assert rows_of(file, ["sentence"]) == expected
    if encoding == "utf-8":
        packed = tmp_path / "new.csv.gz"
        packed.write_bytes(gzip.compress(file.read_bytes()))
        assert rows_of(packed, ["sentence"]) == expected


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('sentence\na, b; c\n"quoted, yes"\n', ["a, b; c", "quoted, yes"]),
        ('sentence\na, b; c\n"quoted" no\n', ["a, b; c", '"quoted" no']),
        ("sentence,n\na; b; c,1\nd; e; f,2\n", ["a; b; c", "d; e; f"]),
        # Semicolons divide all rows alike, but not into the column that is wanted.
        ("sentence,a;b\nx,1;2\ny,3;4\n", ["x", "y"]),
        (";sentence\n0;x\n1;y\n", ["x", "y"]),
    ],
)
def test_the_column_that_is_wanted_decides_where_several_separators_could(tmp_path, content, texts):
    (tmp_path / "new.csv").write_text(content)
    assert [row["sentence"] for row in rows_of(tmp_path / "new.csv", ["sentence"])] == texts


def test_without_a_header_columns_are_numbered_and_a_single_one_is_the_text(tmp_path):
    (tmp_path / "new.csv").write_text("a, b;1\nc;2\n")
    assert rows_of(tmp_path / "new.csv", ["1"], False) == [
        {"1": "a, b", "2": "1"},
        {"1": "c", "2": "2"},
    ]
    (tmp_path / "new.csv").write_text("a b\nc, d; e\n")
    assert rows_of(tmp_path / "new.csv", ["2"], False) == [{"2": "a b"}, {"2": "c, d; e"}]


def test_a_bad_row_is_named_and_the_others_are_read(tmp_path):
    (tmp_path / "new.csv").write_text("n;sentence\n1;x\n2\n3;y\n")
    good, bad, last = read_delimited(tmp_path / "new.csv", ["sentence"])
    assert (good.fields["sentence"], last.fields["sentence"]) == ("x", "y")
    assert bad.location == f"{tmp_path / 'new.csv'}:3"
    assert bad.problem == "expected 2 columns as in the header, got 1"
