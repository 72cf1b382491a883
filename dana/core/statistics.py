"""Compute moments of sharded arrays, confidence intervals, the two-level test, its looks and draws of bootstraps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtr, stdtrit

ALPHA = 0.05  # significance level of a verdict, after adjustment
POWER = 0.8  # probability of deciding the smallest difference that can be shown
# Assumed before any run (docs/results/verdicts.md): what two arms' predictions disagree on, and how
# adaptations vary.
DISAGREEMENT, DEVIATION = 0.2, 0.0125
# The same of the frozen probe, for 200 labels or more, from what docs/guide/probe.md measured.
PROBE_DISAGREEMENT = 0.03
PROBE_DEVIATION = 0.006
FIRST_LOOK = 3  # units; two say too little of how they vary
LARGEST_Z = 8.0  # beyond it a p is not told from 0


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations; shards merge in any order.

    References:
        Chan, Golub and LeVeque 1983, Algorithms for computing the sample variance.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def from_scores(cls, scores: np.ndarray) -> "Moments":
        """Compute the moments of one shard."""
        if scores.size == 0:
            return cls()
        mean = float(np.mean(scores, dtype=np.float64))
        deviations = scores - mean
        output = deviations if deviations.dtype == np.float64 else None  # one temporary array
        return cls(scores.size, mean, float(np.square(deviations, output, dtype=np.float64).sum()))

    def merge(self, other: "Moments") -> "Moments":
        """Combine the moments of two shards."""
        count = self.count + other.count
        if count == 0:
            return self
        shift = other.mean - self.mean
        mean = self.mean + shift * other.count / count
        return Moments(
            count, mean, self.squares + other.squares + shift**2 * self.count * other.count / count
        )

    @property
    def std(self) -> float:
        """Population standard deviation (the paper's σ, ddof 0)."""
        return (self.squares / self.count) ** 0.5 if self.count else 0.0


def effective_sample_size(weights: np.ndarray) -> float:
    """Compute Kish's effective sample size (Σλ)² / Σλ² of weights; 0 if all weights are 0. Kish 1965."""
    squares = float(np.square(weights, dtype=np.float64).sum())
    return float(weights.sum(dtype=np.float64)) ** 2 / squares if squares else 0.0


@dataclass(frozen=True)
class Interval:
    """A mean with its uncertainty. With fewer than two values all fields but `mean` and `n` are NaN.

    Attributes:
        mean: Arithmetic mean.
        std: Sample standard deviation, ddof 1.
        low: Lower end of the interval.
        high: Upper end.
        n: Number of values.
    """

    mean: float
    std: float
    low: float
    high: float
    n: int


def mean_interval(values: Sequence[float]) -> Interval:
    """Compute mean, sample standard deviation and the 95 % Student's t interval of the mean.

    Args:
        values: One score per seed.

    Raises:
        ValueError: If there are no values.
    """
    n = len(values)
    if n == 0:
        raise ValueError("no values to average")
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, math.nan, math.nan, math.nan, 1)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    reach = float(stdtrit(n - 1, 0.975)) * std / math.sqrt(n)
    return Interval(mean, std, mean - reach, mean + reach, n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values for multiple testing by Holm's method; the order stays.

    References:
        Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    adjusted_values, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(
        sorted(range(len(p_values)), key=lambda position: p_values[position])
    ):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted_values[index] = highest
    return adjusted_values


def percentile_interval(replicates: np.ndarray) -> tuple[float, float]:
    """Compute the ends of the 95 % percentile interval.

    Args:
        replicates: Estimates of the resamples, without that of the original sample.
    """
    low, high = np.percentile(replicates, [2.5, 97.5])
    return float(low), float(high)


def draw_counts(random: np.random.Generator, counts: np.ndarray, draws: int) -> np.ndarray:
    """Draw bootstrap counts of categories: how often each category occurs in a resample of the same size.

    Args:
        random: Generator of the draws.
        counts: Size of each category.
        draws: Number of resamples.

    Returns:
        float64 of shape (draws, categories).
    """
    return random.multinomial(int(counts.sum()), counts / counts.sum(), draws).astype(np.float64)


def draw_groups(random: np.random.Generator, groups: np.ndarray, draws: int) -> np.ndarray:
    """Draw cluster-bootstrap counts: how often each item occurs when whole groups are resampled.

    Args:
        random: Generator of the draws.
        groups: Group of each item (a text's document, say), numbered from 0 without gaps.
        draws: Number of resamples.

    Returns:
        float64 of shape (draws, items).

    References:
        Davison and Hinkley 1997, Bootstrap methods and their application, section 2.4 (clusters).
    """
    return draw_counts(random, np.ones(int(groups.max()) + 1), draws)[:, groups]


def crossing_chance(bound: float, horizon: int) -> float:
    """Compute how often chance crosses O'Brien and Fleming's bound at any look at as many units as its horizon.

    The sum of k standard normal values is looked at for k = :data:`FIRST_LOOK` ... horizon; each
    look's bound is `bound` times the root of `horizon`. Looks that share variance (test texts)
    cross less often.

    References:
        O'Brien and Fleming 1979, A multiple testing procedure for clinical trials; Armitage, McPherson and Rowe 1969
        (the recursion).
    """
    edge = bound * math.sqrt(horizon)
    nodes, weights = np.polynomial.legendre.leggauss(40 + int(5 * edge))
    sums, weights = nodes * edge, weights * edge
    density = np.exp(-(sums**2) / 2 / FIRST_LOOK) / math.sqrt(2 * math.pi * FIRST_LOOK)
    step = np.exp(-np.square(sums[:, None] - sums) / 2) / math.sqrt(2 * math.pi)
    for _ in range(FIRST_LOOK, horizon):
        density = step @ (density * weights)
    return 1 - float(density @ weights)


@cache
def looks_bound(alpha: float, horizon: int) -> float:
    """Find the bound that :func:`crossing_chance` gives the probability alpha: the normal quantile of the last look."""
    return float(
        brentq(
            lambda bound: crossing_chance(bound, horizon) - alpha,
            *ndtri([1 - 0.51 * alpha, 1 - alpha / 4]),
        )
    )


@dataclass(frozen=True)
class TwoLevel:
    """A mean score or difference, with its uncertainty over models and over test texts (docs/design.md).

    Attributes:
        mean: Mean over models and texts.
        by_unit: Variance of the mean due to the units: adaptations, folds or seeds; 0 with one
            unit.
        by_text: Variance of the mean due to the texts.
        units: Number of units.
        texts: Number of texts.
        nested: True if units are folds, each with texts of its own: `by_unit` then contains
            `by_text`.
        unit_std: Standard deviation between units, without that of the fine-tunings within; NaN
            with one unit.
        seed_std: Standard deviation between fine-tunings of a unit; NaN if there is one in each.
        horizon: Units of a run that is looked at after each of them, from :data:`FIRST_LOOK` on,
            and may stop early; 0 without looks. p and interval then allow for all looks.

    References:
        Jennison and Turnbull 1989, Interim analyses: the repeated confidence interval approach.
        Cochran and Cox 1957, Experimental Designs, section 4.14; Card et al. 2020, With Little Power Comes Great
        Responsibility.
    """

    mean: float
    by_unit: float
    by_text: float
    units: int
    texts: int
    nested: bool = False
    unit_std: float = math.nan
    seed_std: float = math.nan
    horizon: int = 0

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return math.sqrt(
            max(self.by_unit, self.by_text) if self.nested else self.by_unit + self.by_text
        )

    @property
    def shares(self) -> tuple[float, float, float]:
        """Shares of the squared error that are due to units, to the fine-tunings within them, and to texts."""
        by_unit = 0.0 if math.isnan(self.unit_std) else self.unit_std**2 / self.units
        by_seed = max(self.by_unit - (self.by_text if self.nested else 0.0) - by_unit, 0.0)
        total = by_unit + by_seed + self.by_text or math.inf
        return by_unit / total, by_seed / total, self.by_text / total

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the squared error: the harmonic mean of those of its parts, weighted by the parts.

        To first order a quantile of t is then Cochran and Cox's weighted mean. Satterthwaite's,
        weighted by squares, decides too often at Holm's small levels with few units
        (docs/results/verdicts.md).
        """
        parts = self.by_unit / max(self.units - 1, 1) + self.by_text / (self.texts - 1)
        return self.error**2 / parts if parts else math.inf

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the 95 % interval of Student's t."""
        reach = float(stdtrit(self.freedom, 1 - self.level() / 2)) * self.error
        return self.mean - reach, self.mean + reach

    @property
    def p(self) -> float:
        """Two-sided p of Student's t that the mean is 0; with looks, the error rate at which this look decides."""
        if not self.horizon:
            return self._p_of_one_look
        bound = self._z * math.sqrt(self.units / self._end)
        return max(self._p_of_one_look, crossing_chance(bound, self._end))

    @property
    def _p_of_one_look(self) -> float:
        if self.error == 0:
            return float(self.mean == 0)
        return 2 * float(stdtr(self.freedom, -abs(self.mean) / self.error))

    @property
    def _z(self) -> float:
        return min(-float(ndtri(self._p_of_one_look / 2)), LARGEST_Z)

    @property
    def _end(self) -> int:
        return max(self.horizon, self.units)

    def level(self, questions: int = 1) -> float:
        """Compute the largest p of one look that decides at :data:`ALPHA` over all looks and so many questions."""
        if not self.horizon:
            return ALPHA / questions
        return 2 * float(
            ndtr(-looks_bound(ALPHA / questions, self._end) * math.sqrt(self._end / self.units))
        )

    def chance(self, questions: int = 1) -> float:
        """Estimate how likely the planned end decides, if the true mean is the measured one (conditional power).

        References:
            Lan and Wittes 1988, The B-value: a tool for monitoring data.
        """
        share, bound = self.units / self.horizon, looks_bound(ALPHA / questions, self.horizon)
        return float(ndtr((self._z / math.sqrt(share) - bound) / math.sqrt(1 - share)))

    def detectable(self, questions: int = 1) -> float:
        """Compute the smallest true mean that a rerun tells from 0 with probability :data:`POWER`.

        Args:
            questions: Number of questions that Holm adjusts for; its first step, the strictest, is
                used.
        """
        level, power = stdtrit(self.freedom, [1 - self.level(max(questions, 1)) / 2, POWER])
        return float(level + power) * self.error

    def at(self, units: int, texts: int) -> "TwoLevel":
        """Extrapolate to other numbers, without looks: each part of the variance falls in proportion."""
        fewer = self.texts / texts
        by_unit = self.by_unit * (fewer if self.nested else self.units / units)
        return replace(
            self, units=units, texts=texts, by_unit=by_unit, by_text=self.by_text * fewer, horizon=0
        )


def two_level(values: np.ndarray, units: int = 1, folds: np.ndarray | None = None) -> TwoLevel:
    """Estimate a mean and its two-level variance from what each text adds to each model's score.

    Args:
        values: Of shape (models, texts), their mean being the estimate. Models of a unit stand
            together.
        units: Number of units with as many models each (fine-tunings), all tested on all texts; 1
            leaves the models out of the error.
        folds: Fold of each text, if each text is tested in its own fold; `values` then has a row
            per fine-tuning.
    """
    texts, mean = values.shape[1], float(values.mean())
    per_text = values.mean(0)
    if folds is None:
        runs = values.mean(1).reshape(units, -1)
        by_unit = float(runs.mean(1).var(ddof=1)) / units if units > 1 else 0.0
        by_text, sampling = float(per_text.var(ddof=1)) / texts, 0.0
    else:
        _, folds, sizes = np.unique(folds, return_inverse=True, return_counts=True)
        units = sizes.size
        runs = np.stack([np.bincount(folds, row) / sizes for row in values], axis=1)
        by_unit = float(sizes @ (runs.mean(1) - mean) ** 2) / max(units - 1, 1) / texts
        by_text = (
            float(np.square(per_text - runs.mean(1)[folds]).sum()) / max(texts - units, 1) / texts
        )
        sampling = by_text * units  # of a fold's mean, by its own texts
    noise = float(runs.var(axis=1, ddof=1).mean()) if runs.shape[1] > 1 else math.nan
    between = by_unit * units - sampling - (0.0 if math.isnan(noise) else noise / runs.shape[1])
    unit_std = math.sqrt(max(between, 0.0)) if units > 1 else math.nan
    return TwoLevel(
        mean, by_unit, by_text, units, texts, folds is not None, unit_std, math.sqrt(noise)
    )


def smallest_difference(
    texts: int, folds: int, adaptations: int = 5, questions: int = 1, probe: bool = False
) -> float:
    """Estimate before any run the smallest difference of accuracies that can be shown, as :meth:`TwoLevel.detectable`.

    Assumes that two arms disagree on a fifth of the texts and that adaptations deviate by .0125. By
    the probe, whose draws of labels average much of that out, it assumes that a text's part of the
    difference has a variance of .03 and that adaptations deviate by .006.

    Args:
        texts: Number of texts that are tested.
        folds: Number of folds; 1 for a fixed split.
        adaptations: Number of adaptations on a fixed split.
        questions: As in :meth:`TwoLevel.detectable`.
        probe: Whether the models are probed instead of fine-tuned.
    """
    disagreement = PROBE_DISAGREEMENT if probe else DISAGREEMENT
    deviation = PROBE_DEVIATION if probe else DEVIATION
    by_text = disagreement / texts
    units = folds if folds > 1 else adaptations
    by_unit = deviation**2 / units + (by_text if folds > 1 else 0.0)
    return TwoLevel(0.0, by_unit, by_text, units, texts, nested=folds > 1).detectable(questions)
