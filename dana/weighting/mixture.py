"""Estimate the in-domain share of a pool and of the selected text, from their scores and those of held-out task text.

The pool is modelled as a mixture of a share π of in-domain text, whose scores are distributed as
those of held-out task text, and other text. Let G(t) and T(t) be the shares of the pool and of
held-out task text that score at most t. Then G(t) >= π T(t) for every t, so π <= G(t) / T(t),
nearly with equality where hardly any other text scores so low.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.optimize import isotonic_regression

from dana.core.logging import get_logger
from dana.core.rng import generator
from dana.core.schemas import HELD_OUT_TASK, SCORES
from dana.core.statistics import percentile_interval
from dana.weighting.pool import Sample, document_numbers, document_starts
from dana.weighting.settings import WeighSettings
from dana.weighting.weights import DROPPED, Components, segment_ids, segment_means

log = get_logger(__name__)

REPLICATES = 200
THRESHOLDS = 200  # equally spaced quantiles of the task's scores
CAUTION = 2.0  # standard errors: half-width of the confidence limits of T(t) and G(t) that choose the threshold
LEAST_DOCUMENTS = 10  # task documents at or below a threshold: with fewer T(t) is too noisy
FEWEST_DOCUMENTS = 5  # held-out task documents: with fewer nothing is estimated
LEAST_UNITS = 20  # held-out task units: with fewer nothing is estimated
WIDE = 0.9  # width of the interval of the selected text's share beyond which nothing is said
LOW = 0.7  # in-domain share of the selected text below which there is a warning
RARE = 0.01  # in-domain share of the pool below which no smaller budget is suggested


@dataclass(frozen=True)
class UnitScores:
    """Scores of units, with the document of each.

    Attributes:
        scores: Shape (units,), higher = more foreign.
        documents: int64 of shape (units,), numbered from 0 without a gap.
    """

    scores: np.ndarray
    documents: np.ndarray

    def resample_documents(self, random: np.random.Generator) -> np.ndarray:
        """Draw a Poisson bootstrap replicate over documents: the count of each unit, float64 of shape (units,)."""
        return random.poisson(1.0, int(self.documents.max()) + 1)[self.documents].astype(np.float64)


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval, by a bootstrap over documents."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, replicates: np.ndarray) -> "Estimate":
        """Make an estimate from bootstrap replicates, of which the first is computed on the data themselves."""
        return cls(float(replicates[0]), *percentile_interval(replicates[1:]))


@dataclass(frozen=True)
class InDomain:
    """Estimated in-domain text of a pool and a selection.

    Attributes:
        pool: In-domain share of the pool, π.
        recall: Share of the in-domain text that is selected.
        precision: In-domain share of the selected text: π · recall / selected share, at most 1.
        mostly: Share of the pool's units that are at least as likely in-domain as not.
    """

    pool: Estimate
    recall: Estimate
    precision: Estimate
    mostly: float

    @property
    def tells_apart(self) -> bool:
        """Whether scores separate task and pool: otherwise all of the pool could be in-domain."""
        return self.pool.high <= 0.95


def in_domain(
    task: UnitScores,
    keep: np.ndarray,
    pool: UnitScores,
    kept_share: float,
    random: np.random.Generator,
) -> InDomain:
    """Estimate the in-domain share of the pool and of the selected text.

    π is G(t) / T(t) at the threshold where its upper confidence limit is lowest. If no threshold
    separates the task from the most similar other text, the estimate is too high: read it as an
    upper bound.

    Args:
        task: Held-out task text, used in no fit.
        keep: Weight that the selection would give each task unit, in [0, 1], shape (task units,).
        pool: The scored corpus, or a sample of its documents.
        kept_share: Mean weight of the pool's units.
        random: Generator of the bootstrap.

    References:
        Blanchard, Lee and Scott 2010, Semi-supervised novelty detection (π as the infimum of G / T). Garg, Wu, Smola,
        Balakrishnan and Lipton 2021, Mixture proportion estimation and PU learning: a modern approach, algorithm 1
        (best bin estimation); the limits here are Wilson's, not uniform ones, which ask for thousands of units.
    """
    grid = _grid(task)
    task_bin, pool_bin = (np.searchsorted(grid, side.scores) for side in (task, pool))
    below_task, below_pool = (
        np.cumsum(np.bincount(part, minlength=grid.size + 1)) for part in (task_bin, pool_bin)
    )
    of_task, of_pool = below_task[:-1] / task.scores.size, below_pool[:-1] / pool.scores.size
    best = _threshold(
        of_task, of_pool, np.unique(task.documents).size, np.unique(pool.documents).size
    )

    def once(task_weight: np.ndarray, pool_weight: np.ndarray) -> tuple[float, float]:
        units = max(task_weight.sum(), 1.0)
        of_task, of_pool = (
            task_weight[task_bin <= best].sum() / units,
            pool_weight[pool_bin <= best].sum(),
        )
        share = of_pool / max(pool_weight.sum(), 1.0) / max(of_task, 1e-12)
        return min(1.0, float(share)), float((task_weight * keep).sum() / units)

    pairs = [once(np.ones(task.scores.size), np.ones(pool.scores.size))]
    pairs += [
        once(task.resample_documents(random), pool.resample_documents(random))
        for _ in range(REPLICATES)
    ]
    shares, recalls = np.array(pairs).T
    precisions = np.minimum(1.0, shares * recalls / max(kept_share, 1e-12))
    mostly = float((in_domain_probability(task, pool, float(shares[0])) >= 0.5).mean())
    return InDomain(Estimate.of(shares), Estimate.of(recalls), Estimate.of(precisions), mostly)


def in_domain_probability(task: UnitScores, pool: UnitScores, share: float) -> np.ndarray:
    """Estimate the in-domain probability of each unit of the pool, π f(s) / g(s) at its score s, non-increasing in s.

    f and g are the densities of the scores of task text and of the pool. Their ratio is estimated
    between quantiles of the task's scores by π ΔT / ΔG, and made monotone by isotonic regression
    weighted by ΔG.

    Args:
        task: Held-out task text, used in no fit.
        pool: The scored corpus.
        share: In-domain share of the pool, π.

    Returns:
        Shape (units,), in [0, 1]; 0 above the task's highest score.

    References:
        Elkan and Noto 2008, Learning classifiers from only positive and unlabeled data, section 2. Zadrozny and Elkan
        2002, Transforming classifier scores into accurate multiclass probability estimates (isotonic calibration).
    """
    grid = _grid(task)
    task_bin, pool_bin = (np.searchsorted(grid, side.scores) for side in (task, pool))
    of_task, of_pool = (
        np.bincount(part, minlength=grid.size + 1) / part.size for part in (task_bin, pool_bin)
    )
    weight = np.maximum(of_pool, 1e-9)
    return np.minimum(
        1.0, isotonic_regression(share * of_task / weight, weights=weight, increasing=False).x
    )[pool_bin]


def _grid(task: UnitScores) -> np.ndarray:
    """List the thresholds: distinct quantiles of the task's scores, up to the highest score."""
    return np.unique(
        np.quantile(task.scores, np.linspace(0, 1, THRESHOLDS + 1)[1:], method="higher")
    )


