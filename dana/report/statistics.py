"""Paired statistics of two arms over seeds: t interval, sign-flip test, Holm correction, fewest seeds.

An arm is fine-tuned once for each of a few seeds, and two arms share the seeds: head, order and dropout are
the same, so results are paired and only differences count. All scores are "higher is better".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dana.core.rng import generator

ALPHA = 0.05  # largest adjusted p of a verdict
EXACT_AT_MOST = 12  # pairs: 4,096 sign patterns
RANDOM_FLIPS = 20_000


@dataclass(frozen=True)
class Interval:
    """An estimate with its uncertainty. Without at least two values, all but `mean` and `n` are NaN.

    Attributes:
        mean: Arithmetic mean.
        std: Sample standard deviation, ddof 1 (of a bootstrap: of the resampled means).
        low: Lower end of the interval.
        high: Upper end.
        n: Values it stands on.
    """

    mean: float
    std: float
    low: float
    high: float
    n: int


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Mean, sample standard deviation and Student's t interval of the mean.

    Args:
        values: One score a seed.
        level: Coverage.

    Raises:
        ValueError: If there are no values.
    """
    from scipy.stats import t

    n = len(values)
    if n == 0:
        raise ValueError("no values to average")
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, math.nan, math.nan, math.nan, 1)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    reach = float(t.ppf((1 + level) / 2, n - 1)) * std / math.sqrt(n)
    return Interval(mean, std, mean - reach, mean + reach, n)


def paired_differences(scores: dict[int, float], other: dict[int, float]) -> list[float]:
    """`scores` minus `other` for every seed that both have, in the order of the seeds.

    Raises:
        ValueError: If they share no seed.
    """
    shared = sorted(scores.keys() & other.keys())
    if not shared:
        raise ValueError(f"no seed in common: {sorted(scores)} and {sorted(other)}")
    return [scores[seed] - other[seed] for seed in shared]


def sign_flip_p(differences: Sequence[float]) -> float:
    """Two-sided p that a mean so far from 0 comes about when each pair's sign is a coin toss.

    Exact up to 12 pairs, else from 20,000 seeded random patterns. The least it can be is 2 / 2ⁿ: 0.0625 with
    5 seeds, 0.0078 with 8, so fewer than 6 seeds never reach 0.05.

    Args:
        differences: One a seed.

    Raises:
        ValueError: If there are none.

    References:
        Fisher 1935, The design of experiments, section 21; Phipson and Smyth 2010 for the random patterns.
    """
    values = np.asarray(differences, dtype=np.float64)
    n = values.size
    if n == 0:
        raise ValueError("no differences to test")
    if n <= EXACT_AT_MOST:
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    else:
        signs = generator(0, "report", "sign_flips").choice([-1.0, 1.0], (RANDOM_FLIPS, n))
    observed = abs(values.sum())
    # Equal sums differ in their last bits by the order of addition.
    extreme = int((np.abs(signs @ values) >= observed - 1e-9 * np.abs(values).sum()).sum())
    return extreme / len(signs) if n <= EXACT_AT_MOST else (extreme + 1) / (len(signs) + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values adjusted for testing several hypotheses at once, in the order given.

    References:
        Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def fewest_seeds(questions: int) -> int:
    """The least n at which one of so many questions can be decided: where m · 2 / 2ⁿ is at most :data:`ALPHA`.

    Six for one question, seven for two, eight for four, nine for eight.
    """
    return 1 + math.ceil(math.log2(max(questions, 1) / ALPHA))
