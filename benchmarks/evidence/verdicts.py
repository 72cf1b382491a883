"""Answer the questions of the plan from the committed rows: differences, intervals, and what a gain is worth in labels.

The interval and p are those of docs/design.md (statistics): a difference for each adaptation and test
text, averaged over the draws of labels; U over adaptations plus T over texts. p is Holm's over tasks.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from plan import BASE, CHOSEN, CURVE, DSIR, RANDOM, SIZES, TASKS
from rows import Results, decode_counts

from dana.core.statistics import ALPHA, TwoLevel, holm, two_level
from dana.core.text_table import tabulate
from dana.finetuning.pilot import NONE

QUESTIONS = ((CHOSEN, RANDOM), (CHOSEN, BASE), (CHOSEN, DSIR))


@dataclass(frozen=True)
class Scores:
    """What the models of an arm score on the test texts.

    Attributes:
        indices: Number of each adaptation.
        right: Share of the draws that predict a text rightly, shape (adaptations, texts).
        macro_f1: Mean over adaptations.
    """

    indices: list[int]
    right: np.ndarray
    macro_f1: float

    @property
    def accuracy(self) -> float:
        """Mean over adaptations and texts."""
        return float(self.right.mean())


def choice_of(results: Results, task: str) -> str | None:
    """Return the objective that the pilot chose; None if it was not run."""
    rows = results.find(task, arm="pilot")
    return rows[0]["choice"] if rows else None


def scores_of(
    results: Results, task: str, arm: str, size: int, measure: str = "probe", **names: Any
) -> Scores | None:
    """Return the scores of an arm by the objective that the pilot chose; None if there is no model."""
    objective = NONE if arm == BASE else choice_of(results, task)
    rows = results.find(task, arm=arm, objective=objective, size=size, measure=measure, **names)
    if not rows:
        return None
    right = np.stack([decode_counts(row["correct"]) / row["draws"] for row in rows])
    macro = float(np.mean([row["macro_f1"] for row in rows]))
    return Scores([row["index"] for row in rows], right, macro)


def difference(ours: Scores, others: Scores) -> TwoLevel:
    """Compare two arms, adaptation by adaptation; the base has one row, which is that of all.

    Of arms with different numbers of adaptations the common ones are compared.
    """
    if len(others.indices) == 1 and len(ours.indices) > 1:
        values = ours.right - others.right
        return two_level(values, len(values))
    common = [index for index in ours.indices if index in others.indices]
    mine = ours.right[[ours.indices.index(index) for index in common]]
    theirs = others.right[[others.indices.index(index) for index in common]]
    return two_level(mine - theirs, len(common))


def differences(results: Results, size: int, arm: str, other: str) -> dict[str, TwoLevel]:
    """Compare two arms on every task that has both."""
    found = {}
    for task in TASKS:
        ours = scores_of(results, task.name, arm, size)
        others = scores_of(results, task.name, other, size)
        if ours is not None and others is not None and len(ours.indices) > 1:
            found[task.name] = difference(ours, others)
    return found


def unchanged(results: Results) -> int:
    """Count the tasks whose pilot chose none: all their arms are the base, and every difference is 0."""
    return sum(choice_of(results, task.name) == NONE for task in TASKS)


def pooled(results: Results, size: int, arm: str, other: str) -> TwoLevel | None:
    """Compare two arms over all piloted tasks, each counting alike, those that stay the base with 0.

    An adaptation of random text serves several tasks. So the units are the numbers of the adaptations:
    the difference of a number is the mean over tasks. None before two numbers are whole.
    """
    tasks = list(differences(results, size, arm, other))
    count = len(tasks) + unchanged(results)
    gains: dict[int, list[float]] = {}
    by_text = 0.0
    texts = []
    for task in tasks:
        ours = scores_of(results, task, arm, size)
        others = scores_of(results, task, other, size)
        assert ours is not None, "differences has this task"
        assert others is not None, "differences has this task"
        by_text += difference(ours, others).by_text / count**2
        texts.append(ours.right.shape[1])
        theirs = dict(zip(others.indices, others.right.mean(1), strict=True))
        for index, mine in zip(ours.indices, ours.right.mean(1), strict=True):
            rival = theirs[0] if len(theirs) == 1 else theirs.get(index)
            if rival is not None:
                gains.setdefault(index, []).append(float(mine - rival))
    whole = [sum(values) / count for values in gains.values() if len(values) == len(tasks)]
    if len(whole) < 2:
        return None
    by_unit = float(np.var(whole, ddof=1)) / len(whole)
    return TwoLevel(float(np.mean(whole)), by_unit, by_text, len(whole), min(texts))


def worth_in_labels(results: Results, task: str, score: float, size: int) -> float | None:
    """Return how many more labels give the base the same accuracy, from its curve, linear in log labels.

    Returns:
        A number, 0 if the base is as good; infinity beyond the last point; None without a curve.
    """
    points = []
    for labels in CURVE:
        base = scores_of(results, task, BASE, labels)
        if base is not None and labels >= size:
            points.append((labels, base.accuracy))
    if not points:
        return None
    if score <= points[0][1]:
        return 0.0
    for (labels, low), (more, high) in pairwise(points):
        if low < score <= high:
            share = (score - low) / (high - low)
            return math.exp(math.log(labels) + share * math.log(more / labels)) - size
    return math.inf


def verdict(row: TwoLevel, p: float) -> str:
    """Name the outcome of a question."""
    if p > ALPHA:
        return "undecided"
    return "better" if row.mean > 0 else "worse"


def in_words(row: TwoLevel) -> str:
    """Write a difference with its interval."""
    low, high = row.interval
    return f"{row.mean:+.3f} ({low:+.3f} to {high:+.3f})"


def score_table(results: Results, size: int) -> list[dict[str, str]]:
    """Return accuracy, and macro-F1 in brackets, of every arm."""
    rows = []
    for task in TASKS:
        row = {"task": task.name, "objective": choice_of(results, task.name) or "not piloted"}
        for arm in (BASE, RANDOM, CHOSEN, DSIR):
            scores = scores_of(results, task.name, arm, size)
            row[arm] = "" if scores is None else f"{scores.accuracy:.3f} ({scores.macro_f1:.3f})"
        chosen = scores_of(results, task.name, CHOSEN, size)
        row["n"] = str(len(chosen.indices)) if chosen else ""
        if chosen is not None:
            worth = worth_in_labels(results, task.name, chosen.accuracy, size)
            row["worth labels"] = "" if worth is None else f"{worth:.0f}"
        rows.append(row)
    return rows


def question_table(results: Results, size: int) -> list[dict[str, str]]:
    """Return every question, task by task, with verdicts after Holm's method over tasks."""
    rows = []
    for arm, other in QUESTIONS:
        found = differences(results, size, arm, other)
        p_values = [row.p for row in found.values()] + [1.0] * unchanged(results)
        adjusted = dict(zip(found, holm(p_values), strict=False))
        for task, row in found.items():
            rows.append(
                {
                    "question": f"{arm} - {other}",
                    "task": task,
                    "difference": in_words(row),
                    "p (Holm)": f"{adjusted[task]:.2g}",
                    "verdict": verdict(row, adjusted[task]),
                }
            )
        mean = pooled(results, size, arm, other)
        if mean is not None:
            rows.append(
                {
                    "question": f"{arm} - {other}",
                    "task": f"mean of {len(found) + unchanged(results)}",
                    "difference": in_words(mean),
                    "p (Holm)": f"{mean.p:.2g}",
                    "verdict": verdict(mean, mean.p),
                }
            )
    return rows


def print_tables(results: Results) -> None:
    """Print scores and questions for each number of labels."""
    for size in SIZES:
        print(f"\n{size} labels: accuracy (macro-F1)\n{tabulate(score_table(results, size))}")
        questions = question_table(results, size)
        if questions:
            print(f"\n{tabulate(questions)}")
