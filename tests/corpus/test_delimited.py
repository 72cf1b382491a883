"""Delimited text: separator, quotes, header and encoding are found by looking."""

import bz2
import csv
import gzip
import io
import lzma

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dana.core.errors import ConfigError
from dana.corpus.documents import source_digests
from dana.corpus.inputs import Inputs
from dana.corpus.readers import read_file


def rows_of(path, columns, **given):
    records = list(read_file(path, Inputs(columns, **given)))
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
    rows = [{"1": "a, b", "2": "1"}, {"1": "c", "2": "2"}]
    assert rows_of(tmp_path / "new.csv", ["1"], header=False) == rows
    (tmp_path / "new.csv").write_text("a b\nc, d; e\n")
    assert rows_of(tmp_path / "new.csv", ["2"]) == [{"2": "a b"}, {"2": "c, d; e"}]


def test_a_bad_row_is_named_and_the_others_are_read(tmp_path):
    (tmp_path / "new.csv").write_text("n;sentence\n1;x\n2\n3;y\n4;z;z\n")
    good, bad, last, long = read_file(tmp_path / "new.csv", Inputs(["sentence"]))
    assert (good.fields["sentence"], last.fields["sentence"]) == ("x", "y")
    assert bad.location == f"{tmp_path / 'new.csv'}:3"
    assert bad.problem == "expected 2 columns as in the header, got 1"
    assert long.problem.endswith("got 3; quote texts that hold a semicolon")


@pytest.mark.parametrize("line", ['"open', '"closed" and more', 'x,"open'])
@pytest.mark.parametrize("at", [0, 3, 1500])
def test_quotes_that_do_not_match_lose_their_row_alone(tmp_path, line, at):
    rows = [f'{number},"a, {number}"' for number in range(2000)]
    rows[at] = line if line.startswith("x") else f"{line},7"
    (tmp_path / "x.csv").write_text("\n".join(["n,text", *rows]) + "\n")
    records = list(read_file(tmp_path / "x.csv"))
    (bad,) = [record for record in records if record.problem]
    assert (bad.line, bad.rest_lost) == (at + 2, False)
    texts = [record.fields["text"] for record in records if not record.problem]
    assert texts == [f"a, {number}" for number in range(2000) if number != at]


@pytest.mark.parametrize("at", [0, 3, 1500])
def test_a_lone_quotation_mark_opens_nothing_in_a_tsv(tmp_path, at):
    """As GLUE and many corpora write them."""
    texts = [f"text {number}" for number in range(2000)]
    texts[at] = '"lone'
    texts[at + 5] = 'closed" too'
    texts[at + 6] = 'lone"'
    lines = [f"{text}\tweb" for text in texts]
    (tmp_path / "x.tsv").write_text("\n".join(["text\tsource", *lines]))
    assert [row["text"] for row in rows_of(tmp_path / "x.tsv", ["text"])] == texts


