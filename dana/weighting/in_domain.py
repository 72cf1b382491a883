"""Estimate the in-domain share of a pool and of the selected text, and choose the amount by it (``beta=auto``).

**Share.** The pool is modelled as a mixture of a share π of in-domain text, whose scores are distributed as
those of held-out target text, and other text. Let G(t) and T(t) be the shares of the pool and of
held-out target text that score at most t. Then G(t) >= π T(t) for every t, so π <= G(t) / T(t),
nearly with equality where hardly any other text scores so low.

**Amount.** N-gram models are trained on growing cuts of the ranked pool. The cut whose model
predicts held-out target text best is the amount to select (Moore and Lewis 2010, Intelligent
selection of language model training data, section 4; Rousseau 2013, XenC, section 3.3), capped by
the in-domain share.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.optimize import isotonic_regression

from dana.core.errors import DataError
from dana.core.logging import get_logger
from dana.core.rng import generator
from dana.core.schemas import HELD_OUT_TARGET, SCORES, read_table
from dana.core.statistics import percentile_interval
from dana.weighting.formulas import (
    DROPPED,
    Components,
    of_units,
    segment_ids,
    segment_means,
    segment_sizes,
)
from dana.weighting.selection import (
    Pool,
    Segments,
    Weights,
    find_document_starts,
    sample_documents,
)
from dana.weighting.settings import WeighSettings

log = get_logger(__name__)

REPLICATES = 200  # of the bootstrap over documents
THRESHOLDS = 200  # equally spaced quantiles of the target's scores
LIMIT_ERRORS = 2.0  # standard errors: half-width of the confidence limits of T(t) and G(t) that choose the threshold
DOCUMENTS_BELOW = 10  # target documents at or below a threshold: with fewer T(t) is too noisy
LEAST_DOCUMENTS = 5  # held-out target documents: with fewer nothing is estimated
LEAST_UNITS = 20  # held-out target units: with fewer nothing is estimated
WIDEST = 0.9  # of an interval of the in-domain share of the selected text; a wider one says nothing
LOW_PURITY = 0.7  # in-domain share of the selected text below which there is a warning
MAYBE_ALL = 0.95  # upper limit of π above which the whole pool may be in-domain
# The share is estimated from about so many units; a larger pool is sampled by document.
LARGEST_POOL = 1_000_000
RARE_SHARE = 0.01  # in-domain share of the pool below which no smaller budget is suggested

CUTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
ORDER = 3  # of the n-gram models
LEAST_COUNT = 2  # occurrences of a word in the pool to be in the vocabulary, which all cuts share
MOST_UNITS = 200_000  # units whose n-grams are counted; a larger pool is sampled by document


@dataclass(frozen=True)
class UnitScores:
    """Scores of units, with the document of each.

    Attributes:
        score: Shape (units,), higher = more foreign.
        document: int of shape (units,), numbered from 0 without a gap.
    """

    score: np.ndarray
    document: np.ndarray

    @property
    def documents(self) -> int:
        """Number of documents."""
        return int(self.document.max()) + 1

    def resample_documents(self, random: np.random.Generator) -> np.ndarray:
        """Draw a Poisson bootstrap replicate over documents: the count of each unit, float64 of shape (units,)."""
        count_of_document = random.poisson(1.0, self.documents)
        counts: np.ndarray = count_of_document[self.document].astype(np.float64)
        return counts


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval, by a bootstrap over documents."""

    value: float
    low: float
    high: float

    @classmethod
    def from_replicates(cls, replicates: np.ndarray) -> "Estimate":
        """Make an estimate from bootstrap replicates, of which the first is computed on the data themselves."""
        return cls(float(replicates[0]), *percentile_interval(replicates[1:]))


@dataclass(frozen=True)
class InDomain:
    """Estimated in-domain text of a pool and a selection.

    Attributes:
        pool: In-domain share of the pool, π.
        recall: Share of the in-domain text that is selected.
        precision: In-domain share of the selected text: π · recall / selected share, at most 1.
        likely_share: Share of the pool's units that are at least as likely in-domain as not.
    """

    pool: Estimate
    recall: Estimate
    precision: Estimate
    likely_share: float

    @property
    def tells_apart(self) -> bool:
        """Whether scores separate target and pool; otherwise the whole pool may be in-domain."""
        return self.pool.high <= MAYBE_ALL


