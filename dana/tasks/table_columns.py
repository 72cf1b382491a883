"""Find the columns of a table of labelled texts by their names and values."""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from dana.core.errors import ConfigError, nearest
from dana.tasks.kinds.regression import Regression
from dana.tasks.kinds.values import parts_of
from dana.tasks.labels import MOST_NUMBERS, columns_of_bits

# Usual names of labels.
LABELS = (
    "label",
    "labels",
    "class",
    "category",
    "target",
    "sentiment",
    "topic",
    "intent",
)
TOKENS = ("tokens", "words")  # usual names of a text that is a list of words
# Usual names of a column whose equal values belong together, also with "id" behind them.
GROUPS = {
    *("group", "document", "doc", "article", "abstract", "paper", "report", "page", "book"),
    *("user", "username", "author", "writer", "speaker", "person", "patient", "customer"),
    *("thread", "conversation", "dialogue", "dialog", "session", "case", "pmid"),
}
ROLES = ("text", "text_pair", "label")  # whose columns are no group
NO_GROUP = "none"  # as --group: take no column
FEWEST_GROUPS = 10  # values of a column that is proposed
PAIRS = (
    ("premise", "hypothesis"),
    ("question", "answer"),
    ("sentence1", "sentence2"),
    ("text1", "text2"),
    ("question1", "question2"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
)
SURE = 10  # a column gives labels away if it makes so many times fewer errors than one class

ColumnNames = Mapping[str, str | Sequence[str] | None]


def find_columns(
    frame: pd.DataFrame, names: ColumnNames, kind: str | None = None
) -> dict[str, Any]:
    """Find the columns of text and label by their names and values.

    Args:
        frame: The table.
        names: Columns by role: ``text``; None takes the column ``text``, or else the one with the
            most words. ``label``: one, or several of 0 and 1; None takes one with a usual name, or
            else the only one whose values repeat, or else all whose values repeat if all of them
            are 0 and 1. ``text_pair``. ``group``.
        kind: Kind of the label, if the user says it.

    Returns:
        Column by role; of ``label`` a list, if it is several.

    Raises:
        ConfigError: If a named column is missing, or none or several could be meant.
    """
    columns = {role: _one_name(name) for role, name in names.items() if name is not None}
    every = [*map(str, frame)]
    for role, named in columns.items():
        for name in _as_list(named):
            if name not in frame:
                flag = role.replace("_", "-")
                raise ConfigError(
                    f"--{flag} {name}: no such column{nearest(name, every)}; the columns are "
                    f"{', '.join(every)}"
                )
    remaining = _without(every, columns)
    if "text" not in columns:
        columns["text"] = _find_text(frame, remaining)
        remaining.remove(columns["text"])
    if "label" not in columns:
        columns["label"] = _find_label(frame, remaining, columns["text"], kind)
    return columns


def _one_name(name: str | Sequence[str]) -> Any:
    """Return a list of one name as the name."""
    if isinstance(name, str):
        return name
    return name[0] if len(name) == 1 else [*name]


def _as_list(names: str | Sequence[str]) -> Sequence[str]:
    """Return one name as a list of it."""
    return [names] if isinstance(names, str) else names


def _without(names: Iterable[str], columns: Mapping[str, Any]) -> list[str]:
    """Return the names of columns that have no role."""
    taken: set[str] = set()
    for named in columns.values():
        taken.update(_as_list(named))
    return [name for name in names if name not in taken]


def _find_text(frame: pd.DataFrame, remaining: list[str]) -> str:
    """Find the column of the text among some.

    Raises:
        ConfigError: If two are a pair of texts, or none holds text.
    """
    every = ", ".join(map(str, frame))
    by_lower = {name.lower(): name for name in remaining}
    for first, second in PAIRS:
        if first in by_lower and second in by_lower:
            text = by_lower[first]
            text_pair = by_lower[second]
            raise ConfigError(
                f"two columns of {every} are a pair of texts. If both make a text: --text {text} "
                f"--text-pair {text_pair}; if one is the text: --text {text}"
            )
    if "text" in remaining:
        return "text"
    for name in TOKENS:
        if name in by_lower and _holds_lists(frame[by_lower[name]]):
            return by_lower[name]
    words = {name: _count_words(frame[name]) for name in remaining}
    name = max(words, key=words.__getitem__, default="")
    if not words.get(name):
        raise no_text(frame)
    return name


def _count_words(column: pd.Series) -> int:
    """Count the words of all texts of a column; other values have none."""
    return sum(len(cell.split()) for cell in column if isinstance(cell, str))


def no_text(frame: pd.DataFrame) -> ConfigError:
    """Return the error for a table without a column of text."""
    every = ", ".join(map(str, frame))
    return ConfigError(f"no column holds text; name it by --text; the columns are {every}")


def _holds_lists(column: pd.Series) -> bool:
    """Return whether all values are lists, or the text of lists."""
    values = column.dropna()
    return len(values) > 0 and all(parts_of(value) is not None for value in values)


def _find_label(frame: pd.DataFrame, remaining: list[str], text: str, kind: str | None) -> Any:
    """Find the column of the label among some, or several columns of 0 and 1.

    Raises:
        ConfigError: If none or several could be meant.
    """
    for label in LABELS:
        for name in remaining:
            if name.lower().rpartition(".")[2] == label:
                return name
    candidates = _candidates(frame, remaining, text, kind)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        every = ", ".join(map(str, frame))
        raise ConfigError(
            f"no column of {every} repeats: name it by --label; several columns of 0 and 1: "
            "--label ONE --label OTHER"
        )
    bits = columns_of_bits({name: frame[name].tolist() for name in candidates})
    if len(bits) == len(candidates):
        return bits
    several = ""
    if len(bits) > 1:
        flags = " ".join(f"--label {name}" for name in bits)
        several = f"; if several columns of 0 and 1 are labels: {flags}"
    raise ConfigError(
        f"{', '.join(candidates)} could hold the label: name it by --label {candidates[0]} (or "
        f"another){several}"
    )


def _candidates(
    frame: pd.DataFrame, remaining: list[str], text: str, kind: str | None
) -> list[str]:
    """Return the columns that could hold the label."""
    if kind == Regression.name:
        return [name for name in remaining if _is_numeric(frame[name])]
    if _holds_lists(frame[text]):
        return [name for name in remaining if _holds_lists(frame[name])]
    return [name for name in remaining if _could_be_label(frame[name])]


def _could_be_label(column: pd.Series) -> bool:
    """Return whether values repeat as those of a label do, and are no dates or measures."""
    count = column.astype(str).nunique()
    repeats = 1 < count <= len(column) // 2
    return repeats and _dates(column) is None and not _is_measure(column)


def find_group(
    frame: pd.DataFrame, columns: Mapping[str, Any], parts: int, notes: list[str]
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
    roles = {role: columns[role] for role in ROLES if role in columns}
    repeating: dict[str, pd.Series] = {}
    for name in _without(map(str, frame), roles):
        values = _values(frame[name])
        if _can_be_divided(values, parts):
            repeating[name] = values
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


def _can_be_divided(column: pd.Series, parts: int) -> bool:
    """Return whether values repeat, are as many as parts, and none fills more than two parts."""
    repeats = parts <= column.nunique() < column.size
    return repeats and bool(column.value_counts().max() <= 2 * column.size / parts)


def _values(column: pd.Series) -> pd.Series:
    """Return the values of a column as text, without the empty ones."""
    texts = column.dropna().astype(str).str.strip()
    return texts[texts != ""]


def _is_group_name(name: str) -> bool:
    """Return whether a column's name is one of :data:`GROUPS`, also as ``doc_id`` or ``DocID``."""
    letters = re.sub(r"[^a-z]", "", name.lower().rpartition(".")[2])
    return letters in GROUPS or letters.removesuffix("id") in GROUPS


def _could_be_group(column: pd.Series) -> bool:
    """Return whether values repeat as those of a group.

    They are many, come twice on average, and are no dates or measures. Numbers are measures unless
    equal ones follow each other, as those of the parts of a document do.
    """
    count = column.nunique()
    if count < FEWEST_GROUPS or column.size < 2 * count or _dates(column) is not None:
        return False
    if pd.to_numeric(column, errors="coerce").notna().all():
        stretches = int((column != column.shift()).sum())
        return stretches <= 1.2 * count
    return True


def _count_values(column: pd.Series) -> str:
    """Say how many values a column has."""
    return f"{column.nunique():,} values in {column.size:,} rows"


def _is_numeric(column: pd.Series) -> bool:
    """Return whether a column holds numbers alone, as text, too."""
    values = column.dropna().astype(str)
    return len(values) > 0 and bool(pd.to_numeric(values, errors="coerce").notna().all())


def _is_measure(column: pd.Series) -> bool:
    """Return whether a column holds numbers, more different ones than a label has."""
    texts = column.astype(str)
    are_numbers = pd.to_numeric(texts, errors="coerce").notna().all()
    return texts.nunique() > MOST_NUMBERS and bool(are_numbers)


def _dates(column: pd.Series) -> pd.Series | None:
    """Parse a column of dates; None if it holds anything else."""
    texts = column.astype(str)
    with warnings.catch_warnings(action="ignore"):
        dates = pd.to_datetime(texts, errors="coerce", format="mixed", utc=True)
    has_numbers = pd.to_numeric(texts, errors="coerce").notna().any()
    if has_numbers or not dates.notna().all():
        return None
    return dates


def id_column(frame: pd.DataFrame) -> str | None:
    """Return the column of ids, if there is one."""
    for name in map(str, frame):
        if name.lower() in ("id", "doc_id"):
            return name
    return None


def list_names(names: Iterable[str], count: int = 12) -> str:
    """List the first of some names, and how many more there are."""
    every = [*names]
    more = f" and {len(every) - count:,} more" if len(every) > count else ""
    return ", ".join(every[:count]) + more


def find_give_aways(
    frame: pd.DataFrame, columns: Mapping[str, Any], labels: Sequence[str]
) -> list[str]:
    """Name ids, groups and dates that tell the label.

    They do if they tell it by prefix, group or month ten times better than one class.

    Args:
        frame: The table.
        columns: Columns by role.
        labels: Label of each row, as text.
    """
    label = pd.Series([*labels], frame.index)
    roles = {role: columns[role] for role in ROLES if role in columns}
    notes = []
    for name in _without(map(str, frame), roles):
        keys = _keys(frame[name], name == columns.get("group"))
        if keys is None:
            continue
        table = pd.crosstab(keys, label)
        table = table[table.sum(axis=1) > 1]
        errors = int((table.sum(axis=1) - table.max(axis=1)).sum())
        errors_of_one_class = len(frame) - int(label.value_counts().max())
        is_most = table.to_numpy().sum() > len(frame) / 2
        if not is_most or errors * SURE > errors_of_one_class:
            continue
        rules = []
        for key, value in table.idxmax(axis=1).items():
            rows = list_names(frame.index[keys == key], 2)
            rules.append(f"{key!r} is {value} ({rows})")
        notes.append(
            f"{name} gives the label away: {list_names(rules, 3)}; "
            "only texts are read, but look why"
        )
    return notes


def _keys(column: pd.Series, is_group: bool) -> pd.Series | None:
    """Return what could tell the label: the group, the month of a date or the prefix of an id.

    It is None for other columns.
    """
    keys = column.astype(str)
    if is_group:
        return keys
    dates = _dates(column)
    if dates is not None:
        months: pd.Series = dates.dt.strftime("%Y-%m")
        return months
    if not keys.is_unique:
        return None
    return keys.str.extract(r"^(\D*)", expand=False)
