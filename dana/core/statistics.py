"""Statistics of arrays that come in shards (moments), and of results: intervals, paired tests, resampling.

Results of two arms are paired by the seeds that they share, so only differences count. Every interval by resampling
takes how often each thing is drawn from here, and its ends, too.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from dana.core.rng import generator

ALPHA = 0.05  # largest adjusted p of a verdict
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
        """Moments of one shard."""
        if scores.size == 0:
            return cls()
        mean = float(np.mean(scores, dtype=np.float64))
        return cls(scores.size, mean, float(np.square(scores - mean, dtype=np.float64).sum()))

    def merge(self, other: "Moments") -> "Moments":
        """Moments of both shards together."""
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
    """(Σλ)² / Σλ²: how many fully weighted units these are worth; 0 if all weights are 0. Kish 1965."""
    squares = float(np.square(weights, dtype=np.float64).sum())
    return float(weights.sum(dtype=np.float64)) ** 2 / squares if squares else 0.0


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


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean, sample standard deviation and Student's t interval of 95 % of the mean.

    Args:
        values: One score a seed.

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


def percentile_interval(replicates: np.ndarray) -> tuple[float, float]:
    """The ends of the 95 % percentile interval.

    Args:
        replicates: Estimates of the resamples alone, without that of the data as they are.
    """
    low, high = np.percentile(replicates, [2.5, 97.5])
    return float(low), float(high)


def draw_counts(random: np.random.Generator, counts: np.ndarray, draws: int) -> np.ndarray:
    """How often things of each sort are drawn, with replacement, as many as there are: float64 of (draws, sorts).

    Args:
        random: Where the draws come from.
        counts: How many there are of each sort.
        draws: Resamples.
    """
    return random.multinomial(int(counts.sum()), counts / counts.sum(), draws).astype(np.float64)


def draw_groups(random: np.random.Generator, groups: np.ndarray, draws: int) -> np.ndarray:
    """How often each thing is drawn where its whole group is, with replacement: float64 of shape (draws, things).

    Args:
        random: Where the draws come from.
        groups: Number of each thing's group (a text's document, say), from 0 without a gap.
        draws: Resamples.

    References:
        Davison and Hinkley 1997, Bootstrap methods and their application, section 2.4 (clusters).
    """
    return draw_counts(random, np.ones(int(groups.max()) + 1), draws)[:, groups]


@dataclass(frozen=True)
class TwoLevelInterval(Interval):
    """The interval over seeds and test examples, and what of it comes from the examples.

    Attributes:
        examples: Standard deviation over test sets of the difference, the part that all seeds share: the root of the
            covariance of two seeds' differences. Not a number with one seed.
        mixed: The same of the part that is a seed's own.
    """

    examples: float
    mixed: float


def paired_bootstrap(
    scorer: Callable[[np.ndarray], np.ndarray], counts: np.ndarray, resamples: int = RESAMPLES, seed: int = 0
) -> TwoLevelInterval:
    """Difference in mean score between two arms, with a percentile interval over seeds and test examples.

    An interval over seeds alone takes the test set as given; with a few hundred examples that is the larger half of the
    uncertainty. So in every resample seeds and examples are drawn with replacement, the same for both arms.

    Args:
        scorer: From how often each example counts, (draws, sorts), to the scores of models, (draws, 2 seeds): the
            first arm's seeds, then the other's.
        counts: How many examples there are of each sort, shape (sorts,); examples of a sort are interchangeable.
        resamples: How many times to draw.
        seed: Decides the draws.

    Returns:
        `mean` is the difference observed, not the mean of the resamples; `n` is the number of seeds.

    References:
        Efron and Tibshirani 1993, An introduction to the bootstrap; Sellam et al. 2022, The MultiBERTs.
    """

    def differences(examples: np.ndarray) -> np.ndarray:
        scores = scorer(examples).reshape(len(examples), 2, -1)
        return scores[:, 0] - scores[:, 1]

    observed = differences(counts[None].astype(np.float64))
    seeds = observed.shape[1]
    random = generator(seed, "report", "bootstrap")
    means, by_seed = [], []
    for begin in range(0, resamples, BATCH):
        draws = min(BATCH, resamples - begin)
        weights = draw_counts(random, np.ones(seeds), draws)
        by_seed.append(differences(draw_counts(random, counts, draws)))
        means.append((by_seed[-1] * weights).sum(1) / seeds)
    drawn = np.concatenate(means)
    ends = float(observed.mean()), float(drawn.std(ddof=1)), *percentile_interval(drawn)
    return TwoLevelInterval(*ends, seeds, *_variance_parts(np.concatenate(by_seed)))


def _variance_parts(by_seed: np.ndarray) -> tuple[float, float]:
    """Standard deviations over draws of examples: what seeds share, and what is a seed's own; (draws, seeds) in."""
    seeds = by_seed.shape[1]
    if seeds < 2:
        return float("nan"), float("nan")
    covariance = np.cov(by_seed, rowvar=False)
    each = float(np.trace(covariance)) / seeds
    shared = (float(covariance.sum()) - each * seeds) / (seeds * (seeds - 1))
    return float(np.sqrt(max(shared, 0.0))), float(np.sqrt(max(each - max(shared, 0.0), 0.0)))
