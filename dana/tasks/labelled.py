"""Read a table of labelled texts in any usual format, and divide it into stratified folds.

A table is what :mod:`dana.corpus.readers` reads, or a folder with a folder of text files per label.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dana.core.errors import ConfigError, DataError
from dana.corpus.inputs import Inputs
from dana.tasks.kinds.multi_label import MultiLabel
from dana.tasks.kinds.single_label import SingleLabel
from dana.tasks.kinds.token_labels import TokenLabels
from dana.tasks.kinds.values import bit_of, is_blank, parts_of
from dana.tasks.labelled_rows import FOLDS, clean, count_labels, fold_numbers, make_rows
from dana.tasks.labels import ONE, Question, Shape, shape_of
from dana.tasks.split_folders import SPLITS, find_places
from dana.tasks.table_columns import (
    NO_GROUP,
    find_columns,
    find_give_aways,
    find_group,
    id_column,
    no_text,
)
from dana.tasks.table_files import files_of_classes, holds_classes, read_files, text_of

FIRST_WORD = re.compile("[a-z]+")  # of the name of a file, such as train-00000-of-00001.parquet
INIT = Question("--kind {kind}", "--labels {words}")  # in the words of dana init
Table = str | Path | pd.DataFrame


class LabelledTexts(NamedTuple):
    """What :func:`read_labelled` reads of a table.

    Attributes:
        texts: One row per text: ``id``, ``text``, ``label`` (a name; a list of names; a number) and
            ``fold``, the number of the fold that tests it, -1 for none; and ``text_pair`` and
            ``group``, if there are such.
        notes: What was recognised, what was left out and what looks odd, a sentence each.
        rows: Number of rows read.
        columns: Column by role: of the text, of the label (a list, if several columns are labels)
            and, if there are such, of the second text and the group.
        form: What else a reader of a table like it needs to know: ``separator`` and ``header`` of
            delimited text, ``id`` where there is a column of ids, ``text_documents`` where a file
            is a text.
        kind: Name of the kind of label.
        labels: Names of the labels, sorted; none of numbers.
    """

    texts: pd.DataFrame
    notes: list[str]
    rows: int
    columns: dict[str, Any]
    form: dict[str, Any]
    kind: str
    labels: list[str]

    @property
    def texts_by_label(self) -> dict[str, int]:
        """Number of texts of each label, the most frequent first."""
        return count_labels(self.texts["label"])


def read_labelled(
    table: Table,
    test: Table | None = None,
    folds: int | None = None,
    inputs: Inputs | None = None,
    kind: str | None = None,
    labels: Sequence[str] | None = None,
    question: Question = INIT,
    **names: str | Sequence[str] | None,
) -> LabelledTexts:
    """Read, clean and divide a table of labelled texts.

    Args:
        table: A file, a folder with a folder per label (in folders of splits, or not), or a pandas
            table.
        test: A table of the same columns with the only texts to test on; None takes the folder
            ``test`` of a folder of splits, if there is one.
        folds: Number of folds; 1 is a fixed split with a fifth to test on. None makes 5, or 1 above
            5,000 rows.
        inputs: How files are read.
        kind: Kind of the labels; None decides it by the labels, see
            :func:`dana.tasks.labels.shape_of`.
        labels: Names of the places of vectors of 0 and 1.
        question: Words in which an error asks the user for what the labels do not tell.
        names: Names of columns by role, as far as the user gives them: ``text``, ``text_pair``,
            ``label`` (several: each is a label, and has 0 and 1) and ``group``. Columns of text and
            label are found without a name (:func:`dana.tasks.table_columns.find_columns`), and a group,
            too (:func:`dana.tasks.table_columns.find_group`), unless texts to test on are given;
            ``none`` takes no group. Texts of a group (for example an author) stay in one fold, and so
            do texts with the same words; a text whose group is missing is alone.

    Raises:
        ConfigError: If a column is missing or not recognised, labels do not tell their kind, or
            `folds` does not fit.
        DataError: If a table cannot be read, or too little is left; names the rows.
    """
    notes: list[str] = []
    form: dict[str, Any] = {}
    table_inputs = _inputs_with_names(inputs, names)
    frame, test_frame = _read_tables(table, test, folds, table_inputs, notes, form)
    group_notes: list[str] = []  # which come after the notes on text and label
    columns = _columns_by_role(frame, names, kind, folds, test_frame is not None, group_notes)
    identifier = id_column(frame)
    if identifier is not None:
        form["id"] = identifier
    shape, rows = _read_rows(frame, columns, kind, labels, question, notes)
    notes += group_notes
    if shape.kind in (SingleLabel.name, MultiLabel.name):
        notes += find_give_aways(frame, columns, [str(label) for label in rows["label"]])
    if test_frame is not None:
        tests = _read_tests(test_frame, columns, kind, shape)
        rows = pd.concat([tests, rows])  # in this order: of equal rows `clean` keeps the first
    count = len(rows)
    rows = clean(rows, shape.kind, notes)
    if shape.kind == MultiLabel.name and rows["label"].map(len).eq(1).all():
        way = question.command.format(kind=SingleLabel.name)
        notes.append(f"every text has exactly one of the labels; {way} learns one label a text")
    # Two tables may both count their ids from 0. If one id repeats, all are made anew.
    if rows["id"].duplicated().any():
        rows["id"] = [str(number) for number in range(len(rows))]
    if test_frame is not None:
        rows["fold"] = np.where(rows["test"], 0, -1)
    else:
        rows["fold"] = fold_numbers(rows, shape.kind, folds, notes)
    texts = _as_texts(rows, columns)
    names_of_labels = sorted(count_labels(rows["label"]))
    return LabelledTexts(texts, notes, count, columns, form, shape.kind, names_of_labels)


def _inputs_with_names(inputs: Inputs | None, names: Mapping[str, Any]) -> Inputs:
    """Return how files are read, with the named columns of text and label as ``text_field``.

    The reader takes a first line for the header if it has one of these names.
    """
    wanted: list[str] = []
    for role in ("text", "text_pair", "label"):
        name = names.get(role)
        if isinstance(name, str):
            wanted.append(name)
        elif name is not None:
            wanted += name
    return replace(inputs or Inputs(), text_field=[*wanted, "text"])


def _read_tables(
    table: Table,
    test: Table | None,
    folds: int | None,
    inputs: Inputs,
    notes: list[str],
    form: dict[str, Any],
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Read the table and that of the texts to test on, if there are such."""
    if folds is not None and (folds < 1 or test is not None):
        raise ConfigError(f"--folds {folds}: must be at least 1, and left out with --test")
    frame, splits = _read_table(table, notes, form, inputs)
    test_frame = None
    if test is not None:
        # The second table has the columns of the first, which tell its header, too.
        columns = list(dict.fromkeys([*inputs.text_field, *frame.columns]))
        test_inputs = replace(inputs, text_field=columns)
        test_frame, _ = _read_table(test, notes, {}, test_inputs)
        test_frame.index = "test " + test_frame.index
    if splits is not None:
        return _divide(table, frame, splits, test_frame, folds, notes)
    return frame, test_frame


