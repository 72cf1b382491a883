"""Compare two arms on a task: better, worse or undecided, and how many seeds would decide (docs/design.md).

A verdict needs both: a sign-flip p over the seeds of at most 0.05, after Holm over all questions of the report, and
a two-level bootstrap interval, over seeds and test examples, without zero. Everything else is undecided, with reasons.

Power is about a rerun on the same test set. The mean difference of n seeds is taken as normal around the true one, with
variance seeds² / n. The interval is taken as normal with the expected variance of the two-level bootstrap
(standard deviations of :class:`Spread`),

    W = examples² + ((n − 1) seeds² + (2n − 1) interaction²) / n²

(it resamples the interaction of seed and example with both). The smallest difference detected with probability
`POWER` is the larger of those that the two conditions need. As n grows it tends to 1.96 · `examples`: below that, only
more test examples help. All tests are two-sided at level `ALPHA`.

References:
    Card et al. 2020, With Little Power Comes Great Responsibility (the variance of a paired difference of accuracies is
    at most the share of examples that the models disagree on); Bouthillier et al. 2021, Accounting for Variance in
    Machine Learning Benchmarks; Owen 2007, The pigeonhole bootstrap (theorem 3, the resampled interaction).
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from dana.core import statistics
from dana.core.statistics import ALPHA, fewest_seeds, paired_bootstrap
from dana.report.cells import ArmResult
from dana.report.run import ADAPTED, CONTROLS

BETTER, WORSE, UNDECIDED = "better", "worse", "undecided"
INCOMPARABLE, UNASKED = "not compared", "not asked"
RIVALS = ("base", "random")  # controls that an arm must beat: no adaptation, and the same amount of random text
POWER = 0.8  # probability of detecting the difference
Z, REACH = NormalDist().inv_cdf(1 - ALPHA / 2), NormalDist().inv_cdf(POWER)
MOST_SEEDS = 1000  # larger numbers are not computed


@dataclass(frozen=True)
class Spread:
    """Variance components of the difference of two arms, as standard deviations of a mean score.

    Attributes:
        seeds: Over fine-tuning seeds on one test set: that of the paired differences, ddof 1.
        examples: Over test sets, common to all seeds: more seeds do not reduce it.
        interaction: Over test sets, specific to a seed; also part of `seeds`.
    """

    seeds: float
    examples: float
    interaction: float


def detectable(spread: Spread, n: int, questions: int) -> float:
    """Compute the smallest difference that n seeds on the same test set decide with probability :data:`POWER`.

    Args:
        spread: Variance components of the difference.
        n: Number of seeds.
        questions: Number of questions that Holm adjusts for; its first step, the strictest, is used.

    Returns:
        Difference in units of the score; infinite if n seeds cannot decide anything.
    """
    if n < fewest_seeds(questions):
        return math.inf
    seed_error = spread.seeds / math.sqrt(n)
    width = math.sqrt(spread.examples**2 + ((n - 1) * spread.seeds**2 + (2 * n - 1) * spread.interaction**2) / n**2)
    return max(standard_effect(n, questions) * spread.seeds, Z * width + REACH * seed_error)


def standard_effect(n: int, questions: int) -> float:
    """Compute the effect size (mean / std) that the sign-flip test of n seeds detects with probability :data:`POWER`.

    If only n equal signs are significant, the power is exactly Φ(effect)ⁿ. Otherwise it is approximated by the paired t
    test, with the noncentral t distribution, at the attainable level of the sign-flip test: the largest multiple of
    2 / 2ⁿ not above ALPHA / questions. In simulations of 7 to 12 seeds the power is right within 0.03.

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
    """Compute the smallest number of seeds that decide a difference with probability :data:`POWER`.

    Args:
        spread: Variance components of the difference.
        difference: Difference in units of the score; its sign does not matter.
        questions: Number of questions that Holm adjusts for.

    Returns:
        Number of seeds; MOST_SEEDS + 1 stands for any larger number; None if no number of seeds suffices.
    """
    if abs(difference) <= Z * spread.examples:  # the limit for infinitely many seeds
        return None
    numbers = range(fewest_seeds(questions), MOST_SEEDS + 1)  # the detectable difference falls along them
    return numbers.start + bisect_left(numbers, -abs(difference), key=lambda n: -detectable(spread, n, questions))


