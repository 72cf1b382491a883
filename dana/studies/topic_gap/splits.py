"""On- and off-topic sets: documents' labels and shares of a topic to disjoint, balanced sets, checked.

Of each label the documents are ranked by their share of the topic, equal shares by id. The first are on topic: tested,
and trained on by who trains on topic. The last are off topic: trained on by who does not, and validated on.

References:
    Roussinov and Sharoff 2023, BERT goes off-topic, section 3.2.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.core.errors import DataError
from dana.core.rng import derive_seed, document_key, hash_uniform
from dana.studies.topic_gap.settings import RANDOM, RANKS

SETS = ("test", "on", "off", "validation")


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


@dataclass(frozen=True)
class TopicSplit:
    """The sets of one topic: places of documents, int64, ascending.

    Attributes:
        test: On topic.
        on: To train on, on topic.
        off: To train on, off topic.
        validation: Off topic.
        unused: In no set: a pool of text whose labels nobody looks at.
    """

    test: np.ndarray
    on: np.ndarray
    off: np.ndarray
    validation: np.ndarray
    unused: np.ndarray

    @classmethod
    def of(cls, sets: dict[str, np.ndarray], documents: int) -> "TopicSplit":
        """Of the places in each set, in any order, out of so many documents.

        Raises:
            DataError: If a document is in two sets.
        """
        every = np.concatenate([sets[name] for name in SETS]).astype(np.int64)
        places, counts = np.unique(every, return_counts=True)
        if (counts > 1).any():
            raise DataError(f"document {places[counts > 1][0]} of a split is in two sets")
        unused = np.setdiff1d(np.arange(documents), every)
        return cls(**{name: np.sort(sets[name].astype(np.int64)) for name in SETS}, unused=unused)


def require_enough(labels: Sequence[str], sizes: SetSizes) -> None:
    """Refuse sizes that the smallest label has too few documents for.

    Raises:
        DataError: Saying how many there are, how many are needed, and the largest n that would do.
    """
    label, there = min(Counter(labels).items(), key=lambda item: (item[1], item[0]))
    if there >= sizes.needed:
        return
    most = (there - sizes.test - sizes.validation) // 2
    does = f"n={most} is the most that does" if most >= 1 else "no n does, with so many to test and validate"
    raise DataError(
        f"n={sizes.n}: label {label!r} has {there:,} documents and {sizes.needed:,} are needed "
        f"({sizes.test:,} to test, {sizes.validation:,} to validate, {sizes.n:,} on and {sizes.n:,} off topic); {does}"
    )


def split_by_topic(
    ids: Sequence[str],
    labels: Sequence[str],
    shares: np.ndarray,
    sizes: SetSizes,
    draw: str = RANKS,
    seed: int = 0,
) -> TopicSplit:
    """Share the documents of every label out by how much of them is of a topic.

    With ``ranks`` the `test` documents with the largest shares are tested, the next n are trained on; the n with the
    smallest are trained on off topic, the next smallest validate. With ``random`` the same documents are on topic,
    and the same off topic, but a hash of their ids says which of them is in which of the two sets.

    Args:
        ids: Of the documents, distinct.
        labels: Their labels.
        shares: Their shares of the topic, shape (documents,).
        sizes: Of the sets.
        draw: ``ranks`` or ``random``.
        seed: Of the hash.

    Raises:
        DataError: If a label has too few documents; see :func:`require_enough`.
        DegenerateTopic: If a test document of a label is no more about the topic than one to train on off topic.
    """
    require_enough(labels, sizes)
    names, held = np.array(ids), np.array(labels)
    keys = np.array([document_key(name) for name in ids], dtype=np.uint64)
    dealt = hash_uniform(derive_seed(seed, "topic gap", "draw"), keys)
    sets: dict[str, list[np.ndarray]] = {name: [] for name in SETS}
    for label in sorted(set(labels)):
        rows = np.flatnonzero(held == label)
        rows = rows[np.lexsort((names[rows], -shares[rows]))]
        top, bottom = rows[: sizes.test + sizes.n], rows[::-1][: sizes.n + sizes.validation]
        if draw == RANDOM:
            top, bottom = (part[np.argsort(dealt[part], kind="stable")] for part in (top, bottom))
        found = {"test": top[: sizes.test], "on": top[sizes.test :]}
        found |= {"off": bottom[: sizes.n], "validation": bottom[sizes.n :]}
        least, most = float(shares[found["test"]].min()), float(shares[found["off"]].max())
        if least <= most:
            raise DegenerateTopic(
                f"label {label!r}: a document to test has a share of {least:.4g} of the topic, one to train on off "
                f"topic has {most:.4g}: the topic does not tell its documents apart"
            )
        for name in SETS:
            sets[name].append(found[name])
    return TopicSplit.of({name: np.concatenate(parts) for name, parts in sets.items()}, len(ids))


def set_rows(ids: Sequence[str], labels: Sequence[str], shares: np.ndarray, split: TopicSplit) -> list[dict[str, Any]]:
    """A row a document in a set: id, label, set, share."""
    return [
        {"id": ids[row], "label": labels[row], "set": name, "share": float(shares[row])}
        for name in SETS
        for row in getattr(split, name).tolist()
    ]
