"""Compare two arms on a task: better, worse or undecided, and what would decide (docs/design.md).

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

BETTER, WORSE, UNDECIDED = "better", "worse", "undecided"
INCOMPARABLE, UNASKED = "not compared", "not asked"
RIVALS = (
    "base",
    "random",
)  # controls that an arm must beat: no adaptation, and the same amount of random text
ADAPTATION, FOLD, SEED = "adaptation", "fold", "seed"
MOST_UNITS, MOST_TEXTS = 1000, 1_000_000  # larger numbers are not computed
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
        words = f"{self.n} {self.unit}{'' if self.n == 1 else 's'}"
        if self.one_adaptation and self.unit != ADAPTATION:
            words += " of this one adaptation"
        return words

    @property
    def remedy(self) -> str:
        """What more of would lower the error most; never fine-tunings where only one adaptation is known."""
        if self.one_adaptation or self.n < 2:
            return f"{ADAPTATION if self.one_adaptation else self.unit}s"
        shares = {"labelled texts" if self.unit == FOLD else "test texts": self.text_share}
        shares |= {
            f"{self.unit}s": self.unit_share,
            f"fine-tunings of each {self.unit}": self.seed_share,
        }
        return max(shares, key=lambda name: shares[name])


def main_arms(arms: Iterable[str]) -> list[str]:
    """Return the arms that a report is about: dana (or adapted) and NAME+dana if present, else all but the controls."""
    names = list(arms)
    dana_arms = [arm for arm in ("dana", ADAPTED) if arm in names][:1] + [
        arm for arm in names if arm.endswith("+dana")
    ]
    return dana_arms or [arm for arm in names if not is_control(arm)]


def rivals_of(arm: str) -> tuple[str, ...]:
    """Name the controls that an arm must beat: base and random; of NAME+dana NAME+random and NAME alone."""
    return RIVALS if (name := arm.removesuffix("+dana")) == arm else (f"{name}+random", name)


def questions(arms: Sequence[str]) -> list[tuple[str, str]]:
    """List the questions of a task as pairs of arms: ours against their controls, or else against all others.

    If all arms are controls, each of them is compared with base.
    """
    ours = main_arms(arms)
    if not ours:
        return [(arm, "base") for arm in arms if arm != "base" and "base" in arms]
    pairs = [(arm, rival) for arm in ours for rival in rivals_of(arm) if rival in arms]
    pairs = pairs or [(arm, rival) for arm in ours for rival in arms if rival not in ours]
    return pairs or [(ours[0], arm) for arm in ours[1:]]


def contrasts(arms: Sequence[str]) -> list[tuple[str, str]]:
    """List the pairs of arms to show: the questions, every arm with base, selections with random, ours with others."""
    ours = main_arms(arms)[:1]
    pairs = [(arm, "base") for arm in reversed(arms) if arm != "base" and "base" in arms]
    pairs += [(arm, "random") for arm in reversed(arms) if not is_control(arm) and "random" in arms]
    others = [(our_arm, arm) for our_arm in ours for arm in reversed(arms) if arm != our_arm]
    return list(dict.fromkeys([*questions(arms), *pairs, *others]))


def best_baseline(baselines: Iterable[ArmResult], task: str) -> ArmResult | None:
    """Return the baseline of a task with the best score; None without baselines."""
    rows = [baseline for baseline in baselines if baseline.task == task]
    return max(
        rows,
        key=lambda row: row.estimate.mean * (1 if row.direction == "higher" else -1),
        default=None,
    )


def compare_arms(
    results: Sequence[ArmResult], baselines: Sequence[ArmResult] = ()
) -> list[ArmComparison]:
    """Compare the arms of every task and judge the questions, with Holm's adjustment over all of them.

    Args:
        results: Results of the arms.
        baselines: Simple models; the arms that a report is about must beat the best of each task.
    """
    pairs: list[tuple[ArmComparison, ArmResult, ArmResult]] = []
    for task in dict.fromkeys(result.task for result in results):
        arms = {result.arm: result for result in results if result.task == task}
        task_questions, all_pairs = questions(list(arms)), contrasts(list(arms))
        if (baseline := best_baseline(baselines, task)) is not None:
            task_questions = [*task_questions, *((arm, baseline.arm) for arm in main_arms(arms))]
            arms = {**arms, baseline.arm: baseline}
        for pair in dict.fromkeys([*task_questions, *all_pairs]):
            result, other = arms[pair[0]], arms[pair[1]]
            pairs.append(
                (replace(measure_pair(result, other), asked=pair in task_questions), result, other)
            )
    is_tested = [row.asked and row.verdict != INCOMPARABLE for row, *_ in pairs]
    p_values = statistics.holm(
        [row.p for (row, *_), test in zip(pairs, is_tested, strict=True) if test]
    )
    counts, adjustments = (len(p_values), sum(p > ALPHA for p in p_values)), iter(p_values)
    return [
        _judge(replace(row, p_holm=next(adjustments)), result, other, *counts) if test else row
        for (row, result, other), test in zip(pairs, is_tested, strict=True)
    ]


def reason_to_stop(rows: Iterable[ArmComparison]) -> str:
    """Say why a run may stop before its planned end; empty if it goes on.

    It stops if each question is decided, or would be decided at the planned end with a chance below
    :data:`FUTILE`.
    """
    asked_rows = [row for row in rows if row.asked and row.verdict != INCOMPARABLE]
    chances = [row.chance for row in asked_rows if row.verdict == UNDECIDED]
    if not asked_rows or not max(chances, default=0.0) < FUTILE:
        return ""
    decisions = f"{len(asked_rows) - len(chances)} of {len(asked_rows)} questions are decided"
    others = (
        f"the chance that the rest would decide another is {max(chances):.2g}, below {FUTILE}"
        if chances
        else ""
    )
    return "; ".join(filter(None, [decisions, others]))


def difference(result: ArmResult, other: ArmResult) -> TwoLevel:
    """Estimate the difference of two arms that compare: of the same units, seeds and texts."""
    values, units = result.influences - other.influences, max(result.adaptations, other.adaptations)
    both = two_level(values, units if units > 1 else len(values), result.predictions.folds)
    return replace(both, horizon=result.horizon if units > 1 else 0)


def measure_pair(result: ArmResult, other: ArmResult) -> ArmComparison:
    """Measure the difference of two arms without a verdict, or give the reasons why they cannot be compared."""
    row = ArmComparison(
        result.task, result.metric, result.arm, other.arm, is_baseline=other.is_baseline
    )
    row = replace(row, arm_score=result.estimate.mean, other_score=other.estimate.mean)
    if unlike := result.unlike(other):
        return replace(row, verdict=INCOMPARABLE, reasons="; ".join(unlike))
    both, adaptations = difference(result, other), max(result.adaptations, other.adaptations)
    unit = FOLD if both.nested else ADAPTATION if adaptations > 1 else SEED
    row = replace(
        row,
        n=both.units,
        unit=unit,
        models=len(result.scores),
        texts=both.texts,
        mean=both.mean,
        horizon=both.horizon,
    )
    row = replace(
        row, one_adaptation=unit == SEED and bool(result.lineage.parent or other.lineage.parent)
    )
    row = replace(row, collapsed_models=len(result.collapsed_seeds) + len(other.collapsed_seeds))
    if both.units < 2:
        return replace(row, p=1.0)
    low, high = both.interval
    row = replace(row, error=both.error, low=low, high=high, p=both.p, detectable=both.detectable())
    row = replace(
        row, unit_std=both.unit_std, seed_std=both.seed_std, text_std=math.sqrt(both.by_text)
    )
    unit_share, seed_share, text_share = both.shares
    return replace(row, unit_share=unit_share, seed_share=seed_share, text_share=text_share)


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
        row = replace(row, chance=0.0 if row.collapsed_models else both.chance(max(open_count, 1)))
    reasons = (
        [f"{row.collapsed_models} of {2 * row.models} models collapsed"]
        if row.collapsed_models
        else []
    )
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
        row, plan = _plan(row, both, count)
        reasons += plan
    return replace(row, reasons="; ".join(reasons))


def _plan(row: ArmComparison, both: TwoLevel, count: int) -> tuple[ArmComparison, list[str]]:
    """Estimate how small a difference shows, and which number of units, or of texts, would decide the question."""
    row = replace(row, detectable=both.detectable(count))
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
    if row.unit == FOLD or row.one_adaptation:
        units = math.nan  # folds are a choice, and more seeds would still tell of one adaptation
    row = replace(row, units_needed=units, texts_needed=texts)
    needs = [
        (units, f"{row.unit}s"),
        (texts, "labelled texts" if row.unit == FOLD else "test texts"),
    ]
    words = [f"{number:,.0f} {name}" for number, name in needs if not math.isnan(number)]
    plan = [f"a difference of {row.detectable:.2g} would show in four of five reruns"]
    plan += [f"about {' or '.join(words)} would decide this one"] if words else []
    plan += ["only more adaptations tell how another would do"] if row.one_adaptation else []
    return row, plan


def _first(
    numbers: range, result_with: Callable[[int], TwoLevel], mean: float, count: int
) -> float:
    """Find the first number at which a true difference as large as the mean would be decided; NaN if none."""
    index = bisect_left(
        numbers, -abs(mean), key=lambda number: -result_with(number).detectable(count)
    )
    return numbers[index] if index < len(numbers) else math.nan