@dataclass(frozen=True)
class ArmComparison:
    """Comparison of two arms on a task; numbers that cannot be computed are NaN.

    Attributes:
        task: Name of the task.
        metric: Metric of the first arm.
        arm: The first arm.
        other: The arm that it is compared with.
        asked: True for a question of the report; other rows get no verdict.
        n: Number of seeds; 0 if the two are not compared.
        mean: Mean of the paired differences, arm minus other.
        std: Standard deviation of the paired differences, ddof 1.
        error: Standard deviation of the two-level bootstrap.
        examples: Standard deviation over test sets, common to all seeds: more seeds do not reduce it.
        interaction: Standard deviation over test sets, specific to a seed.
        low: Lower end of the 95 % interval of the two-level bootstrap.
        high: Upper end of the interval.
        p: p of the sign-flip test over seeds.
        p_holm: p after Holm over the questions of the report; NaN for other rows.
        verdict: ``better``, ``worse``, ``undecided``, ``not compared`` or ``not asked``.
        reasons: Why the question is undecided and what would decide it; empty with a verdict.
        nested: True if the seeds of either arm have models of their own.
        collapsed_models: Number of collapsed models of both arms.
        seeds: Number of seeds that would decide with a power of 80 %; NaN if unknown or if no number would.
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
    interaction: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    p_holm: float = math.nan
    verdict: str = UNASKED
    reasons: str = ""
    nested: bool = False
    collapsed_models: int = 0
    seeds: float = math.nan


def main_arms(arms: Iterable[str]) -> list[str]:
    """Return the arms that a report is about: dana or adapted if present, otherwise all but the controls."""
    names = list(arms)
    dana_arms = [arm for arm in ("dana", ADAPTED) if arm in names]
    return dana_arms[:1] or [arm for arm in names if arm not in CONTROLS]


def questions(arms: Sequence[str]) -> list[tuple[str, str]]:
    """List the questions of a task as pairs of arms: ours against base and random text, or else against all others.

    If all arms are controls, each of them is compared with base.
    """
    ours = main_arms(arms)
    if not ours:
        return [(arm, "base") for arm in arms if arm != "base" and "base" in arms]
    rivals = [arm for arm in RIVALS if arm in arms] or [arm for arm in arms if arm not in ours]
    return [(arm, rival) for arm in ours for rival in rivals] or [(ours[0], arm) for arm in ours[1:]]


def contrasts(arms: Sequence[str]) -> list[tuple[str, str]]:
    """List the pairs of arms to show: the questions, every arm with base, selections with random, ours with others."""
    ours = main_arms(arms)[:1]
    pairs = [(arm, "base") for arm in reversed(arms) if arm != "base" and "base" in arms]
    pairs += [(arm, "random") for arm in reversed(arms) if arm not in CONTROLS and "random" in arms]
    others = [(our_arm, arm) for our_arm in ours for arm in reversed(arms) if arm != our_arm]
    return list(dict.fromkeys([*questions(arms), *pairs, *others]))


def compare_arms(cells: Sequence[ArmResult]) -> list[ArmComparison]:
    """Compare the arms of every task and judge the questions, with Holm's adjustment over all of them."""
    pairs: list[tuple[ArmComparison, ArmResult]] = []
    for task in dict.fromkeys(cell.task for cell in cells):
        arms = {cell.arm: cell for cell in cells if cell.task == task}
        task_questions = questions(list(arms))
        for pair in contrasts(list(arms)):
            cell, other = arms[pair[0]], arms[pair[1]]
            pairs.append((replace(measure_pair(cell, other), asked=pair in task_questions), cell))
    is_tested = [row.asked and row.verdict != INCOMPARABLE for row, _ in pairs]
    p_values = iter(statistics.holm([row.p for (row, _), test in zip(pairs, is_tested, strict=True) if test]))
    return [
        _judge(replace(row, p_holm=next(p_values)), cell, sum(is_tested)) if test else row
        for (row, cell), test in zip(pairs, is_tested, strict=True)
    ]


