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
# Larger numbers of units and of texts are not computed.
MOST_UNITS = 1000
MOST_TEXTS = 1_000_000
FUTILE = 0.1  # chance of deciding at the planned end, below which going on is futile


@dataclass(frozen=True)
class ArmComparison:
    """Comparison of two arms on a task; numbers that cannot be computed are NaN.

    Attributes:
        task: Name of the task.
        metric: Metric of the first arm.
        arm: The first arm.
        other: The arm that it is compared with.
        asked: True for a question of the report; other rows get no verdict.
        n: Number of units; 0 if the two are not compared.
        arm_score: Mean score of the first arm.
        other_score: Mean score of the other.
        is_baseline: True if the other is the best baseline of the task.
        unit: What the difference varies over beside texts: ``adaptation``, ``fold``, or ``seed`` of
            one adaptation.
        one_adaptation: True if an arm was adapted, once: nothing says how another adaptation would
            do.
        models: Number of fine-tuned models of each arm.
        texts: Number of test texts.
        mean: Mean difference, arm minus other.
        error: Standard error of the mean over units and texts.
        low: Lower end of the 95 % interval.
        high: Upper end of the interval.
        unit_std: Standard deviation between units, without that of the fine-tunings within.
        seed_std: Standard deviation between fine-tunings of a unit.
        text_std: Standard deviation between test sets of this size.
        unit_share: Share of the squared error that is due to the units.
        seed_share: Share that is due to the fine-tunings within units.
        text_share: Share that is due to the test texts.
        detectable: Smallest difference that as many units and texts decide with a power of 80 %.
        p: p of the two-level t test.
        p_holm: p after Holm over the questions of the report; NaN for other rows.
        verdict: ``better``, ``worse``, ``undecided``, ``not compared`` or ``not asked``.
        reasons: Why the question is undecided and what would decide it; empty with a verdict.
        collapsed_models: Number of collapsed models of both arms.
        units_needed: Units that would decide with a power of 80 %; NaN if unknown or if no number
            would.
        texts_needed: Test texts that would decide it; NaN likewise.
        horizon: Units planned of a run that may stop early; 0 of others.
        level: Largest p of this look alone that decides, by Holm's first step.
        chance: Chance that the planned rest of the run decides, if the difference is as measured;
            NaN without a rest.
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
        """What was averaged, in words: "5 folds", "8 seeds of this one adaptation"."""
        plural = "" if self.n == 1 else "s"
        words = f"{self.n} {self.unit}{plural}"
        if self.one_adaptation and self.unit != ADAPTATION:
            words += " of this one adaptation"
        return words

    @property
    def remedy(self) -> str:
        """Name that of which more would lower the error most: adaptations, folds, texts or fine-tunings.

        If only one adaptation is known, these are adaptations, never fine-tunings.
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


def main_arms(arms: Iterable[str]) -> list[str]:
    """Return the arms that a report is about.

    These are dana (or else adapted) and every NAME+dana; without any, all arms but the controls.
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
    """Return the controls that an arm must beat: base and random.

    The arm NAME+dana must beat NAME+random and NAME alone.
    """
    plain_arm = arm.removesuffix("+dana")
    if plain_arm == arm:
        return RIVALS
    return (f"{plain_arm}+random", plain_arm)


def questions(arms: Sequence[str]) -> list[tuple[str, str]]:
    """List the questions of a task as pairs of arms.

    Our arms are compared with their controls; without these with all others; and without others
    the first of ours with each of the rest. If all arms are controls, each is compared with base.
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
    """Pair every other arm with a control; none if the control is not among the arms."""
    if control not in arms:
        return []
    return [(arm, control) for arm in arms if arm != control]


