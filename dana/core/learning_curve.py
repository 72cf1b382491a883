"""Say what labels are worth: how many a better model saves, and what more of them would bring.

The score of a probe with n labels is taken as a power law,

    score(n) = c - d (n / n_0) ** -a,    0 <= c <= 1,  0 <= d,  0.1 <= a <= 1.2,

with n_0 the smallest number of labels that was measured. A few points do not determine three parameters, so
none is fitted: every curve of a grid is weighted by its likelihood, and a forecast is drawn from all of
them. Its interval is therefore wide where the points say little. How often it holds what later labels
gave stands in docs/results/learning-curves.md.

References:
    Viering and Loog 2023, The shape of learning curves: a review, IEEE TPAMI, section 4.1 (power laws).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

import numpy as np

from dana.core.rng import generator

FEWEST_LABELS = 200  # with fewer nothing is said of labels beyond them
FEWEST_POINTS = 3
EXPONENTS = np.linspace(0.1, 1.2, 23)
CEILINGS = np.linspace(0.02, 1.0, 99)
DROPS = np.linspace(0.0, 1.0, 101)  # of the score at n_0 below the ceiling
SAMPLES = 4_000
LEVEL = 0.8  # of an interval
# No curve is a power law. Chosen so that intervals hold what came (docs/results/learning-curves.md):
MISFIT = 0.004  # of a point
DRIFT = 0.015  # of a forecast of twice the labels; its square grows with each doubling


@dataclass(frozen=True)
class CurvePoint:
    """What a probe scores with some labels.

    Attributes:
        labels: Number of labels.
        score: Mean score over draws of labels, in [0, 1], higher is better.
        deviation: Standard deviation of the score of one draw; NaN with one draw.
        draws: Number of draws.
    """

    labels: int
    score: float
    deviation: float
    draws: int


@dataclass(frozen=True)
class Forecast:
    """What a score would be with more labels.

    Attributes:
        labels: Number of labels.
        gain: Median of the gain over the largest number of labels that was measured.
        low: Lower end of the interval of 80 %.
        high: Upper end.
    """

    labels: int
    gain: float
    low: float
    high: float


def forecast_gain(points: Sequence[CurvePoint], labels: int, seed: int = 0) -> Forecast | None:
    """Forecast what more labels would bring, measured on the same test texts.

    Args:
        points: What was measured. Draws of fewer labels are parts of the largest number.
        labels: Number of labels to forecast, which contain those of now.
        seed: Seed of the samples.

    Returns:
        None with fewer than 200 labels or three points, or where `labels` are no more than were
        measured: nothing is extrapolated then.
    """
    points = sorted(points, key=attrgetter("labels"))
    if len(points) < FEWEST_POINTS or points[-1].labels < FEWEST_LABELS:
        return None
    last = points[-1]
    if labels <= last.labels:
        return None
    spread = _spread(points)
    first = points[0].labels
    exponents, ceilings, drops = np.meshgrid(EXPONENTS, CEILINGS, DROPS, indexing="ij")
    is_possible = drops <= ceilings
    exponents = exponents[is_possible]
    ceilings = ceilings[is_possible]
    drops = drops[is_possible]
    log_weights = np.zeros(len(drops))
    for point in points:
        expected = ceilings - drops * (point.labels / first) ** -exponents
        # Of the labels that are there, not of all that could be.
        sampling = spread**2 * (1 / point.labels - 1 / last.labels) / point.draws
        error = math.sqrt(sampling + MISFIT**2)
        log_weights -= 0.5 * ((point.score - expected) / error) ** 2
    weights = np.exp(log_weights - log_weights.max())
    random = generator(seed, "learning curve")
    chosen = random.choice(len(weights), SAMPLES, p=weights / weights.sum())
    of_now = (last.labels / first) ** -exponents[chosen]
    of_later = (labels / first) ** -exponents[chosen]
    rises = drops[chosen] * (of_now - of_later)
    # The labels of now deviate from others by spread / sqrt(n), and later ones contain them.
    sampling = spread**2 * (1 / last.labels - 1 / labels)
    drift = DRIFT**2 * math.log2(labels / last.labels)
    gains = rises + random.normal(0, math.sqrt(sampling + drift), SAMPLES)
    gains = np.clip(gains, -last.score, 1 - last.score)
    tail = (1 - LEVEL) / 2
    low, median, high = np.quantile(gains, [tail, 0.5, 1 - tail])
    return Forecast(labels, float(median), float(low), float(high))


def _spread(points: Sequence[CurvePoint]) -> float:
    """Return s, where the score of a fit to n labels deviates by s / sqrt(n), pooled over the points.

    Draws of n from the N labels that are there deviate by less: their variance is s² (1/n - 1/N).
    """
    most = points[-1].labels
    squares = [
        point.deviation**2 / (1 / point.labels - 1 / most)
        for point in points
        if point.draws > 1 and point.labels < most
    ]
    return math.sqrt(sum(squares) / len(squares)) if squares else 0.0


def labels_worth(points: Sequence[CurvePoint], score: float, labels: int) -> float | None:
    """Return how many more labels bring a model to the score that another has with fewer.

    Between two points the score is taken as linear in the logarithm of the labels.

    Args:
        points: What the model scores with different numbers of labels, among them `labels`.
        score: What the other scores with `labels`.
        labels: Number of labels.

    Returns:
        0 if the model is as good with as many; infinity if its last point is still below; None if it
        was not measured with `labels`.
    """
    later = sorted((point for point in points if point.labels >= labels), key=attrgetter("labels"))
    if not later or later[0].labels != labels:
        return None
    if score <= later[0].score:
        return 0.0
    for one, next_one in pairwise(later):
        if score <= next_one.score:
            share = (score - one.score) / (next_one.score - one.score)
            log_labels = math.log(one.labels) + share * math.log(next_one.labels / one.labels)
            return math.exp(log_labels) - labels
    return math.inf
