"""Make rows of labelled texts from a table, leave out unusable ones, and divide them into folds."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dana.core.errors import ConfigError, DataError
from dana.corpus.text import normalise, wording
from dana.tasks.kinds import find_kind
from dana.tasks.kinds.regression import Regression, ends_of_fifths
from dana.tasks.kinds.single_label import SingleLabel
from dana.tasks.kinds.token_labels import TokenLabels
from dana.tasks.kinds.values import is_blank, parts_of
from dana.tasks.labels import Shape
from dana.tasks.table_columns import id_column, list_names

FOLDS = 5
MOST_IN_FOLDS = 5000  # rows; a larger table has one fixed split
NONE = ""  # stratum of texts that have none of the labels


def make_rows(frame: pd.DataFrame, columns: Mapping[str, Any], shape: Shape) -> pd.DataFrame:
    """Make the columns id, text, text_pair, label, group and words.

    Args:
        frame: The table, whose index names each row.
        columns: Columns by role, each one column.
        shape: How labels are read.

    Returns:
        One row per row of the table: an empty text is an empty string, a text that is a list of
        words a tuple; a missing label is None, several are a tuple.

    Raises:
        DataError: If a label cannot be read, or has not as many parts as its text words; names the
            row.
    """
    texts = [_read_text(cell, shape) for cell in frame[columns["text"]]]
    pairs = [""] * len(frame)
    if "text_pair" in columns:
        pairs = [_read_text(cell, shape) for cell in frame[columns["text_pair"]]]
    labels = [
        _read_label(row, value, shape)
        for row, value in zip(frame.index, frame[columns["label"]], strict=True)
    ]
    if shape.kind == TokenLabels.name:
        _check_sizes(frame.index, texts, labels)
    words = [_wording_of(text, pair) for text, pair in zip(texts, pairs, strict=True)]

    def column(values: Sequence[Any]) -> pd.Series:
        return pd.Series(values, frame.index, dtype=object)

    return pd.DataFrame(
        {
            "id": column(_ids(frame)),
            "text": column(texts),
            "text_pair": column(pairs),
            "label": column(labels),
            "group": column(_groups(frame, columns)),
            "words": column(words),
        }
    )


def _wording_of(text: Any, pair: Any) -> str:
    """Return the wording of a text, which may be a list of words, together with its second text."""
    plain = text if isinstance(text, str) else " ".join(text)
    return wording(f"{plain} {pair}")


def _read_text(cell: Any, shape: Shape) -> Any:
    """Return a text, normalised; of labels for words a tuple of words."""
    if shape.kind != TokenLabels.name:
        return normalise(cell) if isinstance(cell, str) else ""
    if is_blank(cell):
        return ()
    parts = parts_of(cell)
    try:
        _, words = TokenLabels.read_text(cell if parts is None else parts)
    except ValueError:
        return ()
    return words


def _read_label(row: str, value: Any, shape: Shape) -> Any:
    """Return a label, None for a missing one."""
    if is_blank(value):
        return None
    try:
        label = shape.read(value)
    except ValueError as error:
        raise DataError(f"{row}: {error}") from error
    if not isinstance(label, list):
        return label
    is_ordered = shape.kind == TokenLabels.name
    return tuple(label if is_ordered else sorted(label))


def _check_sizes(rows: pd.Index, texts: list[Any], labels: list[Any]) -> None:
    """Refuse a text that has not as many labels as words.

    Raises:
        DataError: If there is one; names its row.
    """
    for row, words, tags in zip(rows, texts, labels, strict=True):
        if words and tags is not None and len(words) != len(tags):
            raise DataError(f"{row}: {len(words)} words, but {len(tags)} labels")


def _ids(frame: pd.DataFrame) -> list[str]:
    """Return the id of each row: the value of the column of ids, or else the row's name."""
    name = id_column(frame)
    if name is None:
        return [*frame.index]
    return [normalise(str(value)) for value in frame[name]]


def _groups(frame: pd.DataFrame, columns: Mapping[str, Any]) -> list[str]:
    """Return the group of each row; one without is alone."""
    if "group" not in columns:
        return [*frame.index]
    cells = frame[columns["group"]].astype(object).fillna("")
    return [normalise(str(cell)) or row for cell, row in zip(cells, frame.index, strict=True)]


def label_names(label: Any) -> tuple[str, ...]:
    """Return the names in a label, each once; none of a number."""
    if isinstance(label, str):
        return (label,)
    if isinstance(label, tuple | list):
        return tuple(dict.fromkeys(label))
    return ()


def count_labels(labels: pd.Series) -> dict[str, int]:
    """Count the texts of each label, the most frequent first."""
    counts: Counter[str] = Counter()
    for label in labels:
        counts.update(label_names(label))
    return dict(counts.most_common())


def clean(rows: pd.DataFrame, kind: str, notes: list[str]) -> pd.DataFrame:
    """Drop the rows that cannot be used; name them in `notes`.

    Args:
        rows: From :func:`make_rows`, with the column ``test``.
        kind: Kind of the labels.
        notes: Gets a sentence for each reason.

    Raises:
        DataError: If fewer than two classes or values are left, or of texts to test on fewer than
            two.
    """
    has_tests = rows["test"].any()
    for reason, is_unusable in _reasons(kind):
        unusable = is_unusable(rows)
        if unusable.any():
            names = list_names(rows.index[unusable], 3)
            note = f"left out: {unusable.sum():,} {reason} ({names})"
            if is_unusable is _is_without_label:
                note += "; to adapt on such texts: --unlabelled with this file, too"
            if is_unusable is _is_untrained:
                trained = count_labels(rows["label"][~rows["test"]])
                unknown = count_labels(rows["label"][unusable]).keys() - trained.keys()
                note += f": {list_names(sorted(unknown), 3)}"
            notes.append(note)
            rows = rows[~unusable]
    if find_kind(kind).has_labels:
        what = "classes"
        distinct = len(count_labels(rows["label"]))
    else:
        what = "values"
        distinct = rows["label"].nunique()
    if distinct < 2 or (has_tests and rows["test"].sum() < 2):
        tests = " with two texts to test on" if has_tests else ""
        reasons = f"; {'; '.join(notes)}" if notes else ""
        raise DataError(f"{len(rows)} texts, not of two {what} or more{tests}, are left{reasons}")
    return rows


