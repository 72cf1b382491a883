"""Say what of the labels makes a score mean less than it seems: rare classes, and one that most texts have."""

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
    labels = result.predictions.labels
    counts = np.bincount(labels, minlength=len(kind.labels))
    notes = []
    rare = [code for code in np.argsort(counts, kind="stable").tolist() if counts[code] < RARE]
    if rare:
        named = [f"{kind.labels[code]} ({counts[code]})" for code in rare[:MOST_NAMED]]
        if len(rare) > MOST_NAMED:
            named.append(f"{len(rare) - MOST_NAMED} more")
        effect = "Their scores are mostly luck"
        if result.metric == "macro_f1":
            effect += ", and macro-F1 counts each as much as the largest class"
        notes.append(
            f"Rare classes, with fewer than {RARE} of the {labels.size:,} test texts: "
            f"{', '.join(named)}. {effect}."
        )
    largest = int(counts.argmax())
    share = counts[largest] / labels.size
    if share > (UNBALANCED_OF_TWO if len(kind.labels) == 2 else UNBALANCED):
        score = kind.baseline(labels, result.metric)
        notes.append(
            f"Unbalanced: {share:.0%} of the test texts are {kind.labels[largest]}; always answering "
            f"it scores {score:.3f}."
        )
    return notes
