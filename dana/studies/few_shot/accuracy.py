"""Accuracy of a few-shot study: outcomes of items to exact binomial intervals an arm, and arms compared by item."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd
from scipy.stats import binomtest

CHANCE = 0.5  # of two classes, when the text is of either with equal chance


class ItemOutcome(StrEnum):
    """What came of an item; only RIGHT and WRONG are answers."""

    RIGHT = "right"
    WRONG = "wrong"
    ABSTAINED = "abstained"
    UNPARSABLE = "unparsable"


def exact_interval(right: int, items: int, level: float = 0.95) -> tuple[float, float]:
    """Exact binomial interval of a share; (NaN, NaN) of no items.

    References:
        Clopper and Pearson 1934, The use of confidence or fiducial limits illustrated in the case of the binomial.
    """
    if items == 0:
        return float("nan"), float("nan")
    interval = binomtest(right, items).proportion_ci(level, method="exact")
    return float(interval.low), float(interval.high)


@dataclass(frozen=True)
class ArmAccuracy:
    """Outcomes of an arm.

    Attributes:
        arm: Its name.
        items: How many were asked.
        right: Answered with the text's class.
        wrong: Answered with the other one.
        abstained: The model would not choose.
        unparsable: What it chose cannot be told.
        accuracy: Share of all items that are right: who abstains is wrong, as guessing is always possible.
        low: Lower end of its exact 95 % interval.
        high: Upper end.
        p_chance: Exact two-sided p of that share against 0.5.
        answered: Items with an answer.
        accuracy_answered: Share of them that are right; NaN if there are none.
        low_answered: Lower end of its exact 95 % interval.
        high_answered: Upper end.
    """

    arm: str
    items: int
    right: int
    wrong: int
    abstained: int
    unparsable: int
    accuracy: float
    low: float
    high: float
    p_chance: float
    answered: int
    accuracy_answered: float
    low_answered: float
    high_answered: float


@dataclass(frozen=True)
class ArmDifference:
    """Two arms on the same items.

    Attributes:
        first: Name of an arm.
        second: Name of the other.
        both: Items that are right in both.
        only_first: Right in the first alone.
        only_second: Right in the second alone.
        neither: Right in none.
        difference: Accuracy of the first minus that of the second.
        p: Of the exact McNemar test: how often a fair coin would part ``only_first + only_second`` items as unevenly.
    """

    first: str
    second: str
    both: int
    only_first: int
    only_second: int
    neither: int
    difference: float
    p: float


def arm_accuracy(arm: str, outcomes: Sequence[str]) -> ArmAccuracy:
    """Count the outcomes of an arm, of at least one item."""
    right, wrong, abstained, unparsable = (sum(one == outcome for one in outcomes) for outcome in ItemOutcome)
    items, answered = len(outcomes), right + wrong
    return ArmAccuracy(
        arm,
        items,
        right,
        wrong,
        abstained,
        unparsable,
        right / items,
        *exact_interval(right, items),
        float(binomtest(right, items, CHANCE).pvalue),
        answered,
        right / answered if answered else float("nan"),
        *exact_interval(right, answered),
    )


def compare_on_items(results: pd.DataFrame, first: str, second: str) -> ArmDifference:
    """Compare two arms on the same items; only a right answer counts.

    Args:
        results: A row an item and arm, with ``item``, ``arm``, ``outcome``.
        first: Name of an arm.
        second: Name of the other.

    References:
        McNemar 1947, Note on the sampling error of the difference between correlated proportions; exact as binomial.
    """
    right = results.assign(right=results["outcome"] == ItemOutcome.RIGHT).pivot(
        index="item", columns="arm", values="right"
    )
    one, other = right[first].to_numpy(bool), right[second].to_numpy(bool)
    only_one, only_other = int((one & ~other).sum()), int((other & ~one).sum())
    p = float(binomtest(only_one, only_one + only_other, 0.5).pvalue) if only_one + only_other else 1.0
    both, neither = int((one & other).sum()), int((~one & ~other).sum())
    return ArmDifference(first, second, both, only_one, only_other, neither, (only_one - only_other) / len(one), p)