def _reasons(kind: str) -> Iterator[tuple[str, Callable[[pd.DataFrame], Any]]]:
    """Yield why rows cannot be used, each with a function that says which rows."""
    yield "without a text", _is_without_text
    yield "without a label", _is_without_label
    texts = ["text", "text_pair"]
    yield "repeated, with the same label", lambda rows: rows.duplicated([*texts, "label"])
    yield "of one text under several labels", lambda rows: rows.duplicated(texts, keep=False)
    if find_kind(kind).has_labels:
        yield "to test, of a class that none trains", _is_untrained
        yield "of a class with a single text", _is_single


def _is_without_label(rows: pd.DataFrame) -> pd.Series:
    """Return which rows have no label."""
    return rows["label"].isna()


def _is_without_text(rows: pd.DataFrame) -> pd.Series:
    """Return which rows have no text, or of pairs no second text."""
    is_empty = rows["text"].map(len) == 0
    is_single = rows["text_pair"] == ""
    if is_single.all():  # no pairs
        return is_empty
    return is_empty | is_single


def _is_untrained(rows: pd.DataFrame) -> np.ndarray:
    """Return which rows to test have a label that no other row has."""
    trained = count_labels(rows["label"][~rows["test"]]).keys()
    untrained = []
    for is_test, label in zip(rows["test"], rows["label"], strict=True):
        names = {*label_names(label)}
        untrained.append(is_test and not names <= trained)
    return np.array(untrained, dtype=bool)


def _is_single(rows: pd.DataFrame) -> np.ndarray:
    """Return which rows have a label that no text of other words has."""
    wordings: dict[str, set[str]] = {}
    for label, words in zip(rows["label"], rows["words"], strict=True):
        for name in label_names(label):
            wordings.setdefault(name, set()).add(words)
    rare = {name for name, words in wordings.items() if len(words) < 2}
    single = [not rare.isdisjoint(label_names(label)) for label in rows["label"]]
    return np.array(single, dtype=bool)


def strata(labels: pd.Series, kind: str) -> pd.Series:
    """Return what folds have equal shares of.

    It is the label; of several the rarest; of a number its fifth.
    """
    if kind == SingleLabel.name:
        return labels
    if kind == Regression.name:
        values = labels.to_numpy(float)
        numbers = np.searchsorted(ends_of_fifths(values), values, side="right")
        return pd.Series(numbers.astype(str), labels.index)
    counts = count_labels(labels)
    rarest = [min(label_names(label), key=counts.__getitem__, default=NONE) for label in labels]
    return pd.Series(rarest, labels.index)


def fold_numbers(rows: pd.DataFrame, kind: str, folds: int | None, notes: list[str]) -> np.ndarray:
    """Divide rows into stratified folds; those with the same words or group stay together.

    Args:
        rows: From :func:`clean`.
        kind: Kind of the labels.
        folds: Number of folds; None takes 5, or 1 above 5,000 rows.
        notes: Gets a sentence on labels with fewer texts than there are folds.

    Returns:
        The fold of each row, int64 of shape (rows,); with one fold, 0 for a fifth and -1 for the
        rest.

    Raises:
        ConfigError: If there are fewer groups, or texts in the largest class, than folds.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    if not folds:
        folds = FOLDS if len(rows) <= MOST_IN_FOLDS else 1
    parts = folds if folds > 1 else FOLDS
    group = _linked_groups(rows)
    stratum = strata(rows["label"], kind)
    largest = int(stratum.value_counts().max())
    if min(largest, group.nunique()) < parts:
        sets = (
            f"texts that share words or --group stay together: {group.nunique()} sets; "
            f"largest class: {largest}"
        )
        raise ConfigError(f"{parts} folds are too many: {sets}; give fewer by --folds")
    counts = count_labels(rows["label"])
    rare = [f"{label} ({size})" for label, size in counts.items() if size < parts]
    if rare:
        notes.append(
            f"fewer texts than the {parts} folds, so that some do not test them: {', '.join(rare)}"
        )
    splitter_class = StratifiedKFold if group.is_unique else StratifiedGroupKFold
    splitter = splitter_class(parts, shuffle=True, random_state=0)
    numbers = np.zeros(len(rows), dtype=np.int64)
    with warnings.catch_warnings(action="ignore"):  # of rare classes
        for number, (_, test) in enumerate(splitter.split(rows, stratum, group)):
            numbers[test] = number
    if folds > 1:
        return numbers
    return np.where(numbers == 0, 0, -1)


def _linked_groups(rows: pd.DataFrame) -> pd.Series:
    """Number groups of rows that share words or a group, also over other rows."""
    group = pd.Series(range(len(rows)), rows.index)
    before = pd.Series(dtype=int)
    while not group.equals(before):
        before = group
        by_words = before.groupby(rows["words"]).transform("min")
        group = by_words.groupby(rows["group"]).transform("min")
    return group
