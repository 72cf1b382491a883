"""Say what of the labels makes a score mean less than it seems.

This is a rare class, or one that most texts have.
"""

import numpy as np

from dana.report.arm_results import ArmResult
from dana.tasks.kinds.single_label import SingleLabel

RARE = 10  # tested texts of a class below which its score is mostly luck
MOST_NAMED = 5  # classes that a note names
UNBALANCED = 0.5  # share of the largest class above which a score of always answering it is told
UNBALANCED_OF_TWO = 0.7  # the same with two classes


def label_notes(result: ArmResult) -> list[str]:
    """List notes on the labels of a task's test texts; empty for kinds without one class a text.

    Args:
        result: Results of any arm; all have the same labels.
    """
    kind = result.predictions.kind
    if not isinstance(kind, SingleLabel):
        return []
    counts = np.bincount(result.predictions.labels, minlength=len(kind.labels))
    return _rare_notes(kind, counts, result.metric) + _balance_notes(kind, counts, result)


def _rare_notes(kind: SingleLabel, counts: np.ndarray, metric: str) -> list[str]:
    """Note the classes with few test texts, the rarest first.

    Args:
        kind: Kind of label.
        counts: Test texts of each class, of shape (classes,).
        metric: Name of the metric.
    """
    rare = [code for code in np.argsort(counts, kind="stable").tolist() if counts[code] < RARE]
    if not rare:
        return []
    named = [f"{kind.labels[code]} ({counts[code]})" for code in rare[:MOST_NAMED]]
    if len(rare) > MOST_NAMED:
        named.append(f"{len(rare) - MOST_NAMED} more")
    effect = "Their scores are mostly luck"
    if metric == "macro_f1":
        effect += ", and macro-F1 counts each as much as the largest class"
    return [
        f"Rare classes, with fewer than {RARE} of the {counts.sum():,} test texts: "
        f"{', '.join(named)}. {effect}."
    ]


def _balance_notes(kind: SingleLabel, counts: np.ndarray, result: ArmResult) -> list[str]:
    """Note what always answering the largest class scores, if it has most of the test texts."""
    largest = int(counts.argmax())
    share = counts[largest] / counts.sum()
    limit = UNBALANCED_OF_TWO if len(kind.labels) == 2 else UNBALANCED
    if not share > limit:
        return []
    score = kind.baseline(result.predictions.labels, result.metric)
    return [
        f"Unbalanced: {share:.0%} of the test texts are {kind.labels[largest]}; always answering "
        f"it scores {score:.3f}."
    ]
