"""Read a table of labelled texts in any usual format, find its columns, clean it and divide it into stratified folds.

A table is what :mod:`dana.corpus.readers` reads, or a folder with a folder of text files per label.
"""

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dana.core.errors import ConfigError, DataError, nearest
from dana.corpus.inputs import Inputs
from dana.corpus.text import normalise, wording
from dana.tasks.kinds.base import label_name
from dana.tasks.table_files import files_of_classes, holds_classes, read_files, text_of

FOLDS = 5
MOST_IN_FOLDS = 5000  # rows; a larger table has one fixed split
LABELS = (
    "label",
    "labels",
    "class",
    "category",
    "target",
    "sentiment",
    "topic",
    "intent",
)  # usual names
GROUPS = {
    *("group", "document", "doc", "article", "abstract", "paper", "report", "page", "book"),
    *("user", "username", "author", "writer", "speaker", "person", "patient", "customer"),
    *("thread", "conversation", "dialogue", "dialog", "session", "case", "pmid"),
}  # usual names of a column whose equal values belong together, also with "id" behind them
NO_GROUP = "none"  # as --group: take no column
FEWEST_GROUPS = 10  # values of a column that is proposed
PAIRS = [
    {"premise", "hypothesis"},
    {"question", "answer"},
    {"sentence1", "sentence2"},
    {"text1", "text2"},
]
PAIRS += [{"question1", "question2"}, {"text_a", "text_b"}, {"sentence_a", "sentence_b"}]
MOST_NUMBERS = 20  # distinct numbers of a label; more are values to predict by regression
CARD = "write a task card (docs/reference/task-cards.md)"

Table = str | Path | pd.DataFrame


class LabelledTexts(NamedTuple):
    """What :func:`read_labelled` reads of a table.

    Attributes:
        texts: One row per text: ``id``, ``text``, ``label`` and ``fold``, the number of the fold
            that tests it, -1 for none; and ``group``, if there is one.
        notes: What was recognised, what was left out and what looks odd, a sentence each.
        rows: Number of rows read.
        columns: Column of the text, of the label and, if there is one, of the group.
        form: What else a reader of a table like it needs to know: ``separator`` and ``header`` of
            delimited text, ``id`` where there is a column of ids, ``text_documents`` where a file
            is a text.
    """

    texts: pd.DataFrame
    notes: list[str]
    rows: int
    columns: dict[str, str]
    form: dict[str, Any]


def read_labelled(
    table: Table,
    test: Table | None = None,
    folds: int | None = None,
    inputs: Inputs | None = None,
    **names: str | None,
) -> LabelledTexts:
    """Read, clean and divide a table of labelled texts, one label each.

    Args:
        table: A file, a folder with a folder per label, or a pandas table.
        test: A table of the same columns with the only texts to test on.
        folds: Number of folds; 1 is a fixed split with a fifth to test on. None makes 5, or 1 above
            5,000 rows.
        inputs: How files are read.
        names: The columns ``text``, ``label`` and ``group`` as far as they are named; see
            :func:`find_columns`. Texts of a group (for example an author) stay in one fold, and so
            do texts with the same words; a text whose group is missing is alone. Without a name
            the group is found (:func:`find_group`), unless the texts to test on are given;
            ``none`` takes no group.

    Raises:
        ConfigError: If a column is missing or not recognised, or `folds` does not fit.
        DataError: If a table cannot be read, or too little is left; names the rows.
    """
    if folds is not None and (folds < 1 or test is not None):
        raise ConfigError(f"--folds {folds}: must be at least 1, and left out with --test")
    notes: list[str] = []
    form: dict[str, Any] = {}
    wanted = [name for name in (names.get("text"), names.get("label")) if name is not None]
    inputs = replace(inputs or Inputs(), text_field=[*wanted, "text"])
    frame = _read_table(table, notes, form, inputs)
    takes_none = names.get("group") == NO_GROUP and NO_GROUP not in frame
    if takes_none:
        names["group"] = None
    columns = find_columns(frame, names)
    group_notes: list[str] = []
    if test is None and not takes_none and "group" not in columns:
        group = find_group(frame, columns, folds or FOLDS, group_notes)
        if group is not None:
            columns["group"] = group
    rows = _rows(frame, columns).assign(test=False)
    if test is not None:
        part = _read_table(test, notes, {}, replace(inputs, text_field=[*columns.values()]))
        part.index = "test " + part.index
        tests = _rows(part, find_columns(part, columns)).assign(test=True)
        rows = pd.concat([tests, rows])  # of equal rows the first stays
    notes += [
        f"text from column {columns['text']!r}, label from {columns['label']!r}",
        *group_notes,
        *_give_aways(frame, columns),
    ]
    count = len(rows)
    rows = _clean(rows, notes)
    if rows["id"].duplicated().any():
        rows["id"] = [str(number) for number in range(len(rows))]
    rows["fold"] = (
        np.where(rows["test"], 0, -1) if test is not None else _fold_numbers(rows, folds, notes)
    )
    kept = ["id", "text", "label", "fold"]
    if "group" in columns:
        kept.append("group")
    texts = rows[kept].reset_index(drop=True)
    identifier = _id_column(frame)
    if identifier is not None:
        form["id"] = identifier
    return LabelledTexts(texts, notes, count, columns, form)


