"""Decide by their shape what the labels of a table are.

A text has one label, several, or a number, or each of its words has one.

:func:`shape_of` looks at all values of a label field and serves ``dana init`` and tables in Python.
A task card says its kind and labels, so that its kind reads value by value, by the same functions
(:mod:`dana.tasks.kinds.values`). What the values do not tell is asked: the error has the two
commands, of which each decides it.

==================  =================================================  ==============
form                values                                             kind
==================  =================================================  ==============
one                 ``spam``, ``3``, ``True``                          single_label
list                ``["a", "b"]``                                     multi_label
text of a list      ``"['a', 'b']"``, ``"[a, b]"``                     multi_label
separated text      ``a;b``, ``a|b``, ``a,b``                          multi_label
vector              ``[0, 1, 1]``, also as text; columns of 0 and 1    multi_label
number              ``0.25``                                           regression
tags                ``["O", "B-drug"]``, one for each word of a text   token_labels
==================  =================================================  ==============
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dana.core.config import require
from dana.core.errors import ConfigError, DataError
from dana.tasks.kinds import LABELLED
from dana.tasks.kinds.base import label_name
from dana.tasks.kinds.multi_label import MultiLabel
from dana.tasks.kinds.regression import Regression
from dana.tasks.kinds.single_label import SingleLabel
from dana.tasks.kinds.token_labels import TokenLabels
from dana.tasks.kinds.values import (
    SEPARATORS,
    as_bits,
    as_list,
    as_number,
    bit_of,
    is_blank,
    parse_list,
    parts_of,
    split_text,
)

ONE = "one"
LIST = "list"
LIST_TEXT = "text of a list"
SEPARATED = "separated text"
VECTOR = "vector of 0 and 1"
NUMBER = "number"
TAGS = "tags"
MOST_NUMBERS = 20  # distinct numbers of classes; of more it is asked whether they are values
DECIMAL = re.compile(r"-?\d+(,\d+)?")  # a number with a comma before its decimals
THOUSANDS = re.compile(r"-?[1-9]\d{0,2},\d{3}")  # a number that may be a whole one, of thousands
SHOWN = 3  # values in a message
NAMES = {";": "semicolons", "|": "bars", ",": "commas"}


@dataclass(frozen=True)
class Shape:
    """How the values of a label field are read.

    Attributes:
        form: One of the forms of this module.
        kind: Name of the kind of label.
        separator: Mark between the labels of separated text; of a vector as such text, too.
        labels: Names of the places of a vector.
    """

    form: str
    kind: str
    separator: str | None = None
    labels: tuple[str, ...] = ()

    def read(self, value: Any) -> Any:
        """Convert a value to a name, a list of names (of a vector, those of the ones), or a number.

        Raises:
            ValueError: If it has another form, or a label twice; says why.
        """
        if is_blank(value):
            hint = "; write [] for a text that has none of them" if self._has_several else ""
            raise ValueError(f"label {value!r} is empty{hint}")
        if self.kind == Regression.name:
            if isinstance(value, str) and DECIMAL.fullmatch(value.strip()):
                value = value.replace(",", ".")
            return Regression(()).read(value)
        if self.form == ONE:
            [name] = SingleLabel.names_in(value)
            return name
        parts = self._parts(value)
        if self.form == VECTOR:
            return self._read_vector(value, parts)
        names = [label_name(part) for part in parts]
        if self.kind == TokenLabels.name:
            return names
        for name, count in Counter(names).most_common(1):  # none of an empty list
            if count > 1:
                raise ValueError(f"label {name!r} occurs twice in {value!r}")
        return self._as_kind(value, names)

    @property
    def _has_several(self) -> bool:
        return self.kind == MultiLabel.name

    def _parts(self, value: Any) -> list[Any]:
        """Divide a value into its labels."""
        parts = parts_of(value, self.separator)
        if parts is None:
            form = "a list of labels, one per word" if self.form == TAGS else "a list of labels"
            raise ValueError(f"label {value!r} is {type(value).__name__}, not {form}")
        return parts

    def _read_vector(self, value: Any, parts: list[Any]) -> Any:
        bits = as_bits(parts)
        if bits is None or len(bits) != len(self.labels):
            count = len(self.labels)
            raise ValueError(f"label {value!r} is not a vector of {count} places, each 0 or 1")
        names = [name for name, bit in zip(self.labels, bits, strict=True) if bit]
        return self._as_kind(value, names)

    def _as_kind(self, value: Any, names: list[str]) -> Any:
        """Return names as the kind has them: of one label a text the only one."""
        if self.kind == MultiLabel.name:
            return names
        if len(names) != 1:
            raise ValueError(
                f"label {value!r} has {len(names)} labels, and kind {self.kind} has one a text"
            )
        return names[0]

    def describe(self) -> str:
        """Say in words how labels are read; empty for one label a text."""
        if self.form == ONE:
            return ""
        marks = "" if self.separator is None else f", separated by {NAMES[self.separator]}"
        return f"kind of the labels: {self.kind} ({self.form}{marks})"


@dataclass(frozen=True)
class Question:
    """How to ask for what the values do not tell.

    Attributes:
        command: What the user writes to decide the kind, with ``{kind}`` for its name.
        names: What the user writes to name the places of a vector, with ``{names}`` for a list of
            examples, or ``{words}`` for the same examples with spaces between them.
    """

    command: str = "kind={kind!r}"
    names: str = "labels={names}"

    def which_kind(self, where: str, problem: str, answers: Mapping[str, str]) -> ConfigError:
        """Ask which of two kinds it is.

        Args:
            where: What the values are.
            problem: What is seen.
            answers: What each kind would mean.
        """
        ways = []
        for kind, meaning in answers.items():
            command = self.command.format(kind=kind)
            ways.append(f"{meaning}: {command}")
        return ConfigError(f"{where}: {problem}. {'; '.join(ways)}")

    def names_of(self, where: str, value: Any, count: int) -> ConfigError:
        """Ask for the names of a vector's places."""
        example = [f"name{number}" for number in range(1, count + 1)]
        way = self.names.format(names=example, words=" ".join(example))
        return ConfigError(
            f"{where}: {value!r} is a vector of 0 and 1, and nothing says the names of its {count} "
            f"places; give them in their order: {way}; or write lists of names instead"
        )