def _divide(
    table: Table,
    frame: pd.DataFrame,
    splits: Sequence[str],
    test: pd.DataFrame | None,
    folds: int | None,
    notes: list[str],
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Divide the texts of a folder of splits.

    Returns:
        The texts to train on; and those to test on, which are `test` if no folder has such.

    Raises:
        ConfigError: If `test` or `folds` are given for a folder that has texts to test on.
        DataError: If all texts are to test on.
    """
    is_test = np.array(splits) == "test"
    if test is not None and is_test.any():
        raise ConfigError(
            f"--test: {table} has texts to test on, too; leave --test out, or give {table}/train"
        )
    if folds is not None and is_test.any():
        raise ConfigError(
            f"--folds {folds}: {table} has texts to test on, and is not divided into folds; give "
            f"--folds with {table}/train, or leave it out"
        )
    counts = Counter(splits)
    found = ", ".join(f"{split or 'none'} ({count:,})" for split, count in counts.items())
    dev = "; the texts of dev are trained on, too" if "dev" in counts else ""
    notes.append(f"folders are splits: {found}{dev}")
    if not is_test.any():
        return frame, test
    if is_test.all():
        raise DataError(f"{table}: all texts are to test on; none is in a folder train")
    return frame[~is_test], frame[is_test]


def _read_table(
    table: Table, notes: list[str], form: dict[str, Any], inputs: Inputs
) -> tuple[pd.DataFrame, list[str] | None]:
    """Read a table whose index names each row.

    Args:
        table: The table, or where it is.
        notes: Gets remarks.
        form: Gets what a reader of a table like it needs to know.
        inputs: How files are read.

    Returns:
        The table; and the split of each row, of a folder of splits, else None.
    """
    splits = None
    where = "the table" if isinstance(table, pd.DataFrame) else str(table)
    if isinstance(table, pd.DataFrame):
        frame = table.reset_index(drop=True)
    elif holds_classes(Path(table)):
        frame, splits = _read_folder(Path(table), notes)
        form["text_documents"] = "file"
    else:
        _refuse_files_of_splits(Path(table))
        frame = read_files(str(table), notes, form, inputs)
    frame.columns = frame.columns.map(str)
    repeated = [*frame.columns[frame.columns.duplicated()]]
    if repeated:
        raise DataError(f"{where}: two columns are named {repeated[0]!r}; rename one")
    if len(frame) < 2:
        raise DataError(
            f"{where}: {len(frame)} rows; at least 2 texts of each of 2 classes are needed"
        )
    names = [_row_name(label) for label in frame.index]
    return frame.set_index(pd.Index(names)), splits


def _row_name(label: Any) -> str:
    """Return how messages name a row: by its file and line, or its number."""
    return label if isinstance(label, str) else f"row {label}"


def _refuse_files_of_splits(folder: Path) -> None:
    """Refuse a folder with a part to train on and one to test on, which would be one table.

    The parts are files or folders, such as those of a ``DatasetDict`` that was saved.

    Raises:
        DataError: If so; says what to give instead.
    """
    if not folder.is_dir():
        return
    parts: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        match = FIRST_WORD.match(path.name.lower())
        first_word = match.group() if match else ""
        if first_word in SPLITS:
            split = SPLITS[first_word]
            parts.setdefault(split, []).append(path)
    if "train" not in parts or "test" not in parts:
        return
    if len(parts["train"]) == len(parts["test"]) == 1:
        remedy = f"give them: {parts['train'][0]} --test {parts['test'][0]}"
    else:
        remedy = "move the files of each to a folder of its own, and give these: TRAIN --test TEST"
    raise DataError(f"{folder}: it holds texts to train on and texts to test on; {remedy}")


def _read_folder(folder: Path, notes: list[str]) -> tuple[pd.DataFrame, list[str] | None]:
    """Read a folder with a folder of text files per label.

    Returns:
        The texts; and the split of each, which may be empty, or None if no folder is a split.

    Raises:
        DataError: If a name may be that of a split or a label.
    """
    files = files_of_classes(folder)
    names = [path.relative_to(folder) for path in files]
    places = find_places(str(folder), names)
    unlabelled = [name for name, place in zip(names, places, strict=True) if place.label is None]
    if unlabelled:
        where = folder / unlabelled[0].parent
        notes.append(
            f"left out: {len(unlabelled):,} unlabelled; to adapt on them: --unlabelled {where}"
        )
    rows = []
    index = []
    splits = []
    for path, name, place in zip(files, names, places, strict=True):
        if place.label is None:
            continue
        rows.append((place.label, text_of(path)))
        index.append(str(name))
        splits.append(place.split)
    frame = pd.DataFrame(rows, columns=["label", "text"], index=pd.Index(index, dtype=object))
    if not any(splits):
        return frame, None
    return frame, splits


def _columns_by_role(
    frame: pd.DataFrame,
    names: dict[str, Any],
    kind: str | None,
    folds: int | None,
    has_tests: bool,
    notes: list[str],
) -> dict[str, Any]:
    """Find the column, or columns, of each role; a sentence on the group goes to `notes`."""
    wants_no_group = names.get("group") == NO_GROUP and NO_GROUP not in frame
    if wants_no_group:
        names = {**names, "group": None}
    columns = find_columns(frame, names, kind)
    if not has_tests and not wants_no_group and "group" not in columns:
        # A fixed split holds out a fifth of the texts, so groups have to fit into as many parts as for
        # the usual number of folds.
        parts = FOLDS
        if folds is not None and folds > 1:
            parts = folds
        group = find_group(frame, columns, parts, notes)
        if group is not None:
            columns["group"] = group
    return columns


def _read_rows(
    frame: pd.DataFrame,
    columns: Mapping[str, Any],
    kind: str | None,
    labels: Sequence[str] | None,
    question: Question,
    notes: list[str],
) -> tuple[Shape, pd.DataFrame]:
    """Decide what the labels are, and read the rows by that."""
    label_flags = _flag(columns["label"])  # how messages name the columns of the labels
    if not isinstance(columns["label"], str):
        if labels is not None:
            raise ConfigError("--labels: leave it out where columns are labels: they have names")
        labels = columns["label"]
    frame, column_of_role = _join_labels(frame, columns)
    values = frame[column_of_role["label"]].tolist()
    word_counts = _count_words(frame[column_of_role["text"]])
    shape = shape_of(values, label_flags, kind, word_counts, labels, question)
    _check_text(frame, column_of_role, shape)
    rows = make_rows(frame, column_of_role, shape).assign(test=False)
    if shape.form == ONE:
        _check_repeats(rows["label"], label_flags)
    notes.append(_describe_columns(columns))
    if shape.form != ONE:
        notes.append(shape.describe())
    return shape, rows


def _read_tests(
    frame: pd.DataFrame, columns: Mapping[str, Any], kind: str | None, shape: Shape
) -> pd.DataFrame:
    """Read the rows of a second table, whose texts are tested.

    Args:
        frame: The second table.
        columns: Columns of the first table by role.
        kind: Kind of the labels as the user gives it.
        shape: What the labels of the first table are.
    """
    test_columns = find_columns(frame, columns, kind)
    joined, column_of_role = _join_labels(frame, test_columns)
    return make_rows(joined, column_of_role, shape).assign(test=True)


def _flag(label: str | Sequence[str]) -> str:
    """Write the label's column or columns as they are named on the command line."""
    names = [label] if isinstance(label, str) else label
    return " ".join(f"--label {name}" for name in names)


def _join_labels(
    frame: pd.DataFrame, columns: Mapping[str, Any]
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Make one column of vectors of several columns of 0 and 1.

    Returns:
        The table with this column, and its columns by role.

    Raises:
        DataError: If a cell is neither 0 nor 1; names it.
    """
    label = columns["label"]
    if isinstance(label, str):
        return frame, dict(columns)
    for name in label:
        for row, value in zip(frame.index, frame[name], strict=True):
            if not is_blank(value) and bit_of(value) is None:
                raise DataError(
                    f"{row}: {name} is {value!r}; of several columns of labels each is 0 or 1"
                )
    columns_of_labels = [frame[name] for name in label]
    vectors = [_as_vector(cells) for cells in zip(*columns_of_labels, strict=True)]
    joined_name = " ".join(label)
    joined = frame.drop(columns=[*label])
    joined[joined_name] = pd.Series(vectors, frame.index, dtype=object)
    return joined, {**columns, "label": joined_name}


def _as_vector(cells: Sequence[Any]) -> list[int | None] | None:
    """Return cells of 0 and 1 as numbers; None if one is missing."""
    if any(is_blank(cell) for cell in cells):
        return None
    return [bit_of(cell) for cell in cells]


def _count_words(texts: pd.Series) -> list[int | None]:
    """Count the words of each text, which may be a list of words; None of a cell that is no text."""
    counts: list[int | None] = []
    for text in texts:
        if is_blank(text):
            counts.append(None)
            continue
        words = parts_of(text)
        if words is None and isinstance(text, str):
            words = text.split()
        counts.append(None if words is None else len(words))
    return counts


def _check_text(frame: pd.DataFrame, columns: Mapping[str, Any], shape: Shape) -> None:
    """Refuse texts that do not fit the kind of their labels.

    Raises:
        ConfigError: If texts have labels, and no cell of their column is text; or if words have
            labels, and there is a second text.
        DataError: If texts are lists of words, and one has not as many labels; names the row.
    """
    if shape.kind == TokenLabels.name:
        if "text_pair" in columns:
            raise ConfigError("--text-pair: leave it out where words have labels")
        return
    is_text = frame[columns["text"]].map(lambda cell: isinstance(cell, str))
    if is_text.any():
        return
    # Words with labels are not recognised as such if a text has not as many words as labels.
    word_counts = _count_words(frame[columns["text"]])
    labels = frame[columns["label"]]
    for row, count, label in zip(frame.index, word_counts, labels, strict=True):
        tags = None if is_blank(label) else parts_of(label)
        if count is not None and tags is not None and len(tags) != count:
            raise DataError(
                f"{row}: {count} words, but {len(tags)} labels; a label for each word, or the "
                "text as a string"
            )
    raise no_text(frame)


def _check_repeats(labels: pd.Series, where: str) -> None:
    """Refuse a column whose values hardly repeat: a text or an id, but no label.

    Raises:
        ConfigError: If it has more values than half its rows, and more than two.
    """
    count = labels.nunique()
    if count > max(len(labels) // 2, 2):
        raise ConfigError(
            f"{where}: {count} values in {len(labels)} rows; "
            "give the column of a label that repeats"
        )


def _describe_columns(columns: Mapping[str, Any]) -> str:
    """Say from which columns text and label are read."""
    label = columns["label"]
    if isinstance(label, str):
        words = f"label from column {label!r}"
    else:
        words = f"labels from the columns of 0 and 1 {', '.join(label)}; --label NAME takes one"
    pair = f" and {columns['text_pair']!r}" if "text_pair" in columns else ""
    return f"text from column {columns['text']!r}{pair}, {words}"


def _as_texts(rows: pd.DataFrame, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows with the columns that a card reads."""
    kept = ["id", "text"]
    if "text_pair" in columns:
        kept.append("text_pair")
    kept += ["label", "fold"]
    if "group" in columns:
        kept.append("group")
    texts = rows[kept].reset_index(drop=True)
    for name in ("text", "label"):
        texts[name] = [_as_value(cell) for cell in texts[name]]
    return texts


def _as_value(cell: Any) -> Any:
    """Return a tuple as a list, which Parquet can hold; other values as they are."""
    return [*cell] if isinstance(cell, tuple) else cell