def _read_table(
    table: Table, notes: list[str], form: dict[str, Any], inputs: Inputs
) -> pd.DataFrame:
    """Read a table whose index names each row; remarks go to `notes`, what a reader of a like table needs to `form`."""
    if isinstance(table, pd.DataFrame):
        frame = table.reset_index(drop=True)
        table = "the table"
    elif holds_classes(Path(table)):
        frame = _read_folder(Path(table))
        form["text_documents"] = "file"
    else:
        frame = read_files(str(table), notes, form, inputs)
    frame.columns = frame.columns.map(str)
    if twice := [*frame.columns[frame.columns.duplicated()]]:
        raise DataError(f"{table}: two columns are named {twice[0]!r}; rename one")
    if len(frame) < 2:
        raise DataError(
            f"{table}: {len(frame)} rows; at least 2 texts of each of 2 classes are needed"
        )
    return frame.set_index(
        pd.Index([label if isinstance(label, str) else f"row {label}" for label in frame.index])
    )


def _read_folder(folder: Path) -> pd.DataFrame:
    """Read a folder with a folder of text files per label."""
    rows = []
    names = []
    for path in files_of_classes(folder):
        name = path.relative_to(folder)
        names.append(str(name))
        rows.append((name.parts[0], text_of(path)))
    return pd.DataFrame(rows, columns=["label", "text"], index=pd.Index(names))


def find_columns(frame: pd.DataFrame, names: Mapping[str, str | None]) -> dict[str, str]:
    """Find the columns of text and label by their names and values.

    Args:
        frame: The table.
        names: Columns by role: ``text``; None takes the column ``text``, or else the one with the
            most words. ``label``; None takes one with a usual name, or else the only one whose
            values repeat. ``group``.

    Raises:
        ConfigError: If a named column is missing, none or several could be meant, or the label is
            not one class a text.
    """
    columns, remaining = (
        {role: name for role, name in names.items() if name is not None},
        [*map(str, frame)],
    )
    every = ", ".join(remaining)
    for role, name in columns.items():
        if name not in frame:
            raise ConfigError(
                f"--{role} {name}: no such column{nearest(name, remaining)}; the columns are {every}"
            )
    remaining = [name for name in remaining if name not in columns.values()]
    if "text" not in columns:
        words = {
            name: sum(len(cell.split()) for cell in frame[name] if isinstance(cell, str))
            for name in remaining
        }
        if any(pair <= {*map(str.lower, remaining)} for pair in PAIRS):
            raise ConfigError(
                f"two columns of {every} are a pair of texts: {CARD}; or name one by --text"
            )
        columns["text"] = (
            "text" if "text" in remaining else max(words, key=words.__getitem__, default="")
        )
        if not words.get(columns["text"]):
            raise ConfigError(f"no column holds text; name it by --text; the columns are {every}")
        remaining.remove(columns["text"])
    if "label" not in columns:
        usual = [
            name
            for label in LABELS
            for name in remaining
            if name.lower().rpartition(".")[2] == label
        ]
        repeats = [
            name for name in remaining if 1 < frame[name].astype(str).nunique() <= len(frame) // 2
        ]
        repeats = [
            name for name in repeats if _dates(frame[name]) is None and not _is_measure(frame[name])
        ]
        if not usual and len(repeats) != 1:
            reason = (
                f"{', '.join(repeats)} could hold the label"
                if repeats
                else f"no column of {every} repeats"
            )
            raise ConfigError(f"{reason}: name it by --label; for several labels a text {CARD}")
        columns["label"] = (usual or repeats)[0]
    _check_label(frame[columns["label"]], f"--label {columns['label']}")
    return columns


