"""Estimate how much of a pool, and of what is kept, is like the task, from scores of both and of held-out task text.

The pool is read as a mixture: a share π of text like the task's, whose scores are distributed as those of held-out
task text, and other text. For every threshold t, the share G(t) of the pool at or below it is at least π T(t), T being
that of held-out task text; so π is at most G(t) / T(t), and nearly that where hardly any other text scores so low.
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
THRESHOLDS = 200  # of the task's scores, at equal quantiles
CAUTION = 2.0  # standard errors: the half-width of the limits of T(t) and G(t) that choose the threshold
LEAST_DOCUMENTS = 10  # of the task at or below a threshold; of fewer the share would be chance
LEAST_UNITS = 20  # of held-out task text; of fewer nothing is estimated
LOW = 0.7  # in-domain share of the kept text below which there is a warning
RARE = 0.01  # in-domain share of the pool below which no smaller budget is advised


@dataclass(frozen=True)
class UnitScores:
    """Scores of units, and the document of each.

    Attributes:
        scores: Shape (units,), higher = more foreign.
        documents: int64 of shape (units,), numbered from 0 without a gap.
    """

    scores: np.ndarray
    documents: np.ndarray

    def resample_documents(self, random: np.random.Generator) -> np.ndarray:
        """A bootstrap replicate: how often each unit's document was drawn, float64 of shape (units,)."""
        return random.poisson(1.0, int(self.documents.max()) + 1)[self.documents].astype(np.float64)


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

    @property
    def tells_apart(self) -> bool:
        """Whether the scores say anything: else all of the pool could be like the task."""
        return self.pool.high <= 0.95


def in_domain(
    task: UnitScores, keep: np.ndarray, pool: UnitScores, kept_share: float, random: np.random.Generator
) -> InDomain:
    """Estimate how much of the pool, and of what is kept, is like the task.

    π is G(t) / T(t) at the threshold where its upper limit is lowest. Where no threshold parts the task from the most
    similar other text, that is too high: read it as "at most about".

    Args:
        task: Task text that nothing was fitted on.
        keep: Shape (task units,), the weight that the selection would give each, in [0, 1].
        pool: The scored corpus, or a sample of its documents.
        kept_share: Mean weight of the pool's units.
        random: Of the bootstrap.

    References:
        Blanchard, Lee and Scott 2010, Semi-supervised novelty detection (π as the infimum of G / T). Garg, Wu, Smola,
        Balakrishnan and Lipton 2021, Mixture proportion estimation and PU learning: a modern approach, algorithm 1
        (best bin estimation); the limits here are Wilson's, not uniform ones, which ask for thousands of units.
    """
    grid = _grid(task)
    task_bin, pool_bin = (np.searchsorted(grid, side.scores) for side in (task, pool))
    below_task, below_pool = (np.cumsum(np.bincount(part, minlength=grid.size + 1)) for part in (task_bin, pool_bin))
    of_task, of_pool = below_task[:-1] / task.scores.size, below_pool[:-1] / pool.scores.size
    best = _threshold(of_task, of_pool, np.unique(task.documents).size, np.unique(pool.documents).size)

    def once(task_weight: np.ndarray, pool_weight: np.ndarray) -> tuple[float, float]:
        units = max(task_weight.sum(), 1.0)
        of_task, of_pool = task_weight[task_bin <= best].sum() / units, pool_weight[pool_bin <= best].sum()
        share = of_pool / max(pool_weight.sum(), 1.0) / max(of_task, 1e-12)
        return min(1.0, float(share)), float((task_weight * keep).sum() / units)

    pairs = [once(np.ones(task.scores.size), np.ones(pool.scores.size))]
    pairs += [once(task.resample_documents(random), pool.resample_documents(random)) for _ in range(REPLICATES)]
    shares, recalls = np.array(pairs).T
    kept = np.minimum(1.0, shares * recalls / max(kept_share, 1e-12))
    mostly = float((in_domain_probability(task, pool, float(shares[0])) >= 0.5).mean())
    return InDomain(Estimate.of(shares), Estimate.of(recalls), Estimate.of(kept), mostly)


def in_domain_probability(task: UnitScores, pool: UnitScores, share: float) -> np.ndarray:
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


def _grid(task: UnitScores) -> np.ndarray:
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


def local_mean(values: np.ndarray, weights: np.ndarray, at: np.ndarray, share: float = 0.01) -> np.ndarray:
    """Mean weight of the units nearest in rank, a hundredth of all, to each value asked about.

    Args:
        values: Shape (units,), what decides how each is weighted.
        weights: Of each.
        at: Values asked about, shape (n,).
        share: Of the units, that a mean is taken over.
    """
    order = np.argsort(values, kind="stable")
    before, place = np.append(0, np.cumsum(weights[order])), np.searchsorted(values[order], at)
    half = max(1, round(share * values.size / 2))
    first, last = np.clip(place - half, 0, values.size - 1), np.minimum(place + half, values.size)
    return (before[last] - before[first]) / (last - first)