def contrasts(arms: Sequence[str]) -> list[tuple[str, str]]:
    """List the pairs of arms to show.

    These are the questions, every arm with base, every selection with random text, and the first of
    our arms with all others.
    """
    last_first = list(reversed(arms))
    pairs = [*questions(arms), *_pairs_with("base", last_first)]
    if "random" in arms:
        pairs += [(arm, "random") for arm in last_first if not is_control(arm)]
    for our_arm in main_arms(arms)[:1]:
        pairs += [(our_arm, arm) for arm in last_first if arm != our_arm]
    return list(dict.fromkeys(pairs))


def best_baseline(baselines: Iterable[ArmResult], task: str) -> ArmResult | None:
    """Return the baseline of a task with the best score; None without baselines."""

    def goodness(baseline: ArmResult) -> float:
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
        baselines: Simple models; the arms that a report is about must beat the best of each task.
    """
    measured: list[tuple[ArmComparison, ArmResult, ArmResult]] = []
    for task in dict.fromkeys(result.task for result in results):
        arms = {result.arm: result for result in results if result.task == task}
        measured += _measure_task(arms, best_baseline(baselines, task))
    p_values = statistics.holm([row.p for row, _, _ in measured if _is_tested(row)])
    count = len(p_values)
    open_count = sum(p > ALPHA for p in p_values)
    adjusted = iter(p_values)
    rows = []
    for row, result, other in measured:
        if _is_tested(row):
            row = replace(row, p_holm=next(adjusted))
            row = _judge(row, result, other, count, open_count)
        rows.append(row)
    return rows


def _measure_task(
    arms: dict[str, ArmResult], baseline: ArmResult | None
) -> list[tuple[ArmComparison, ArmResult, ArmResult]]:
    """Measure every pair of arms of a task that is asked or shown, without a verdict.

    Returns:
        Each comparison with the results of its two arms.
    """
    asked = questions(list(arms))
    shown = contrasts(list(arms))
    if baseline is not None:
        asked = asked + [(arm, baseline.arm) for arm in main_arms(arms)]
        arms = {**arms, baseline.arm: baseline}
    measured = []
    for pair in dict.fromkeys([*asked, *shown]):
        result = arms[pair[0]]
        other = arms[pair[1]]
        row = replace(measure_pair(result, other), asked=pair in asked)
        measured.append((row, result, other))
    return measured


def _is_tested(row: ArmComparison) -> bool:
    """Return whether a comparison is a question that can be answered."""
    return row.asked and row.verdict != INCOMPARABLE


def reason_to_stop(rows: Iterable[ArmComparison]) -> str:
    """Say why a run may stop before its planned end; empty if it goes on.

    It stops if each question is decided, or would be decided at the planned end with a chance below
    :data:`FUTILE`.
    """
    tested = [row for row in rows if _is_tested(row)]
    chances = [row.chance for row in tested if row.verdict == UNDECIDED]
    # No comparison with NaN is true, so an unknown chance keeps the run going.
    if not tested or not all(chance < FUTILE for chance in chances):
        return ""
    decisions = f"{len(tested) - len(chances)} of {len(tested)} questions are decided"
    if not chances:
        return decisions
    return (
        f"{decisions}; the chance that the rest would decide another is {max(chances):.2g}, "
        f"below {FUTILE}"
    )


def difference(result: ArmResult, other: ArmResult) -> TwoLevel:
    """Estimate the difference of two arms that compare: of the same units, seeds and texts."""
    differences = result.influences - other.influences
    folds = result.predictions.folds
    adaptations = max(result.adaptations, other.adaptations)
    if adaptations > 1:
        return replace(two_level(differences, adaptations, folds), horizon=result.horizon)
    # Without a planned end: a run looks at its results after adaptations alone.
    return two_level(differences, len(differences), folds)


def measure_pair(result: ArmResult, other: ArmResult) -> ArmComparison:
    """Measure the difference of two arms without a verdict.

    If they cannot be compared, the row gives the reasons.
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
    both = difference(result, other)
    unit = SEED
    if both.nested:
        unit = FOLD
    elif max(result.adaptations, other.adaptations) > 1:
        unit = ADAPTATION
    is_adapted = bool(result.lineage.parent or other.lineage.parent)
    row = replace(
        row,
        n=both.units,
        unit=unit,
        one_adaptation=unit == SEED and is_adapted,
        models=len(result.scores),
        texts=both.texts,
        mean=both.mean,
        collapsed_models=len(result.collapsed_seeds) + len(other.collapsed_seeds),
        horizon=both.horizon,
    )
    if both.units < 2:
        return replace(row, p=1.0)
    low, high = both.interval
    unit_share, seed_share, text_share = both.shares
    return replace(
        row,
        error=both.error,
        low=low,
        high=high,
        unit_std=both.unit_std,
        seed_std=both.seed_std,
        text_std=math.sqrt(both.by_text),
        unit_share=unit_share,
        seed_share=seed_share,
        text_share=text_share,
        detectable=both.detectable(),
        p=both.p,
    )


