"""Judge what frozen vectors say of adaptation, where a run has no fine-tuned models to judge by."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dana.core.statistics import ALPHA, TwoLevel, holm, two_level
from dana.report.arm_results import ArmResult
from dana.report.probes import ALL, LINEAR, ProbeResult
from dana.report.verdicts import (
    ADAPTATION,
    BETTER,
    FOLD,
    UNDECIDED,
    WORSE,
    ArmComparison,
    best_baseline,
    main_arms,
    rivals_of,
)


def probe_comparisons(
    probes: Sequence[ProbeResult], baselines: Sequence[ArmResult]
) -> list[ArmComparison]:
    """Compare the linear models on all labels of our arm with those of its controls and the best simple model.

    p is Holm's over all of these; with one adaptation it is over texts alone.

    Args:
        probes: What probes find in the vectors of every arm.
        baselines: Simple models.
    """
    whole = [probe for probe in probes if (probe.method, probe.size) == (LINEAR, ALL)]
    pairs: list[tuple[ArmComparison, TwoLevel]] = []
    for task in dict.fromkeys(probe.task for probe in whole):
        arms = {probe.arm: probe for probe in whole if probe.task == task}
        for arm in main_arms(arms):
            ours = arms[arm]
            for other in rivals_of(arm):
                difference = ours.difference(arms[other]) if other in arms else None
                if difference is not None:
                    row = _row(ours, other, arms[other].estimate.mean, difference)
                    pairs.append((row, difference))
            on_texts = [_on_texts(one, ours.ids) for one in baselines if one.task == task]
            baseline = best_baseline([one for one in on_texts if one is not None], task)
            if baseline is not None:
                values = ours.values - baseline.influences
                difference = two_level(values, len(values), ours.folds)
                row = _row(ours, baseline.arm, baseline.estimate.mean, difference)
                pairs.append((replace(row, is_baseline=True), difference))
    adjusted = holm([row.p for row, _ in pairs])
    return [
        _judge(replace(row, p_holm=p), difference, ours_is_better(probes, row), len(pairs))
        for (row, difference), p in zip(pairs, adjusted, strict=True)
    ]


def ours_is_better(probes: Sequence[ProbeResult], row: ArmComparison) -> bool:
    """Return whether a difference is a gain in the direction of its metric."""
    direction = next(probe.direction for probe in probes if probe.task == row.task)
    return row.mean > 0 if direction == "higher" else row.mean < 0


def _on_texts(baseline: ArmResult, ids: np.ndarray) -> ArmResult | None:
    """Return a simple model's result on some of its texts; None if it was not tested on all of these.

    Args:
        baseline: The result.
        ids: Ids of the texts, ascending.
    """
    some = baseline.on_texts(ids)
    return some if np.array_equal(some.predictions.ids, ids) else None


def _row(ours: ProbeResult, other: str, other_score: float, difference: TwoLevel) -> ArmComparison:
    low, high = difference.interval
    unit_share, seed_share, text_share = difference.shares
    return ArmComparison(
        ours.task,
        ours.metric,
        ours.arm,
        other,
        asked=True,
        n=difference.units,
        arm_score=ours.estimate.mean,
        other_score=other_score,
        unit=ADAPTATION if ours.folds is None else FOLD,
        one_adaptation=difference.units == 1,
        models=difference.units,
        texts=difference.texts,
        mean=difference.mean,
        error=difference.error,
        low=low,
        high=high,
        unit_share=unit_share,
        seed_share=0.0 if math.isnan(seed_share) else seed_share,
        text_share=text_share,
        p=difference.p,
    )


def _judge(row: ArmComparison, difference: TwoLevel, is_gain: bool, count: int) -> ArmComparison:
    """Add the verdict to a row, or why it is undecided."""
    if row.p_holm <= ALPHA:
        return replace(row, verdict=BETTER if is_gain else WORSE)
    adjusted = f", adjusted for {count} questions," if count > 1 else ""
    reasons = (
        f"p = {row.p_holm:.2g}{adjusted} is above {ALPHA}; a difference of "
        f"{difference.detectable(count):.2g} would show in four of five reruns"
    )
    return replace(row, verdict=UNDECIDED, reasons=reasons)