def estimate_in_domain(
    target: UnitScores,
    target_weight: np.ndarray,
    pool: UnitScores,
    selected_share: float,
    random: np.random.Generator,
) -> InDomain:
    """Estimate the in-domain share of the pool and of the selected text.

    π is G(t) / T(t) at the threshold where its upper confidence limit is lowest. If no threshold
    separates the target from the most similar other text, the estimate is too high: read it as an
    upper bound.

    Args:
        target: Held-out target text, used in no fit.
        target_weight: Weight that the selection would give each target unit, in [0, 1], shape (target
            units,).
        pool: The scored pool, or a sample of its documents.
        selected_share: Mean weight of the pool's units.
        random: Generator of the bootstrap.

    References:
        Blanchard, Lee and Scott 2010, Semi-supervised novelty detection (π as the infimum of G / T). Garg, Wu, Smola,
        Balakrishnan and Lipton 2021, Mixture proportion estimation and PU learning: a modern approach, algorithm 1
        (best bin estimation); the limits here are Wilson's, not uniform ones, which ask for thousands of units.
    """
    grid = _grid(target)
    target_bin = np.searchsorted(grid, target.score)
    pool_bin = np.searchsorted(grid, pool.score)
    best = _threshold(
        _share_below(target_bin, grid.size),
        _share_below(pool_bin, grid.size),
        target.documents,
        pool.documents,
    )
    # A score in bin b is at most grid[b], and above grid[b - 1].
    target_is_below = target_bin <= best
    pool_is_below = pool_bin <= best

    def share_and_recall(target_count: np.ndarray, pool_count: np.ndarray) -> tuple[float, float]:
        """Compute π and the recall of a replicate, which has each unit so many times."""
        target_units = max(target_count.sum(), 1.0)
        pool_units = max(pool_count.sum(), 1.0)
        target_share = target_count[target_is_below].sum() / target_units
        pool_share = pool_count[pool_is_below].sum() / pool_units
        share = min(1.0, float(pool_share / max(target_share, 1e-12)))
        recall = float((target_count * target_weight).sum() / target_units)
        return share, recall

    # The first is that of the data themselves, with each unit once.
    replicates = [share_and_recall(np.ones(target.score.size), np.ones(pool.score.size))]
    for _ in range(REPLICATES):
        target_count = target.resample_documents(random)
        pool_count = pool.resample_documents(random)
        replicates.append(share_and_recall(target_count, pool_count))
    shares, recalls = np.array(replicates).T
    precisions = np.minimum(1.0, shares * recalls / max(selected_share, 1e-12))
    probability = in_domain_probability(target, pool, float(shares[0]))
    return InDomain(
        pool=Estimate.from_replicates(shares),
        recall=Estimate.from_replicates(recalls),
        precision=Estimate.from_replicates(precisions),
        likely_share=float((probability >= 0.5).mean()),
    )


def in_domain_probability(target: UnitScores, pool: UnitScores, share: float) -> np.ndarray:
    """Estimate the in-domain probability of each unit of the pool, π f(s) / g(s) at its score s, non-increasing in s.

    f and g are the densities of the scores of target text and of the pool. Their ratio is estimated
    between quantiles of the target's scores by π ΔT / ΔG, and made monotone by isotonic regression
    weighted by ΔG.

    Args:
        target: Held-out target text, used in no fit.
        pool: The scored pool.
        share: In-domain share of the pool, π.

    Returns:
        Shape (units,), in [0, 1]; 0 above the target's highest score.

    References:
        Elkan and Noto 2008, Learning classifiers from only positive and unlabeled data, section 2. Zadrozny and Elkan
        2002, Transforming classifier scores into accurate multiclass probability estimates (isotonic calibration).
    """
    grid = _grid(target)
    target_bin = np.searchsorted(grid, target.score)
    pool_bin = np.searchsorted(grid, pool.score)
    target_by_bin = np.bincount(target_bin, minlength=grid.size + 1) / target_bin.size
    pool_by_bin = np.bincount(pool_bin, minlength=grid.size + 1) / pool_bin.size
    pool_by_bin = np.maximum(pool_by_bin, 1e-9)  # a divisor
    ratio = share * target_by_bin / pool_by_bin
    falling_ratio = isotonic_regression(ratio, weights=pool_by_bin, increasing=False).x
    probability: np.ndarray = np.minimum(1.0, falling_ratio)[pool_bin]
    return probability


