"""Read one value of a label field by its form.

It may be a list, the text of a list, separated text, or a row of 0 and 1.

:mod:`dana.tasks.labels` decides by all values of a table which form they have.
"""

import ast
import json
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

SEPARATORS = (";", "|", ",")  # in this order: a name may hold a comma
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
JOINED = re.compile(r"['\"]\s+['\"]")  # two quoted words without a comma, as NumPy writes them
NUMBERS = re.compile(r"-?\d+\.?\d*(\s+-?\d+\.?\d*)*")  # as NumPy writes them
BRACKETS = {"[": "]", "(": ")", "{": "}"}
BITS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "0.": 0, "1.": 1, "true": 1, "false": 0}


def is_blank(value: Any) -> bool:
    """Return whether a value is missing: None, NaN, NA, NaT, or text of white space alone.

    An empty list is not missing.
    """
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, list | tuple | set | frozenset | dict | np.ndarray):
        return False
    return str(value) in ("nan", "<NA>", "NaT")


def as_list(value: Any) -> list[Any] | None:
    """Return a list, tuple, set or array of one dimension as a list; None for anything else."""
    if isinstance(value, np.ndarray):
        return value.tolist() if value.ndim == 1 else None
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, list | tuple):
        return [*value]
    return None


def parse_list(text: str) -> list[Any] | None:
    """Parse the text of a list, as JSON, Python, NumPy or people write it; None if it is none.

    ``["a", "b"]``, ``['a', 'b']``, ``('a', 'b')``, ``{'a', 'b'}``, ``['a' 'b']``, ``[0 1]`` and
    ``[a, b]`` are lists.
    """
    text = text.strip()
    if len(text) < 2 or BRACKETS.get(text[0]) != text[-1]:
        return None
    inner = text[1:-1].strip()
    parsed = _parse_literal(text)
    if parsed is None and text[0] == "[":
        parsed = _parse_bare(inner)
    if parsed is None or any(isinstance(part, list | tuple | dict | set) for part in parsed):
        return None
    return parsed


def _parse_literal(text: str) -> list[Any] | None:
    """Parse a list as JSON or Python writes it."""
    inner = text[1:-1]
    if JOINED.search(inner):
        # Python would join the words to one.
        is_only_words = not QUOTED.sub("", inner).strip()
        if not is_only_words:
            return None
        return [word[1:-1] for word in QUOTED.findall(inner)]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
    return as_list(value)


def _parse_bare(inner: str) -> list[Any] | None:
    """Parse what stands between brackets without quotation marks."""
    if any(mark in inner for mark in "[](){}'\""):
        return None
    if NUMBERS.fullmatch(inner) and " " in inner:
        return inner.split()
    return split_text(inner, ",")


def split_text(text: str, mark: str) -> list[str]:
    """Divide text at a mark; parts that are empty are left out."""
    parts = (part.strip() for part in text.split(mark))
    return [part for part in parts if part]


def parts_of(value: Any, separator: str | None = None) -> list[Any] | None:
    """Return the labels of one value that holds several; None if it does not.

    Args:
        value: A list, the text of one, or separated text.
        separator: Mark of separated text.
    """
    if not isinstance(value, str):
        return as_list(value)
    parsed = parse_list(value)
    if parsed is None and separator is not None:
        return split_text(value, separator)
    return parsed


def as_bits(values: Sequence[Any]) -> list[int] | None:
    """Return two values or more that are all 0 or 1 (False or True), as numbers; else None."""
    if len(values) < 2:
        return None
    bits = []
    for value in values:
        bit = bit_of(value)
        if bit is None:
            return None
        bits.append(bit)
    return bits


def bit_of(value: Any) -> int | None:
    """Return 0 or 1 for a value that is 0 or 1, False or True, also as text; None for another.

    The text may have capital letters, as ``TRUE`` of R and Excel.
    """
    return BITS.get(str(value).strip().lower())


def as_number(value: Any) -> float | None:
    """Return a finite number, or the text of one, as a float; None for another value."""
    if isinstance(value, bool | np.bool_) or "_" in str(value):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