TABLE = [{"text": "a; b", "label": "x"}, {"text": "c", "label": "y"}]
FORMS = {
    "a title": "The report\n\ntext,label\na; b,x\nc,y\n",
    "a title of a spreadsheet": "Report,,\n,,\ntext,label,n\na; b,x,1\nc,y,2\n",
    "comments": "# made, today\n# by us\ntext,label\na; b,x\nc,y\n",
    "Excel's hint": 'sep=;\ntext;label\n"a; b";x\nc;y\n',
    "separators at the end of rows": "text,label\na; b,x,\nc,y,\n",
    "names of rows without a name": '"text","label"\n"1","a; b","x"\n"2","c","y"\n',
    "carriage returns": "text,label\ra; b,x\rc,y\r",
    "a mark": "\ufefftext,label\r\na; b,x\r\nc,y\r\n",
    "blank lines": "\n\ntext,label\n\na; b,x\n\nc,y\n\n",
    "spaces around names": " text , label \na; b,x\nc,y\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_lines_before_the_header_and_habits_of_programs_are_known(tmp_path, form, caplog):
    caplog.set_level("INFO", "dana")
    (tmp_path / "x.csv").write_text(FORMS[form], newline="")
    rows = rows_of(tmp_path / "x.csv", ["text"])
    assert [{name: row[name] for name in ("text", "label")} for row in rows] == TABLE
    leaves_out = "before the header left out" in caplog.text
    assert leaves_out == (form in [*FORMS][:4])


def test_a_cell_behind_rows_that_end_in_separators_is_not_lost(tmp_path):
    rows = [f"text {number},x," for number in range(1200)]
    (tmp_path / "x.csv").write_text("\n".join(["text,label", *rows, "more,x,y"]))
    *good, bad = read_file(tmp_path / "x.csv")
    assert len(good) == 1200
    assert bad.problem.startswith("expected 2 columns as in the header, got 3")


def test_texts_that_all_hold_one_separator_are_no_names_of_rows(tmp_path):
    (tmp_path / "x.csv").write_text("text,label\n" + "".join(f"{n} a, b,x\n" for n in "123"))
    records = list(read_file(tmp_path / "x.csv"))
    assert ["got 3; quote texts that hold a comma" in record.problem for record in records] == [
        True
    ] * 3


def test_a_row_without_a_label_is_no_title(tmp_path):
    (tmp_path / "x.csv").write_text("text,label\na,\n,\nb,x\nc,x\n")
    assert [row["text"] for row in rows_of(tmp_path / "x.csv", ["text"])] == ["a", "", "b", "c"]
    (tmp_path / "x.csv").write_text("a,\nb,x\nc,x\n")
    assert [row["1"] for row in rows_of(tmp_path / "x.csv", ["1"])] == ["a", "b", "c"]


def test_what_is_said_is_not_looked_for(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a\n1;2:3\n'x':\"y\n")
    rows = rows_of(path, ["2"], separator=":", quotes=False, header=False, skip_lines=1)
    assert rows == [{"1": "1;2", "2": "3"}, {"1": "'x'", "2": '"y'}]
    path.write_text("text;label\na, b;x\n")
    assert rows_of(path, ["text"], header=False)[1] == {"1": "a, b", "2": "x"}
    assert rows_of(path, ["text"], separator="semicolon") == [{"text": "a, b", "label": "x"}]
    path.write_bytes("text\nпример\n".encode("cp1251"))
    assert rows_of(path, ["text"], encoding="cp1251") == [{"text": "пример"}]
    path.write_bytes("text,n\n日本,1\n".encode("utf-16-le"))
    assert rows_of(path, ["text"], encoding="utf-16-le") == [{"text": "日本", "n": "1"}]


@pytest.mark.parametrize(
    "given",
    [
        {"encoding": "utf-9"},
        {"encoding": "base64"},
        {"separator": ""},
        {"separator": '"'},
        {"separator": "::"},
        {"skip_lines": -1},
    ],
)
def test_settings_that_cannot_be_are_refused(given):
    with pytest.raises(ConfigError, match=next(iter(given))):
        Inputs(**given)


def test_a_text_is_a_table_only_where_its_first_line_has_the_column(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("text\tlabel\na b\tx\nc d\ty\n")
    assert rows_of(path, ["text"]) == [{"text": "a b", "label": "x"}, {"text": "c d", "label": "y"}]
    for plain in ("text, image and sound\nwere made\n", "body\tlabel\na\tx\n", "text\na\nb\n"):
        path.write_text(plain)
        texts = [row["text"] for row in rows_of(path, ["text"], text_documents="line")]
        assert "".join(texts) == plain
    path.write_text("a\tx\nb\ty\n")
    assert rows_of(path, ["1"]) == [{"1": "a", "2": "x"}, {"1": "b", "2": "y"}]


def test_columns_in_a_path_are_those_of_its_rows(tmp_path):
    folder = tmp_path / "lang=de" / "day=2024%2F1"
    folder.mkdir(parents=True)
    (folder / "x.csv").write_text("text,day\na,own\n")
    (folder / "y.jsonl").write_text('{"text": "b"}\n{"text"\n')
    (row,) = rows_of(folder / "x.csv", ["text"])
    assert row == {"lang": "de", "day": "own", "text": "a"}
    good, bad = read_file(folder / "y.jsonl")
    assert good.fields == {"lang": "de", "day": "2024/1", "text": "b"}
    assert bad.problem


def test_a_folder_above_those_of_the_data_is_no_column(tmp_path):
    folder = tmp_path / "id=7" / "pool" / "lang=de"
    folder.mkdir(parents=True)
    (folder / "x.csv").write_text("text\na\nb\n")
    assert rows_of(folder / "x.csv", ["text"])[0] == {"lang": "de", "text": "a"}
    digests = source_digests([str(tmp_path / "id=7" / "pool")])
    assert list(digests) == ["lang=de/x.csv"], "another place changes no fingerprint"


CELLS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], include_characters="\n"),
    max_size=12,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(CELLS, min_size=3, max_size=8, unique=True),
    separator=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC]),
    pack=st.sampled_from([bytes, gzip.compress, bz2.compress, lzma.compress]),
    suffix=st.sampled_from([".csv", ".tsv"]),
)
def test_a_table_written_in_any_dialect_is_read_back_equal(
    tmp_path, texts, separator, encoding, end, quoting, pack, suffix
):
    rows = [{"id": str(number), "text": text, "n": "7"} for number, text in enumerate(texts)]
    stream = io.StringIO()
    writer = csv.DictWriter(
        stream, ["id", "text", "n"], delimiter=separator, quoting=quoting, lineterminator=end
    )
    writer.writeheader()
    writer.writerows(rows)
    path = tmp_path / f"x{suffix}"
    path.write_bytes(pack(stream.getvalue().encode(encoding)))
    assert rows_of(path, ["text"]) == rows


