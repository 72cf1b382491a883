"""Comparison of two arms on a task: better, worse or undecided, by the one rule of docs/design.md, Statistics.

A verdict needs both: a sign-flip p over the seeds of at most 0.05, after Holm over all questions of the report, and
a two-level bootstrap interval, over seeds and test examples, without zero. Everything else is undecided, for a reason.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dana.core.statistics import (
    ALPHA,
    fewest_seeds,
    holm,
    mean_interval,
    paired_bootstrap,
    paired_differences,
    sign_flip_p,
)
from dana.report.cells import PREDICTIONS, Finetuned
from dana.report.power import MOST_SEEDS, Spread, seeds_needed

BETTER, WORSE, UNDECIDED = "better", "worse", "undecided"
INCOMPARABLE, UNASKED = "not compared", "not asked"
ADAPTED = "adapted"  # the arm's name where a run has only one
CONTROLS = ("base", "general", "random")
RIVALS = ("base", "random")  # what our arm must beat: no adaptation, and as much text chosen at random


@dataclass(frozen=True)
class ArmComparison:
    """Two arms on a task. Numbers that cannot be had are NaN.

    Attributes:
        task: Its name.
        metric: Of the first arm.
        arm: The first arm.
        other: The arm it is compared with.
        asked: Whether it is a question of the report; no other row gets a verdict.
        n: Seeds; 0 where the two are not compared.
        mean: Of the seeds' differences, arm minus other.
        std: Their standard deviation, ddof 1.
        error: Standard deviation of the two-level bootstrap.
        examples: Standard deviation over test sets of what all seeds share: no number of seeds takes it away.
        mixed: The same of a seed's own part.
        low: Lower end of its 95 % interval.
        high: Upper end.
        p: Of the sign-flip test over seeds.
        p_holm: The same after Holm over the report's questions; NaN where nothing is asked.
        verdict: ``better``, ``worse``, ``undecided``, ``not compared`` or ``not asked``.
        reasons: Why there is no verdict; empty where there is one or nothing is asked.
        nested: Whether the seeds of either arm have models of their own.
        collapsed: How many of both arms' models collapsed.
        seeds: About how many seeds would decide it in four of five reruns; NaN where that is not known or no number
            would.
        plan: What would decide it, in words; empty where `reasons` say so, it is decided or nothing can be said.
    """

    task: str
    metric: str
    arm: str
    other: str
    asked: bool = False
    n: int = 0
    mean: float = math.nan
    std: float = math.nan
    error: float = math.nan
    examples: float = math.nan
    mixed: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    p_holm: float = math.nan
    verdict: str = UNASKED
    reasons: tuple[str, ...] = ()
    nested: bool = False
    collapsed: int = 0
    seeds: float = math.nan
    plan: str = ""


def own_arms(arms: Iterable[str]) -> list[str]:
    """The arms that a report is about: dana, or adapted, where there is one; else all that are no control."""
    found = list(arms)
    named = [arm for arm in ("dana", ADAPTED) if arm in found]
    return named[:1] or [arm for arm in found if arm not in CONTROLS]


def questions(arms: Sequence[str]) -> list[tuple[str, str]]:
    """What is asked of a task: our arms against base and random text; where neither is there, against every other.

    Where all arms are controls, each of them against base.
    """
    ours = own_arms(arms)
    if not ours:
        return [(arm, "base") for arm in arms if arm != "base" and "base" in arms]
    rivals = [arm for arm in RIVALS if arm in arms] or [arm for arm in arms if arm not in ours]
    return [(arm, rival) for arm in ours for rival in rivals] or [(ours[0], arm) for arm in ours[1:]]


def contrasts(arms: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs to show: the questions, every arm with base, selected ones with random, ours with the others."""
    ours = own_arms(arms)[:1]
    pairs = [(arm, "base") for arm in reversed(arms) if arm != "base" and "base" in arms]
    pairs += [(arm, "random") for arm in reversed(arms) if arm not in CONTROLS and "random" in arms]
    others = [(own, arm) for own in ours for arm in reversed(arms) if arm != own]
    return list(dict.fromkeys([*questions(arms), *pairs, *others]))


