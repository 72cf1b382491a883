"""The pool of the topic gap: examples of all splits of a task to distinct documents with a window of each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.errors import DataError
from dana.corpus.overlap import repeats_earlier, shingle_matrix
from dana.corpus.text import distinct_rows
from dana.studies.topic_gap.views import Window, strip_to_letters
from dana.tasks.examples import Example
from dana.tasks.tables import NEAR


@dataclass(frozen=True)
class LabelledDocuments:
    """Distinct documents of a task, in the order they were read; a tuple a column.

    Attributes:
        id: Distinct.
        label: Name of the label.
        text: The whole document; topics are of it.
        whole: The window as it is, for a generator.
        stripped: The window's letters, for a classifier; never empty.
    """

    id: tuple[str, ...]
    label: tuple[str, ...]
    text: tuple[str, ...]
    whole: tuple[str, ...]
    stripped: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.id)

    def write(self, path: Path) -> None:
        """Write a Parquet file, a row a document."""
        columns = {item.name: pa.array(getattr(self, item.name), pa.string()) for item in fields(self)}
        pq.write_table(pa.table(columns), path, compression="zstd")

    @classmethod
    def read(cls, path: Path) -> "LabelledDocuments":
        """What :meth:`write` wrote."""
        table = pq.read_table(path)
        return cls(**{item.name: tuple(table[item.name].to_pylist()) for item in fields(cls)})


def pool_documents(
    splits: Mapping[str, Sequence[Example]], names: Sequence[str], wanted: Sequence[str], window: Window
) -> tuple[LabelledDocuments, dict[str, Any]]:
    """Join the splits of a task, leave out what repeats an earlier text, exactly or nearly, and cut a window of each.

    Near: a Jaccard index of at least 0.5 of the runs of four words, as ``dana tasks check`` has it. A window with the
    letters of an earlier one is left out, too: classifiers see letters alone. An id that recurs gets the name of its
    split before it, and, where it still does, a number after it.

    Args:
        splits: Examples by split, with one label each.
        names: The card's labels, in their order.
        wanted: Labels to take.
        window: How documents are cut.

    Returns:
        The documents, and counts: ``in``, ``kept``, ``dropped`` by reason.

    Raises:
        DataError: If the window is longer than every text, or nothing is left of a label.
    """
    examples = [(split, example) for split, some in splits.items() for example in some]
    kept = [(split, example) for split, example in examples if _label(example, names) in wanted]
    dropped = Counter({"other label": len(examples) - len(kept)})
    there = Counter(_label(example, names) for _, example in kept)
    distinct = _distinct(kept, dropped)
    longest = max((len(example.text) for _, example in distinct), default=0)
    if distinct and longest < window.length:
        said = f"longer than every text; the longest has {longest:,} characters"
        raise DataError(f"window={window.length}: {said}")
    rows, seen = [], set[str]()
    for doc_id, example in zip(_ids(distinct), (example for _, example in distinct), strict=True):
        cut = window.of(example.text, doc_id)
        letters = strip_to_letters(cut or "")
        if cut is None or not letters:
            dropped["short" if cut is None else "no letters"] += 1
        elif letters in seen:  # "Bill 7 paid", "Bill 8 paid": one text to a classifier, which two sets may not share
            dropped["same letters"] += 1
        else:
            seen.add(letters)
            rows.append((doc_id, _label(example, names), example.text, cut, letters))
    _refuse_missing(Counter(row[1] for row in rows), wanted, there, window)
    counts = {"in": len(examples), "kept": len(rows), "dropped": {name: n for name, n in dropped.items() if n}}
    return LabelledDocuments(*zip(*rows, strict=True)), counts


def _label(example: Example, names: Sequence[str]) -> str:
    return names[cast(int, example.label)]


def _distinct(examples: list[tuple[str, Example]], dropped: Counter[str]) -> list[tuple[str, Example]]:
    """The examples that repeat no earlier one."""
    worded = [examples[row] for row in distinct_rows([example.text for _, example in examples])]
    again = repeats_earlier(*shingle_matrix([[example.text] for _, example in worded]), NEAR)
    dropped["repeated"] = len(examples) - len(worded)
    dropped["near duplicate"] = int(again.sum())
    return [worded[row] for row in np.flatnonzero(~again)]


def _ids(examples: Sequence[tuple[str, Example]]) -> list[str]:
    """Distinct ids of (split, example)."""
    given = Counter(example.id for _, example in examples)
    named = [example.id if given[example.id] == 1 else f"{split}:{example.id}" for split, example in examples]
    seen: Counter[str] = Counter()
    found: set[str] = set()
    for place, name in enumerate(named):
        while name in found:
            seen[named[place]] += 1
            name = f"{named[place]}#{seen[named[place]] + 1}"
        found.add(name)
        named[place] = name
    return named


def _refuse_missing(left: Counter[str], wanted: Sequence[str], there: Counter[str], window: Window) -> None:
    for label in wanted:
        if not left[label]:
            short = f"; window={window.length}, short={window.short}" if there[label] else ""
            raise DataError(
                f"label {label!r}: none of its {there[label]:,} documents is left{short}; "
                f"take labels={[name for name in wanted if left[name]]}, or keep more of this one"
            )
