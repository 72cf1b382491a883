"""Continuous weights of values too many for memory: their mean, deviation and quantile in passes over blocks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dana.core.columns import SortedRuns
from dana.core.statistics import Moments
from dana.weighting.settings import WeighSettings
from dana.weighting.weights import sigmoid, standardise


@dataclass(frozen=True)
class Sigmoid:
    """Continuous weights of values whose moments are known; see :func:`dana.weighting.weights.sigmoid`."""

    moments: Moments
    midpoint: float
    sharpness: float

    def weights(self, values: np.ndarray) -> np.ndarray:
        """Of some of the values."""
        return sigmoid(standardise(values, self.moments), self.sharpness, self.midpoint)


def sigmoid_of(
    count: int, blocks: Callable[[], Iterable[np.ndarray]], settings: WeighSettings, share: float, folder: Path
) -> tuple[Sigmoid, SortedRuns]:
    """The sigmoid of a policy, its midpoint α that which is given, or the quantile at `share` of standardised values.

    Args:
        count: How many values.
        blocks: Begins them anew.
        settings: Sharpness and midpoint.
        share: In (0, 1].
        folder: For the sort.

    Returns:
        The sigmoid, and the values sorted.
    """
    moments, ranked = Moments.streamed(count, blocks), SortedRuns(folder)
    for block in blocks():
        ranked.add(key=block)
    midpoint = settings.midpoint
    if midpoint is None:
        midpoint = _quantile(ranked, count, share, moments)
    return Sigmoid(moments, midpoint, settings.sharpness), ranked


def _quantile(ranked: SortedRuns, count: int, share: float, moments: Moments) -> float:
    """What ``numpy.quantile`` gives of standardised values, to the last bit; standardising keeps their order."""
    place = (count - 1) * share
    low = int(place)
    around, before = np.empty(0), 0
    for rows in ranked:
        around = np.append(around, rows["key"][max(0, low - before) : max(0, low + 2 - before)])
        before += rows.size
        if around.size == min(2, count - low):
            break
    return float(np.quantile(standardise(around[[0, -1]], moments), place - low))
