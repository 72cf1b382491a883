"""Compute moments of sharded arrays, confidence intervals, the two-level test and bootstrap draws.

The two-level test may look at a run after each of its units and stop early.
"""

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
DISAGREEMENT = 0.2
DEVIATION = 0.0125
# The same of the frozen probe, for 200 labels or more, from what docs/guide/probe.md measured.
PROBE_DISAGREEMENT = 0.03
PROBE_DEVIATION = 0.006
FIRST_LOOK = 3  # units; two say too little of how they vary
LARGEST_Z = 8.0  # beyond this quantile a p cannot be told from 0


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
        squares = np.square(deviations, output, dtype=np.float64)
        return cls(scores.size, mean, float(squares.sum()))

    def merge(self, other: "Moments") -> "Moments":
        """Combine the moments of two shards."""
        count = self.count + other.count
        if count == 0:
            return self
        shift = other.mean - self.mean
        mean = self.mean + shift * other.count / count
        between = shift**2 * self.count * other.count / count
        return Moments(count, mean, self.squares + other.squares + between)

    @property
    def std(self) -> float:
        """Population standard deviation (the paper's σ, ddof 0)."""
        if self.count == 0:
            return 0.0
        deviation: float = (self.squares / self.count) ** 0.5
        return deviation


def effective_sample_size(weights: np.ndarray) -> float:
    """Compute Kish's effective sample size (Σλ)² / Σλ² of weights; 0 if all weights are 0.

    References:
        Kish 1965, Survey sampling.
    """
    squares = float(np.square(weights, dtype=np.float64).sum())
    if squares == 0:
        return 0.0
    total = float(weights.sum(dtype=np.float64))
    return total**2 / squares


