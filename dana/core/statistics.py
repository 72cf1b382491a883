"""Compute moments of sharded arrays, confidence intervals, paired tests and bootstraps.

Two arms are compared by the differences of the seeds that they share. All bootstraps of dana draw their counts and
compute their percentile intervals here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from dana.core.rng import generator

ALPHA = 0.05  # significance level of a verdict, after adjustment
EXACT_AT_MOST = 12  # pairs: 4,096 sign patterns
RANDOM_FLIPS = 20_000
RESAMPLES = 2000  # of a two-level bootstrap
BATCH = 100  # of these at a time


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
    def of(cls, scores: np.ndarray) -> "Moments":
        """Compute the moments of one shard."""
        if scores.size == 0:
            return cls()
        mean = float(np.mean(scores, dtype=np.float64))
        return cls(scores.size, mean, float(np.square(scores - mean, dtype=np.float64).sum()))

    def merge(self, other: "Moments") -> "Moments":
        """Combine the moments of two shards."""
        count = self.count + other.count
        if count == 0:
            return self
        shift = other.mean - self.mean
        mean = self.mean + shift * other.count / count
        return Moments(count, mean, self.squares + other.squares + shift**2 * self.count * other.count / count)

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
        std: Sample standard deviation, ddof 1 (of a bootstrap: of the resampled means).
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


def paired_differences(scores: dict[int, float], other: dict[int, float]) -> list[float]:
    """Subtract `other` from `scores` for every seed that both have, in the order of the seeds.

    Raises:
        ValueError: If they share no seed.
    """
    seeds = sorted(scores.keys() & other.keys())
    if not seeds:
        raise ValueError(f"no seed in common: {sorted(scores)} and {sorted(other)}")
    return [scores[seed] - other[seed] for seed in seeds]


def sign_flip_p(differences: Sequence[float]) -> float:
    """Compute the two-sided p value of the sign-flip (paired permutation) test that the mean difference is 0.

    Exact up to 12 pairs, else from 20,000 seeded random sign patterns. The smallest possible p is 2 / 2ⁿ: 0.0625 with
    5 seeds, 0.0078 with 8, so fewer than 6 seeds never reach 0.05.

    Args:
        differences: One per seed.

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
    total = abs(values.sum())
    # Sums that are equal in exact arithmetic differ in their last bits by the order of addition.
    extreme = int((np.abs(signs @ values) >= total - 1e-9 * np.abs(values).sum()).sum())
    return extreme / len(signs) if n <= EXACT_AT_MOST else (extreme + 1) / (len(signs) + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values for multiple testing by Holm's method; the order stays.

    References:
        Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    adjusted_values = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted_values[index] = highest
    return adjusted_values


def fewest_seeds(questions: int) -> int:
    """Compute the smallest n at which the sign-flip test can decide one of m questions: m · 2 / 2ⁿ ≤ :data:`ALPHA`.

    Six for one question, seven for two, eight for four, nine for eight.
    """
    return 1 + math.ceil(math.log2(max(questions, 1) / ALPHA))


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


@dataclass(frozen=True)
class TwoLevelInterval(Interval):
    """An interval over seeds and test examples, with the standard deviations due to the examples.

    Attributes:
        examples: Standard deviation of the difference over test sets, in the part common to all seeds: the root of the
            covariance between two seeds' differences. NaN with one seed.
        interaction: The same for the part that varies between seeds.
    """

    examples: float
    interaction: float


def paired_bootstrap(
    scorer: Callable[[np.ndarray], np.ndarray], counts: np.ndarray, resamples: int = RESAMPLES, seed: int = 0
) -> TwoLevelInterval:
    """Bootstrap the difference in mean score between two arms over seeds and test examples.

    An interval over seeds alone treats the test set as fixed, which ignores the larger half of the uncertainty with a
    few hundred examples. So each resample draws seeds and examples with replacement, the same for both arms.

    Args:
        scorer: Maps counts of examples, shape (draws, categories), to scores, shape (draws, 2 seeds): first the seeds
            of the first arm, then those of the other.
        counts: Examples of each category, shape (categories,); examples of a category are interchangeable.
        resamples: Number of resamples.
        seed: Seed of the draws.

    Returns:
        `mean` is the difference in the original sample, not the mean of the resamples; `n` is the number of seeds.

    References:
        Efron and Tibshirani 1993, An introduction to the bootstrap; Sellam et al. 2022, The MultiBERTs.
    """

    def differences(examples: np.ndarray) -> np.ndarray:
        scores = scorer(examples).reshape(len(examples), 2, -1)
        return scores[:, 0] - scores[:, 1]

    estimates = differences(counts[None].astype(np.float64))
    seeds = estimates.shape[1]
    random = generator(seed, "report", "bootstrap")
    means, by_seed = [], []
    for begin in range(0, resamples, BATCH):
        draws = min(BATCH, resamples - begin)
        weights = draw_counts(random, np.ones(seeds), draws)
        by_seed.append(differences(draw_counts(random, counts, draws)))
        means.append((by_seed[-1] * weights).sum(1) / seeds)
    replicates = np.concatenate(means)
    ends = float(estimates.mean()), float(replicates.std(ddof=1)), *percentile_interval(replicates)
    return TwoLevelInterval(*ends, seeds, *_variance_parts(np.concatenate(by_seed)))


def _variance_parts(by_seed: np.ndarray) -> tuple[float, float]:
    """Split the deviation over examples, shape (draws, seeds), into the part common to all seeds and the rest."""
    seeds = by_seed.shape[1]
    if seeds < 2:
        return float("nan"), float("nan")
    covariance = np.cov(by_seed, rowvar=False)
    variance = float(np.trace(covariance)) / seeds
    common = (float(covariance.sum()) - variance * seeds) / (seeds * (seeds - 1))
    return float(np.sqrt(max(common, 0.0))), float(np.sqrt(max(variance - max(common, 0.0), 0.0)))
