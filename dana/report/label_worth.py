"""Say what an adaptation is worth in labels, and what more labels would bring, by the probes of a run."""

import math
from collections.abc import Sequence
from operator import attrgetter

from dana.core.learning_curve import CurvePoint, forecast_gain, labels_worth
from dana.report.probes import LINEAR, ProbeResult
from dana.report.verdicts import main_arms

BASE = "base"
MORE = 200  # labels of a forecast
SHARES = ("accuracy", "micro_f1", "macro_f1", "subset_accuracy")  # metrics between 0 and 1


def worth_lines(probes: Sequence[ProbeResult]) -> list[str]:
    """Describe on a line for each task what adapting is worth, and on one what labels would bring.

    Nothing is said of a task without a base or an adapted model, nor by a metric that is no share.

    Args:
        probes: What probes find in the vectors of every arm.
    """
    lines = []
    shares = [probe for probe in probes if probe.method == LINEAR and probe.metric in SHARES]
    for task in dict.fromkeys(probe.task for probe in shares):
        of_task = [probe for probe in shares if probe.task == task]
        arms = dict.fromkeys(probe.arm for probe in of_task)
        base_points = curve_of(of_task, BASE)
        for arm in main_arms(arms):
            points = curve_of(of_task, arm)
            sentences = (_worth(task, base_points, points), _forecast(task, points))
            lines += [sentence for sentence in sentences if sentence]
    return lines


def curve_of(probes: Sequence[ProbeResult], arm: str) -> list[CurvePoint]:
    """Return the score of an arm by the number of labels, the fewest first."""
    points = [
        CurvePoint(probe.labels, probe.estimate.mean, probe.deviation, probe.draws)
        for probe in probes
        if probe.arm == arm
    ]
    return sorted(points, key=attrgetter("labels"))


def _worth(task: str, base: Sequence[CurvePoint], points: Sequence[CurvePoint]) -> str:
    """Describe how many labels the base needs to score as high, by the largest number that tells."""
    beyond = ""
    for point in reversed(points[:-1]):
        worth = labels_worth(base, point.score, point.labels)
        if not worth:
            continue
        start = f"On {task}, with {point.labels:,} labels, adapting is worth"
        if math.isfinite(worth):
            more = round_labels(worth)
            needed = round_labels(point.labels + worth)
            return f"{start} about {more:,} more: the base model needs about {needed:,} to score as high."
        most = base[-1].labels - point.labels
        beyond = beyond or f"{start} more than the {most:,} more that were measured."
    return beyond


def _forecast(task: str, points: Sequence[CurvePoint]) -> str:
    """Describe what more labels would bring the adapted model; empty where nothing is known."""
    if not points:
        return ""
    last = points[-1]
    forecast = forecast_gain(points, last.labels + MORE)
    if forecast is None:
        return ""
    return (
        f"On {task}, {MORE} more labels than these {last.labels:,} would bring the adapted model "
        f"{forecast.gain:+.3f} (80 % interval {forecast.low:+.3f} to {forecast.high:+.3f})."
    )


def round_labels(count: float) -> int:
    """Round a number of labels to two digits."""
    if count < 10:
        return round(count)
    digits = math.floor(math.log10(count)) - 1
    step: int = 10**digits
    return round(count / step) * step
