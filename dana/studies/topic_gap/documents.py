"""Documents of the topic gap: examples of a task to distinct documents with a window of each, and to a topic's sets.

Of each label the documents are ranked by their share of the topic, equal shares by id. The first are on topic: tested,
and trained on by who trains on topic. The last are off topic: trained on by who does not, and validated on.

References:
    Roussinov and Sharoff 2023, BERT goes off-topic, section 3.2.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.rng import derive_seed, document_key, hash_uniform
from dana.corpus.overlap import repeats_earlier, shingle_matrix
from dana.corpus.text import distinct_rows
from dana.studies.topic_gap.settings import DROP, KEEP, RANDOM, RANKS, SHORT
from dana.tasks.examples import Example

COLUMNS = ("id", "label", "text", "whole", "stripped")
NEAR = 0.5  # Jaccard index of the runs of four words of two texts, from which on they are near duplicates
SETS, UNUSED = ("test", "on", "off", "validation"), "unused"


@dataclass(frozen=True)
class Window:
    """How a document is cut: first a window of the text as it is, which is then stripped to letters.

    Attributes:
        length: Characters.
        short: What becomes of a shorter document: ``drop``, or ``keep`` it whole.
        seed: Root seed; with the document's id it decides where the window begins.

    References:
        Roussinov and Sharoff 2023, section 3.1.2: 1,000 characters at a random place, so that openings, such as the
        question of a thread, do not decide.
    """

    length: int = 1000
    short: str = DROP
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.length >= 1, "window", self.length, "at least 1 character")
        require(self.short in SHORT, "short", self.short, " or ".join(SHORT))

    def of(self, text: str, doc_id: str) -> str | None:
        """The window of a document, all beginnings equally likely; None of one that is dropped."""
        room = len(text) - self.length
        if room < 0:
            return text if self.short == KEEP else None
        key = np.array([document_key(doc_id)], dtype=np.uint64)
        begin = int(hash_uniform(derive_seed(self.seed, "topic gap", "window"), key)[0] * (room + 1))
        return text[begin : begin + self.length]


class _Letters(dict[int, str | None]):
    """A table for :meth:`str.translate`, filled as characters are met: letters and their marks stay."""

    def __missing__(self, code: int) -> str | None:
        kind = unicodedata.category(chr(code))
        # A format character, such as a soft hyphen, stands within a word; all else parts words.
        self[code] = chr(code) if kind[0] in "LM" else None if kind == "Cf" else " "
        return self[code]


def strip_to_letters(text: str) -> str:
    """The letters of any script in lower case, what stood between them a single space; what a classifier sees.

    Digits, punctuation and symbols go, as in Roussinov and Sharoff 2023, section 3.2.
    """
    return " ".join(text.lower().translate(_Letters()).split())


def pool_documents(
    splits: Mapping[str, Sequence[Example]], names: Sequence[str], wanted: Sequence[str], window: Window
) -> tuple[pd.DataFrame, dict[str, Any]]:
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
        A row a document, in the order they were read: id (distinct), label, text (all of it, which topics are of),
        whole (the window as it is, for a generator), stripped (its letters, for a classifier; never empty). And counts:
        ``in``, ``kept``, ``dropped`` by reason.

    Raises:
        DataError: If the window is longer than every text, or nothing is left of a label.
    """
    examples = [(split, example) for split, some in splits.items() for example in some]
    taken = [(split, example) for split, example in examples if _label(example, names) in wanted]
    dropped = Counter({"other label": len(examples) - len(taken)})
    read = Counter(_label(example, names) for _, example in taken)
    distinct = _distinct(taken, dropped)
    longest = max((len(example.text) for _, example in distinct), default=0)
    if distinct and longest < window.length:
        raise DataError(f"window={window.length}: longer than every text; the longest has {longest:,} characters")
    rows, seen = [], set[str]()
    for doc_id, (_, example) in zip(_ids(distinct), distinct, strict=True):
        cut = window.of(example.text, doc_id)
        letters = strip_to_letters(cut or "")
        if cut is None or not letters:
            dropped["short" if cut is None else "no letters"] += 1
        elif letters in seen:  # "Bill 7 paid", "Bill 8 paid": one text to a classifier, which two sets may not share
            dropped["same letters"] += 1
        else:
            seen.add(letters)
            rows.append((doc_id, _label(example, names), example.text, cut, letters))
    left = Counter(row[1] for row in rows)
    for label in wanted:
        if not left[label]:
            short = f"; window={window.length}, short={window.short}" if read[label] else ""
            raise DataError(
                f"label {label!r}: none of its {read[label]:,} documents is left{short}; "
                f"take labels={[name for name in wanted if left[name]]}, or keep more of this one"
            )
    counts = {"in": len(examples), "kept": len(rows), "dropped": {name: n for name, n in dropped.items() if n}}
    return pd.DataFrame(rows, columns=COLUMNS), counts


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


