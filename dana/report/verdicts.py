"""Comparison of two arms on a task: better, worse or undecided, and what it would take to decide (docs/design.md).

A verdict needs both: a sign-flip p over the seeds of at most 0.05, after Holm over all questions of the report, and
a two-level bootstrap interval, over seeds and test examples, without zero. Everything else is undecided, for a reason.

Power foretells verdicts of a rerun on the same test set. The mean difference of n seeds is taken as normal around the
true one, with variance seeds² / n, and the interval as normal with the variance that a bootstrap of seeds and examples
has on average,

    W = examples² + ((n − 1) seeds² + (2n − 1) mixed²) / n²

(it draws the seeds' own part over again with the examples). The smallest difference found with probability `POWER` is
the larger of what either half of the rule asks for. As n grows it tends to 1.96 · `examples`: no number of seeds sees
less, only more test examples do. Everything is two-sided, at level `ALPHA`.

References:
    Card et al. 2020, With Little Power Comes Great Responsibility (the variance of a paired difference of accuracies is
    at most the share of examples that the models disagree on); Bouthillier et al. 2021, Accounting for Variance in
    Machine Learning Benchmarks; Owen 2007, The pigeonhole bootstrap (theorem 3, the interaction drawn over again).
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from dana.core import statistics
from dana.core.statistics import ALPHA, fewest_seeds, paired_bootstrap
from dana.report.cells import Finetuned
from dana.report.run import ADAPTED, CONTROLS

BETTER, WORSE, UNDECIDED = "better", "worse", "undecided"
INCOMPARABLE, UNASKED = "not compared", "not asked"
RIVALS = ("base", "random")  # what our arm must beat: no adaptation, and as much text chosen at random
POWER = 0.8  # share of reruns that should find the difference
Z, REACH = NormalDist().inv_cdf(1 - ALPHA / 2), NormalDist().inv_cdf(POWER)
MOST_SEEDS = 1000  # beyond this, how many would decide is no use to anyone


@dataclass(frozen=True)
class Spread:
    """What the difference of two arms varies by, as standard deviations of a mean score.

    Attributes:
        seeds: Over fine-tuning seeds, on one test set: of the paired differences, ddof 1.
        examples: Over test sets: the part that all seeds share, and no number of them takes away.
        mixed: Over test sets: a seed's own part. It is in `seeds`, too.
    """

    seeds: float
    examples: float
    mixed: float


def detectable(spread: Spread, n: int, questions: int) -> float:
    """The smallest difference that a rerun of n seeds on the same test set decides with probability :data:`POWER`.

    Args:
        spread: Of the differences.
        n: Seeds.
        questions: How many Holm adjusts for; the first of its steps is reckoned with, which asks the most.

    Returns:
        In units of the score; infinite where so few seeds decide nothing.
    """
    if n < fewest_seeds(questions):
        return math.inf
    own = spread.seeds / math.sqrt(n)
    width = math.sqrt(spread.examples**2 + ((n - 1) * spread.seeds**2 + (2 * n - 1) * spread.mixed**2) / n**2)
    return max(standard_effect(n, questions) * spread.seeds, Z * width + REACH * own)


def standard_effect(n: int, questions: int) -> float:
    """Mean over standard deviation that the sign-flip test of n normal differences finds with :data:`POWER`.

    Where only the pattern of equal signs is extreme enough, the power is Φ(effect)ⁿ, exactly. Else it is the paired t
    test's, by the noncentral t distribution, at the level that the sign flips attain: the largest multiple of 2 / 2ⁿ
    that is not above ALPHA / questions. Simulated, that is right within 0.03 of power for 7 to 12 seeds.

    Raises:
        ValueError: If n is below :func:`dana.core.statistics.fewest_seeds`.

    References:
        Cohen 1988, Statistical power analysis, chapter 2; Lehmann and Romano 2005, Testing statistical hypotheses,
        section 15.2 (the randomization test is as powerful as t, asymptotically).
    """
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    if n < fewest_seeds(questions):
        raise ValueError(f"{n} seeds decide nothing of {questions} questions")
    patterns = 2.0 ** (n - 1)
    extreme = math.floor(ALPHA / max(questions, 1) * patterns * (1 + 1e-12))
    if extreme == 1:
        return NormalDist().inv_cdf(POWER ** (1 / n))
    critical = float(t.isf(extreme / patterns / 2, n - 1))
    effect = brentq(lambda shift: nct.sf(critical, n - 1, shift) - POWER, 0, 2 * critical + 5)
    return float(effect) / math.sqrt(n)


def seeds_needed(spread: Spread, difference: float, questions: int) -> int | None:
    """The least number of seeds that decide a difference with probability :data:`POWER`.

    Args:
        spread: Of the differences.
        difference: In units of the score; its sign does not matter.
        questions: How many Holm adjusts for.

    Returns:
        The number; one more than :data:`MOST_SEEDS` for any larger one; None where no number of seeds would do.
    """
    if abs(difference) <= Z * spread.examples:  # what more and more seeds tend to: the test set's part alone
        return None
    numbers = range(fewest_seeds(questions), MOST_SEEDS + 1)  # the more, the less is seen
    return numbers.start + bisect_left(numbers, -abs(difference), key=lambda n: -detectable(spread, n, questions))


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
        reasons: Why there is no verdict, and what would decide it; empty where there is one or nothing is asked.
        nested: Whether the seeds of either arm have models of their own.
        collapsed: How many of both arms' models collapsed.
        seeds: About how many seeds would decide it in four of five reruns; NaN where that is not known or no number
            would.
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
    reasons: str = ""
    nested: bool = False
    collapsed: int = 0
    seeds: float = math.nan


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
    found: list[tuple[ArmComparison, Finetuned]] = []
    for task in dict.fromkeys(cell.task for cell in cells):
        arms = {cell.arm: cell for cell in cells if cell.task == task}
        asked = questions(list(arms))
        for pair in contrasts(list(arms)):
            cell, other = arms[pair[0]], arms[pair[1]]
            found.append((replace(measure_pair(cell, other), asked=pair in asked), cell))
    tested = [row.asked and row.verdict != INCOMPARABLE for row, _ in found]
    adjusted = iter(statistics.holm([row.p for (row, _), test in zip(found, tested, strict=True) if test]))
    return [
        _judge(replace(row, p_holm=next(adjusted)), cell, sum(tested)) if test else row
        for (row, cell), test in zip(found, tested, strict=True)
    ]


def measure_pair(cell: Finetuned, other: Finetuned) -> ArmComparison:
    """Two arms' difference on a task, not judged yet; or why they are not compared."""
    row = ArmComparison(cell.task, cell.metric, cell.arm, other.arm)
    unlike = cell.unlike(other)
    if unlike:
        return replace(row, verdict=INCOMPARABLE, reasons="; ".join(unlike))
    paired = statistics.paired_differences(cell.scores, other.scores)
    seeds, p = statistics.mean_interval(paired), statistics.sign_flip_p(paired)
    collapsed, nested = len(cell.collapsed) + len(other.collapsed), cell.nested or other.nested
    row = replace(row, n=seeds.n, mean=seeds.mean, std=seeds.std, p=p, collapsed=collapsed, nested=nested)
    own, its = cell.predictions, other.predictions
    if seeds.n < 2:
        return row
    # Examples that all models of both arms answer alike are interchangeable: drawn together, they cost one.
    answers, labels, counts = own.kind.alike(np.vstack([own.predicted, its.predicted]), own.labels)
    both = paired_bootstrap(own.kind.scorer(answers, labels, cell.metric), counts)
    return replace(row, error=both.std, low=both.low, high=both.high, examples=both.examples, mixed=both.mixed)