def _share_below(bins: np.ndarray, size: int) -> np.ndarray:
    """Compute the share of units at or below each threshold, shape (size,)."""
    # The last bin is above all thresholds.
    return np.cumsum(np.bincount(bins, minlength=size + 1))[:-1] / bins.size


def _grid(target: UnitScores) -> np.ndarray:
    """List the thresholds: distinct quantiles of the target's scores, up to the highest score."""
    levels = np.linspace(0, 1, THRESHOLDS + 1)[1:]
    return np.unique(np.quantile(target.score, levels, method="higher"))


def _threshold(
    target_below: np.ndarray, pool_below: np.ndarray, target_documents: int, pool_documents: int
) -> int:
    """Choose the threshold index where the upper confidence limit of G / T is lowest.

    A higher threshold includes other text, a lower one makes T noisy. Sample sizes are numbers of
    documents, because units of a document are correlated.

    Args:
        target_below: Share of the target's units at or below each threshold, shape (thresholds,).
        pool_below: Share of the pool's units at or below each threshold, shape (thresholds,).
        target_documents: Number of the target's documents.
        pool_documents: Number of the pool's documents.
    """
    target_low = _limit(target_below, target_documents, -1)
    pool_high = _limit(pool_below, pool_documents, 1)
    documents_below = target_below * target_documents  # about
    is_enough = documents_below >= min(DOCUMENTS_BELOW, target_documents)
    ratio = np.where(is_enough, pool_high / np.maximum(target_low, 1e-12), np.inf)
    return int(np.argmin(ratio))


def _limit(share: np.ndarray, count: int, side: int) -> np.ndarray:
    """Compute Wilson's confidence limit of a share, upper (`side` 1) or lower (-1).

    The upper limit of a share of 0 is above 0.
    """
    variance = LIMIT_ERRORS**2 / count
    half_width = np.sqrt(variance * (share * (1 - share) + variance / 4))
    limit: np.ndarray = (share + variance / 2 + side * half_width) / (1 + variance)
    return limit


def local_mean(
    values: np.ndarray, weights: np.ndarray, queries: np.ndarray, share: float = 0.01
) -> np.ndarray:
    """Average the weights of the units whose rank is nearest to that of each query.

    Args:
        values: Ranking value of each unit, shape (units,).
        weights: Weight of each unit, shape (units,).
        queries: Values at which the mean is wanted, shape (queries,).
        share: Share of the units that a mean is over.

    Returns:
        Mean weight around each query, float64 of shape (queries,).
    """
    order = np.argsort(values, kind="stable")
    weight_before = np.append(0, np.cumsum(weights[order], dtype=np.float64))
    rank = np.searchsorted(values[order], queries)
    half = max(1, round(share * values.size / 2))
    first = np.clip(rank - half, 0, values.size - 1)  # so that each mean is over one unit at least
    last = np.minimum(rank + half, values.size)
    means: np.ndarray = (weight_before[last] - weight_before[first]) / (last - first)
    return means


