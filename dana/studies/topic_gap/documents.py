"""Build the document pool of a task and split it by topic.

The documents of each label are ranked by their share of the topic, ties by id. The first are on
topic: the sets ``test`` and ``on``. The last are off topic: the sets ``off`` and ``validation``.

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

from dana.core.errors import DataError
from dana.core.rng import derive_seed, document_key, hash_uniform
from dana.corpus.overlap import repeats_earlier, shingle_matrix
from dana.corpus.text import distinct_rows
from dana.studies.topic_gap.settings import DROP, KEEP, RANDOM, RANKS
from dana.tasks.examples import Example

COLUMNS = ("id", "label", "text", "whole", "stripped")
NEAR = 0.5  # Jaccard index of four-word shingles from which on two texts are near duplicates
SETS = ("test", "on", "off", "validation")
UNUSED = "unused"


@dataclass(frozen=True)
class Window:
    """A random window of a document.

    Attributes:
        length: Characters.
        short: ``drop`` shorter documents, or ``keep`` them whole.
        seed: Root seed; with the document's id it decides the position of the window.

    References:
        Roussinov and Sharoff 2023, section 3.1.2: 1,000 characters at a random position, so that
        openings, such as the question of a thread, do not decide.
    """

    length: int = 1000
    short: str = DROP
    seed: int = 0

    def cut(self, text: str, doc_id: str) -> str | None:
        """Cut the window of a document, all positions equally likely; None if it is dropped."""
        room = len(text) - self.length
        if room < 0:
            return text if self.short == KEEP else None
        key = np.array([document_key(doc_id)], dtype=np.uint64)
        uniform = hash_uniform(derive_seed(self.seed, "topic gap", "window"), key)[0]
        start = int(uniform * (room + 1))
        return text[start : start + self.length]


class _Letters(dict[int, str | None]):
    """A table for :meth:`str.translate` that keeps letters and their marks; filled on demand."""

    def __missing__(self, code: int) -> str | None:
        category = unicodedata.category(chr(code))
        if category[0] in "LM":
            self[code] = chr(code)
        elif category == "Cf":  # a format character, such as a soft hyphen, is inside a word
            self[code] = None
        else:
            self[code] = " "
        return self[code]


def strip_to_letters(text: str) -> str:
    """Strip a text to what a classifier sees: lower-cased words of letters, and single spaces.

    Removes digits, punctuation and symbols, as Roussinov and Sharoff 2023, section 3.2; letters are
    those of any script.
    """
    return " ".join(text.lower().translate(_Letters()).split())


def pool_documents(
    splits: Mapping[str, Sequence[Example]],
    names: Sequence[str],
    labels: Sequence[str],
    window: Window,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Join the splits of a task, drop exact and near duplicates, and cut a window of each document.

    Near duplicates have a Jaccard index of four-word shingles of at least 0.5, as in ``dana task
    check``. Windows with the letters of an earlier one are dropped, too, as classifiers see letters
    only. Repeated ids are prefixed with the split and, if still repeated, numbered.

    Args:
        splits: Examples by split, with one label each.
        names: Labels of the card, in order.
        labels: Labels to use.
        window: Window of a document.

    Returns:
        One row per document, in the order of reading: id (distinct), label, text (for topics),
        whole (the window as it is, for generators), stripped (its letters, for classifiers; never
        empty). And counts: ``in``, ``kept``, ``dropped`` by reason.

    Raises:
        DataError: If the window is longer than every text, or a label has no documents left.
    """
    read = []
    for split, examples in splits.items():
        for example in examples:
            read.append((split, example.id, names[cast(int, example.label)], example.text))
    rows = pd.DataFrame(read, columns=["split", "id", "label", "text"])
    drops: dict[str, int] = {}
    counts: dict[str, Any] = {"in": len(rows), "kept": 0, "dropped": drops}

    def leave_out(rows: pd.DataFrame, is_out: np.ndarray, reason: str) -> pd.DataFrame:
        if is_out.any():
            drops[reason] = int(is_out.sum())
        return rows[~is_out].reset_index(drop=True)

    rows = leave_out(rows, ~rows["label"].isin(labels).to_numpy(), "other label")
    count_by_label = Counter(rows["label"])
    is_first = np.isin(np.arange(len(rows)), distinct_rows(rows["text"].tolist()))
    rows = leave_out(rows, ~is_first, "repeated")
    shingles = shingle_matrix([[text] for text in rows["text"]])
    rows = leave_out(rows, repeats_earlier(*shingles, NEAR), "near duplicate")
    longest = int(rows["text"].str.len().max()) if len(rows) else window.length
    if longest < window.length:
        raise DataError(
            f"window={window.length}: must be at most {longest:,}, the characters of the longest"
            " text"
        )
    rows["id"] = _distinct_ids(rows)
    rows["whole"] = [
        window.cut(text, doc_id) for text, doc_id in zip(rows["text"], rows["id"], strict=True)
    ]
    rows = leave_out(rows, rows["whole"].isna().to_numpy(), "short")
    rows["stripped"] = rows["whole"].map(strip_to_letters)
    rows = leave_out(rows, (rows["stripped"] == "").to_numpy(), "no letters")
    # "Bill 7 paid" and "Bill 8 paid" are one text to a classifier, which must not be in two sets.
    rows = leave_out(rows, rows["stripped"].duplicated().to_numpy(), "same letters")
    counts["kept"] = len(rows)
    _require_labels(rows["label"], labels, count_by_label, window)
    return rows[list(COLUMNS)], counts