def _threshold(
    of_task: np.ndarray, of_pool: np.ndarray, documents: int, pool_documents: int
) -> int:
    """Choose the threshold index where the upper confidence limit of G / T is lowest.

    A higher threshold includes other text, a lower one makes T noisy. Sample sizes are numbers of
    documents, because units of a document are correlated.
    """
    low, high = _limit(of_task, documents, -1), _limit(of_pool, pool_documents, 1)
    enough = of_task * documents >= min(LEAST_DOCUMENTS, documents)
    return int(np.argmin(np.where(enough, high / np.maximum(low, 1e-12), np.inf)))


def _limit(share: np.ndarray, count: int, side: int) -> np.ndarray:
    """Compute Wilson's confidence limit of a share, upper (`side` 1) or lower (-1); the upper one is above 0 at 0."""
    variance = CAUTION**2 / count
    return (
        share + variance / 2 + side * np.sqrt(variance * (share * (1 - share) + variance / 4))
    ) / (1 + variance)


def local_mean(
    values: np.ndarray, weights: np.ndarray, at: np.ndarray, share: float = 0.01
) -> np.ndarray:
    """Average weights over a window of the nearest ranks around each query value.

    Args:
        values: Ranking value of each unit, shape (units,).
        weights: Weight of each unit, shape (units,).
        at: Query values, shape (n,).
        share: Size of the window, as a share of the units.

    Returns:
        Mean weight around each query, float64 of shape (n,).
    """
    order = np.argsort(values, kind="stable")
    before, rank = np.append(0, np.cumsum(weights[order])), np.searchsorted(values[order], at)
    half = max(1, round(share * values.size / 2))
    first, last = np.clip(rank - half, 0, values.size - 1), np.minimum(rank + half, values.size)
    return (before[last] - before[first]) / (last - first)