def ranking_values(table: pa.Table, settings: WeighSettings, components: Components | None) -> np.ndarray:
    """The value that decides each unit's weight: its score, or the (shrunken) mean of its segment.

    Args:
        table: Of :data:`dana.core.schemas.SCORES`, in memory.
        settings: Of the weighing.
        components: What the means are shrunk by, if they are.

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
    """Scores of the units of task text that nothing was fitted on, :data:`dana.core.schemas.SCORES`; maybe none.

    Args:
        scores: Folder of a scores artifact.
    """
    path = scores / HELD_OUT_TASK
    return pq.read_table(path) if path.is_file() else SCORES.empty_table()


def split_held_out(task: pa.Table, seed: int) -> tuple[pa.Table, pa.Table]:
    """Held-out task text to choose by, and other such text to say what was chosen: half of the documents each.

    Of fewer than 40 units all are for choosing, since of a half nothing could be said.

    Args:
        task: Of :data:`dana.core.schemas.SCORES`.
        seed: Decides which documents.
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
    """The in-domain share of the pool and of the kept text, with 95 % intervals, for the manifest.

    Both sides are compared by the value that decides the weight: where segments are kept, by their means. In-domain
    text of the pool is assumed to come in documents like the task's and to have scores like the task's.

    Args:
        task: Scores of held-out task units.
        sample: Of the corpus: ``value``, which decides the weight, ``weight`` and ``document`` of units.
        weight: Of all the corpus' units together.
        rows: How many these are.
        settings: Of the weighing.
        components: See :func:`ranking_values`.
        chose: Other held-out task units, which chose beta.

    Returns:
        ``pool``, ``recall``, ``kept`` (:class:`InDomain`) and ``kept_share``; or ``unknown``: the reason for which
        nothing is estimated.
    """
    if task.num_rows < LEAST_UNITS:
        besides = f" besides the {chose} that chose beta" if chose else ""
        return {"unknown": f"{task.num_rows} held-out task units{besides}; an estimate needs {LEAST_UNITS}"}
    value, weights, document = (sample.table()[name].to_numpy() for name in ("value", "weight", "document"))
    of_task = UnitScores(ranking_values(task, settings, components), document_numbers(task))
    of_pool = UnitScores(value, np.unique(document, return_inverse=True)[1])
    share, keep = weight / rows, local_mean(value, weights, of_task.scores)
    found = in_domain(of_task, keep, of_pool, share, sample.random)
    if not found.tells_apart:
        return {"unknown": "the scores do not tell held-out task text from the pool"}
    return {**asdict(found), "kept_share": share}


def describe_purity(found: dict[str, Any]) -> str:
    """One line that says the shares of :func:`estimate_purity`, or why they are unknown."""
    if "unknown" in found:
        return f"in-domain share of what is kept: unknown ({found['unknown']})"
    kept, pool = found["kept"], found["pool"]
    return (
        f"in-domain, by the scores of held-out task text: at most about {kept['value']:.0%} of what is kept "
        f"({kept['low']:.0%} to {kept['high']:.0%}), {pool['value']:.0%} of the pool "
        f"({pool['low']:.0%} to {pool['high']:.0%})"
    )


def warn_of_low_purity(found: dict[str, Any], target: str = "the task") -> None:
    """Warn where less than 70 % of the kept text is like the task: how much is filler, and which budget has less.

    Where hardly any of the pool scores as the task does, no smaller budget is advised: a selector that was fitted on
    both tells related text from the task's by its form too, and the nearest there is may be what is wanted.

    Args:
        found: From :func:`estimate_purity`.
        target: What it was estimated of, by name where there are several.
    """
    if "unknown" in found or found["kept"]["value"] >= LOW:
        return
    kept, held, pool, mostly = found["kept"]["value"], found["kept_share"], found["pool"]["value"], found["mostly"]
    if mostly > 0 and pool < RARE:
        text = "by the scores hardly any of the pool (%.2g %%) is of one kind with %s; what is kept is the nearest"
        log.warning("weights   " + text + " there is: look at it, dana report shows some", 100 * pool, target)
        return
    text = f"of such text the pool holds about {100 * pool:.2g} %, and {100 * held:.2g} % is kept, "
    text += f"so {100 - 100 * kept:.0f} % of the choice is filler"
    if mostly == 0:
        text += "; by the scores none of the pool is like it"
    elif mostly < held and target == "the task":
        text += f"; try --beta {mostly:.2g}, beyond which a unit is more likely filler than not"
    log.warning("weights   at most about %.0f %% of what is kept is like %s: %s", 100 * kept, target, text)