def find_group(
    frame: pd.DataFrame, columns: Mapping[str, str], parts: int, notes: list[str]
) -> str | None:
    """Find the column whose equal values belong to one document or person.

    Texts of one document are alike beyond their label, so a test on some of them after training on
    the others is too easy.

    Args:
        frame: The table.
        columns: The columns of text and label, which are no group.
        parts: Number of parts that the table is divided into; a group needs as many values.
        notes: Gets a sentence on the column that is taken, or else on one that is worth a look.

    Returns:
        The column whose name says that it is a group, if its values repeat, of several the one of
        the fewest values; else None.
    """
    values = {
        name: _values(frame[name])
        for name in map(str, frame)
        if name not in (columns["text"], columns["label"])
    }
    repeating = {
        name: column
        for name, column in values.items()
        if parts <= column.nunique() < column.size
        and column.value_counts().max() <= 2 * column.size / parts
    }
    by_size = sorted(repeating, key=lambda name: repeating[name].nunique())
    for name in by_size:
        if _is_group_name(name):
            notes.append(
                f"texts with the same {name} stay in one fold ({_count_values(repeating[name])}); "
                f"--group {NO_GROUP} divides them"
            )
            return name
    for name in by_size:
        if _could_be_group(repeating[name]):
            notes.append(
                f"{name} repeats ({_count_values(repeating[name])}): if it names a document or an "
                f"author, give --group {name}, or texts of one are trained on and tested"
            )
            return None
    return None


def _values(column: pd.Series) -> pd.Series:
    """Return the values of a column as text, without the empty ones."""
    texts = column.dropna().astype(str).str.strip()
    return texts[texts != ""]


def _is_group_name(name: str) -> bool:
    """Return whether a column's name is one of :data:`GROUPS`, also as ``doc_id`` or ``DocID``."""
    letters = re.sub(r"[^a-z]", "", name.lower().rpartition(".")[2])
    return letters in GROUPS or letters.removesuffix("id") in GROUPS


def _could_be_group(column: pd.Series) -> bool:
    """Return whether values repeat as those of a group: many, twice on average, and no dates or measures.

    Numbers are measures unless equal ones follow each other, as those of the parts of a document
    do.
    """
    count = column.nunique()
    if count < FEWEST_GROUPS or column.size < 2 * count or _dates(column) is not None:
        return False
    if pd.to_numeric(column, errors="coerce").notna().all():
        stretches = int((column != column.shift()).sum())
        return stretches <= 1.2 * count
    return True


def _count_values(column: pd.Series) -> str:
    return f"{column.nunique():,} values in {column.size:,} rows"