class DegenerateTopic(DataError):
    """The documents of a label cannot be told apart by a topic."""


@dataclass(frozen=True)
class SetSizes:
    """Documents of each label in each set.

    Attributes:
        n: To train on.
        test: To test on.
        validation: To validate on.
    """

    n: int
    test: int
    validation: int

    @property
    def needed(self) -> int:
        """Documents that a label must have."""
        return self.test + self.validation + 2 * self.n


def require_enough(labels: Iterable[str], sizes: SetSizes) -> None:
    """Refuse sizes that the smallest label has too few documents for.

    Raises:
        DataError: Saying how many there are, how many are needed, and the largest n that would do.
    """
    label, count = min(Counter(labels).items(), key=lambda item: (item[1], item[0]))
    if count >= sizes.needed:
        return
    most = (count - sizes.test - sizes.validation) // 2
    does = f"n={most} is the most that does" if most >= 1 else "no n does, with so many to test and validate"
    raise DataError(
        f"n={sizes.n}: label {label!r} has {count:,} documents and {sizes.needed:,} are needed "
        f"({sizes.test:,} to test, {sizes.validation:,} to validate, {sizes.n:,} on and {sizes.n:,} off topic); {does}"
    )


def split_by_topic(
    documents: pd.DataFrame, shares: np.ndarray, sizes: SetSizes, draw: str = RANKS, seed: int = 0
) -> np.ndarray:
    """Share the documents of every label out by how much of them is of a topic.

    With ``ranks`` the `test` documents with the largest shares are tested, the next n are trained on; the n with the
    smallest are trained on off topic, the next smallest validate. With ``random`` the same documents are on topic,
    and the same off topic, but a hash of their ids says which of them is in which of the two sets.

    Args:
        documents: A row a document: id (distinct), label.
        shares: Their shares of the topic, shape (documents,).
        sizes: Of the sets.
        draw: ``ranks`` or ``random``.
        seed: Of the hash.

    Returns:
        The set of each document, shape (documents,): ``test`` (on topic), ``on``, ``off``, ``validation`` (off topic),
        or ``unused``, a pool of text whose labels nobody looks at.

    Raises:
        DataError: If a label has too few documents; see :func:`require_enough`.
        DegenerateTopic: If a test document of a label is no more about the topic than one to train on off topic.
    """
    require_enough(documents["label"], sizes)
    names = documents["id"].to_numpy(dtype=str)
    keys = np.array([document_key(name) for name in documents["id"]], dtype=np.uint64)
    dealt = hash_uniform(derive_seed(seed, "topic gap", "draw"), keys)
    sets = np.full(len(documents), UNUSED, dtype=object)
    for label in sorted(set(documents["label"])):
        rows = np.flatnonzero(documents["label"] == label)
        rows = rows[np.lexsort((names[rows], -shares[rows]))]
        top, bottom = rows[: sizes.test + sizes.n], rows[::-1][: sizes.n + sizes.validation]
        if draw == RANDOM:
            top, bottom = (part[np.argsort(dealt[part], kind="stable")] for part in (top, bottom))
        parts = (top[: sizes.test], top[sizes.test :], bottom[: sizes.n], bottom[sizes.n :])
        least, most = float(shares[parts[0]].min()), float(shares[parts[2]].max())
        if least <= most:
            raise DegenerateTopic(
                f"label {label!r}: a document to test has a share of {least:.4g} of the topic, one to train on off "
                f"topic has {most:.4g}: the topic does not tell its documents apart"
            )
        for name, part in zip(SETS, parts, strict=True):
            sets[part] = name
    return sets