def ranking_values(
    table: pa.Table, settings: WeighSettings, components: Components | None
) -> np.ndarray:
    """Compute the value that ranks each unit: its score (``sigmoid``), or the shrunken mean of its segment.

    Args:
        table: Scores in memory, :data:`dana.core.schemas.SCORES`.
        settings: Settings of the weighing.
        components: Variance components that shrink the means, if any.

    Returns:
        float64 of shape (units,), infinite for a dropped tail and a segment of short units alone.
    """
    score: np.ndarray = table["score"].to_numpy()
    if settings.policy == "sigmoid":
        return score
    # Segments of a stream run across documents, as if all were one.
    starts = np.zeros(1, dtype=np.int64) if settings.stream else find_document_starts(table)
    segment = segment_ids(starts, table.num_rows, settings.gamma, settings.min_tail)
    segment_count = int(segment.max(initial=DROPPED)) + 1
    counted_ids = segment
    if "short" in table.column_names:
        counted_ids = np.where(table["short"].to_numpy(), DROPPED, segment)
    means = segment_means(score, counted_ids, segment_count)
    if components is not None:
        means = components.shrink(means, segment_sizes(counted_ids, segment_count))
    return of_units(means, segment, np.inf)


def document_numbers(table: pa.Table) -> np.ndarray:
    """Number the document of each unit from 0, in order; int64 of shape (units,).

    Args:
        table: Columns ``doc_id`` and ``unit``, rows of a document adjacent.
    """
    starts = find_document_starts(table)
    return np.searchsorted(starts, np.arange(table.num_rows), side="right") - 1


def held_out_target(scores: Path) -> pa.Table:
    """Read the scores of held-out target text, :data:`dana.core.schemas.SCORES`; empty if there are none.

    Args:
        scores: Folder of a scores artifact.
    """
    path = scores / HELD_OUT_TARGET
    return read_table(path) if path.is_file() else SCORES.empty_table()


def split_held_out(target: pa.Table, seed: int) -> tuple[pa.Table, pa.Table]:
    """Split held-out target text by document into a half that chooses beta and a half that evaluates the choice.

    Fewer than twice :data:`LEAST_UNITS` units all go to the first half, because nothing can be
    estimated on the second.

    Args:
        target: Scores of held-out target text, :data:`dana.core.schemas.SCORES`.
        seed: Seed of the split.

    Returns:
        The half that chooses, and the half that evaluates.
    """
    if target.num_rows < 2 * LEAST_UNITS:
        return target, target.slice(0, 0)
    document = document_numbers(target)
    count = int(document[-1]) + 1
    rank_of_document = generator(seed, "weights", "halves").permutation(count)
    chooses = rank_of_document[document] < (count + 1) // 2
    return target.filter(pa.array(chooses)), target.filter(pa.array(~chooses))


def estimate_purity(
    target: pa.Table,
    pool: Pool,
    weights: Weights,
    settings: WeighSettings,
    choosing_units: int = 0,
) -> dict[str, Any]:
    """Estimate the in-domain share of the pool and of the selected text, with 95 % intervals, for the manifest.

    Target and pool are compared by their ranking values (:func:`ranking_values`). In-domain text of
    the pool is assumed to have scores, and to come in documents, like the target's. A larger pool
    than :data:`LARGEST_POOL` is sampled by document.

    Args:
        target: Scores of held-out target units.
        pool: The scored units.
        weights: Their weights.
        settings: Settings of the weighing.
        choosing_units: Number of other held-out target units, by which beta was chosen.

    Returns:
        ``pool``, ``recall`` and ``selected`` (the precision), each with ``value``, ``low`` and
        ``high``; ``mostly`` (:attr:`InDomain.likely_share`) and ``selected_share``, the mean weight.
        Or only ``unknown``, the reason why nothing is estimated.
    """
    documents = int(document_numbers(target)[-1]) + 1 if target.num_rows else 0
    problem = _lack_of_target(target.num_rows, documents, choosing_units)
    if problem:
        return {"unknown": problem}
    random = generator(settings.seed, "mixture")
    document = pool.document
    sample = sample_documents(document, LARGEST_POOL, random)
    if weights.ranked_means is None:
        values = pool.score[sample]
    else:
        values = of_units(weights.ranked_means, weights.segment[sample], np.inf)
    target_scores = UnitScores(
        ranking_values(target, settings, weights.components), document_numbers(target)
    )
    pool_scores = UnitScores(values, _renumber(document[sample]))
    selected_share = float(weights.weight.sum(dtype=np.float64)) / pool.units
    target_weight = local_mean(values, weights.weight[sample], target_scores.score)
    estimate = estimate_in_domain(target_scores, target_weight, pool_scores, selected_share, random)
    problem = _doubt_about(estimate, selected_share, documents)
    if problem:
        return {"unknown": problem}
    return {
        "pool": asdict(estimate.pool),
        "recall": asdict(estimate.recall),
        "selected": asdict(estimate.precision),
        "mostly": estimate.likely_share,
        "selected_share": selected_share,
    }


