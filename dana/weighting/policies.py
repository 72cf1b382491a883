"""The three policies: a pool of anomaly scores to a rule that gives its units weights. DANA, section 3.2.

A rule is made in passes over the pool, and over its segments on disk; it is applied block by block.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.columns import DiskColumn, SortedRuns
from dana.core.errors import DataError
from dana.weighting.continuous import Sigmoid, sigmoid_of
from dana.weighting.cut import RANKED, SegmentCut, balanced_cut, budget_cut
from dana.weighting.mixture import Ranked
from dana.weighting.pool import Block, Pool
from dana.weighting.segments import Segments, gather
from dana.weighting.settings import WeighSettings
from dana.weighting.tally import UnitTally
from dana.weighting.weights import DROPPED, Components


def make_rule(
    pool: Pool,
    settings: WeighSettings,
    folder: Path,
    shares: np.ndarray | None = None,
    segments: Segments | None = None,
) -> "Rule":
    """Decide how a pool is weighed.

    Args:
        pool: ``doc_id``, ``unit`` and ``score``, with ``tokens`` and ``group`` where the settings need them.
        settings: The policy and its parameters.
        folder: For what does not fit in memory.
        shares: Of the budget, one a group, where it is balanced.
        segments: Of the pool, where they are gathered already.

    Raises:
        DataError: If a score is not finite, no unit is in a segment, or nothing can be kept.
    """
    if settings.policy != "sigmoid":
        return keep_segments(segments or gather(pool, settings, folder), settings, folder, shares)
    found, ranked = sigmoid_of(pool.rows, pool.scores, settings, settings.share, folder / "scores")
    return Continuous(found, ranked, notes={"midpoint": found.midpoint})


@dataclass(frozen=True)
class Continuous:
    """Every unit weighs by its own score: the policy ``sigmoid``.

    Attributes:
        sigmoid: Of the scores.
        scores: Of the pool, sorted.
        notes: The midpoint, for a manifest.
        counts: None, for a manifest.
        components: None: no means are shrunk.
    """

    sigmoid: Sigmoid
    scores: SortedRuns
    notes: dict[str, Any]
    counts: dict[str, Any] = field(default_factory=dict)
    components: Components | None = None

    def weigh(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """What decides the weight of each unit of a block, infinite for a dropped tail, and the weight, in [0, 1]."""
        score = block.table["score"].to_numpy()
        return score, self.sigmoid.weights(score)

    def ranked(self) -> Callable[[], Ranked]:
        """Begins all that has a weight to decide, the lowest value first: values, units and weight of each."""

        def begin() -> Ranked:
            for rows in self.scores:
                values = np.ascontiguousarray(rows["key"])
                yield values, np.ones(values.size, dtype=np.int64), self.sigmoid.weights(values)

        return begin


@dataclass(frozen=True)
class Discrete:
    """Segments up to a cut weigh 1, others 0: the policies ``segments`` and ``sampled``.

    Attributes:
        segments: Of the pool.
        keys: What those from one number to before another are ranked by.
        cut: Where the ranking ends.
        folder: For a sort.
        counts: Of segments, in and kept, for a manifest.
        notes: Variance components, for a manifest.
    """

    segments: Segments
    keys: Callable[[int, int], np.ndarray]
    cut: SegmentCut
    folder: Path
    counts: dict[str, Any]
    notes: dict[str, Any]

    @property
    def components(self) -> Components | None:
        """What the means of segments were shrunk by; None where they were not."""
        return self.segments.components

    def keeps(self, first: int, last: int) -> np.ndarray:
        """Whether the segments `first` to before `last` are kept."""
        return self.cut.keeps(self.keys(first, last), first, self.segments.groups(first, last))

    def weigh(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """As of :class:`Continuous`."""
        first, last = block.first, block.after
        weight = block.of_units(self.keeps(first, last).astype(np.float64), 0.0)
        return block.of_units(self.segments.values(first, last), np.inf), weight

    def ranked(self) -> Callable[[], Ranked]:
        """As of :class:`Continuous`."""
        by_value = SortedRuns(self.folder / "by-value", size="i8", weight="f8")
        first = 0
        for sizes, values in self.segments.blocks("size"):
            last = first + sizes.size
            by_value.add(key=values, size=sizes, weight=self.keeps(first, last))
            first = last
        return lambda: ((rows["key"], rows["size"], rows["weight"]) for rows in by_value)


Rule = Continuous | Discrete


def keep_segments(
    segments: Segments, settings: WeighSettings, folder: Path, shares: np.ndarray | None = None
) -> Discrete:
    """Which segments are kept; the arguments as for :func:`make_rule`."""
    keys: Callable[[int, int], np.ndarray] = segments.columns["mean"].read
    if settings.below is None:
        order = rank_segments(segments, settings, folder)
        keys, budget = order.keys, settings.kept
        most = budget.most(segments.units)
        if shares is None:
            cut = budget_cut(order, budget, most, segments.documents)
        else:
            cut = balanced_cut(order, shares, budget, most, segments.documents, folder / "placed")
    else:
        cut = _below(settings.below, segments)
    counts = {"segments": {"in": segments.count, "kept": cut.kept}}
    notes = {} if segments.components is None else {"shrunk": asdict(segments.components)}
    return Discrete(segments, keys, cut, folder, counts, notes)


@dataclass(frozen=True)
class Order:
    """Segments as a policy wants them, the best first, in records of :data:`dana.weighting.cut.RANKED`.

    Attributes:
        keys: What the segments from one number to before another are ranked by, lowest first.
        ranked: All segments.
        count: How many of them, the best, may be kept.
    """

    keys: Callable[[int, int], np.ndarray]
    ranked: SortedRuns
    count: int

    def __iter__(self) -> Iterator[np.ndarray]:
        left = self.count
        for rows in self.ranked:
            if left <= 0:
                return
            yield rows[:left]
            left -= rows.size


def rank_segments(segments: Segments, settings: WeighSettings, folder: Path) -> Order:
    """Order the segments: ``segments`` by their values, ties to the earlier; ``sampled`` draws (:func:`_draw`)."""
    keys, count = segments.values, segments.count
    if settings.policy == "sampled":
        drawn, count = _draw(segments, settings, folder)
        keys = drawn.read
    ranked, first = SortedRuns(folder / "ranked", **RANKED), 0
    for amounts in segments.amounts(settings):
        last = first + amounts.size
        groups = segments.groups(first, last)
        ranked.add(key=keys(first, last), number=np.arange(first, last), amount=amounts, group=groups)
        first = last
    return Order(keys, ranked, count)


def _draw(segments: Segments, settings: WeighSettings, folder: Path) -> tuple[DiskColumn, int]:
    """Draw segments without replacement, with probability proportional to their relevance λ.

    Each segment's place is u^(1/λ) with u a hash of its key, so the draw does not depend on the order of the
    corpus. It joins the generality of continuous weights with the speed of discrete ones (DANA, appendix C).

    Returns:
        What each segment is ranked by, -ln u / λ, lowest first; and how many have a λ above 0, the only ones drawn.

    References:
        Efraimidis and Spirakis 2006, Weighted random sampling with a reservoir, algorithm A.
    """

    def values() -> Iterator[np.ndarray]:
        return (block for (block,) in segments.blocks())

    found, _ = sigmoid_of(segments.count, values, settings, settings.share, folder / "values")
    keys, drawn = DiskColumn(folder / "drawn.raw", "f8"), 0
    for luck, block in segments.blocks("luck"):
        relevance = found.weights(block)
        with np.errstate(divide="ignore", over="ignore"):
            keys.append(np.where(relevance > 0, -luck / relevance, np.inf))
        drawn += int((relevance > 0).sum())
    return keys, drawn


def _below(threshold: float, segments: Segments) -> SegmentCut:
    """The segments whose mean score, as it is, is below a threshold."""
    lowest, kept = np.inf, 0
    for means in segments.columns["mean"].blocks():
        lowest, kept = min(lowest, means.min()), kept + int((means < threshold).sum())
    if not kept:
        raise DataError(f"below={threshold:g}: no segment's mean score is; the lowest is {lowest:.4g}")
    return SegmentCut(np.array([threshold]), np.array([-1]), kept)


@dataclass(frozen=True)
class Weighed:
    """What a policy makes of a table in memory.

    Attributes:
        segment: int64 of shape (units,), position of each unit's segment in its document (with ``stream``: in the
            corpus), from 0; -1 for a unit of a dropped tail.
        weight: float64 of shape (units,), in [0, 1], 1 = in-domain.
        counts: Units and segments, in and kept, for a manifest.
        notes: Midpoint, variance components, effective sample size, for a manifest.
    """

    segment: np.ndarray
    weight: np.ndarray
    counts: dict[str, Any]
    notes: dict[str, Any]


def apply_policy(table: pa.Table, settings: WeighSettings, shares: np.ndarray | None = None) -> Weighed:
    """Weigh the units of a table; the arguments as for :func:`make_rule`."""
    pool = Pool.of_table(table)
    with TemporaryDirectory() as folder:
        rule, tally = make_rule(pool, settings, Path(folder), shares), UnitTally(pool.rows)
        segments, weights = [], []
        for block in pool.blocks(["score"], settings):
            _, weight = rule.weigh(block)
            tally.add(weight, block.inside)
            segments.append(within_documents(block, settings))
            weights.append(weight)
    counts, notes = {**rule.counts, "units": tally.counts}, {**rule.notes, **tally.notes}
    return Weighed(np.concatenate(segments), np.concatenate(weights), counts, notes)


def within_documents(block: Block, settings: WeighSettings) -> np.ndarray:
    """Segments numbered within each document, so that a row's key says where it is; with ``stream`` as they are."""
    if settings.stream:
        return block.segment
    return np.where(block.inside, block.table["unit"].to_numpy().astype(np.int64) // settings.gamma, DROPPED)