def ranking_values(
    table: pa.Table, settings: WeighSettings, components: Components | None
) -> np.ndarray:
    """Compute the value that ranks each unit: its score (``sigmoid``), or the shrunken mean of its segment.

    Args:
        table: Scores in memory, :data:`dana.core.schemas.SCORES`.
        settings: Settings of the weighing.
        components: Variance components that shrink the means, if any.

    Returns:
        float64 of shape (units,), infinite for a dropped tail.
    """
    score = table["score"].to_numpy()
    if settings.policy == "sigmoid":
        return score
    starts = np.zeros(1, dtype=np.int64) if settings.stream else document_starts(table)
    segment = segment_ids(starts, table.num_rows, settings.gamma, settings.min_tail)
    means, sizes = segment_means(score, segment), np.bincount(segment[segment != DROPPED])
    values = means if components is None else components.shrink(means, sizes)
    return np.append(values, np.inf)[np.where(segment != DROPPED, segment, means.size)]


def held_out_task(scores: Path) -> pa.Table:
    """Read the scores of held-out task text, :data:`dana.core.schemas.SCORES`; empty if there are none.

    Args:
        scores: Folder of a scores artifact.
    """
    path = scores / HELD_OUT_TASK
    return pq.read_table(path) if path.is_file() else SCORES.empty_table()


def split_held_out(task: pa.Table, seed: int) -> tuple[pa.Table, pa.Table]:
    """Split held-out task text by document into a half that chooses beta and a half that evaluates the choice.

    Fewer than 40 units all go to the first half, because nothing can be estimated on the second.

    Args:
        task: Scores of held-out task text, :data:`dana.core.schemas.SCORES`.
        seed: Seed of the split.
    """
    if task.num_rows < 2 * LEAST_UNITS:
        return task, task.slice(0, 0)
    documents = document_numbers(task)
    count = int(documents[-1]) + 1
    chooses = generator(seed, "weights", "halves").permutation(count)[documents] < (count + 1) // 2
    return task.filter(pa.array(chooses)), task.filter(pa.array(~chooses))


