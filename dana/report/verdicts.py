"""Compare two arms on a task: better, worse or undecided, and what would decide (docs/statistics.md).

A question is decided if the two-level p of :mod:`dana.core.statistics` is at most 0.05 after Holm
over all questions of the report, and no model collapsed. Everything else is undecided, with
reasons. A run that may stop early is looked at after each adaptation; p and interval then allow for
all looks, and :func:`reason_to_stop` is the rule.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dana.core import statistics
from dana.core.statistics import ALPHA, TwoLevel, two_level
from dana.report.arm_results import ArmResult
from dana.report.run import ADAPTED, is_control

# Verdicts.
BETTER = "better"
WORSE = "worse"
UNDECIDED = "undecided"
INCOMPARABLE = "not compared"
UNASKED = "not asked"
# Controls that an arm must beat: no adaptation, and the same amount of random text.
RIVALS = ("base", "random")
# Units that a difference varies over.
ADAPTATION = "adaptation"
FOLD = "fold"
SEED = "seed"
# Where only so many units or texts, or more, would decide a question, their number is not given.
MOST_UNITS = 1000
MOST_TEXTS = 1_000_000
FUTILE = 0.1  # a smaller chance of deciding at the planned end is not worth going on for


@dataclass(frozen=True)
class ArmComparison:
    """Comparison of two arms on a task; numbers that cannot be computed are NaN.

    Attributes:
        task: Name of the task.
        metric: Metric of the first arm.
        arm: The first arm.
        other: The arm that it is compared with.
        asked: True for a question of the report. No other row is judged.
        n: Number of units; 0 if the two are not compared.
        arm_score: Mean score of the first arm.
        other_score: Mean score of the other.
        is_baseline: True if the other is the best baseline of the task.
        unit: What the difference varies over beside texts: ``adaptation``, ``fold``, or ``seed`` if
            neither arm was adapted more than once.
        one_adaptation: True if an arm was adapted just once, so that nothing says how another
            adaptation would do. It is False with folds.
        models: Number of fine-tuned models of the first arm. The other has as many, or none if it
            is a baseline.
        texts: Number of test texts.
        mean: Mean difference, arm minus other.
        error: Standard error of the mean over units and texts.
        low: Lower end of the 95 % interval.
        high: Upper end of the interval.
        unit_std: Standard deviation between units that is not due to their fine-tunings.
        seed_std: Standard deviation between the fine-tunings of a unit.
        text_std: Standard deviation between test sets of this size.
        unit_share: Share of the squared error that is due to the units.
        seed_share: Share of the squared error that is due to the fine-tunings within units.
        text_share: Share of the squared error that is due to the test texts.
        detectable: Smallest difference that as many units and texts decide with a power of 80 %, as
            if it were the only question; at Holm's strictest level if the reasons name it.
        p: p of the two-level t test; 1 if fine-tuned models have a single unit, which decides
            nothing.
        p_holm: p after Holm over the questions of the report; NaN for other rows.
        verdict: ``better``, ``worse``, ``undecided``, ``not compared`` or ``not asked``.
        reasons: Why the question is undecided and what would decide it, or why the two are not
            compared; empty with any other verdict.
        collapsed_models: Number of collapsed models of both arms.
        units_needed: Number of units that would decide with a power of 80 %; NaN if it is not
            known, or if no number below :data:`MOST_UNITS` would.
        texts_needed: Number of test texts that would decide with a power of 80 %; NaN if it is not
            known, or if no number below :data:`MOST_TEXTS` would.
        horizon: Number of units that are planned, if the run may stop early; else 0.
        level: Largest p, of this look as if it were the only one, that decides at Holm's strictest
            level; NaN if the run has no looks.
        chance: Chance that the rest of the run decides, if the true difference is as measured; NaN
            if no rest is planned.
    """

    task: str
    metric: str
    arm: str
    other: str
    asked: bool = False
    n: int = 0
    arm_score: float = math.nan
    other_score: float = math.nan
    is_baseline: bool = False
    unit: str = SEED
    one_adaptation: bool = False
    models: int = 0
    texts: int = 0
    mean: float = math.nan
    error: float = math.nan
    low: float = math.nan
    high: float = math.nan
    unit_std: float = math.nan
    seed_std: float = math.nan
    text_std: float = math.nan
    unit_share: float = math.nan
    seed_share: float = math.nan
    text_share: float = math.nan
    detectable: float = math.nan
    p: float = math.nan
    p_holm: float = math.nan
    verdict: str = UNASKED
    reasons: str = ""
    collapsed_models: int = 0
    units_needed: float = math.nan
    texts_needed: float = math.nan
    horizon: int = 0
    level: float = math.nan
    chance: float = math.nan

    @property
    def basis(self) -> str:
        """What the difference was averaged over: "5 folds", "8 seeds of this one adaptation"."""
        plural = "" if self.n == 1 else "s"
        words = f"{self.n} {self.unit}{plural}"
        if self.one_adaptation and self.unit != ADAPTATION:
            words += " of this one adaptation"
        return words

    @property
    def remedy(self) -> str:
        """What to have more of, to lower the error most: adaptations, folds, seeds, texts or fine-tunings.

        If only one adaptation is known, it is adaptations: more fine-tunings say nothing of others.
        """
        if self.one_adaptation:
            return f"{ADAPTATION}s"
        if self.n < 2:
            return f"{self.unit}s"
        texts = "labelled texts" if self.unit == FOLD else "test texts"
        shares = {
            texts: self.text_share,
            f"{self.unit}s": self.unit_share,
            f"fine-tunings of each {self.unit}": self.seed_share,
        }
        return max(shares, key=lambda name: shares[name])


def models_of_both(row: Any) -> int:
    """Return the number of fine-tuned models of both arms of a comparison, or of its row in a table.

    A baseline has none.
    """
    models: int = row.models
    return models if row.is_baseline else 2 * models


def main_arms(arms: Iterable[str]) -> list[str]:
    """Return the arms that a report is about.

    These are ``dana``, or ``adapted`` if there is no ``dana``, and every ``NAME+dana``. If there is
    none of them, these are all arms but the controls.
    """
    names = list(arms)
    ours = [arm for arm in names if arm.endswith("+dana")]
    if "dana" in names:
        ours.insert(0, "dana")
    elif ADAPTED in names:
        ours.insert(0, ADAPTED)
    if ours:
        return ours
    return [arm for arm in names if not is_control(arm)]


def rivals_of(arm: str) -> tuple[str, ...]:
    """Return the names of the arms that an arm must beat.

    These are ``base`` and ``random``, or of ``NAME+dana`` they are ``NAME+random`` and ``NAME``.
    """
    plain_arm = arm.removesuffix("+dana")
    if plain_arm == arm:
        return RIVALS
    return (f"{plain_arm}+random", plain_arm)


def questions(arms: Sequence[str]) -> list[tuple[str, str]]:
    """List the questions of a task as pairs of arms: one of ours, and one to compare it with.

    Ours are those of :func:`main_arms`. Each is compared with its rivals. If no rival was run, each
    is compared with every other arm. If all arms are ours, the first is compared with each of the
    rest. If all arms are controls, each is compared with ``base``.

    Args:
        arms: Names of the arms that were run.
    """
    ours = main_arms(arms)
    if not ours:
        return _pairs_with("base", arms)
    pairs = [(arm, rival) for arm in ours for rival in rivals_of(arm) if rival in arms]
    if not pairs:
        others = [arm for arm in arms if arm not in ours]
        pairs = [(arm, other) for arm in ours for other in others]
    if not pairs:
        pairs = [(ours[0], arm) for arm in ours[1:]]
    return pairs


def _pairs_with(control: str, arms: Sequence[str]) -> list[tuple[str, str]]:
    """Pair every other arm with a control; return no pair if the control is not among the arms."""
    if control not in arms:
        return []
    return [(arm, control) for arm in arms if arm != control]


def contrasts(arms: Sequence[str]) -> list[tuple[str, str]]:
    """List the pairs of arms to show, each once.

    These are the questions; every arm with ``base``; every arm that is no control with ``random``;
    and the first of our arms with all others.

    Args:
        arms: Names of the arms that were run, in the order of the report.
    """
    # A report has the controls first and our arms last; the pairs of our arms are shown first.
    last_first = list(reversed(arms))
    pairs = [*questions(arms), *_pairs_with("base", last_first)]
    if "random" in arms:
        pairs += [(arm, "random") for arm in last_first if not is_control(arm)]
    ours = main_arms(arms)
    if ours:
        pairs += [(ours[0], arm) for arm in last_first if arm != ours[0]]
    return list(dict.fromkeys(pairs))


def best_baseline(baselines: Iterable[ArmResult], task: str) -> ArmResult | None:
    """Return the baseline of a task with the best score; None without baselines."""

    def goodness(baseline: ArmResult) -> float:
        """Return the score, or the negative one where lower is better."""
        sign = 1 if baseline.direction == "higher" else -1
        return sign * baseline.estimate.mean

    of_task = [baseline for baseline in baselines if baseline.task == task]
    return max(of_task, key=goodness, default=None)


def compare_arms(
    results: Sequence[ArmResult], baselines: Sequence[ArmResult] = ()
) -> list[ArmComparison]:
    """Compare the arms of every task and judge the questions.

    Holm's adjustment is over the questions of all tasks.

    Args:
        results: Results of the arms.
        baselines: Results of simple models; the arms that a report is about must beat the best of
            each task.

    Returns:
        A row for every pair of arms that is asked or shown, task by task, the questions first.
    """
    measured: list[tuple[ArmComparison, ArmResult, ArmResult]] = []
    for task in dict.fromkeys(result.task for result in results):
        arms = {result.arm: result for result in results if result.task == task}
        measured += _measure_task(arms, best_baseline(baselines, task))
    tested_places = [place for place, (row, _, _) in enumerate(measured) if _is_tested(row)]
    adjusted = statistics.holm([measured[place][0].p for place in tested_places])
    p_holm_of_place = dict(zip(tested_places, adjusted, strict=True))
    count = len(adjusted)
    open_count = sum(p > ALPHA for p in adjusted)
    rows = []
    for place, (row, result, other) in enumerate(measured):
        if place in p_holm_of_place:
            row = replace(row, p_holm=p_holm_of_place[place])
            row = _judge(row, result, other, count, open_count)
        rows.append(row)
    return rows


def _measure_task(
    arms: dict[str, ArmResult], baseline: ArmResult | None
) -> list[tuple[ArmComparison, ArmResult, ArmResult]]:
    """Measure every pair of arms of a task that is asked or shown, without a verdict.

    Args:
        arms: Result of each arm by its name.
        baseline: The best baseline of the task; None without one.

    Returns:
        Each comparison with the results of its two arms, the questions first.
    """
    results = dict(arms)
    asked = questions(list(arms))
    shown = contrasts(list(arms))
    if baseline is not None:
        asked += [(arm, baseline.arm) for arm in main_arms(arms)]
        results[baseline.arm] = baseline
    measured = []
    for pair in dict.fromkeys([*asked, *shown]):
        result = results[pair[0]]
        other = results[pair[1]]
        row = replace(measure_pair(result, other), asked=pair in asked)
        measured.append((row, result, other))
    return measured


def _is_tested(row: ArmComparison) -> bool:
    """Return whether a comparison is a question that can be answered."""
    return row.asked and row.verdict != INCOMPARABLE


def reason_to_stop(rows: Iterable[ArmComparison]) -> str:
    """Say why a run may stop before its planned end; empty if it goes on.

    It stops if every question that can be answered is decided, or has a chance below :data:`FUTILE`
    to be decided at the planned end.

    Args:
        rows: Rows of :func:`compare_arms`.
    """
    tested = [row for row in rows if _is_tested(row)]
    chances = [row.chance for row in tested if row.verdict == UNDECIDED]
    # NaN is not below any number, so an unknown chance keeps the run going.
    is_futile = all(chance < FUTILE for chance in chances)
    if not tested or not is_futile:
        return ""
    decisions = f"{len(tested) - len(chances)} of {len(tested)} questions are decided"
    if not chances:
        return decisions
    return (
        f"{decisions}; the chance that the rest would decide another is {max(chances):.2g}, "
        f"below {FUTILE}"
    )


def difference(result: ArmResult, other: ArmResult) -> TwoLevel:
    """Estimate the mean difference of two arms, first minus other, with its uncertainty.

    Args:
        result: Result of the first arm.
        other: Result of the other, which has the same seeds and test texts (:meth:`ArmResult.unlike`
            lists nothing). A baseline has one model, with which each of the first arm is compared.
    """
    differences = result.influences - other.influences  # of shape (models, texts)
    folds = result.predictions.folds
    adaptations = max(result.adaptations, other.adaptations)
    if adaptations > 1:
        estimate = two_level(differences, adaptations, folds)
        return replace(estimate, horizon=result.horizon)
    # The seeds are the units. It has no horizon, as a run stops early only after an adaptation.
    return two_level(differences, len(differences), folds)


def measure_pair(result: ArmResult, other: ArmResult) -> ArmComparison:
    """Measure the difference of two arms, first minus other, without a verdict on it.

    If they cannot be compared, the row has the verdict ``not compared`` and the reasons. With one
    unit alone it has no error, interval or shares.
    """
    row = ArmComparison(
        result.task,
        result.metric,
        result.arm,
        other.arm,
        is_baseline=other.is_baseline,
        arm_score=result.estimate.mean,
        other_score=other.estimate.mean,
    )
    unlike = result.unlike(other)
    if unlike:
        return replace(row, verdict=INCOMPARABLE, reasons="; ".join(unlike))
    estimate = difference(result, other)
    unit = SEED
    if estimate.nested:
        unit = FOLD
    elif max(result.adaptations, other.adaptations) > 1:
        unit = ADAPTATION
    is_adapted = bool(result.lineage.parent or other.lineage.parent)
    row = replace(
        row,
        unit=unit,
        one_adaptation=unit == SEED and is_adapted,
        models=len(result.scores),
        collapsed_models=len(result.collapsed_seeds) + len(other.collapsed_seeds),
        horizon=estimate.horizon,
    )
    if estimate.units < 2:
        # One unit decides nothing, but Holm counts the question.
        return replace(row, n=estimate.units, texts=estimate.texts, mean=estimate.mean, p=1.0)
    return with_estimate(row, estimate)


def with_estimate(row: ArmComparison, estimate: TwoLevel) -> ArmComparison:
    """Add the estimate of a difference to the row of its comparison."""
    low, high = estimate.interval
    unit_share, seed_share, text_share = estimate.shares
    return replace(
        row,
        n=estimate.units,
        texts=estimate.texts,
        mean=estimate.mean,
        error=estimate.error,
        low=low,
        high=high,
        unit_std=estimate.unit_std,
        seed_std=estimate.seed_std,
        text_std=math.sqrt(estimate.by_text),
        unit_share=unit_share,
        seed_share=seed_share,
        text_share=text_share,
        detectable=estimate.detectable(),
        p=estimate.p,
    )


def _judge(
    row: ArmComparison, result: ArmResult, other: ArmResult, count: int, open_count: int
) -> ArmComparison:
    """Add the verdict to the row of a question; if it is undecided, also why, and what would decide it.

    In a run that may stop early, it adds the level of this look and the chance of the rest, too.

    Args:
        row: The row, with p after Holm.
        result: Result of its first arm.
        other: Result of its other arm.
        count: Number of questions of the report.
        open_count: Number of those that p does not decide.
    """
    estimate = difference(result, other)
    if row.horizon:
        row = _with_look(row, estimate, count, open_count)
    reasons = _reasons_against(row, count)
    if not reasons:
        sign = 1 if result.direction == "higher" else -1
        is_gain = sign * row.mean > 0
        return replace(row, verdict=BETTER if is_gain else WORSE)
    row = replace(row, verdict=UNDECIDED)
    has_difference = row.mean != 0  # no number of texts decides a difference of 0
    if row.n > 1 and has_difference and not row.collapsed_models:
        row = _with_needs(row, estimate, count)
        reasons += _plan(row)
    return replace(row, reasons="; ".join(reasons))


def _with_look(
    row: ArmComparison, estimate: TwoLevel, count: int, open_count: int
) -> ArmComparison:
    """Add the level of this look to a row, and the chance that the rest of the run decides.

    Args:
        row: The row of a run that may stop early.
        estimate: Its difference.
        count: Number of questions of the report.
        open_count: Number of those that p does not decide.
    """
    row = replace(row, level=estimate.level(count))
    if row.n >= row.horizon:
        return row  # no rest is planned
    if row.collapsed_models:
        return replace(row, chance=0.0)  # they stay, and no p decides beside them
    # Holm's strictest level for the questions that are open. This one may be decided, and none open.
    chance = estimate.chance(max(open_count, 1))
    return replace(row, chance=chance)


def _reasons_against(row: ArmComparison, count: int) -> list[str]:
    """List why a question is undecided; empty if it is decided.

    Args:
        row: The row, with p after Holm.
        count: Number of questions of the report.
    """
    reasons = []
    if row.collapsed_models:
        reasons.append(f"{row.collapsed_models} of {models_of_both(row)} models collapsed")
    if row.n < 2:
        reasons.append(f"one {row.unit} says nothing about others")
    elif row.p_holm > ALPHA:
        adjusted = f", adjusted for {count} questions," if count > 1 else ""
        reasons.append(f"p = {row.p_holm:.2g}{adjusted} is above {ALPHA}")
    return reasons


def _with_needs(row: ArmComparison, estimate: TwoLevel, count: int) -> ArmComparison:
    """Add to an undecided row which difference would show, and how many units or texts would decide it.

    Args:
        row: The row.
        estimate: Its difference.
        count: Number of questions of the report.
    """

    def with_units(units: int) -> TwoLevel:
        return estimate.at(units, estimate.texts)

    def with_texts(texts: int) -> TwoLevel:
        return estimate.at(estimate.units, texts)

    units_needed = math.nan
    # More folds are no more data, and more seeds would still be seeds of one adaptation.
    if row.unit != FOLD and not row.one_adaptation:
        more_units = range(estimate.units + 1, MOST_UNITS)
        units_needed = _first(more_units, with_units, estimate.mean, count)
    more_texts = range(estimate.texts + 1, MOST_TEXTS)
    texts_needed = _first(more_texts, with_texts, estimate.mean, count)
    return replace(
        row,
        detectable=estimate.detectable(count),
        units_needed=units_needed,
        texts_needed=texts_needed,
    )


def _plan(row: ArmComparison) -> list[str]:
    """Say what would decide an undecided question, by the numbers of :func:`_with_needs`."""
    # "Four of five" is POWER of dana.core.statistics.
    plan = [f"a difference of {row.detectable:.2g} would show in four of five reruns"]
    needs = []
    if not math.isnan(row.units_needed):
        needs.append(f"{row.units_needed:,.0f} {row.unit}s")
    if not math.isnan(row.texts_needed):
        texts = "labelled texts" if row.unit == FOLD else "test texts"
        needs.append(f"{row.texts_needed:,.0f} {texts}")
    if needs:
        plan.append(f"about {' or '.join(needs)} would decide this one")
    if row.one_adaptation:
        plan.append("only more adaptations tell how another would do")
    return plan


def _first(
    numbers: range, estimate_at: Callable[[int], TwoLevel], mean: float, count: int
) -> float:
    """Return the first number at which a true difference as large as the mean would be decided.

    Args:
        numbers: Numbers of units or of texts, ascending.
        estimate_at: Function from such a number to the estimate with so many of them.
        mean: The difference.
        count: Number of questions of the report.

    Returns:
        The number; NaN if none of them would decide.
    """

    # The detectable difference falls as the numbers rise, but bisect needs values that rise.
    def negative_detectable(number: int) -> float:
        return -estimate_at(number).detectable(count)

    index = bisect_left(numbers, -abs(mean), key=negative_detectable)
    if index == len(numbers):
        return math.nan
    return numbers[index]