def shape_of(
    values: Sequence[Any],
    where: str,
    kind: str | None = None,
    words: Sequence[int | None] | None = None,
    labels: Sequence[str] | None = None,
    question: Question = Question(),
) -> Shape:
    """Decide what the values of a label field are.

    Args:
        values: All values; missing ones and empty text are not looked at.
        where: What they are, for messages: a file and column.
        kind: Kind of the labels, if the user says it.
        words: Number of words of each text; tells lists that have a label for each word.
        labels: Names of the places of a vector, if the user gives them.
        question: How to ask for what the values do not tell.

    Raises:
        ConfigError: If the values do not tell; has the commands that do.
        DataError: If there is no value, or values have different forms.
    """
    if kind is not None:
        choices = [one.name for one in LABELLED]
        require(kind in choices, "kind", kind, f"one of {', '.join(choices)}")
    present = [value for value in values if not is_blank(value)]
    if not present:
        raise DataError(f"{where}: holds no label")
    if kind == Regression.name:
        require(not labels, "labels", labels, "left out: a number has no labels")
        _refuse_thousands(present, where)
        return Shape(NUMBER, kind)
    shape = _several(values, present, where, kind, words, labels, question)
    if shape is None:
        shape = _one(present, where, kind, question)
    if labels and shape.form != VECTOR:
        raise ConfigError(
            f"{where}: names of labels are for vectors of 0 and 1, but {_show(present)} are "
            f"{shape.form}; leave them out"
        )
    return shape


def _refuse_thousands(present: Sequence[Any], where: str) -> None:
    """Refuse numbers whose commas may all divide thousands as well as begin decimals.

    Raises:
        DataError: If no comma of a value tells which it is.
    """
    with_comma = [value for value in present if isinstance(value, str) and "," in value]
    if with_comma and all(THOUSANDS.fullmatch(value.strip()) for value in with_comma):
        raise DataError(
            f"{where}: {_show(with_comma)} may be thousands, or have three decimals; write 1000, or "
            "1.000 with a point"
        )