def _lack_of_target(units: int, documents: int, choosing_units: int) -> str:
    """Say that there is too little held-out target text for an estimate; empty if there is enough.

    Args:
        units: Number of held-out target units.
        documents: Number of their documents.
        choosing_units: Number of other held-out target units, by which beta was chosen.
    """
    besides = ""
    if choosing_units:
        besides = f" besides the {choosing_units} units that chose beta"
    if units < LEAST_UNITS:
        return f"{units} held-out target units{besides}; an estimate needs {LEAST_UNITS}"
    if documents < LEAST_DOCUMENTS:
        return (
            f"{documents} held-out target documents{besides}; an estimate needs {LEAST_DOCUMENTS}"
        )
    return ""


def _doubt_about(estimate: InDomain, selected_share: float, documents: int) -> str:
    """Say why an estimate tells nothing about a selection; empty if it tells something.

    Args:
        estimate: The estimate.
        selected_share: Mean weight of the pool's units.
        documents: Number of held-out target documents.
    """
    if not estimate.tells_apart:
        return "the scores do not tell held-out target text from the pool"
    # A random selection has a recall of its share. One of the whole pool has 1, and is not refused.
    is_whole_pool = selected_share >= 1
    if estimate.recall.low <= selected_share and not is_whole_pool:
        return "the selection would hold no more held-out target text than a random one"
    low = estimate.precision.low
    high = estimate.precision.high
    if high - low > WIDEST:
        return f"{documents} held-out documents leave it between {low:.0%} and {high:.0%}"
    return ""


def _renumber(numbers: np.ndarray) -> np.ndarray:
    """Number the distinct values from 0 without a gap, in their order."""
    _, renumbered = np.unique(numbers, return_inverse=True)
    return renumbered


def describe_purity(shares: dict[str, Any]) -> str:
    """Format the shares of :func:`estimate_purity` in one line, or the reason why they are unknown."""
    if "unknown" in shares:
        return f"share that scores like held-out target text: unknown ({shares['unknown']})"
    precision = shares["selected"]
    pool = shares["pool"]
    return (
        f"scores like held-out target text: at most about {precision['value']:.0%} of the selected text "
        f"({precision['low']:.0%} to {precision['high']:.0%}), {pool['value']:.0%} of the pool "
        f"({pool['low']:.0%} to {pool['high']:.0%}); text of the same subject in another style does not"
    )


def warn_of_low_purity(shares: dict[str, Any]) -> None:
    """Warn if less than 70 % of the selected text scores like held-out target text, and suggest a smaller budget.

    No smaller budget is suggested if hardly any of the pool scores like the target. Contrastive
    selectors also react to style, so related text of another style scores low; it may still be what
    the user wants.

    Args:
        shares: Shares from :func:`estimate_purity`.
    """
    if "unknown" in shares or shares["selected"]["value"] >= LOW_PURITY:
        return
    precision = shares["selected"]["value"]
    pool = shares["pool"]["value"]
    selected_share = shares["selected_share"]
    likely_share = shares["mostly"]  # of the pool, where target text is at least as likely
    if likely_share > 0 and pool < RARE_SHARE:
        log.warning(
            "weights   hardly any of the pool (%.2g %%) scores like held-out text of the task; the "
            "selected text is the nearest there is: inspect it with dana report",
            100 * pool,
        )
        return
    amounts = f"{100 * selected_share:.2g} % is selected, and about {100 * pool:.2g} % of the pool scores so"
    if likely_share == 0:
        amounts += "; no score of the pool makes target text likely"
    elif likely_share < selected_share:
        amounts += f"; --beta {likely_share:.2g} ends where other text becomes more likely"
    log.warning(
        "weights   at most about %.0f %% of the selected text scores like held-out text of the "
        "task: %s. Text of the same subject in another style does not",
        100 * precision,
        amounts,
    )