def estimate_purity(
    task: pa.Table,
    sample: Sample,
    weight: float,
    rows: int,
    settings: WeighSettings,
    components: Components | None,
    chose: int = 0,
) -> dict[str, Any]:
    """Estimate the in-domain share of the pool and of the selected text, with 95 % intervals, for the manifest.

    Task and pool are compared by their ranking values (:func:`ranking_values`). In-domain text of
    the pool is assumed to have scores, and to come in documents, like the task's.

    Args:
        task: Scores of held-out task units.
        sample: Sample of the pool: ranking ``value``, ``weight`` and ``document`` of units.
        weight: Total weight of the pool.
        rows: Number of units in the pool.
        settings: Settings of the weighing.
        components: Variance components, see :func:`ranking_values`.
        chose: Number of other held-out task units, which chose beta.

    Returns:
        ``pool``, ``recall``, ``kept`` (the precision) and ``mostly`` of :class:`InDomain`, and
        ``kept_share``, the mean weight; or ``unknown``, the reason why nothing is estimated.
    """
    besides = f" besides the {chose} units that chose beta" if chose else ""
    documents = int(document_numbers(task)[-1]) + 1 if task.num_rows else 0
    for count, noun, minimum in (
        (task.num_rows, "units", LEAST_UNITS),
        (documents, "documents", FEWEST_DOCUMENTS),
    ):
        if count < minimum:
            return {
                "unknown": f"{count} held-out task {noun}{besides}; an estimate needs {minimum}"
            }
    value, weights, document = (
        sample.table()[name].to_numpy() for name in ("value", "weight", "document")
    )
    of_task = UnitScores(ranking_values(task, settings, components), document_numbers(task))
    of_pool = UnitScores(value, np.unique(document, return_inverse=True)[1])
    share, keep = weight / rows, local_mean(value, weights, of_task.scores)
    estimate = in_domain(of_task, keep, of_pool, share, sample.random)
    if not estimate.tells_apart:
        return {"unknown": "the scores do not tell held-out task text from the pool"}
    if estimate.recall.low <= share < 1:
        return {"unknown": "the selection would hold no more held-out task text than a random one"}
    low, high = estimate.precision.low, estimate.precision.high
    if high - low > WIDE:
        return {
            "unknown": f"{documents} held-out documents leave it between {low:.0%} and {high:.0%}"
        }
    shares = {
        "kept" if name == "precision" else name: value for name, value in asdict(estimate).items()
    }
    return {**shares, "kept_share": share}


def describe_purity(shares: dict[str, Any]) -> str:
    """Format the shares of :func:`estimate_purity` in one line, or the reason why they are unknown."""
    if "unknown" in shares:
        return f"share that scores like held-out task text: unknown ({shares['unknown']})"
    precision, pool = shares["kept"], shares["pool"]
    return (
        f"scores like held-out task text: at most about {precision['value']:.0%} of the selected text "
        f"({precision['low']:.0%} to {precision['high']:.0%}), {pool['value']:.0%} of the pool "
        f"({pool['low']:.0%} to {pool['high']:.0%}); text of the same subject in another style does not"
    )


def warn_of_low_purity(shares: dict[str, Any], target: str = "the task") -> None:
    """Warn if less than 70 % of the selected text scores like held-out task text, and suggest a smaller budget.

    No smaller budget is suggested if hardly any of the pool scores like the task. Contrastive
    selectors also react to style, so related text of another style scores low; it may still be what
    the user wants.

    Args:
        shares: Shares from :func:`estimate_purity`.
        target: Name of the target, where there are several.
    """
    if "unknown" in shares or shares["kept"]["value"] >= LOW:
        return
    precision, pool = shares["kept"]["value"], shares["pool"]["value"]
    budget, mostly = shares["kept_share"], shares["mostly"]
    if mostly > 0 and pool < RARE:
        text = "hardly any of the pool (%.2g %%) scores like held-out text of %s; the selected text is the nearest"
        log.warning(
            "weights   " + text + " there is: inspect it with dana report", 100 * pool, target
        )
        return
    text = f"{100 * budget:.2g} % is selected, and about {100 * pool:.2g} % of the pool scores so"
    if mostly == 0:
        text += "; no score of the pool makes task text likely"
    elif mostly < budget and target == "the task":
        text += f"; --beta {mostly:.2g} ends where other text becomes more likely"
    line = (
        "weights   at most about %.0f %% of the selected text scores like held-out text of %s: %s"
    )
    log.warning(
        line + ". Text of the same subject in another style does not", 100 * precision, target, text
    )