def _distinct_ids(rows: pd.DataFrame) -> pd.Series:
    """Prefix repeated ids with the split; number what is still repeated, from the second on."""
    is_repeated = rows["id"].duplicated(keep=False)
    ids = rows["id"].where(~is_repeated, rows["split"] + ":" + rows["id"])
    number = ids.groupby(ids).cumcount()
    return ids.where(number == 0, ids + "#" + (number + 1).astype(str))


def _require_labels(
    remaining: Iterable[str],
    labels: Sequence[str],
    count_by_label: Mapping[str, int],
    window: Window,
) -> None:
    """Check that every label has a document left.

    Args:
        remaining: Labels of the documents that are left.
        labels: Labels to use.
        count_by_label: Number of documents of each label before any was dropped.
        window: Window of a document.

    Raises:
        DataError: If a label has none; names it, and the labels that have some.
    """
    present = set(remaining)
    for label in labels:
        if label not in present:
            count = count_by_label[label]
            short = f"; window={window.length}, short={window.short}" if count else ""
            usable = [name for name in labels if name in present]
            raise DataError(
                f"label {label!r}: none of its {count:,} documents is left{short}; use"
                f" labels={usable}, or more documents of this one"
            )


class DegenerateTopic(DataError):
    """A topic does not separate the documents of a label."""


@dataclass(frozen=True)
class TopicSplit:
    """Sizes of a topic's sets, and how documents are assigned to them.

    Attributes:
        n: Documents of each label in ``on`` and in ``off``.
        test: Documents of each label in ``test``.
        validation: Documents of each label in ``validation``.
        draw: ``ranks``: the documents with the largest shares are ``test``, the next ones ``on``;
            those with the smallest shares are ``off``, the next ones ``validation``. ``random``:
            the same documents are on and off topic, but assigned to the two sets at random.
        seed: Seed of the random assignment.
    """

    n: int
    test: int
    validation: int
    draw: str = RANKS
    seed: int = 0


def require_enough(labels: Iterable[str], split: TopicSplit) -> None:
    """Check that every label has enough documents for the sets.

    Raises:
        DataError: If not; names the label, the numbers, and the largest possible n.
    """
    label, count = min(Counter(labels).items(), key=lambda item: (item[1], item[0]))
    others = split.test + split.validation
    if count >= others + 2 * split.n:
        return
    largest = (count - others) // 2
    remedy = f"n must be at most {largest}" if largest >= 1 else "lower test or validation"
    raise DataError(
        f"n={split.n}: label {label!r} needs {others + 2 * split.n:,} documents"
        f" ({split.test:,} to test, {split.validation:,} to validate, {split.n:,} on and"
        f" {split.n:,} off topic), has {count:,}; {remedy}"
    )


def split_by_topic(documents: pd.DataFrame, shares: np.ndarray, split: TopicSplit) -> np.ndarray:
    """Assign the documents of every label to sets by their shares of a topic.

    Args:
        documents: One row per document: id (distinct), label.
        shares: Share of the topic in each document, shape (documents,).
        split: Sizes of the sets.

    Returns:
        The set of each document, shape (documents,): ``test`` and ``on`` (on topic), ``off`` and
        ``validation`` (off topic), or ``unused``.

    Raises:
        DataError: If a label has too few documents, see :func:`require_enough`.
        DegenerateTopic: If a test document of a label is no more about the topic than one of
            ``off``.
    """
    require_enough(documents["label"], split)
    names = documents["id"].to_numpy(dtype=str)
    keys = np.array([document_key(name) for name in documents["id"]], dtype=np.uint64)
    random_order = hash_uniform(derive_seed(split.seed, "topic gap", "draw"), keys)
    sets = np.full(len(documents), UNUSED, dtype=object)
    for label in sorted(set(documents["label"])):
        rows = np.flatnonzero(documents["label"] == label)
        rows = rows[np.lexsort((names[rows], -shares[rows]))]  # the largest share first
        top = rows[: split.test + split.n]
        bottom = rows[::-1][: split.n + split.validation]
        if split.draw == RANDOM:
            top = top[np.argsort(random_order[top], kind="stable")]
            bottom = bottom[np.argsort(random_order[bottom], kind="stable")]
        test = top[: split.test]
        off = bottom[: split.n]
        lowest_on = float(shares[test].min())
        highest_off = float(shares[off].max())
        if lowest_on <= highest_off:
            raise DegenerateTopic(
                f"label {label!r}: the topic does not separate its documents: the lowest share of"
                f" a test document is {lowest_on:.4g}, the highest share off topic"
                f" {highest_off:.4g}"
            )
        sets[test] = "test"
        sets[top[split.test :]] = "on"
        sets[off] = "off"
        sets[bottom[split.n :]] = "validation"
    return sets