@dataclass(frozen=True)
class PerplexityCurve:
    """Cross-entropy of held-out documents under the n-gram model of each cut, in nats, with a shared vocabulary.

    Attributes:
        shares: Shape (cuts,), share of the pool's units in each cut, ascending.
        nats: Shape (cuts, documents), under the model of the best units; infinite if no word of the
            cut is known.
        random_nats: Shape (cuts, documents), under the model of equally many random units.
        tokens: Shape (documents,), number of known words and unit ends of each document.
    """

    shares: np.ndarray
    nats: np.ndarray
    random_nats: np.ndarray
    tokens: np.ndarray

    @property
    def per_token(self) -> np.ndarray:
        """Cross-entropy of all documents under each cut's model, nats per token."""
        cross_entropy: np.ndarray = self.nats.sum(axis=1) / self.tokens.sum()
        return cross_entropy

    @property
    def random_per_token(self) -> np.ndarray:
        """Cross-entropy under the models of random units, nats per token."""
        cross_entropy: np.ndarray = self.random_nats.sum(axis=1) / self.tokens.sum()
        return cross_entropy

    @property
    def best(self) -> int:
        """Index of the cut of least cross-entropy; the smallest on ties."""
        return int(np.argmin(self.per_token))

    @property
    def standard_errors(self) -> np.ndarray:
        """Standard error of each cut's difference to the best, nats per token, paired by document; 0 for one document.

        By linearisation of the ratio of nats to tokens (Cochran 1977, Sampling techniques, section
        6.4).
        """
        documents = self.tokens.size
        if documents < 2:
            return np.zeros(self.shares.size)
        # A cut without a known word has infinite nats, and so residuals that are no number. Its error
        # is 0, so that it is never within one error of the best.
        with np.errstate(invalid="ignore"):
            differences = self.nats - self.nats[self.best]
            difference_per_token = differences.sum(axis=1, keepdims=True) / self.tokens.sum()
            residuals = differences - difference_per_token * self.tokens
        squares = np.nan_to_num(np.square(residuals)).sum(axis=1)
        errors: np.ndarray = np.sqrt(documents / (documents - 1) * squares) / self.tokens.sum()
        return errors

    @property
    def smallest(self) -> int:
        """Index of the smallest cut within one standard error of the best."""
        is_near = self.per_token - self.per_token[self.best] <= self.standard_errors
        return int(np.argmax(is_near))  # the first that is


def perplexity_curve(
    pool: Sequence[str],
    order: np.ndarray,
    random_order: np.ndarray,
    held_out: Sequence[str],
    documents: np.ndarray,
    cuts: Sequence[float] = CUTS,
) -> PerplexityCurve:
    """Train an n-gram model on each cut of the ranked pool and measure the perplexity of held-out text.

    Args:
        pool: Text of each unit.
        order: Rows of the pool, best first.
        random_order: The same rows in random order.
        held_out: Text of each held-out target unit, used in no fit.
        documents: int64 of shape (held-out units,), the document of each, numbered from 0.
        cuts: Shares of the pool's units, ascending.
    """
    # They import torch, which is needed for beta=auto alone.
    from dana.models.ngram.kneser_ney import train_ngrams
    from dana.models.ngram.model import text_entropies
    from dana.models.ngram.vocabulary import END, Vocabulary, WordIds

    vocabulary = Vocabulary.of_texts(pool, LEAST_COUNT)
    ids = vocabulary.encode(pool)
    held_out_ids = vocabulary.encode(held_out)

    def nats_of(rows: np.ndarray) -> np.ndarray:
        """Compute the nats of each held-out document under a model of these rows of the pool."""
        train: WordIds = ids.rows(np.sort(rows))  # in the order of the pool, as it is in memory
        has_known_word = (train.ids > END).any()  # END is the mark before the numbers of words
        if not has_known_word:
            return np.full(int(documents.max()) + 1, np.inf)
        model = train_ngrams(train, ORDER, vocabulary)
        nats = text_entropies(model, held_out_ids, unknown=False).nats
        return np.bincount(documents, nats)

    sizes = sorted({max(1, round(share * order.size)) for share in cuts})
    nats_of_best = []
    nats_of_random = []
    for size in sizes:
        best = nats_of(order[:size])
        # The whole pool is the same in any order, so it is not counted again.
        is_whole_pool = size == order.size
        nats_of_best.append(best)
        nats_of_random.append(best if is_whole_pool else nats_of(random_order[:size]))
    is_counted = held_out_ids.ids >= END  # known words, and the mark at the end of each unit
    tokens_of_unit = np.bincount(held_out_ids.text_of, is_counted, minlength=len(held_out_ids))
    return PerplexityCurve(
        shares=np.array(sizes) / order.size,
        nats=np.stack(nats_of_best),
        random_nats=np.stack(nats_of_random),
        tokens=np.bincount(documents, tokens_of_unit),
    )