def _several(
    values: Sequence[Any],
    present: list[Any],
    where: str,
    kind: str | None,
    words: Sequence[int | None] | None,
    labels: Sequence[str] | None,
    question: Question,
) -> Shape | None:
    """Decide the shape of values that hold several labels each; None if they do not."""
    for value in present:
        if isinstance(value, dict):
            raise DataError(
                f"{where}: {value!r} is a mapping; write a list of labels, or one label a text"
            )
    lists = [as_list(value) for value in present]
    if any(parts is not None for parts in lists):
        if None in lists:
            odd = present[lists.index(None)]
            raise DataError(
                f"{where}: some labels are lists, but {odd!r} is {type(odd).__name__}; "
                "write all alike"
            )
        rows = [parts or [] for parts in lists]
        return _lists(values, rows, where, kind, LIST, words, labels, question)
    if any(not isinstance(value, str) for value in present):
        return None
    parsed = [parse_list(value) for value in present]
    if None not in parsed:
        rows = [parts or [] for parts in parsed]
        return _lists(values, rows, where, kind, LIST_TEXT, words, labels, question)
    if any(parsed) and kind != SingleLabel.name:
        odd = present[parsed.index(None)]
        one = question.command.format(kind=SingleLabel.name)
        raise DataError(
            f"{where}: some labels are lists, but {odd!r} is none; write all alike, or, if each is "
            f"one label: {one}"
        )
    if kind == TokenLabels.name:
        return Shape(TAGS, kind)
    return _separated(present, where, kind, labels, question)


def _lists(
    values: Sequence[Any],
    lists: list[list[Any]],
    where: str,
    kind: str | None,
    form: str,
    words: Sequence[int | None] | None,
    labels: Sequence[str] | None,
    question: Question,
) -> Shape:
    """Decide the shape of lists: a label for each word, a vector, or several labels."""
    if kind == TokenLabels.name:
        return Shape(TAGS, kind)
    own_kind = kind or MultiLabel.name
    if are_vectors(lists):
        return _vector(lists, where, own_kind, None, labels, question)
    if kind is None and _label_words(values, words):
        return Shape(TAGS, TokenLabels.name)
    return Shape(form, own_kind)


def are_vectors(lists: Sequence[Sequence[Any]]) -> bool:
    """Return whether lists are vectors of 0 and 1, all of one length, of two places or more.

    As names, ``[0, 1]`` would say both labels, and ``[0, 0]`` one twice.
    """
    lengths = {len(parts) for parts in lists}
    return len(lengths) == 1 and all(as_bits(parts) is not None for parts in lists)


def _label_words(values: Sequence[Any], words: Sequence[int | None] | None) -> bool:
    """Return whether every list has a label for each word of its text, and not by chance.

    It is no chance if texts have different numbers of words, or a label comes twice in a list.
    """
    if words is None:
        return False
    sizes = set()
    has_repeats = False
    for parts, count in zip(map(parts_of, values), words, strict=True):
        if parts is None or count is None:
            continue
        if len(parts) != count:
            return False
        sizes.add(count)
        distinct = set(map(str, parts))
        has_repeats = has_repeats or len(distinct) < len(parts)
    return has_repeats or len(sizes) > 1


def _vector(
    lists: Sequence[Sequence[Any]],
    where: str,
    kind: str,
    separator: str | None,
    labels: Sequence[str] | None,
    question: Question,
) -> Shape:
    """Return the shape of vectors, whose places have names.

    Raises:
        ConfigError: If the names are not known.
    """
    count = len(lists[0])
    if not labels:
        raise question.names_of(where, [*lists[0]], count)
    names = tuple(label_name(name) for name in labels)
    is_right = len(set(names)) == len(names) == count
    require(is_right, "labels", list(labels), f"{count} different names, for vectors of {count}")
    return Shape(VECTOR, kind, separator, names)


