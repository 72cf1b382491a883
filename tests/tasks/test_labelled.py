"""Tables of labelled texts: every usual form is read as the same rows, and what cannot be used is named."""

import json
import zipfile

import numpy as np
import pandas as pd
import pytest

from dana.core.errors import ConfigError, DataError
from dana.tasks.labelled import read_labelled
from dana.tasks.table_columns import find_columns

FRUIT = [f"The größe of pear number {n}, and of an apple" for n in range(20)]
METAL = [f"Iron; zinc and {n} pieces of lead" for n in range(20)]
ROWS = [
    (text, label)
    for pair in zip(FRUIT, METAL, strict=True)
    for text, label in zip(pair, ("f", "m"), strict=True)
]


def delimited(separator, header=("body", "class"), quote='"'):
    lines = [header, *ROWS] if header else ROWS
    return "".join(separator.join(f"{quote}{cell}{quote}" for cell in row) + "\n" for row in lines)


def rows_of(table, **names):
    frame = read_labelled(table, **names)[0]
    return sorted(zip(frame["text"], frame["label"], strict=True))


def write_folder(path):
    for number, (text, label) in enumerate(ROWS):
        (path / label).mkdir(parents=True, exist_ok=True)
        (path / label / f"{number}.txt").write_text(text, encoding="utf-8")
        (path / label / ".DS_Store").write_text(f"no text of {label}")
    for hidden in (".git/HEAD", ".git/refs/heads", ".ipynb_checkpoints/table.csv"):
        (path / hidden).parent.mkdir(parents=True, exist_ok=True)
        (path / hidden).write_text("no text of any label")