@dataclass(frozen=True)
class Amount:
    """Chosen amount of text, with the evidence.

    Attributes:
        beta: Chosen share of the units.
        by_perplexity: The smallest cut within one standard error of the least perplexity.
        by_likeness: Share of the pool that is at least as likely in-domain as not; None if unknown.
        reason: Explanation of the choice.
        held_out_documents: Number of held-out target documents by which beta was chosen.
        counted_units: Number of the pool's units in the largest n-gram model.
        curve: One row per cut of the ranked pool, ascending. ``share`` of the pool's units and
            their number ``units``; ``perplexity`` of held-out target text under an n-gram model of
            the cut, ``perplexity_random`` of equally many random units, None without a known word;
            ``above_best``, nats per token more than the cut of least perplexity, and the
            ``standard_error`` of this difference over held-out documents; ``in_domain``, the
            estimated in-domain share of the cut, None if unknown.
    """

    beta: float
    by_perplexity: float
    by_likeness: float | None
    reason: str
    held_out_documents: int
    counted_units: int
    curve: list[dict[str, Any]]


def choose_amount(
    held_out: pa.Table,
    held_out_texts: Sequence[str],
    pool: Pool,
    segments: Segments,
    texts_of: Callable[[np.ndarray], Sequence[str]],
    settings: WeighSettings,
) -> Amount:
    """Choose beta: the cut of least perplexity, but not more than the in-domain share of the pool.

    Two estimates. (a) The smallest cut of the ranked pool whose n-gram model is within one standard
    error of the best on held-out target text. (b) The share of the pool that is at least as likely
    in-domain as not (:func:`in_domain_probability`). The smaller one is chosen, because in a small pool any
    text lowers perplexity at first. If (b) is unknown or 0, (a) is chosen.

    Args:
        held_out: Scores of held-out target text, used in no fit, :data:`dana.core.schemas.SCORES`.
        held_out_texts: Text of each of these units.
        pool: The scored pool.
        segments: Segments of the pool.
        texts_of: Reads the texts of the units of a mask over the pool.
        settings: Settings of the weighing; the policy decides whether units or segments are ranked.

    Raises:
        DataError: If there is no held-out text, or no word occurs twice in the pool.
    """
    if held_out.num_rows == 0:
        raise DataError(
            "beta='auto': needs held-out target text, and there is none; give a share in (0, 1]"
        )
    counted = _sample_segments(pool, segments, settings.seed)  # a mask over the pool
    if settings.policy == "sigmoid":
        values = pool.score[counted]
    else:
        values = of_units(segments.ranked_means, segments.ids[counted], np.inf)
    pool_scores = UnitScores(values, _renumber(pool.document[counted]))
    target_scores = UnitScores(
        ranking_values(held_out, settings, segments.components), document_numbers(held_out)
    )
    order = np.argsort(values, kind="stable")
    random_order = _order_by_random_segment(segments.ids[counted], settings.seed)
    curve = perplexity_curve(
        texts_of(counted), order, random_order, held_out_texts, target_scores.document
    )
    if not np.isfinite(curve.per_token).any():
        raise DataError("beta='auto': needs a pool in which words repeat; give a share in (0, 1]")
    probability = _probability_if_apart(target_scores, pool_scores, settings.seed)
    likeness = None
    if probability is not None:
        likeness = float((probability >= 0.5).mean())
    smallest = float(curve.shares[curve.smallest])
    beta = smallest
    if likeness is not None and likeness > 0:
        beta = min(smallest, likeness)
    return Amount(
        beta=beta,
        by_perplexity=smallest,
        by_likeness=likeness,
        reason=_reason(curve, likeness),
        held_out_documents=curve.tokens.size,
        counted_units=values.size,
        curve=_curve_rows(curve, pool.units, order, probability),
    )


