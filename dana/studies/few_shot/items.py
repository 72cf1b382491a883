"""Items of a few-shot study: a text, two classes and examples of both, by arm; read and written as JSON lines."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dana.core.errors import DataError, nearest_path
from dana.core.json_lines import json_lines


@dataclass(frozen=True)
class Passage:
    """A text.

    Attributes:
        id: Of the document that it is from.
        text: Never empty.
    """

    id: str
    text: str


@dataclass(frozen=True)
class Item:
    """One question: which of two classes a text is of.

    Attributes:
        id: Unique in the study.
        topic: Of the text, in words or as a number.
        label_a: Label of class A.
        label_b: Label of class B.
        text: To be classified.
        label: Of the text: one of the two.
        examples: By arm, the examples of class A and those of class B.
    """

    id: str
    topic: str
    label_a: str
    label_b: str
    text: Passage
    label: str
    examples: dict[str, tuple[tuple[Passage, ...], tuple[Passage, ...]]]

    def __post_init__(self) -> None:
        if self.label_a == self.label_b or self.label not in (self.label_a, self.label_b):
            said = f"label={self.label!r}, label_a={self.label_a!r}, label_b={self.label_b!r}"
            raise DataError(f"item {self.id}: {said}: must be two labels, and the text's must be one of them")
        for arm, (of_a, of_b) in self.examples.items():
            if not of_a or len(of_a) != len(of_b):
                raise DataError(
                    f"item {self.id}: arm {arm!r}: {len(of_a)} and {len(of_b)} examples; must be equally many"
                )
            if self.text.id in {example.id for example in (*of_a, *of_b)}:
                raise DataError(f"item {self.id}: arm {arm!r}: its text {self.text.id!r} is also an example")


def item_line(item: Item) -> str:
    """An item as a line of JSON."""
    return json_lines([asdict(item)])


def read_items(path: Path, arms: Sequence[str]) -> list[Item]:
    """Read what :func:`item_line` wrote, or items of one's own of the same form.

    Args:
        path: JSONL.
        arms: That each item must have examples for; others are left out.

    Raises:
        DataError: Naming file and line, if it is no item or its id was there before; or if there is none.
    """
    items: dict[str, Item] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise DataError(f"{path}: cannot be read: {said}{nearest_path(path)}") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            item = _item(f"{path}:{number}", line, arms)
            if items.setdefault(item.id, item) is not item:
                raise DataError(f"{path}:{number}: the id {item.id!r} was there before")
    if not items:
        raise DataError(f"{path}: holds no items")
    return list(items.values())


def _item(place: str, line: str, arms: Sequence[str]) -> Item:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise DataError(f"{place}: not JSON: {error}") from error
    try:
        examples = {arm: tuple(map(_passages, values["examples"][arm])) for arm in arms}
        strings = {key: str(values[key]) for key in ("id", "topic", "label_a", "label_b", "label")}
        (text,) = _passages([values["text"]])
        if any(len(classes) != 2 for classes in examples.values()):
            raise DataError("examples of an arm must be two lists, of class A and of class B")
        item = Item(**strings, text=text, examples=examples)  # type: ignore[arg-type]
        item_line(item).encode()
        return item
    except (KeyError, TypeError, DataError, UnicodeEncodeError) as error:
        said = f"no {error}" if isinstance(error, KeyError) else error
        if isinstance(error, UnicodeEncodeError):
            said = f"{error.object[error.start]!a} is half a character (a lone surrogate)"
        raise DataError(f"{place}: no item: {said}") from error


def _passages(values: Any) -> tuple[Passage, ...]:
    passages = tuple(Passage(str(value["id"]), value["text"]) for value in values)
    for passage in passages:
        if not isinstance(passage.text, str) or not passage.text.strip():
            raise DataError(f"the text of {passage.id!r} is empty, or no text")
    return passages
