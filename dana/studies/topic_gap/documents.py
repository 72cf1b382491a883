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

from dana.core.errors import DataError
from dana.core.rng import derive_seed, document_key, hash_uniform
from dana.corpus.overlap import repeats_earlier, shingle_matrix
from dana.corpus.text import distinct_rows
from dana.studies.topic_gap.settings import DROP, KEEP, RANDOM, RANKS
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
    read = ((split, one.id, names[cast(int, one.label)], one.text) for split, some in splits.items() for one in some)
    rows = pd.DataFrame(read, columns=["split", "id", "label", "text"])
    counts: dict[str, Any] = {"in": len(rows), "kept": 0, "dropped": {}}

    def leave_out(rows: pd.DataFrame, is_out: np.ndarray, reason: str) -> pd.DataFrame:
        if is_out.any():
            counts["dropped"][reason] = int(is_out.sum())
        return rows[~is_out].reset_index(drop=True)

    rows = leave_out(rows, ~rows["label"].isin(wanted).to_numpy(), "other label")
    of_label = Counter(rows["label"])
    rows = leave_out(rows, ~np.isin(np.arange(len(rows)), distinct_rows(rows["text"].tolist())), "repeated")
    rows = leave_out(rows, repeats_earlier(*shingle_matrix([[text] for text in rows["text"]]), NEAR), "near duplicate")
    longest = int(rows["text"].str.len().max()) if len(rows) else window.length
    if longest < window.length:
        raise DataError(f"window={window.length}: longer than every text; the longest has {longest:,} characters")
    ids = rows["id"].where(~rows["id"].duplicated(keep=False), rows["split"] + ":" + rows["id"])
    numbers = ids.groupby(ids).cumcount()
    rows["id"] = ids.where(numbers == 0, ids + "#" + (numbers + 1).astype(str))
    rows["whole"] = [window.of(text, doc_id) for text, doc_id in zip(rows["text"], rows["id"], strict=True)]
    rows = leave_out(rows, rows["whole"].isna().to_numpy(), "short")
    rows["stripped"] = rows["whole"].map(strip_to_letters)
    rows = leave_out(rows, (rows["stripped"] == "").to_numpy(), "no letters")
    # "Bill 7 paid", "Bill 8 paid": one text to a classifier, which two sets may not share
    rows = leave_out(rows, rows["stripped"].duplicated().to_numpy(), "same letters")
    left = set(rows["label"])
    for label in wanted:
        if label not in left:
            short = f"; window={window.length}, short={window.short}" if of_label[label] else ""
            raise DataError(
                f"label {label!r}: none of its {of_label[label]:,} documents is left{short}; "
                f"take labels={[name for name in wanted if name in left]}, or keep more of this one"
            )
    return rows[list(COLUMNS)], counts | {"kept": len(rows)}


class DegenerateTopic(DataError):
    """The documents of a label cannot be told apart by a topic."""


@dataclass(frozen=True)
class TopicSplit:
    """How the documents of a topic are shared out: how many of each label are in each set, and which.

    Attributes:
        n: Documents of a label to train on.
        test: To test on.
        validation: To validate on.
        draw: With ``ranks`` the `test` documents with the largest shares are tested, the next n are trained on; the n
            with the smallest are trained on off topic, the next smallest validate. With ``random`` the same documents
            are on topic, and the same off topic, but a hash of their ids says which of the two sets each of them is in.
        seed: Of the hash.
    """

    n: int
    test: int
    validation: int
    draw: str = RANKS
    seed: int = 0


def require_enough(labels: Iterable[str], split: TopicSplit) -> None:
    """Refuse sets that the smallest label has too few documents for.

    Raises:
        DataError: Saying how many there are, how many are needed, and the largest n that would do.
    """
    label, count = min(Counter(labels).items(), key=lambda item: (item[1], item[0]))
    others = split.test + split.validation
    if count >= others + 2 * split.n:
        return
    most = (count - others) // 2
    does = f"n={most} is the most that does" if most >= 1 else "no n does, with so many to test and validate"
    raise DataError(
        f"n={split.n}: label {label!r} has {count:,} documents and {others + 2 * split.n:,} are needed "
        f"({split.test:,} to test, {split.validation:,} to validate, {split.n:,} on and {split.n:,} off topic); {does}"
    )


def split_by_topic(documents: pd.DataFrame, shares: np.ndarray, split: TopicSplit) -> np.ndarray:
    """Share the documents of every label out by how much of them is of a topic.

    Args:
        documents: A row a document: id (distinct), label.
        shares: Their shares of the topic, shape (documents,).
        split: How.

    Returns:
        The set of each document, shape (documents,): ``test`` (on topic), ``on``, ``off``, ``validation`` (off topic),
        or ``unused``, a pool of text whose labels nobody looks at.

    Raises:
        DataError: If a label has too few documents; see :func:`require_enough`.
        DegenerateTopic: If a test document of a label is no more about the topic than one to train on off topic.
    """
    require_enough(documents["label"], split)
    names = documents["id"].to_numpy(dtype=str)
    keys = np.array([document_key(name) for name in documents["id"]], dtype=np.uint64)
    dealt = hash_uniform(derive_seed(split.seed, "topic gap", "draw"), keys)
    sets = np.full(len(documents), UNUSED, dtype=object)
    for label in sorted(set(documents["label"])):
        rows = np.flatnonzero(documents["label"] == label)
        rows = rows[np.lexsort((names[rows], -shares[rows]))]
        top, bottom = rows[: split.test + split.n], rows[::-1][: split.n + split.validation]
        if split.draw == RANDOM:
            top, bottom = (part[np.argsort(dealt[part], kind="stable")] for part in (top, bottom))
        parts = (top[: split.test], top[split.test :], bottom[: split.n], bottom[split.n :])
        least, most = float(shares[parts[0]].min()), float(shares[parts[2]].max())
        if least <= most:
            raise DegenerateTopic(
                f"label {label!r}: a document to test has a share of {least:.4g} of the topic, one to train on off "
                f"topic has {most:.4g}: the topic does not tell its documents apart"
            )
        for name, part in zip(SETS, parts, strict=True):
            sets[part] = name
    return sets
