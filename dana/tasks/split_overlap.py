"""Examples by split to the texts that a split repeats, or that two splits share exactly or nearly, as rows of a table.

Exact is the normalised text that a model sees, of a pair both texts. Near duplicates are other texts of which the runs
of four words, of a pair those of both together, have a Jaccard index of at least 0.5: a word changed in a sentence of
20 words leaves 0.6.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dana.core.text_table import Value
from dana.corpus.shingles import nearest_rows, shingle_matrix
from dana.tasks.examples import Example, in_both

PAIRS = (("dev", "train"), ("test", "train"), ("test", "dev"))
NEAR = 0.5
NAMED = 3

Match = tuple[Example, Example]


def overlap_rows(splits: Mapping[str, list[Example]]) -> list[dict[str, Value]]:
    """A row a split, a split ``within`` which its texts were looked for, and a kind of match.

    Kinds: ``exact``; ``contradicting``: those of ``exact`` that have another label there; ``near``. Within one split
    ``exact`` counts what repeats an earlier example, and ``contradicting`` all examples of a text with several labels.
    ``ids`` names up to three examples, each with one that it matches. Work grows with the words of all texts.

    Args:
        splits: Examples by split, no text of them empty.
    """
    rows = []
    for split, examples in splits.items():
        alike = in_both(examples, examples)
        repeated = [(example, others[0]) for example, others in alike if others[0] is not example]
        rows.append(_row(split, split, "exact", repeated, len(examples)))
        rows.append(_row(split, split, "contradicting", _contradicting(alike), len(examples)))
    near = near_matches(splits)
    for pair in PAIRS:
        split, within = pair
        size, alike = len(splits[split]), in_both(splits[split], splits[within])
        rows.append(_row(split, within, "exact", [(example, others[0]) for example, others in alike], size))
        rows.append(_row(split, within, "contradicting", _contradicting(alike), size))
        rows.append(_row(split, within, "near", near[pair], size))
    return rows


def near_matches(splits: Mapping[str, list[Example]]) -> dict[tuple[str, str], list[Match]]:
    """By pair of splits, the examples of the first whose text the second does not hold, but nearly; each with that one.

    Args:
        splits: Examples by split.
    """
    first = {split: {example.texts: example for example in reversed(examples)} for split, examples in splits.items()}
    row_of = {texts: row for row, texts in enumerate(dict.fromkeys(each for known in first.values() for each in known))}
    held, sizes = shingle_matrix(row_of)
    seen = list(row_of)
    found: dict[tuple[str, str], list[Match]] = {}
    for split, within in PAIRS:
        rows = np.array([row_of[texts] for texts in first[split] if texts not in first[within]], dtype=np.int64)
        others = np.array([row_of[texts] for texts in first[within]], dtype=np.int64)
        nearest = nearest_rows(held, sizes, rows, others, NEAR).tolist()
        like = {seen[row]: seen[other] for row, other in zip(rows.tolist(), nearest, strict=True) if other >= 0}
        found[split, within] = [
            (example, first[within][like[example.texts]]) for example in splits[split] if example.texts in like
        ]
    return found


def _contradicting(alike: Sequence[tuple[Example, list[Example]]]) -> list[Match]:
    """The examples that have another label than one with their text, each with the first such."""
    against = ((example, [other for other in others if other.label != example.label]) for example, others in alike)
    return [(example, others[0]) for example, others in against if others]


def _row(split: str, within: str, kind: str, matches: Sequence[Match], size: int) -> dict[str, Value]:
    ids = ", ".join(f"{example.id} = {other.id}" for example, other in matches[:NAMED])
    counts = {"examples": len(matches), "of": size, "share": len(matches) / max(1, size)}
    return {"split": split, "within": within, "kind": kind, **counts, "ids": ids}
