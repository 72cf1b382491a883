"""Mixture proportion estimation: scores of the pool and of held-out task text to the in-domain share of the pool.

The pool is read as a mixture: a share π of text like the task's, whose scores are distributed as those of held-out
task text, and other text. For every threshold t, the share G(t) of the pool at or below it is at least π T(t), T being
that of held-out task text; so π is at most G(t) / T(t), and nearly that where hardly any other text scores so low.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from dana.core.rng import generator
from dana.core.statistics import percentile_interval

REPLICATES = 200
THRESHOLDS = 200  # of the task's scores, at equal quantiles
CAUTION = 2.0  # standard errors: the half-width of the limits of T(t) and G(t) that choose the threshold
LEAST_DOCUMENTS = 10  # of the task at or below a threshold; of fewer the share would be chance
LARGEST_POOL = 1_000_000  # units; of more, a part of the documents is taken

Ranked = Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]  # values, units and weights of groups, in blocks


@dataclass(frozen=True)
class Estimate:
    """A value and its interval of 95 % over documents."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, replicates: np.ndarray) -> "Estimate":
        """The first is that of the data as they are."""
        return cls(float(replicates[0]), *percentile_interval(replicates[1:]))


@dataclass(frozen=True)
class InDomain:
    """What is estimated of a selection.

    Attributes:
        pool: Share of the pool that is like the task, π.
        recall: Share of such text that is kept.
        kept: Share of what is kept that is like the task: π · recall / the share that is kept, at most 1.
        mostly: Share of the pool, the best first, up to where a unit is as likely other text as like the task.
    """

    pool: Estimate
    recall: Estimate
    kept: Estimate
    mostly: float


@dataclass(frozen=True)
class Scored:
    """Scores of units, and the document of each.

    Attributes:
        scores: Shape (units,), higher = more foreign.
        documents: int64 of shape (units,), numbered from 0 without a gap.
    """

    scores: np.ndarray
    documents: np.ndarray

    def weights(self, random: np.random.Generator) -> np.ndarray:
        """A bootstrap replicate: how often each unit's document was drawn, float64 of shape (units,)."""
        return random.poisson(1.0, int(self.documents.max()) + 1)[self.documents].astype(np.float64)