@dataclass(frozen=True)
class Interval:
    """A mean with its uncertainty.

    With fewer than two values all fields but `mean` and `n` are NaN.

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
    questions = len(p_values)
    ascending = sorted(range(questions), key=lambda position: p_values[position])
    adjusted_values = [0.0] * questions
    highest = 0.0
    for rank, position in enumerate(ascending):
        adjusted = min(1.0, (questions - rank) * p_values[position])
        highest = max(highest, adjusted)  # no p is below that of a smaller one
        adjusted_values[position] = highest
    return adjusted_values


def percentile_interval(replicates: np.ndarray) -> tuple[float, float]:
    """Compute the ends of the 95 % percentile interval.

    Args:
        replicates: Estimates of the resamples, without that of the original sample.
    """
    low, high = np.percentile(replicates, [2.5, 97.5])
    return float(low), float(high)


def draw_counts(random: np.random.Generator, counts: np.ndarray, draws: int) -> np.ndarray:
    """Draw bootstrap counts: how often each category occurs in a resample of the same size.

    Args:
        random: Generator of the draws.
        counts: Size of each category.
        draws: Number of resamples.

    Returns:
        float64 of shape (draws, categories).
    """
    size = int(counts.sum())
    probabilities = counts / counts.sum()
    return random.multinomial(size, probabilities, draws).astype(np.float64)


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
    each_group_once = np.ones(int(groups.max()) + 1)
    group_counts = draw_counts(random, each_group_once, draws)
    return group_counts[:, groups]


def crossing_chance(bound: float, horizon: int) -> float:
    """Compute how often chance crosses O'Brien and Fleming's bound at any look.

    The sum of k standard normal values is looked at for k = :data:`FIRST_LOOK` ... horizon; each
    look's bound is `bound` times the root of `horizon`. Looks that share variance (test texts)
    cross less often.

    References:
        O'Brien and Fleming 1979, A multiple testing procedure for clinical trials; Armitage,
        McPherson and Rowe 1969 (the recursion).
    """
    edge = bound * math.sqrt(horizon)
    nodes, node_weights = np.polynomial.legendre.leggauss(40 + int(5 * edge))
    sums = nodes * edge
    weights = node_weights * edge
    density = np.exp(-(sums**2) / 2 / FIRST_LOOK) / math.sqrt(2 * math.pi * FIRST_LOOK)
    step = np.exp(-np.square(sums[:, None] - sums) / 2) / math.sqrt(2 * math.pi)
    for _ in range(FIRST_LOOK, horizon):
        density = step @ (density * weights)
    return 1 - float(density @ weights)


@cache
def looks_bound(alpha: float, horizon: int) -> float:
    """Find the bound that :func:`crossing_chance` gives the probability alpha.

    It is the normal quantile of the last look.
    """
    lowest, highest = ndtri([1 - 0.51 * alpha, 1 - alpha / 4])
    bound = brentq(lambda trial: crossing_chance(trial, horizon) - alpha, lowest, highest)
    return float(bound)


@dataclass(frozen=True)
class TwoLevel:
    """A mean score or difference, with its uncertainty over models and over test texts.

    The contract is in docs/statistics.md.

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
        Cochran and Cox 1957, Experimental Designs, section 4.14; Card et al. 2020, With Little
        Power Comes Great Responsibility.
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
        if self.nested:  # the variance between folds contains that of their texts
            return math.sqrt(max(self.by_unit, self.by_text))
        return math.sqrt(self.by_unit + self.by_text)

    @property
    def shares(self) -> tuple[float, float, float]:
        """Shares of the squared error due to units, to fine-tunings within them, and to texts."""
        by_unit = 0.0
        if not math.isnan(self.unit_std):
            by_unit = self.unit_std**2 / self.units
        by_text_within = self.by_text if self.nested else 0.0
        by_seed = max(self.by_unit - by_text_within - by_unit, 0.0)
        total = by_unit + by_seed + self.by_text or math.inf
        return by_unit / total, by_seed / total, self.by_text / total

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the squared error.

        They are the harmonic mean of those of its parts, weighted by the parts. To first order a
        quantile of t is then Cochran and Cox's weighted mean. Satterthwaite's, weighted by squares,
        decides too often at Holm's small levels with few units (docs/results/verdicts.md).
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
        """Two-sided p of Student's t that the mean is 0.

        With looks it is the error rate at which this look decides.
        """
        if not self.horizon:
            return self._p_of_one_look
        bound = self._z * math.sqrt(self.units / self._end)
        return max(self._p_of_one_look, crossing_chance(bound, self._end))

    @property
    def _p_of_one_look(self) -> float:
        """The p of this look, as if it were the only one."""
        if self.error == 0:
            return float(self.mean == 0)
        return 2 * float(stdtr(self.freedom, -abs(self.mean) / self.error))

    @property
    def _z(self) -> float:
        """The normal quantile of this look's p."""
        return min(-float(ndtri(self._p_of_one_look / 2)), LARGEST_Z)

    @property
    def _end(self) -> int:
        """Units at the last look: those planned, or more if the run was extended."""
        return max(self.horizon, self.units)

    def level(self, questions: int = 1) -> float:
        """Compute the largest p of one look that decides.

        It decides at :data:`ALPHA` over all looks and so many questions.
        """
        if not self.horizon:
            return ALPHA / questions
        bound = looks_bound(ALPHA / questions, self._end)
        return 2 * float(ndtr(-bound * math.sqrt(self._end / self.units)))

    def chance(self, questions: int = 1) -> float:
        """Estimate how likely the planned end decides, if the true mean is the measured one.

        This is the conditional power.

        References:
            Lan and Wittes 1988, The B-value: a tool for monitoring data.
        """
        share = self.units / self.horizon
        bound = looks_bound(ALPHA / questions, self.horizon)
        return float(ndtr((self._z / math.sqrt(share) - bound) / math.sqrt(1 - share)))

    def detectable(self, questions: int = 1) -> float:
        """Compute the smallest true mean that a rerun tells from 0 with probability :data:`POWER`.

        Args:
            questions: Number of questions that Holm adjusts for; its first step, the strictest, is
                used.
        """
        level = self.level(max(questions, 1))
        decisive, power = stdtrit(self.freedom, [1 - level / 2, POWER])
        return float(decisive + power) * self.error

    def at(self, units: int, texts: int) -> "TwoLevel":
        """Extrapolate to other numbers, without looks: each variance falls in proportion."""
        text_ratio = self.texts / texts
        unit_ratio = text_ratio if self.nested else self.units / units
        return replace(
            self,
            units=units,
            texts=texts,
            by_unit=self.by_unit * unit_ratio,
            by_text=self.by_text * text_ratio,
            horizon=0,
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
    texts = values.shape[1]
    mean = float(values.mean())
    per_text = values.mean(0)
    # `runs` has the score of each model, of shape (units, fine-tunings).
    if folds is None:
        runs = values.mean(1).reshape(units, -1)
        by_unit = 0.0
        if units > 1:
            by_unit = float(runs.mean(1).var(ddof=1)) / units
        by_text = float(per_text.var(ddof=1)) / texts
        sampling = 0.0
    else:
        _, folds, sizes = np.unique(folds, return_inverse=True, return_counts=True)
        units = sizes.size
        runs = np.stack([np.bincount(folds, row) / sizes for row in values], axis=1)
        fold_means = runs.mean(1)
        by_unit = float(sizes @ (fold_means - mean) ** 2) / max(units - 1, 1) / texts
        within_folds = float(np.square(per_text - fold_means[folds]).sum())
        by_text = within_folds / max(texts - units, 1) / texts
        sampling = by_text * units  # variance of a fold's mean that is due to its own texts
    tunings = runs.shape[1]
    seed_variance = math.nan
    between_units = by_unit * units - sampling
    if tunings > 1:
        seed_variance = float(runs.var(axis=1, ddof=1).mean())
        between_units -= seed_variance / tunings
    return TwoLevel(
        mean=mean,
        by_unit=by_unit,
        by_text=by_text,
        units=units,
        texts=texts,
        nested=folds is not None,
        unit_std=math.sqrt(max(between_units, 0.0)) if units > 1 else math.nan,
        seed_std=math.sqrt(seed_variance),
    )


def smallest_difference(
    texts: int, folds: int, adaptations: int = 5, questions: int = 1, probe: bool = False
) -> float:
    """Estimate before any run the smallest difference of accuracies that can be shown.

    It is that of :meth:`TwoLevel.detectable`. The estimate assumes that two arms disagree on a
    fifth of the texts and that adaptations deviate by .0125. By the probe, whose draws of labels
    average much of that out, it assumes that a text's part of the difference has a variance of .03
    and that adaptations deviate by .006.

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
    if folds > 1:
        by_unit = deviation**2 / folds + by_text
        planned = TwoLevel(0.0, by_unit, by_text, folds, texts, nested=True)
    else:
        by_unit = deviation**2 / adaptations
        planned = TwoLevel(0.0, by_unit, by_text, adaptations, texts)
    return planned.detectable(questions)
