"""Judge what frozen vectors say of adaptation, where a run has no fine-tuned models to judge by."""

from collections.abc import Mapping, Sequence
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
    with_estimate,
)


def probe_comparisons(
    probes: Sequence[ProbeResult], baselines: Sequence[ArmResult]
) -> list[ArmComparison]:
    """Compare the linear models on all labels of our arm with those of its rivals.

    These are its controls and the best simple model. p is Holm's over all of these; with one
    adaptation it is over texts alone.

    Args:
        probes: What probes find in the vectors of every arm.
        baselines: Simple models.
    """
    on_all_labels = [probe for probe in probes if probe.method == LINEAR and probe.size == ALL]
    measured: list[tuple[ArmComparison, TwoLevel]] = []
    for task in dict.fromkeys(probe.task for probe in on_all_labels):
        arms = {probe.arm: probe for probe in on_all_labels if probe.task == task}
        of_task = [baseline for baseline in baselines if baseline.task == task]
        for arm in main_arms(arms):
            measured += _against_controls(arms, arm)
            measured += _against_baseline(arms[arm], of_task)
    adjusted = holm([row.p for row, _ in measured])
    rows = []
    for (row, difference), p_holm in zip(measured, adjusted, strict=True):
        is_gain = ours_is_better(probes, row)
        rows.append(_judge(replace(row, p_holm=p_holm), difference, is_gain, len(measured)))
    return rows


def _against_controls(
    arms: Mapping[str, ProbeResult], arm: str
) -> list[tuple[ArmComparison, TwoLevel]]:
    """Measure the difference of an arm to each of its controls that was probed alike.

    Args:
        arms: Probes of every arm.
        arm: Name of our arm.
    """
    measured = []
    for control in rivals_of(arm):
        if control not in arms:
            continue
        difference = arms[arm].difference(arms[control])
        if difference is not None:
            score = arms[control].estimate.mean
            measured.append((_row(arms[arm], control, score, difference), difference))
    return measured


def _against_baseline(
    ours: ProbeResult, baselines: Sequence[ArmResult]
) -> list[tuple[ArmComparison, TwoLevel]]:
    """Measure the difference of an arm to the best simple model of its task; empty without one."""
    tested = []
    for baseline in baselines:
        on_texts = _on_texts(baseline, ours.ids)
        if on_texts is not None:
            tested.append(on_texts)
    best = best_baseline(tested, ours.task)
    if best is None:
        return []
    differences = ours.values - best.influences
    difference = two_level(differences, len(differences), ours.folds)
    row = _row(ours, best.arm, best.estimate.mean, difference)
    return [(replace(row, is_baseline=True), difference)]


def ours_is_better(probes: Sequence[ProbeResult], row: ArmComparison) -> bool:
    """Return whether a difference is a gain in the direction of its metric."""
    direction = next(probe.direction for probe in probes if probe.task == row.task)
    return row.mean > 0 if direction == "higher" else row.mean < 0


def _on_texts(baseline: ArmResult, ids: np.ndarray) -> ArmResult | None:
    """Return a simple model's result on some of its texts.

    Args:
        baseline: The result.
        ids: Ids of the texts, ascending.

    Returns:
        The result; None if the model was not tested on all of these texts.
    """
    on_texts = baseline.on_texts(ids)
    return on_texts if np.array_equal(on_texts.predictions.ids, ids) else None


def _row(ours: ProbeResult, other: str, other_score: float, difference: TwoLevel) -> ArmComparison:
    """Make the row of a comparison, without a verdict."""
    row = ArmComparison(
        ours.task,
        ours.metric,
        ours.arm,
        other,
        asked=True,
        arm_score=ours.estimate.mean,
        other_score=other_score,
        unit=ADAPTATION if ours.folds is None else FOLD,
        one_adaptation=difference.units == 1,
        models=difference.units,
    )
    return with_estimate(row, difference)


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