NESTED = [
    {"doc": {"body": row[0], "size": n}, "meta": {"class": row[1], "year": n % 3}}
    for n, row in enumerate(ROWS)
]
FORMS = {
    "comma.csv": lambda path: path.write_text(delimited(","), encoding="utf-8"),
    "semicolon.csv": lambda path: path.write_text(delimited(";"), encoding="latin-1"),
    "mark.csv": lambda path: path.write_text(delimited(";"), encoding="utf-8-sig"),
    "wide.csv": lambda path: path.write_text(delimited("\t"), encoding="utf-16"),
    "big-endian.csv": lambda path: path.write_bytes(f"\ufeff{delimited(',')}".encode("utf-16-be")),
    "plain.tsv": lambda path: path.write_text(
        delimited("\t", header=None, quote=""), encoding="utf-8"
    ),
    "bars": lambda path: path.write_text(f"{delimited('|', quote='')}\n\n", encoding="utf-8"),
    "nested.jsonl": lambda path: path.write_text("\n".join(map(json.dumps, NESTED))),
    "trailing.csv": lambda path: path.write_text(
        "".join(f'"{a}",{b},\n' for a, b in [("text", "label"), *ROWS])
    ),
    "table.parquet": lambda path: pd.DataFrame(ROWS, columns=["text", "y"]).to_parquet(path),
    "folder": write_folder,
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_table_gives_the_same_rows(name, tmp_path):
    FORMS[name](tmp_path / name)
    assert rows_of(tmp_path / name) == sorted(ROWS)
    assert ("no header" in "; ".join(read_labelled(tmp_path / name)[1])) == (name == "plain.tsv")


def test_the_first_column_has_no_mark_in_its_name_and_a_tsv_is_divided_by_tabs(tmp_path):
    (tmp_path / "mark.csv").write_text(
        "body,kind\n" + delimited(",", header=None), encoding="utf-8-sig"
    )
    assert rows_of(tmp_path / "mark.csv", text="body", label="kind") == sorted(ROWS)
    rows = [(f"{text}, and more", label) for text, label in zip(METAL, "fm" * 10, strict=True)]
    (tmp_path / "even.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    assert rows_of(tmp_path / "even.tsv") == sorted(rows)
    (tmp_path / "quotes.tsv").write_text("".join(f'"{text}\t{label}\n' for text, label in ROWS))
    assert rows_of(tmp_path / "quotes.tsv") == sorted(
        (f'"{text}', label) for text, label in ROWS
    ), "open quotes"


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85"])
def test_a_text_of_json_may_hold_any_mark_that_ends_a_line_elsewhere(mark, tmp_path):
    lines = [
        json.dumps({"text": f"A{mark}{text}", "label": label}, ensure_ascii=False)
        for text, label in ROWS
    ]
    (tmp_path / "marks.jsonl").write_text("\r\n".join(lines), encoding="utf-8", newline="")
    assert len(read_labelled(tmp_path / "marks.jsonl")[0]) == 40


def frame_of(*extra, **columns):
    frame = pd.DataFrame([*ROWS, *extra], columns=["text", "label"])
    return frame.assign(**columns)


def notes_of(frame, **names):
    return "\n".join(read_labelled(frame, **names)[1])


def test_what_cannot_be_used_is_left_out_counted_and_named():
    extra = [("", "f"), ("A text", None), (FRUIT[0], "f"), (METAL[1], "f"), ("Alone", "single")]
    frame, notes, count, *_ = read_labelled(frame_of(*extra))
    assert sorted(zip(frame["text"], frame["label"], strict=True)) == sorted(
        {*ROWS} - {(METAL[1], "m")}
    )
    assert (count, len(frame)) == (45, 39)
    reasons = {
        "left out: 1 without a text (row 40)",
        "left out: 1 without a label (row 41); to adapt on such texts: --unlabelled with this file, too",
        "left out: 1 repeated, with the same label (row 42)",
        "left out: 2 of one text under several labels (row 3, row 43)",
        "left out: 1 of a class with a single text (row 44)",
    }
    assert reasons == {*notes[1:]}


def test_a_pair_without_a_second_text_is_left_out_and_pairs_are_repeated_as_pairs():
    pairs = frame_of(other=[f"Answer {n % 20}" for n in range(40)])
    pairs.loc[3, "other"] = " "
    pairs = pd.concat([pairs, pairs.iloc[[5, 6]].assign(other=["Answer 5", "Another"])])
    texts, notes, *_ = read_labelled(pairs, text="text", text_pair="other")
    assert "left out: 1 without a text (row 3)" in notes
    assert "left out: 1 repeated, with the same label (row 40)" in notes
    assert [*texts] == ["id", "text", "text_pair", "label", "fold"]
    assert (texts["text"] == pairs["text"].iloc[6]).sum() == 2


def test_labels_of_any_type_are_names():
    numbers = frame_of()["label"].map({"f": 1.0, "m": 0.0})
    for labels in (
        numbers,
        numbers.astype(int),
        numbers.astype(int).astype("category").where(numbers.index > 0),
    ):
        assert {*read_labelled(frame_of().assign(label=labels))[0]["label"]} == {"0", "1"}


def test_ids_are_those_of_the_table():
    ids = [f"e\u0301-{n}" for n in range(40)]
    assert [*read_labelled(frame_of(Doc_ID=ids))[0]["id"]] == [f"é-{n}" for n in range(40)]


def test_folds_hold_every_text_once_in_the_shares_of_the_labels():
    frame = read_labelled(frame_of())[0]
    assert (pd.crosstab(frame["fold"], frame["label"]) == 4).all(axis=None)
    assert frame.equals(read_labelled(frame_of())[0])
    assert not frame["fold"].is_monotonic_increasing, "tables are often sorted"
    assert read_labelled(frame_of(), folds=4)[0]["fold"].nunique() == 4


def test_texts_with_the_same_words_or_group_stay_in_one_fold_also_over_others():
    chain = [(f"<<{FRUIT[0]}>>!", "f"), ("A fig", "f"), ("[[A fig]]", "f"), ("Gold", "m")]
    frame = frame_of(
        *chain, author=[f"a{n % 13}" for n in range(40)] + ["b", "b", "c", "d"], id="same"
    )
    table = read_labelled(frame, group="author")[0].merge(frame.drop(columns="id"), on="text")
    sets = table.replace({"author": {"b": "a0", "c": "a0"}}).groupby("author")["fold"].nunique()
    assert (sets == 1).all()
    assert (table["fold"].nunique(), table["id"].nunique()) == (5, 44)


def test_texts_without_a_group_are_no_group():
    for missing in ("", None, float("nan")):
        authors = ["one", "one", "two", "two"] + [missing] * 36
        fold = read_labelled(frame_of(author=authors), group="author")[0]["fold"]
        assert fold.value_counts().max() <= 9
        assert (fold[0], fold[2]) == (fold[1], fold[3])


def test_rows_of_files_of_one_name_are_told_apart(tmp_path):
    rows = [("text", "label"), *ROWS]
    for folder, part in (("x", rows[:21]), ("y", [rows[0], *rows[21:]])):
        (tmp_path / folder).mkdir()
        pd.DataFrame(part[1:], columns=part[0]).to_csv(tmp_path / folder / "t.csv", index=False)
    frame = read_labelled(str(tmp_path)).texts
    assert frame["id"].iloc[[0, 20]].tolist() == ["x/t.csv:2", "y/t.csv:2"]
    assert frame["id"].is_unique


@pytest.mark.parametrize("words", [("TRUE", "FALSE"), ("true", "false"), (True, False), ("1", "0")])
def test_columns_of_true_and_false_are_labels_however_they_are_written(words):
    yes, no = words
    rows = [(text, yes if n % 2 else no, yes if n % 3 else no) for n, text in enumerate(FRUIT)]
    table = pd.DataFrame(rows, columns=["text", "toxic", "obscene"])
    frame = read_labelled(table, label=["toxic", "obscene"]).texts
    assert frame["label"].iloc[:4].tolist() == [[], ["obscene", "toxic"], ["obscene"], ["toxic"]]


def test_one_fixed_split_tests_a_fifth_and_a_file_of_tests_is_the_only_test():
    fold = read_labelled(frame_of(), folds=1)[0]["fold"]
    assert [(fold == 0).sum(), (fold == -1).sum()] == [8, 32]
    tests = pd.DataFrame({"text": ["A new pear", FRUIT[3], "Gold"], "label": ["f", "f", "other"]})
    table, notes, *_ = read_labelled(frame_of(), test=tests)
    assert [*table["text"][table["fold"] == 0]] == ["A new pear", FRUIT[3]]
    assert (len(table), FRUIT[3] in [*table["text"][table["fold"] == -1]]) == (41, False)
    assert "a class that none trains (test row 2): other" in "\n".join(notes)


def test_a_large_table_has_one_split_and_a_class_with_fewer_texts_than_folds_is_named(monkeypatch):
    extra = [(f"Silk {n}", "cloth") for n in range(3)]
    assert "fewer texts than the 5 folds, so that some do not test them: cloth (3)" in notes_of(
        frame_of(*extra)
    )
    monkeypatch.setattr("dana.tasks.labelled_rows.MOST_IN_FOLDS", 39)
    assert {*read_labelled(frame_of())[0]["fold"]} == {0, -1}


@pytest.mark.parametrize(
    ("column", "names", "words"),
    [
        ([f"{'ab'[n % 2]}-{n}" for n in range(40)], {}, "'a-' is f (row 0, row 2 and 18 more)"),
        ([f"g{n % 6}" for n in range(40)], {"group": "extra"}, "'g1' is m"),
        (
            [f"20{10 + n % 2}-03-{n % 28 + 1:02}" for n in range(40)],
            {},
            "'2010-03' is f (row 0, row 2 and 18 more)",
        ),
    ],
)
def test_ids_groups_and_dates_that_give_the_label_away_are_said(column, names, words):
    assert words in notes_of(frame_of(extra=column), **names)
    assert "gives" not in notes_of(
        frame_of(extra=[f"{'ab'[n % 2] if n < 4 else chr(99 + n)}-{n}" for n in range(40)])
    )
    mixed = [column[row] for row in np.random.default_rng(0).permutation(40)]
    assert "gives the label away" not in notes_of(frame_of(extra=mixed), **names)


def test_columns_are_found_by_looking(monkeypatch):
    monkeypatch.setattr("dana.tasks.table_columns.MOST_NUMBERS", 8)
    days, sizes = [f"2024-01-{n % 20 + 1:02}" for n in range(40)], [n % 9 / 7 for n in range(40)]
    columns = {
        "title": "short",
        "when": days,
        "size": sizes,
        "body": [*FRUIT, *METAL],
        "kind": [*"fm"] * 20,
    }
    frame = pd.DataFrame(columns)
    assert find_columns(frame, {}) == {"text": "body", "label": "kind"}
    assert (
        find_columns(frame.rename(columns={"title": "text"}), {"label": "kind"})["text"] == "text"
    )


@pytest.mark.parametrize("name", ["doc_id", "Abstract", "meta.author", "userID", "group"])
def test_a_column_whose_name_says_so_is_the_group(name):
    frame = frame_of().assign(**{name: [f"d{n // 4}" for n in range(40)]})
    texts, notes, _, columns, *_ = read_labelled(frame)
    assert columns["group"] == name
    assert texts.groupby("group")["fold"].nunique().max() == 1
    said = f"texts with the same {name} stay in one fold (10 values in 40 rows)"
    assert [note for note in notes if said in note]
    without = read_labelled(frame, group="none")
    tested_by_table = read_labelled(frame.iloc[12:], test=frame.iloc[:12])
    for left in (without, tested_by_table):
        assert "group" not in left.columns
        assert "stay in one fold" not in " ".join(left.notes)


@pytest.mark.parametrize(
    "values",
    [
        [f"d{n}" for n in range(40)],  # none repeats
        [f"d{n % 3}" for n in range(40)],  # fewer than folds
        [f"d{max(0, n - 25)}" for n in range(40)],  # one of them is most of the table
    ],
)
def test_a_column_that_cannot_divide_the_table_is_no_group(values):
    assert "group" not in read_labelled(frame_of().assign(doc_id=values)).columns


def test_a_group_for_five_folds_serves_a_fixed_split_too():
    frame = frame_of().assign(author=[f"a{n % 3}" for n in range(40)])
    for folds in (1, None):
        labelled = read_labelled(frame, folds=folds)
        assert "group" not in labelled.columns, "three authors cannot be divided into fifths"
    assert sorted(read_labelled(frame, folds=1).texts["fold"].unique()) == [-1, 0]


@pytest.mark.parametrize(
    ("values", "is_proposed"),
    [
        ([f"d{n // 4}" for n in range(40)], True),
        ([n // 4 for n in range(40)], True),  # numbers of parts that follow each other
        ([n % 10 for n in range(40)], False),  # a measure
        ([f"2024-01-{n // 4 + 1:02}" for n in range(40)], False),
        ([f"d{n // 8}" for n in range(40)], False),  # rather a category
    ],
)
def test_another_column_that_repeats_is_proposed_and_not_taken(values, is_proposed):
    labelled = read_labelled(frame_of().assign(origin=values), label="label")
    assert "group" not in labelled.columns
    assert ("give --group origin" in " ".join(labelled.notes)) == is_proposed


def test_text_and_label_are_no_group():
    frame = frame_of().rename(columns={"text": "document", "label": "author"})
    assert "group" not in read_labelled(frame, text="document", label="author").columns


REFUSALS = [
    (frame_of(premise="p", hypothesis="h").drop(columns="text"), {}, "a pair of texts"),
    (frame_of(labels=[[0, 1]] * 40), {"label": "labels"}, "--labels name1 name2"),
    (
        frame_of(tags=[("a;b", "c", "d;e")[n % 3] for n in range(40)]),
        {"label": "tags"},
        "one: --kind single_label; several: --kind multi_label",
    ),
    (
        frame_of(score=[*range(40)]),
        {"label": "score"},
        "classes: --kind single_label; values to predict: --kind regression",
    ),
    (frame_of(), {"label": "text"}, "40 values in 40 rows"),
    (
        frame_of(a=[*"fm"] * 20, b=[n % 3 for n in range(40)]).drop(columns="label"),
        {},
        "a, b could hold",
    ),
    (frame_of()[["text"]], {}, "no column of text repeats"),
    (frame_of(n=1)[["label", "n"]].assign(label=1), {}, "no column holds text"),
    (frame_of(id="a").assign(text=[["a", "word"]] * 40), {}, "no column holds text"),
    (frame_of(), {"text": "txt"}, "did you mean 'text'?"),
    (frame_of(), {"group": "author"}, "the columns are text, label"),
]


@pytest.mark.parametrize(("frame", "names", "words"), REFUSALS)
def test_columns_that_are_not_one_text_and_one_class_are_refused(frame, names, words):
    with pytest.raises(ConfigError) as error:
        read_labelled(frame, **names)
    assert words in str(error.value)


FILES = [
    ("empty.csv", b"", "empty.csv:1: the file is empty"),
    ("one.csv", b"text\nA pear\n", "no comma, tab, semicolon, bar divides its lines"),
    (
        "uneven.csv",
        b"text,label\nA pear,f\nAn apple, and a plum,f\nIron,m\n",
        "uneven.csv:3: expected 2 columns as in the header, got 3; quote texts that hold a comma",
    ),
    ("nul.csv", "text,label\nA,b\n".encode("utf-16-le"), "nul.csv:1: not UTF-8 but UTF-16"),
    (
        "bad.csv",
        b"text,label\n" + b"a,b,c\n" * 6 + b"a\n",
        "bad.csv:2: expected 2 columns as in the header, got 3; quote texts that hold a comma (also ",
    ),
    ("bad.csv", b"text,label\n" + b"a,b,c\n" * 6 + b"a\n", "; and 2 more; 7 bad records"),
    ("bad.jsonl", b'{"text": "a", "label": 1}\n{"text"\n', "bad.jsonl:2: not JSON"),
    ("bad.parquet", b"PAR1", "bad.parquet:1: not a Parquet file, or damaged"),
    ("twice.csv", b"text,text\na,b\nc,d\n", "the header names the column 'text' twice"),
    ("short.csv", b"text,label\nA pear,f\n", "1 rows"),
    (
        "class.csv",
        b"text,label\n" + b"".join(b"pear %d,f\n" % n for n in range(9)),
        "9 texts, not of two classes",
    ),
]


@pytest.mark.parametrize(("name", "content", "words"), FILES)
def test_tables_that_cannot_be_read_are_refused_by_file_and_row(name, content, words, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((DataError, ConfigError)) as error:
        read_labelled(tmp_path / name)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("suffix", "package"), [("xls", "xlrd"), ("ods", "odfpy")])
def test_of_a_spreadsheet_that_needs_a_package_its_name_is_said(suffix, package, tmp_path):
    pytest.importorskip("openpyxl")
    frame_of().to_excel(tmp_path / "table.xlsx")
    path = (tmp_path / "table.xlsx").rename(tmp_path / f"table.{suffix}")
    if suffix == "xls":
        path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("content.xml", "<a/>")
    with pytest.raises(DataError, match=f"table.{suffix}: .*pip install {package}$"):
        read_labelled(path)


def test_of_a_workbook_the_first_sheet_with_cells_is_read_and_cells_are_text(tmp_path, caplog):
    caplog.set_level("INFO", "dana")
    numbers = frame_of().assign(label=[1.0, 2.5] * 20, day=pd.Timestamp("2024-01-02"))
    with pd.ExcelWriter(tmp_path / "table.xlsx") as writer:
        pd.DataFrame().to_excel(writer, sheet_name="notes", header=False, index=False)
        numbers.to_excel(writer, sheet_name="texts", index=False)
        frame_of().to_excel(writer, sheet_name="old", index=False)
    table = read_labelled(tmp_path / "table.xlsx").texts
    assert {*zip(table["text"], table["label"], strict=True)} == {
        (text, "1" if label == "f" else "2.5") for text, label in ROWS
    }
    assert "sheet 'texts', not 'notes', 'old'" in caplog.text


def test_tests_of_which_none_can_be_used_are_refused():
    tests = frame_of().assign(text=lambda frame: "New: " + frame["text"])
    for labels, words in (
        (["1.0", "2.0"] * 20, "40 to test, of a class that none trains"),
        (["f"] + [""] * 39, "39 "),
    ):
        with pytest.raises(DataError, match=f"with two texts to test on, are left.*{words}"):
            read_labelled(frame_of(), test=tests.assign(label=labels))


def test_folds_that_do_not_fit_are_refused():
    tests, authors = {"folds": 2, "test": frame_of()}, {"group": "author"}
    least, most = ({"folds": 0}, "at least 1"), ({"folds": 30}, "class: 20")
    for settings, words in (least, most, (tests, "--test"), (authors, "1 set")):
        with pytest.raises(ConfigError, match=words):
            read_labelled(frame_of(author="one"), **settings)