def _check_label(label: pd.Series, flag: str) -> None:
    """Refuse labels that are not one class a text."""
    values = {str(value).strip() for value in label.dropna()} - {""}
    atoms = [{atom.strip() for value in values for atom in value.split(mark)} for mark in ";|,"]
    if label.map(type).isin([list, np.ndarray]).any() or min(map(len, atoms)) < len(values):
        raise ConfigError(f"{flag}: several labels a text; for them {CARD} with kind: multi_label")
    if _is_measure(label):
        raise ConfigError(
            f"{flag}: {len(values)} different numbers; to predict them {CARD} with kind: regression"
        )
    if len(values) > max(len(label) // 2, 2):
        raise ConfigError(
            f"{flag}: {len(values)} values in {len(label)} rows; give the column of a label that repeats"
        )


def _is_measure(column: pd.Series) -> bool:
    """Return whether a column holds numbers, more different ones than a label has."""
    return column.astype(str).nunique() > MOST_NUMBERS and bool(
        pd.to_numeric(column, errors="coerce").notna().all()
    )


def _dates(column: pd.Series) -> pd.Series | None:
    """Parse a column of dates; None if it holds anything else."""
    texts = column.astype(str)
    if pd.to_numeric(texts, errors="coerce").notna().any():
        return None
    with warnings.catch_warnings(action="ignore"):
        dates = pd.to_datetime(texts, errors="coerce", format="mixed", utc=True)
    return dates if dates.notna().all() else None


def _id_column(frame: pd.DataFrame) -> str | None:
    """Return the column of ids, if there is one."""
    return next((str(name) for name in frame if str(name).lower() in ("id", "doc_id")), None)


def _rows(frame: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Make the columns id, text, label, group and words; an empty text or label is an empty string."""
    texts = [normalise(cell) if isinstance(cell, str) else "" for cell in frame[columns["text"]]]
    column = frame[columns["label"]].astype(object)
    labels = [label_name(value) if str(value).strip() else "" for value in column.fillna("")]
    name = _id_column(frame)
    ids = [normalise(str(value)) for value in frame[name]] if name else frame.index
    cells = frame[columns["group"]].astype(object).fillna("") if "group" in columns else frame.index
    group = [
        normalise(str(cell)) or row for cell, row in zip(cells, frame.index, strict=True)
    ]  # of none: a group alone
    parts = {
        "id": [*ids],
        "text": texts,
        "label": labels,
        "group": group,
        "words": [*map(wording, texts)],
    }
    return pd.DataFrame(parts, index=frame.index)


def _clean(rows: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Drop the rows that cannot be used; name them in `notes`.

    Raises:
        DataError: If fewer than two classes are left, or of texts to test on fewer than two.
    """
    has_tests = rows["test"].any()
    reasons = {
        "without a text": lambda rows: rows["text"] == "",
        "without a label": lambda rows: rows["label"] == "",
        "repeated, with the same label": lambda rows: rows.duplicated(["text", "label"]),
        "of one text under several labels": lambda rows: rows.duplicated("text", keep=False),
        "to test, of a class that none trains": lambda rows: (
            ~rows["label"].isin(rows["label"][~rows["test"]])
        ),
        "of a class with a single text": lambda rows: (
            rows.groupby("label")["words"].transform("nunique") < 2
        ),
    }
    for reason, is_unusable in reasons.items():
        unusable = is_unusable(rows)
        if unusable.any():
            notes.append(
                f"left out: {unusable.sum():,} {reason} ({list_names(rows.index[unusable], 3)})"
            )
            rows = rows[~unusable]
    if rows["label"].nunique() < 2 or (has_tests and rows["test"].sum() < 2):
        raise DataError(
            f"{len(rows)} texts, not of two classes or more{' with two texts to test on' if has_tests else ''}, "
            f"are left; {'; '.join(notes)}"
        )
    return rows


def list_names(names: Iterable[str], count: int = 12) -> str:
    """List the first of some names, and how many more there are."""
    every = [*names]
    return ", ".join(every[:count]) + (
        f" and {len(every) - count:,} more" if len(every) > count else ""
    )


def _fold_numbers(rows: pd.DataFrame, folds: int | None, notes: list[str]) -> np.ndarray:
    """Divide rows into stratified folds; those with the same words or group stay together.

    Returns:
        The fold of each row, int64 of shape (rows,); with one fold, 0 for a fifth and -1 for the
        rest.

    Raises:
        ConfigError: If there are fewer groups, or texts in the largest class, than folds.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    folds = folds or (FOLDS if len(rows) <= MOST_IN_FOLDS else 1)
    parts = folds if folds > 1 else FOLDS
    group, before = pd.Series(range(len(rows)), rows.index), pd.Series(dtype=int)
    while not group.equals(before):  # rows that are linked over others, too
        before = group
        group = (
            before.groupby(rows["words"]).transform("min").groupby(rows["group"]).transform("min")
        )
    sizes = rows["label"].value_counts()
    if min(int(sizes.max()), group.nunique()) < parts:
        sets = f"texts that share words or --group stay together: {group.nunique()} sets; largest class: {sizes.max()}"
        raise ConfigError(f"{parts} folds are too many: {sets}; give fewer by --folds")
    if rare := [f"{label} ({size})" for label, size in sizes.items() if size < parts]:
        notes.append(
            f"fewer texts than the {parts} folds, so that some do not test them: {', '.join(rare)}"
        )
    kind = StratifiedKFold if group.is_unique else StratifiedGroupKFold
    numbers = np.zeros(len(rows), dtype=np.int64)
    with warnings.catch_warnings(action="ignore"):  # of rare classes
        for number, (_, test) in enumerate(
            kind(parts, shuffle=True, random_state=0).split(rows, rows["label"], group)
        ):
            numbers[test] = number
    return numbers if folds > 1 else np.where(numbers == 0, 0, -1)


def _give_aways(frame: pd.DataFrame, columns: Mapping[str, str]) -> list[str]:
    """Name ids, groups and dates that tell the label: by prefix, group or month, ten times better than one class."""
    label, notes = frame[columns["label"]].astype(str), []
    for name in frame.columns.difference([columns["text"], columns["label"]], sort=False):
        keys, dates = frame[name].astype(str), _dates(frame[name])
        if name != columns.get("group"):
            if dates is None and not keys.is_unique:
                continue
            keys = (
                keys.str.extract(r"^(\D*)", expand=False)
                if dates is None
                else dates.dt.strftime("%Y-%m")
            )
        table = pd.crosstab(keys, label)
        table = table[table.sum(axis=1) > 1]
        errors = int((table.sum(axis=1) - table.max(axis=1)).sum())
        if table.to_numpy().sum() > len(frame) / 2 and errors * 10 <= len(frame) - int(
            label.value_counts().max()
        ):
            usual = table.idxmax(axis=1).items()
            rules = [
                f"{key!r} is {value} ({list_names(frame.index[keys == key], 2)})"
                for key, value in usual
            ]
            notes.append(
                f"{name} gives the label away: {list_names(rules, 3)}; only texts are read, but look why"
            )
    return notes