def _judge(
    row: ArmComparison, result: ArmResult, other: ArmResult, count: int, open_count: int
) -> ArmComparison:
    """Add the verdict to a row, or every reason why the question is undecided.

    Args:
        row: The row.
        result: Result of its first arm.
        other: Result of its other arm.
        count: Number of questions of the report.
        open_count: Number of those that p does not decide.
    """
    both = difference(result, other)
    if row.horizon:
        row = replace(row, level=both.level(count))
    if row.n < row.horizon:
        chance = 0.0 if row.collapsed_models else both.chance(max(open_count, 1))
        row = replace(row, chance=chance)
    reasons = []
    if row.collapsed_models:
        reasons.append(f"{row.collapsed_models} of {2 * row.models} models collapsed")
    if row.n < 2:
        reasons.append(f"one {row.unit} says nothing about others")
    elif row.p_holm > ALPHA:
        adjusted = f", adjusted for {count} questions," if count > 1 else ""
        reasons.append(f"p = {row.p_holm:.2g}{adjusted} is above {ALPHA}")
    if not reasons:
        sign = 1 if result.direction == "higher" else -1
        return replace(row, verdict=BETTER if sign * row.mean > 0 else WORSE)
    row = replace(row, verdict=UNDECIDED)
    if row.n > 1 and row.mean and not row.collapsed_models:
        row = _with_needs(row, both, count)
        reasons += _plan(row)
    return replace(row, reasons="; ".join(reasons))


def _with_needs(row: ArmComparison, both: TwoLevel, count: int) -> ArmComparison:
    """Add how small a difference shows, and how many units, or texts, would decide the question."""
    units = math.nan
    # Folds are a choice, and more seeds would still tell of one adaptation.
    if row.unit != FOLD and not row.one_adaptation:
        units = _first(
            range(both.units + 1, MOST_UNITS),
            lambda units: both.at(units, both.texts),
            both.mean,
            count,
        )
    texts = _first(
        range(both.texts + 1, MOST_TEXTS),
        lambda texts: both.at(both.units, texts),
        both.mean,
        count,
    )
    return replace(row, detectable=both.detectable(count), units_needed=units, texts_needed=texts)


def _plan(row: ArmComparison) -> list[str]:
    """Say what would decide an undecided question."""
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
    numbers: range, result_with: Callable[[int], TwoLevel], mean: float, count: int
) -> float:
    """Find the first number at which a true difference as large as the mean would be decided.

    Args:
        numbers: Numbers of units or of texts, ascending.
        result_with: Function that estimates the difference with so many of them.
        mean: The difference.
        count: Number of questions of the report.

    Returns:
        The number; NaN if none would decide.
    """

    # The detectable difference falls with the numbers; bisect needs values that rise.
    def negative_detectable(number: int) -> float:
        return -result_with(number).detectable(count)

    index = bisect_left(numbers, -abs(mean), key=negative_detectable)
    return numbers[index] if index < len(numbers) else math.nan