class PoolSample:
    """Scores of a pool that comes in blocks of whole documents; of a large pool, of documents drawn at random.

    Of few huge documents maybe none is drawn. Every n-th unit is taken then, of about all documents.

    Args:
        units: Of the whole pool.
        seed: Of the draw, and of a bootstrap after it.

    Attributes:
        random: Where the bootstrap goes on.
    """

    def __init__(self, units: int, seed: int) -> None:
        self.random = generator(seed, "mixture")
        self._share = LARGEST_POOL / units if units > LARGEST_POOL else 1.0
        self._scores: list[np.ndarray] = []
        self._documents: list[np.ndarray] = []
        self._before = self._drawn = self._units = 0
        self._step = -(-units // LARGEST_POOL)
        self._spare: list[tuple[np.ndarray, np.ndarray]] = []  # where no document is drawn

    def add(self, scores: np.ndarray, documents: np.ndarray) -> None:
        """The next units: their scores, and the document of each, numbered over the pool from 0."""
        count, own = int(documents[-1]) + 1 - self._before, documents - self._before
        self._before += count
        if self._share < 1:
            if self._drawn == 0:
                nth = (self._units + np.arange(scores.size)) % self._step == 0
                self._spare.append((scores[nth], documents[nth]))
            self._units += scores.size
            drawn = self.random.random(count) < self._share
            own, scores = (np.cumsum(drawn) - 1)[own[drawn[own]]], scores[drawn[own]]
            count = int(drawn.sum())
        documents = self._drawn + own  # of those drawn, so that a bootstrap draws no others
        self._drawn += count
        self._scores.append(scores)
        self._documents.append(documents)

    @property
    def scored(self) -> Scored:
        """What was drawn."""
        if self._drawn == 0 and self._spare:
            scores, documents = map(np.concatenate, zip(*self._spare, strict=True))
            return Scored(scores, np.unique(documents, return_inverse=True)[1])
        self._scores, self._documents = [np.concatenate(self._scores)], [np.concatenate(self._documents)]  # once
        return Scored(self._scores[0], self._documents[0])


def in_domain(task: Scored, keep: np.ndarray, sample: PoolSample, kept_share: float) -> InDomain:
    """Estimate how much of the pool, and of what is kept, is like the task.

    π is G(t) / T(t) at the threshold where its upper limit is lowest. Where no threshold parts the task from the most
    similar other text, that is too high: read it as "at most about".

    Args:
        task: Task text that nothing was fitted on.
        keep: Shape (task units,), the weight that the selection would give each, in [0, 1].
        sample: Of the scored corpus.
        kept_share: Mean weight of the pool's units.

    References:
        Blanchard, Lee and Scott 2010, Semi-supervised novelty detection (π as the infimum of G / T). Garg, Wu, Smola,
        Balakrishnan and Lipton 2021, Mixture proportion estimation and PU learning: a modern approach, algorithm 1
        (best bin estimation); the limits here are Wilson's, not uniform ones, which ask for thousands of units.
    """
    random, pool = sample.random, sample.scored
    grid = _grid(task)
    task_bin, pool_bin = (np.searchsorted(grid, side.scores) for side in (task, pool))
    documents = np.unique(task.documents).size

    below_task, below_pool = (np.cumsum(np.bincount(part, minlength=grid.size + 1)) for part in (task_bin, pool_bin))
    best = _threshold(
        below_task[:-1] / task.scores.size,
        below_pool[:-1] / pool.scores.size,
        documents,
        np.unique(pool.documents).size,
    )

    def once(task_weight: np.ndarray, pool_weight: np.ndarray) -> tuple[float, float]:
        units = max(task_weight.sum(), 1.0)
        of_task, of_pool = task_weight[task_bin <= best].sum() / units, pool_weight[pool_bin <= best].sum()
        share = of_pool / max(pool_weight.sum(), 1.0) / max(of_task, 1e-12)
        return min(1.0, float(share)), float((task_weight * keep).sum() / units)

    pairs = [once(np.ones(task.scores.size), np.ones(pool.scores.size))]
    pairs += [once(task.weights(random), pool.weights(random)) for _ in range(REPLICATES)]
    shares, recalls = np.array(pairs).T
    purity = np.minimum(1.0, shares * recalls / max(kept_share, 1e-12))
    mostly = float((in_domain_probability(task, pool, float(shares[0])) >= 0.5).mean())
    return InDomain(Estimate.of(shares), Estimate.of(recalls), Estimate.of(purity), mostly)


def in_domain_probability(task: Scored, pool: Scored, share: float) -> np.ndarray:
    """Probability that each unit of the pool is like the task: π f(s) / g(s) at its score s, never rising with it.

    f and g are the densities of the scores of task text and of the pool. Between quantiles of the task's scores their
    ratio is that of the two shares there, π ΔT / ΔG, made monotone by isotonic regression weighted by ΔG.

    Args:
        task: Task text that nothing was fitted on.
        pool: The scored corpus.
        share: π, of the pool.

    Returns:
        Shape (units,), in [0, 1]; 0 above the task's highest score.

    References:
        Elkan and Noto 2008, Learning classifiers from only positive and unlabeled data, section 2. Zadrozny and Elkan
        2002, Transforming classifier scores into accurate multiclass probability estimates (isotonic calibration).
    """
    grid = _grid(task)
    task_bin, pool_bin = (np.searchsorted(grid, side.scores) for side in (task, pool))
    of_task, of_pool = (np.bincount(part, minlength=grid.size + 1) / part.size for part in (task_bin, pool_bin))
    weight = np.maximum(of_pool, 1e-9)
    return np.minimum(1.0, isotonic_regression(share * of_task / weight, weights=weight, increasing=False).x)[pool_bin]


def _grid(task: Scored) -> np.ndarray:
    """Thresholds: distinct quantiles of the task's scores, the highest score the last."""
    return np.unique(np.quantile(task.scores, np.linspace(0, 1, THRESHOLDS + 1)[1:], method="higher"))


def _threshold(of_task: np.ndarray, of_pool: np.ndarray, documents: int, pool_documents: int) -> int:
    """Where the upper limit of G / T is lowest: neither so high that other text is in, nor so low that T is chance.

    Units of a document are alike, so documents are counted on both sides.
    """
    low, high = _limit(of_task, documents, -1), _limit(of_pool, pool_documents, 1)
    enough = of_task * documents >= min(LEAST_DOCUMENTS, documents)
    return int(np.argmin(np.where(enough, high / np.maximum(low, 1e-12), np.inf)))


def _limit(share: np.ndarray, count: int, side: int) -> np.ndarray:
    """Wilson's limit of a share of `count`, upper (1) or lower (-1); unlike the plain normal one it is above 0 at 0."""
    variance = CAUTION**2 / count
    return (share + variance / 2 + side * np.sqrt(variance * (share * (1 - share) + variance / 4))) / (1 + variance)


def local_mean(ranked: Callable[[], Ranked], units: int, at: np.ndarray, share: float = 0.01) -> np.ndarray:
    """Mean weight of the units nearest in rank, a hundredth of all, to each value asked about.

    Args:
        ranked: Begins, in the order of what decides how a unit is weighted, groups of units that go by one value: the
            value, units and weight of each.
        units: In all; those in no group come last, and weigh nothing.
        at: Values asked about, shape (n,).
        share: Of the units, that a mean is taken over.
    """
    place = np.zeros(at.size, dtype=np.int64)
    for values, sizes, _ in ranked():
        place += np.append(0, np.cumsum(sizes))[np.searchsorted(values, at)]
    half = max(1, round(share * units / 2))
    first, last = np.maximum(place - half, 0), np.minimum(place + half, units)
    first = np.minimum(first, units - 1)
    return (_weight_before(ranked(), last) - _weight_before(ranked(), first)) / (last - first)


def _weight_before(ranked: Ranked, ranks: np.ndarray) -> np.ndarray:
    """Weight of all units before each rank."""
    found, total, before = np.empty(ranks.size), 0.0, 0
    open_ = np.ones(ranks.size, dtype=bool)
    for _, sizes, weights in ranked:
        ends = before + np.append(0, np.cumsum(sizes))
        totals = np.cumsum(np.append(total, sizes * weights))  # one after the other, whatever the blocks
        here = open_ & (ranks < ends[-1])
        group = np.searchsorted(ends, ranks[here], side="right") - 1
        found[here] = totals[group] + weights[group] * (ranks[here] - ends[group])
        open_ &= ~here
        before, total = int(ends[-1]), float(totals[-1])
    found[open_] = total
    return found
