"""Read JSON lines, JSON arrays and JSON values that span lines as records."""

import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from dana.core.storage import File
from dana.corpus.inputs import Record
from dana.corpus.text import without_surrogates

Lines = Iterable[tuple[int, str]]  # line number and line

SPACE = "\ufeff \t\r\n"
LINES_OF_START = 3  # that tell JSON lines from an array
BLOCK = 1 << 16  # characters read at once of an array
NEAR_END = 8  # characters: an error there may be the end of what was read so far


def read_json(path: File, lines: Lines) -> Iterator[Record]:
    """Stream the records of JSON.

    There is one per line, per element of an array, or per object over several lines.
    """
    stream = iter(lines)
    first: list[tuple[int, str]] = []
    starts: list[str] = []  # the first lines that are not empty
    for number, line in stream:
        first.append((number, line))
        start = line.strip(SPACE)
        if start:
            starts.append(start)
        if len(starts) == LINES_OF_START:
            break
    is_alone = len(starts) == 1
    if is_alone or _is_array(starts) or _is_object_over_lines(starts):
        yield from _Values(str(path), chain(first, stream)).records(_is_array(starts))
    else:
        yield from parse_json_lines(path, chain(first, stream))


def _is_array(starts: list[str]) -> bool:
    """Return whether JSON is one array, by its first lines.

    A line that begins with a bracket may be one of JSON lines, too.
    """
    if not starts or not starts[0].startswith("["):
        return False
    if len(starts) > 1 and _is_value(starts[0]):
        return False
    has_commas = len(starts) < LINES_OF_START or not starts[2].startswith("{")
    return has_commas or not _is_value(starts[1])


def _rows_of(value: Any) -> list[Any]:
    """Return the rows of a value that is alone in its file.

    An object of one list of objects stands for the elements of the list; else the value is the row.
    """
    if isinstance(value, dict) and len(value) == 1:
        (rows,) = value.values()
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            return rows
    return [value]


def _is_object_over_lines(starts: list[str]) -> bool:
    """Return whether the first object has lines of its own."""
    if starts[:1] != ["{"] or len(starts) < 2:
        return False
    return starts[1].startswith('"') and not _is_value(starts[1])


def _is_value(line: str) -> bool:
    """Return whether a line is whole JSON."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def is_json_start(line: str) -> bool:
    """Return whether the first line of a text is that of JSON.

    It is an object, or the beginning of one or of an array.
    """
    if line in ("{", "[") or line.startswith("[{"):
        return True
    return line.startswith("{") and _is_value(line)


def is_json_lines(head: bytes) -> bool:
    """Return whether a file that is not packed holds one object per line, by its first bytes."""
    first, _, rest = head.lstrip(BOM_UTF8 + b" \t\r\n").partition(b"\n")
    return not first.startswith(b"[") and (first.strip() != b"{" or not rest)


def parse_json_lines(path: File, lines: Lines) -> Iterator[Record]:
    """Parse JSON lines into one record per line."""
    origin = str(path)
    for number, line in lines:
        if not line.strip():
            continue
        value: Any = None
        problem = ""
        try:
            # Concatenated files have byte-order marks within.
            value = json.loads(line.lstrip("\ufeff"))
            if "\\ud" in line or "\\uD" in line:  # escaped, the only way to write half a character
                value = without_surrogates(value)
        except (ValueError, RecursionError) as error:  # 5,000 digits are a plain ValueError
            problem = f"not JSON: {error}"
        else:
            if not isinstance(value, dict):
                problem = f"expected a JSON object, got {type(value).__name__}"
        fields = {} if problem else value
        yield Record(origin, number, fields, problem)


class _Values:
    """JSON values one after the other, read in blocks."""

    def __init__(self, origin: str, lines: Lines) -> None:
        self._origin = origin
        self._lines = iter(lines)
        self._text = ""
        self._at = 0
        self._is_whole = False  # whether all lines are in the text

    def records(self, is_array: bool) -> Iterator[Record]:
        """Stream the values as records, numbered from 1; an error loses the rest."""
        number = 0
        try:
            values = self._elements() if is_array else self._objects()
            for value in values:
                number += 1
                if isinstance(value, dict):
                    yield Record(self._origin, number, value)
                else:
                    problem = f"expected a JSON object, got {type(value).__name__}"
                    yield Record(self._origin, number, {}, problem)
        except (ValueError, RecursionError) as error:
            yield Record(self._origin, number + 1, {}, f"not JSON: {error}", rest_lost=True)

    def _objects(self) -> Iterator[Any]:
        """Stream values that follow each other, with commas between them or not."""
        self._next_character()
        first = self._value()
        if self._next_character():
            yield first
        else:
            yield from _rows_of(first)
        while self._next_character():
            if self._next_character() == ",":
                self._at += 1
            yield self._value()

    def _elements(self) -> Iterator[Any]:
        """Stream the elements of an array."""
        self._next_character()
        self._at += 1
        while self._next_character() != "]":
            yield self._value()
            mark = self._next_character()
            if mark == ",":
                self._at += 1
            elif mark != "]":
                raise ValueError("no comma or bracket behind this element")
        self._at += 1
        if self._next_character():
            raise ValueError("there is more behind the array")

    def _next_character(self) -> str:
        """Move to the next character that is no space, and return it; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if self._is_whole:
                return ""
            self._read(BLOCK)

    def _value(self) -> Any:
        """Parse the next value, however many lines it has.

        Raises:
            ValueError: If it is no JSON.
        """
        decoder = json.JSONDecoder()
        while True:
            try:
                value, after = decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_open = error.msg.startswith("Unterminated string")
                is_open = is_open or error.pos >= len(self._text) - NEAR_END
                if self._is_whole or not is_open:
                    raise
            else:
                if after < len(self._text) or self._is_whole:  # else a number may go on
                    self._at = after
                    return without_surrogates(value)
            self._read(max(BLOCK, len(self._text) - self._at))  # twice as much: few attempts

    def _read(self, characters: int) -> None:
        """Read some more lines, and forget what is parsed."""
        parts = [self._text[self._at :]]
        count = 0
        for _, line in self._lines:
            parts.append(line)
            count += len(line)
            if count >= characters:
                break
        else:
            self._is_whole = True
        self._text = "".join(parts)
        self._at = 0