def test_a_column_of_texts_over_several_lines_keeps_its_quotes_where_the_file_is_cut(tmp_path):
    (tmp_path / "x.csv").write_text('text\n"a\nb"\n"c, d"\n"cut\noff\n')
    records = list(read_file(tmp_path / "x.csv"))
    assert [record.fields["text"] for record in records[:2]] == ["a\nb", "c, d"]
    assert (records[2].line, records[2].problem[:7]) == (5, "not CSV")


def test_a_table_of_pandas_with_numbered_columns_and_an_index_is_read(tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_text(",0,1\n0,a nice text,b\n1,another one,c\n")
    fields = [record.fields for record in read_file(path)]
    assert fields[0] == {"column 1": "0", "0": "a nice text", "1": "b"}


@pytest.mark.parametrize("row", ["#id,text,kind\n1,foo,text\n2,bar,x\n", "text,,\na,b,c\nd,e,f\n"])
def test_a_header_with_the_column_that_is_wanted_is_no_title(tmp_path, row):
    path = tmp_path / "table.csv"
    path.write_text(row)
    texts = [record.fields.get("text") for record in read_file(path)]
    assert texts in (["foo", "bar"], ["a", "d"])


def test_more_lines_may_be_left_out_than_are_looked_at(tmp_path):
    path = tmp_path / "late.csv"
    rows = "".join(f"row {number},a\n" for number in range(100))
    path.write_text("x\n" * 1000 + "text,label\n" + rows)
    records = list(read_file(path, Inputs(skip_lines=1000)))
    assert [record.fields["text"] for record in records] == [f"row {row}" for row in range(100)]


@pytest.mark.parametrize(
    ("content", "given"),
    [
        ("text\rx,label\nA nice text,b\nAnother,c\n", {}),
        ("\n\n\n", {}),
        ("text,label\na,b\n", {"skip_lines": 9}),
    ],
)
def test_a_table_without_a_row_does_not_vanish_silently(tmp_path, content, given):
    path = tmp_path / "table.csv"
    path.write_bytes(content.encode())
    [record] = read_file(path, Inputs(**given))
    assert "no row that can be read" in record.problem


def test_prose_whose_first_line_repeats_a_word_is_text(tmp_path):
    path = tmp_path / "prose.txt"
    path.write_text("The road was long, long, long, says the text.\nIt went on.\nAnd on.\n")
    assert len([record for record in read_file(path) if not record.problem]) == 3


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("PAR1 is a receptor of thrombin.\nIt is.\n", "utf-8"),
        ("ARROW1 is a ship.\nIt sails.\n", "utf-8"),
        ("по дороге шёл человек.\nОн шёл.\n", "koi8-r"),
    ],
)
def test_text_that_begins_like_a_binary_file_is_text(tmp_path, content, encoding):
    path = tmp_path / "text.txt"
    path.write_bytes(content.encode(encoding))
    records = list(read_file(path, Inputs(encoding=encoding)))
    assert [record.fields["text"].strip() for record in records] == content.splitlines()


@pytest.mark.parametrize("every", [1, 10])
def test_a_quoted_cell_of_two_lines_is_one_cell_though_each_half_has_a_separator(tmp_path, every):
    path = tmp_path / "lines.csv"
    texts = [
        f"this, film\nis {row}" if row % every == 0 else f"one line {row}" for row in range(100)
    ]
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([["text", "id"], *zip(texts, range(100), strict=True)])
    assert [record.fields["text"] for record in read_file(path)] == texts