def _separated(
    present: list[str],
    where: str,
    kind: str | None,
    labels: Sequence[str] | None,
    question: Question,
) -> Shape | None:
    """Decide whether text holds several labels between marks; None if each is one label.

    Labels that are separated come again in other values: ``a;b``, ``b``, ``a;c``. Semicolons and
    bars stand in no usual name, so that they are asked about even if nothing comes again; a comma
    stands in many.
    """
    if kind == SingleLabel.name and not labels:
        return None
    distinct = set(present)
    for mark in SEPARATORS:
        marked = [value for value in distinct if mark in value]
        if not marked:
            continue
        lists = [split_text(value, mark) for value in present]
        own_kind = kind or MultiLabel.name
        if are_vectors(lists):
            return _vector(lists, where, own_kind, mark, labels, question)
        if kind is not None:
            return Shape(SEPARATED, kind, mark)
        if all(map(DECIMAL.fullmatch, distinct)):
            seen = f"{_show(sorted(marked))} may be numbers with a decimal comma, or several labels"
            answers = {Regression.name: "numbers", MultiLabel.name: "several"}
            raise question.which_kind(where, seen, answers)
        counts = _count_parts(distinct, mark)
        has_repeats = any(count > 1 for count in counts.values())
        if len(counts) < len(distinct):
            return Shape(SEPARATED, own_kind, mark)
        # Values that hardly repeat are no label at all; the caller refuses them.
        is_label = len(distinct) <= max(len(present) // 2, 2)
        if is_label and (has_repeats or mark != ","):
            seen = (
                f"{_show(sorted(marked))} may be one label each, or several between {NAMES[mark]}"
            )
            answers = {SingleLabel.name: "one", MultiLabel.name: "several"}
            raise question.which_kind(where, seen, answers)
    if kind == MultiLabel.name:
        raise DataError(
            f"{where}: {_show(sorted(distinct))} are single words, not several labels a text: "
            "lists, or text with ; or | or , between labels"
        )
    return None


def _count_parts(values: Collection[str], mark: str) -> Counter[str]:
    """Count the values that have each part between marks."""
    counts: Counter[str] = Counter()
    for value in values:
        counts.update(set(split_text(value, mark)))
    return counts


def _one(present: list[Any], where: str, kind: str | None, question: Question) -> Shape:
    """Decide whether single values are classes or numbers."""
    if kind is not None and kind != SingleLabel.name:
        # Reading the first value says what is wrong with it, and where it is.
        return Shape(TAGS if kind == TokenLabels.name else LIST, kind)
    if kind is not None:
        return Shape(ONE, SingleLabel.name)
    numbers = [as_number(value) for value in present]
    if None in numbers:
        return Shape(ONE, SingleLabel.name)
    distinct = {number for number in numbers if number is not None}
    are_whole = all(number.is_integer() for number in distinct)
    is_many = len(distinct) > MOST_NUMBERS
    is_pair = len(distinct) <= 2 < len(present)  # two numbers again and again are no measure
    if is_pair or (are_whole and not is_many):
        return Shape(ONE, SingleLabel.name)
    if not are_whole and (is_many or 2 * len(distinct) > len(present)):
        return Shape(NUMBER, Regression.name)
    seen = f"{len(distinct)} different numbers ({_show(sorted(distinct))}) may be classes or values"
    answers = {SingleLabel.name: "classes", Regression.name: "values to predict"}
    raise question.which_kind(where, seen, answers)


def _show(values: Sequence[Any]) -> str:
    """Show the first of some values."""
    shown = ", ".join(map(_show_one, values[:SHOWN]))
    return f"{shown} ..." if len(values) > SHOWN else shown


def _show_one(value: Any) -> str:
    """Show a value."""
    return f"{value:g}" if isinstance(value, float) else repr(value)


def columns_of_bits(columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the names of the columns that hold 0 and 1 alone, and both."""
    found = []
    for name, values in columns.items():
        present = [value for value in values if not is_blank(value)]
        bits = {bit_of(value) for value in present}
        if present and bits == {0, 1}:
            found.append(name)
    return found