def compare_arms(cells: Sequence[Finetuned]) -> list[ArmComparison]:
    """Every comparison of a report, with its verdict."""
    found: list[tuple[ArmComparison, Finetuned, Finetuned]] = []
    for task in dict.fromkeys(cell.task for cell in cells):
        arms = {cell.arm: cell for cell in cells if cell.task == task}
        asked = questions(list(arms))
        for pair in contrasts(list(arms)):
            cell, other = arms[pair[0]], arms[pair[1]]
            found.append((replace(measure_pair(cell, other), asked=pair in asked), cell, other))
    tested = [row.asked and row.verdict != INCOMPARABLE for row, _, _ in found]
    adjusted = iter(holm([row.p for (row, _, _), test in zip(found, tested, strict=True) if test]))
    return [
        _judge(replace(row, p_holm=next(adjusted)), cell, other, sum(tested)) if test else row
        for (row, cell, other), test in zip(found, tested, strict=True)
    ]


def measure_pair(cell: Finetuned, other: Finetuned) -> ArmComparison:
    """Two arms' difference on a task, not judged yet; or why they are not compared."""
    row = ArmComparison(cell.task, cell.metric, cell.arm, other.arm)
    unlike = cell.unlike(other)
    if unlike:
        return replace(row, verdict=INCOMPARABLE, reasons=tuple(unlike))
    paired = paired_differences(cell.scores, other.scores)
    seeds = mean_interval(paired)
    collapsed = len(cell.collapsed) + len(other.collapsed)
    row = replace(row, n=seeds.n, mean=seeds.mean, std=seeds.std, p=sign_flip_p(paired), collapsed=collapsed)
    row = replace(row, nested=cell.nested or other.nested)
    own, its = cell.predictions, other.predictions
    if own is None or its is None or seeds.n < 2:
        return row
    # Examples that all models of both arms answer alike are interchangeable: drawn together, they cost one.
    answers, labels, counts = own.kind.alike(np.vstack([own.predicted, its.predicted]), own.labels)
    both = paired_bootstrap(own.kind.scorer(answers, labels, cell.metric), counts)
    return replace(row, error=both.std, low=both.low, high=both.high, examples=both.examples, mixed=both.mixed)


def _judge(row: ArmComparison, cell: Finetuned, other: Finetuned, count: int) -> ArmComparison:
    """The row with its verdict, or with every reason why there is none."""
    reasons = [f"{row.collapsed} of {2 * row.n} models collapsed"] if row.collapsed else []
    fewest = fewest_seeds(count)
    if row.n < fewest:
        seeds, asked = (
            "1 seed is" if row.n == 1 else f"{row.n} seeds are",
            "" if count == 1 else f" for {count} questions",
        )
        least = min(1.0, count * 2.0 ** (1 - row.n))
        reasons.append(f"{seeds} too few{asked}, p cannot fall below {least:.2g}; at least {fewest} are needed")
    elif row.p_holm > ALPHA:
        reasons.append(f"p = {row.p_holm:.2g} after Holm is above {ALPHA}")
    if cell.predictions is None or other.predictions is None:
        reasons.append(f"{PREDICTIONS} is missing, and without it the test set's part of the error is unknown")
    elif row.low <= 0 <= row.high:
        reasons.append("the interval holds zero")
    if not reasons:
        sign = 1 if cell.direction == "higher" else -1
        return replace(row, verdict=BETTER if sign * row.mean > 0 else WORSE)
    row = replace(row, verdict=UNDECIDED, reasons=tuple(reasons))
    return row if row.collapsed else _planned(row, count)


def _planned(row: ArmComparison, count: int) -> ArmComparison:
    """The row with how many seeds would decide it on this test set, from its mean and deviations."""
    if not math.isfinite(row.error) or row.mean == 0:
        fewest = fewest_seeds(count)
        return replace(row, seeds=fewest) if row.n < fewest else row
    needed = seeds_needed(Spread(row.std, row.examples, row.mixed), row.mean, count, other_texts=False)
    if needed is None:
        return replace(row, plan="no number of seeds would decide it, the test set is too small for such a difference")
    if needed > MOST_SEEDS:
        return replace(row, plan=f"it would take more than {MOST_SEEDS:,} seeds")
    needed = max(needed, row.n + 1)
    plan = f"about {needed} seeds would decide it, if mean and deviation stay"
    return replace(row, seeds=needed, plan=plan if needed > fewest_seeds(count) else "")