def _order_by_random_segment(segment_of_unit: np.ndarray, seed: int) -> np.ndarray:
    """Order units by a random order of their segments; rows of shape (units,)."""
    segment = _renumber(segment_of_unit)
    random = generator(seed, "weights", "random cuts")
    random_rank = random.permutation(int(segment.max()) + 1)
    return np.argsort(random_rank[segment], kind="stable")


def _sample_segments(pool: Pool, segments: Segments, seed: int) -> np.ndarray:
    """Mask the units that are in segments, or those of a sample of their documents."""
    in_segments: np.ndarray = segments.ids != DROPPED
    random = generator(seed, "weights", "counted")
    mask = in_segments.copy()
    mask[in_segments] = sample_documents(pool.document[in_segments], MOST_UNITS, random)
    return mask


def _curve_rows(
    curve: PerplexityCurve, units: int, order: np.ndarray, probability: np.ndarray | None
) -> list[dict[str, Any]]:
    """Describe each cut for the manifest; see :class:`Amount`."""
    in_domain_share = np.full(curve.shares.size, np.nan)
    if probability is not None:
        for row, share in enumerate(curve.shares):
            size = round(float(share) * order.size)
            in_domain_share[row] = probability[order[:size]].mean()
    table = pd.DataFrame(
        {
            "share": curve.shares,
            "units": [round(float(share) * units) for share in curve.shares],
            "perplexity": np.exp(curve.per_token),
            "perplexity_random": np.exp(curve.random_per_token),
            "above_best": curve.per_token - curve.per_token[curve.best],
            "standard_error": curve.standard_errors,
            "in_domain": in_domain_share,
        }
    )
    plain = table.astype(object).where(np.isfinite(table), None)
    return plain.to_dict("records")  # type: ignore[return-value]  # names are strings


def _reason(curve: PerplexityCurve, likeness: float | None) -> str:
    """Explain the choice between the two estimates, for the manifest."""
    best = float(curve.shares[curve.best])
    smallest = float(curve.shares[curve.smallest])
    perplexity = np.exp(curve.per_token[curve.best])
    random_perplexity = np.exp(curve.random_per_token[curve.best])
    reason = (
        f"a model of the best {_percent(best)} of the pool predicts held-out target text best "
        f"(perplexity {perplexity:.4g}, {random_perplexity:.4g} of as much random text)"
    )
    if smallest < best:
        reason += f", one of {_percent(smallest)} as well to within a standard error"
    if likeness == 0:
        return f"{reason}; by the scores none of the pool is like the task"
    if likeness is None:
        return f"{reason}; how much of the pool is like the task cannot be told by the scores"
    cap = "but no more than" if likeness < smallest else "up to"
    return f"{reason}; {cap} {_percent(likeness)} of the pool is like the task"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _probability_if_apart(target: UnitScores, pool: UnitScores, seed: int) -> np.ndarray | None:
    """Estimate the in-domain probability of each unit of the pool.

    Returns:
        Shape (units,); None with too little target text, or if scores do not separate the two.
    """
    if target.score.size < LEAST_UNITS or target.documents < LEAST_DOCUMENTS:
        return None
    no_weight = np.zeros(target.score.size)  # only the share of the pool is used, and no recall
    estimate = estimate_in_domain(target, no_weight, pool, 1.0, generator(seed, "mixture"))
    if not estimate.tells_apart:
        return None
    return in_domain_probability(target, pool, estimate.pool.value)
