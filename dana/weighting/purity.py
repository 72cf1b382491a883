"""Purity of the kept text: scores of the pool and of held-out task text to the in-domain share of what is kept."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.columns import SortedRuns
from dana.core.logging import get_logger
from dana.core.rng import generator
from dana.core.schemas import HELD_OUT_TASK, SCORES
from dana.core.statistics import PairwiseSum
from dana.weighting.documents import document_numbers, document_starts
from dana.weighting.mixture import InDomain, PoolSample, Ranked, Scored, in_domain, local_mean
from dana.weighting.settings import WeighSettings
from dana.weighting.weights import DROPPED, Components, segment_ids, segment_means

log = get_logger(__name__)

LEAST_UNITS = 20  # of held-out task text; of fewer nothing is estimated
LOW = 0.7  # in-domain share of the kept text below which there is a warning
RARE = 0.01  # in-domain share of the pool below which no smaller budget is advised


def deciding(table: pa.Table, settings: WeighSettings, components: Components | None) -> np.ndarray:
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


def halved_documents(task: pa.Table, seed: int) -> tuple[pa.Table, pa.Table]:
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


@dataclass(frozen=True)
class KeptPool:
    """What is kept of a pool.

    Attributes:
        sample: Of what decides the units' weights.
        ranked: See :func:`dana.weighting.mixture.local_mean`.
        units: Of the pool.
        weight: Of all units together.
    """

    sample: PoolSample
    ranked: Callable[[], Callable[[], Ranked]]
    units: int
    weight: float

    @property
    def share(self) -> float:
        """Mean weight of the units."""
        return self.weight / self.units


class TargetSide:
    """What is kept of a pool for one of several targets, as its units come.

    Args:
        units: That will come.
        seed: Of the draw of a part of them.
        folder: For a sort.
    """

    def __init__(self, units: int, seed: int, folder: Path) -> None:
        self._units, self._sum, self._sample = units, PairwiseSum(units), PoolSample(units, seed)
        self._by_value = SortedRuns(folder, weight="f8")

    def add(self, values: np.ndarray, documents: np.ndarray, weight: np.ndarray) -> None:
        """The next units: what decides their weights, the document of each, and their weights for this target."""
        self._sum.add(weight)
        self._sample.add(values, documents)
        self._by_value.add(key=values, weight=weight)

    def kept(self) -> KeptPool:
        """All of them."""

        def begin() -> Ranked:
            for rows in self._by_value:
                yield np.ascontiguousarray(rows["key"]), np.ones(rows.size, dtype=np.int64), rows["weight"]

        return KeptPool(self._sample, lambda: begin, self._units, self._sum.value)


def purity(
    task: pa.Table, kept: KeptPool, settings: WeighSettings, components: Components | None, chose: int = 0
) -> dict[str, Any]:
    """The in-domain share of the pool and of the kept text, with 95 % intervals, for the manifest.

    Both sides are compared by the value that decides the weight: where segments are kept, by their means. In-domain
    text of the pool is assumed to come in documents like the task's and to have scores like the task's.

    Args:
        task: Scores of held-out task units.
        kept: Of the corpus.
        settings: Of the weighing.
        components: See :func:`deciding`.
        chose: Other held-out task units, which chose beta.

    Returns:
        ``pool``, ``recall``, ``kept`` (:class:`dana.weighting.mixture.InDomain`) and ``kept_share``; or ``unknown``:
        the reason for which nothing is estimated.
    """
    if task.num_rows < LEAST_UNITS:
        besides = f" besides the {chose} that chose beta" if chose else ""
        return {"unknown": f"{task.num_rows} held-out task units{besides}; an estimate needs {LEAST_UNITS}"}
    of_task = Scored(deciding(task, settings, components), document_numbers(task))
    keep = local_mean(kept.ranked(), kept.units, of_task.scores)
    found = in_domain(of_task, keep, kept.sample, kept.share)
    if not tells_apart(found):
        return {"unknown": "the scores do not tell held-out task text from the pool"}
    return {**asdict(found), "kept_share": kept.share}


def tells_apart(found: InDomain) -> bool:
    """Whether the scores say anything: else all of the pool could be like the task."""
    return found.pool.high <= 0.95


def purity_text(found: dict[str, Any]) -> str:
    """One line that says the shares of :func:`purity`, or why they are unknown."""
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
        found: From :func:`purity`.
        target: What it was estimated of, by name where there are several.
    """
    if "unknown" in found or found["kept"]["value"] >= LOW:
        return
    kept, held, pool, mostly = found["kept"]["value"], found["kept_share"], found["pool"]["value"], found["mostly"]
    if mostly > 0 and pool < RARE:
        said = "by the scores hardly any of the pool (%.2g %%) is of one kind with %s; what is kept is the nearest"
        log.warning("weights   " + said + " there is: look at it, dana report shows some", 100 * pool, target)
        return
    said = f"of such text the pool holds about {100 * pool:.2g} %, and {100 * held:.2g} % is kept, "
    said += f"so {100 - 100 * kept:.0f} % of the choice is filler"
    if mostly == 0:
        said += "; by the scores none of the pool is like it"
    elif mostly < held and target == "the task":
        said += f"; try --beta {mostly:.2g}, beyond which a unit is more likely filler than not"
    log.warning("weights   at most about %.0f %% of what is kept is like %s: %s", 100 * kept, target, said)
