"""A study's answer in words: accuracy of each arm, their difference, and what was not answered, as Markdown."""

from collections.abc import Mapping, Sequence

from dana.core.text_table import aligned
from dana.studies.few_shot.accuracy import CHANCE, ArmAccuracy, ArmDifference
from dana.studies.few_shot.settings import ARMS

ALPHA = 0.05


def study_text(title: str, accuracies: Sequence[ArmAccuracy], difference: ArmDifference | None) -> str:
    """The study in Markdown, the answer first.

    Args:
        title: What was studied.
        accuracies: Of the arms.
        difference: Of on against off topic, where both were asked.
    """
    lines = [f"# {title}", "", *(_found(one) for one in accuracies)]
    lines.append(f"Guessing is right about {CHANCE * 100:.0f} %, as a text is of either class with equal chance.")
    if difference is not None:
        lines += ["", _compared(difference)]
    lines += ["", *(_unanswered(one) for one in accuracies)]
    return "\n".join([*lines, "", "```", aligned([_row(one) for one in accuracies]), "```", ""])


def _share(right: int, items: int, low: float, high: float) -> str:
    percent = f"{right / items * 100:.0f} %, exact 95 % interval {low * 100:.0f} to {high * 100:.0f} %"
    return f"{right} of {items} ({percent})"


def _found(one: ArmAccuracy) -> str:
    share = _share(one.right, one.items, one.low, one.high)
    beside = "more than" if one.low > CHANCE else "less than" if one.high < CHANCE else "not told from"
    return f"With {ARMS[one.arm]} the model is right about {share} texts: {beside} guessing."


def _compared(found: ArmDifference) -> str:
    points = f"{abs(found.difference) * 100:.0f} points"
    if found.p > ALPHA:
        verdict = f"The difference of {points} may be chance"
    else:
        better, worse = (found.first, found.second) if found.difference > 0 else (found.second, found.first)
        verdict = f"It does better with {ARMS[better]} than with {ARMS[worse]}, by {points}"
    return (
        f"{verdict} (exact McNemar test on the same {found.both + found.only_first + found.only_second + found.neither}"
        f" texts: p = {found.p:.2g}; right with {found.first}-topic examples alone {found.only_first}, with"
        f" {found.second}-topic examples alone {found.only_second})."
    )


def _unanswered(one: ArmAccuracy) -> str:
    said = f"{one.abstained} abstained, {one.unparsable} could not be parsed; both count as wrong above"
    if not one.answered:
        return f"With {ARMS[one.arm]}: {said}."
    share = _share(one.right, one.answered, one.low_answered, one.high_answered)
    return f"With {ARMS[one.arm]}: {said}. Of the answers {share} are right."


def _row(one: ArmAccuracy) -> Mapping[str, str | int | float | None]:
    shown = ("arm", "items", "right", "wrong", "abstained", "unparsable", "accuracy", "low", "high", "p_chance")
    return {name: getattr(one, name) for name in shown}