def _judge(row: ArmComparison, cell: Finetuned, count: int) -> ArmComparison:
    """The row with its verdict, or with every reason why there is none."""
    reasons = [f"{row.collapsed} of {2 * row.n} models collapsed"] if row.collapsed else []
    fewest = fewest_seeds(count)
    if row.n < fewest:
        seeds = "1 seed is" if row.n == 1 else f"{row.n} seeds are"
        asked = "" if count == 1 else f" for {count} questions"
        least = min(1.0, count * 2.0 ** (1 - row.n))
        reasons.append(f"{seeds} too few{asked}, p cannot fall below {least:.2g}; at least {fewest} are needed")
    elif row.p_holm > ALPHA:
        reasons.append(f"p = {row.p_holm:.2g} after Holm is above {ALPHA}")
    if row.low <= 0 <= row.high:
        reasons.append("the interval holds zero")
    if not reasons:
        sign = 1 if cell.direction == "higher" else -1
        return replace(row, verdict=BETTER if sign * row.mean > 0 else WORSE)
    needed, plan = (math.nan, "") if row.collapsed else _plan(row, count)
    return replace(row, verdict=UNDECIDED, reasons="; ".join(filter(None, [*reasons, plan])), seeds=needed)


def _plan(row: ArmComparison, count: int) -> tuple[float, str]:
    """How many seeds would decide it on this test set, by its mean and deviations; in words where that is news."""
    fewest = fewest_seeds(count)
    if not math.isfinite(row.error) or row.mean == 0:
        return (fewest if row.n < fewest else math.nan), ""
    needed = seeds_needed(Spread(row.std, row.examples, row.mixed), row.mean, count)
    if needed is None:
        return math.nan, "no number of seeds would decide it, the test set is too small for such a difference"
    if needed > MOST_SEEDS:
        return math.nan, f"it would take more than {MOST_SEEDS:,} seeds"
    needed = max(needed, row.n + 1)
    plan = f"about {needed} seeds would decide it, if mean and deviation stay"
    return needed, plan if needed > fewest else ""