def measure_pair(cell: ArmResult, other: ArmResult) -> ArmComparison:
    """Measure the paired difference of two arms without a verdict, or give the reasons why they cannot be compared."""
    row = ArmComparison(cell.task, cell.metric, cell.arm, other.arm)
    unlike = cell.unlike(other)
    if unlike:
        return replace(row, verdict=INCOMPARABLE, reasons="; ".join(unlike))
    differences = statistics.paired_differences(cell.scores, other.scores)
    seeds, p = statistics.mean_interval(differences), statistics.sign_flip_p(differences)
    collapses, per_seed = len(cell.collapsed_seeds) + len(other.collapsed_seeds), cell.nested or other.nested
    row = replace(row, n=seeds.n, mean=seeds.mean, std=seeds.std, p=p, collapsed_models=collapses, nested=per_seed)
    ours, others = cell.predictions, other.predictions
    if seeds.n < 2:
        return row
    # Examples with the same answers of all models are interchangeable: the bootstrap draws them as one with a count.
    answers, labels, counts = ours.kind.group_alike(np.vstack([ours.answers, others.answers]), ours.labels)
    both = paired_bootstrap(ours.kind.scorer(answers, labels, cell.metric), counts)
    row = replace(row, examples=both.examples, interaction=both.interaction)
    return replace(row, error=both.std, low=both.low, high=both.high)


def _judge(row: ArmComparison, cell: ArmResult, count: int) -> ArmComparison:
    """Add the verdict to a row, or every reason why the question is undecided."""
    reasons = [f"{row.collapsed_models} of {2 * row.n} models collapsed"] if row.collapsed_models else []
    fewest = fewest_seeds(count)
    if row.n < fewest:
        seeds = "1 seed is" if row.n == 1 else f"{row.n} seeds are"
        suffix = "" if count == 1 else f" for {count} questions"
        smallest_p = min(1.0, count * 2.0 ** (1 - row.n))
        reasons.append(f"{seeds} too few{suffix}: p cannot fall below {smallest_p:.2g}; at least {fewest} are needed")
    elif row.p_holm > ALPHA:
        reasons.append(f"p = {row.p_holm:.2g} after Holm is above {ALPHA}")
    if row.low <= 0 <= row.high:
        reasons.append("the interval contains zero")
    if not reasons:
        sign = 1 if cell.direction == "higher" else -1
        return replace(row, verdict=BETTER if sign * row.mean > 0 else WORSE)
    needed_seeds, plan = (math.nan, "") if row.collapsed_models else _plan(row, count)
    return replace(row, verdict=UNDECIDED, reasons="; ".join(filter(None, [*reasons, plan])), seeds=needed_seeds)


def _plan(row: ArmComparison, count: int) -> tuple[float, str]:
    """Estimate how many seeds would decide the question on this test set, and describe that if it helps."""
    fewest = fewest_seeds(count)
    if not math.isfinite(row.error) or row.mean == 0:
        return (fewest if row.n < fewest else math.nan), ""
    seeds = seeds_needed(Spread(row.std, row.examples, row.interaction), row.mean, count)
    if seeds is None:
        return math.nan, "no number of seeds would decide it: the test set is too small for this difference"
    if seeds > MOST_SEEDS:
        return math.nan, f"more than {MOST_SEEDS:,} seeds would be needed"
    seeds = max(seeds, row.n + 1)
    plan = f"about {seeds} seeds would decide it if mean and deviation stay the same"
    return seeds, plan if seeds > fewest else ""
