"""Decide what is kept of a pool: scores to a weight a unit, by the three policies, for one target or several.

DANA, section 3.2. Arrays hold a number a segment, of the policy ``sigmoid`` a number a unit; rows are read in blocks.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np

from dana.core.config import require
from dana.core.errors import ConfigError, DataError
from dana.core.logging import get_logger
from dana.core.rng import derive_seed, document_key, hash_uniform, keyed_units
from dana.weighting.pool import GROUP, Block, Pool, require_finite
from dana.weighting.settings import AUTO, Budget, WeighSettings
from dana.weighting.weights import DROPPED, Components, Sigmoid, parts_of, segment_groups, segment_means

log = get_logger(__name__)

PIECE = 1 << 20  # segments that are sorted at a time
NOBODY = -1  # target of a unit that none takes
TOKENS = "tokens"  # column of a pool whose budget counts tokens


@dataclass(frozen=True)
class Segments:
    """The segments of a pool, numbered from 0 in its order.

    Attributes:
        values: What they are ranked by: mean scores, shrunk where they are; float64 of shape (segments,).
        amounts: What a budget counts of each: its units, its tokens, or the number of its document.
        units: In segments.
        documents: Of the pool.
        components: What the means are shrunk by; None where they are not.
        groups: Of shape (segments,); None where nothing is balanced.
        below: Whether each mean, as it is, is below the threshold that is set; None where none is.
    """

    values: np.ndarray
    amounts: np.ndarray
    units: int
    documents: int
    components: Components | None = None
    groups: np.ndarray | None = None
    below: np.ndarray | None = None


def gather(pool: Pool, settings: WeighSettings) -> Segments:
    """Cut a pool into segments, in one pass.

    Args:
        pool: ``score``, with ``tokens`` where the budget counts them, and ``group`` where it is balanced.
        settings: How segments are cut and ranked, and what a budget counts.

    Raises:
        DataError: If no unit is in a segment, naming ``min_tail``; if a score is not finite; if no mean is below.
    """
    counted = {"tokens": TOKENS, "documents": "document"}.get(settings.effective_budget.kind)
    types: dict[str, Any] = {"mean": np.float64, "size": np.min_scalar_type(min(settings.gamma, pool.rows))}
    types |= {counted: np.uint32} if counted else {}
    types |= {GROUP: pool.columns[GROUP].dtype} if settings.balance is not None else {}
    columns = {name: np.empty(pool.rows, kind) for name, kind in types.items()}  # takes memory where it is written
    residual = np.zeros((pool.rows >> 12) + 1)  # of 4,096 segments each, so that no sum depends on the blocks
    units = row = documents = count = 0
    needed = ["score", *(name for name in (TOKENS, GROUP) if name in columns)]
    for block in pool.blocks(needed, settings, by_segment=True):
        require_finite(block.scores(), row)
        row, documents, count = row + block.table.num_rows, block.document + block.starts.size, block.after
        inside = block.inside
        if not inside.any():
            continue
        segment, score = block.segment[inside] - block.first, block.scores()[inside]
        made = {"mean": segment_means(score, segment), "size": np.bincount(segment)}
        if TOKENS in columns:
            made[TOKENS] = np.bincount(segment, weights=block.table[TOKENS].to_numpy()[inside])
        if "document" in columns:
            made["document"] = block.documents[block.segment_starts]
        if GROUP in columns:
            made[GROUP] = segment_groups(segment, block.table[GROUP].to_numpy()[inside])
        for name, values in made.items():
            columns[name][block.first : block.after] = values
        np.add.at(residual, block.segment[inside] >> 12, np.square(score - made["mean"][segment]))
        units += segment.size
    if units == 0:
        whole = "the corpus" if settings.stream else "every document"
        raise DataError(f"min_tail={settings.min_tail}: {whole} is shorter; no segment is left")
    means, sizes = columns["mean"][:count], columns["size"][:count]
    below = None if settings.below is None else means < settings.below
    if below is not None and not below.any():
        raise DataError(f"below={settings.below:g}: no segment's mean score is; the lowest is {means.min():.4g}")
    components = _shrink(means, sizes, units, math.fsum(residual)) if settings.shrink else None
    groups = columns[GROUP][:count] if GROUP in columns else None
    return Segments(means, columns[counted or "size"][:count], units, documents, components, groups, below)


def _shrink(means: np.ndarray, sizes: np.ndarray, units: int, residual: float) -> Components:
    """Shrink the means where they are."""

    def total(of: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
        parts = ((means[part], sizes[part].astype(np.float64)) for part in parts_of(means.size))
        return math.fsum(float(of(*columns).sum()) for columns in parts)

    components = Components.of(residual, units, means.size, total)
    for part in parts_of(means.size):
        means[part] = components.shrink(means[part], sizes[part])
    return components


def argsort_pieces(keys: np.ndarray, ties: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Rank finite numbers, lowest first, with about :data:`PIECE` of them sorted at a time.

    Args:
        keys: float64 of shape (n,).
        ties: Of equal keys the lowest of these comes first; of equal ones, or without them, the first.

    Yields:
        int64, rows of the numbers.
    """
    step = -(-keys.size // (1 << 16))
    edges = np.sort(keys[::step])[max(1, PIECE // step) :: max(1, PIECE // step)]
    often = edges[1:][edges[1:] == edges[:-1]]  # pieces of one number, which may be a large part of all
    for low, high in pairwise(np.unique([-np.inf, *edges, *np.nextafter(often, np.inf), np.inf])):
        inside = ((part, (keys[part] >= low) & (keys[part] < high)) for part in parts_of(keys.size))
        places = (part.start + np.flatnonzero(which) for part, which in inside)
        if ties is None and high == np.nextafter(low, np.inf):
            yield from places
            continue
        rows = np.concatenate(list(places))
        yield rows[np.lexsort((keys[rows],) if ties is None else (ties[rows], keys[rows]))]


class RunningAmount:
    """What is held by an order of segments that comes in pieces: units, tokens, or documents, each counted once.

    Attributes:
        total: Of all so far.
    """

    def __init__(self, segments: Segments, budget: Budget) -> None:
        self.total, self._amounts = 0.0, segments.amounts
        self._seen = np.zeros(segments.documents, dtype=bool) if budget.kind == "documents" else None

    def add(self, rows: np.ndarray) -> np.ndarray:
        """What is held with each of the next segments and all before it, float64."""
        amounts = self._amounts[rows]
        if self._seen is not None:
            documents, first = np.unique(amounts, return_index=True)
            amounts = np.zeros(rows.size)
            amounts[first[~self._seen[documents]]] = 1
            self._seen[documents] = True
        held = self.total + np.cumsum(amounts, dtype=np.float64)
        self.total = float(held[-1]) if held.size else self.total
        return held


def fill_budget(order: Iterable[np.ndarray], held: RunningAmount, most: float) -> Iterator[np.ndarray]:
    """Take the longest beginning of an order that does not hold more than `most`, at least one segment."""
    begun = False
    for rows in order:
        fits = max(int(np.searchsorted(held.add(rows), most, side="right")), int(not begun))
        yield rows[:fits]
        if fits < rows.size:
            return
        begun = begun or rows.size > 0


def fill_balanced(
    keys: np.ndarray, segments: Segments, shares: np.ndarray, budget: Budget, most: float
) -> Iterator[np.ndarray]:
    """Take the longest beginning, within a budget, of an order whose beginnings all hold the groups in their shares.

    A segment's place there is what it and the better segments of its group hold, over the share of that group. So
    within a group the order stays, and where one is used up the rest of the budget goes to the others, in proportion
    to their shares. A group with a share of 0 is left out.

    Args:
        keys: What segments are ranked by.
        segments: With their groups.
        shares: Shape (groups,), of the budget, sums to 1.
        budget: Says what is counted.
        most: That may be held.

    Raises:
        DataError: If no segment is of a group that has a share.
    """
    assert segments.groups is not None
    held = {group: RunningAmount(segments, budget) for group in np.flatnonzero(shares).tolist()}
    named, place = ", ".join(map(str, held)), np.full(keys.size, np.inf)
    for rows in argsort_pieces(keys):
        for group, of_group in held.items():
            own = rows[segments.groups[rows] == group]
            place[own] = of_group.add(own) / shares[group]
    if np.isinf(place).all():
        raise DataError(f"balance: no segment is mostly of group {named}; name others")
    whole = RunningAmount(segments, budget)
    yield from fill_budget(argsort_pieces(place, keys), whole, most)
    if whole.total < most:
        log.warning("weights   group %s: holds less than the budget, %g of %g; all is kept", named, whole.total, most)


def _draw(pool: Pool, segments: Segments, settings: WeighSettings) -> np.ndarray:
    """Draw segments without replacement, with probability proportional to their relevance λ.

    Each segment's place is u^(1/λ) with u a hash of its key, so the draw does not depend on the order of the
    corpus. It joins the generality of continuous weights with the speed of discrete ones (DANA, appendix C).

    Returns:
        What each segment is ranked by, -ln u / λ, lowest first; infinite where λ is 0.

    References:
        Efraimidis and Spirakis 2006, Weighted random sampling with a reservoir, algorithm A.
    """
    curve = Sigmoid.of(segments.values, settings.sharpness, settings.midpoint, settings.share)
    keys, seed = np.empty(segments.values.size), derive_seed(settings.seed, "weights", "sampled")
    for block in pool.blocks([], settings, by_segment=True):
        first_units = block.table.select(["doc_id", "unit"]).take(block.segment_starts)
        ids = first_units["doc_id"].combine_chunks().dictionary_encode()
        of_documents = np.array([document_key(doc_id) for doc_id in ids.dictionary.to_pylist()], dtype=np.uint64)
        places = keyed_units(of_documents[ids.indices.to_numpy()], first_units["unit"].to_numpy())
        luck = np.log(np.maximum(hash_uniform(seed, places), 2.0**-60))
        relevance = curve.weights(segments.values[block.first : block.after])
        with np.errstate(divide="ignore", over="ignore"):
            place = np.minimum(-luck / relevance, np.finfo(np.float64).max)
        keys[block.first : block.after] = np.where(relevance > 0, place, np.inf)
    return keys


@dataclass(frozen=True)
class BlockWeights:
    """Units of a block, weighed.

    Attributes:
        values: Of each target, what decides the weight of each unit; infinite for a dropped tail.
        weight: float64 of shape (units,), in [0, 1].
        target: int64 of shape (units,), the target that each unit is for; NOBODY for none.
    """

    values: list[np.ndarray]
    weight: np.ndarray
    target: np.ndarray


@dataclass(frozen=True)
class WeightRule:
    """How the units of a pool are weighed for each target.

    Attributes:
        curves: Of each target, of the policy ``sigmoid``, which weighs every unit by its own score.
        segments: Of each target, of the other policies.
        owner: Of those, the target of each segment, which weighs 1; NOBODY where it weighs 0.
        counts: Of segments, in and kept, for a manifest.
        notes: Midpoints or variance components, for a manifest.
    """

    curves: list[Sigmoid]
    segments: list[Segments]
    owner: np.ndarray
    counts: dict[str, Any]
    notes: dict[str, Any]

    def components(self, target: int) -> Components | None:
        """What a target's means of segments were shrunk by; None where they were not."""
        return self.segments[target].components if self.segments else None

    def weigh(self, blocks: Sequence[Block]) -> BlockWeights:
        """Weigh units: a block a target, of the same units. Of equal weights the first target has the unit."""
        if self.curves:
            scores = [block.scores() for block in blocks]
            weights = np.stack([curve.weights(own) for curve, own in zip(self.curves, scores, strict=True)])
            weight = weights.max(axis=0)
            return BlockWeights(scores, weight, np.where(weight > 0, weights.argmax(axis=0), NOBODY))
        target = blocks[0].of_units(self.owner, NOBODY)
        values = [block.of_units(own.values, np.inf) for block, own in zip(blocks, self.segments, strict=True)]
        return BlockWeights(values, (target != NOBODY).astype(np.float64), target)


def make_rule(
    pool: Pool, settings: WeighSettings, shares: np.ndarray | None = None, segments: Segments | None = None
) -> WeightRule:
    """Decide how a pool is weighed for one target.

    Args:
        pool: ``doc_id``, ``unit`` and ``score``, with ``tokens`` and ``group`` where the settings need them.
        settings: The policy and its parameters.
        shares: Of the budget, one a group, where it is balanced.
        segments: Of the pool, where they are gathered already.

    Raises:
        DataError: If a score is not finite, no unit is in a segment, or nothing can be kept.
    """
    if settings.policy == "sigmoid":
        curve = _curve(pool, settings, settings.share)
        return WeightRule([curve], [], np.empty(0), {}, {"midpoint": curve.midpoint})
    segments = segments or gather(pool, settings)
    owner = np.full(segments.values.size, NOBODY, dtype=np.int8)
    if segments.below is not None:
        owner[segments.below] = 0
    else:
        keys = _draw(pool, segments, settings) if settings.policy == "sampled" else segments.values
        budget = settings.effective_budget
        most = budget.max_amount(segments.units)
        if shares is None:
            kept = fill_budget(argsort_pieces(keys), RunningAmount(segments, budget), most)
        else:
            kept = fill_balanced(keys, segments, shares, budget, most)
        for rows in kept:
            owner[rows] = 0
    counts = {"segments": {"in": owner.size, "kept": int((owner == 0).sum())}}
    notes = {} if segments.components is None else {"shrunk": asdict(segments.components)}
    return WeightRule([], [segments], owner, counts, notes)


def _curve(pool: Pool, settings: WeighSettings, share: float) -> Sigmoid:
    """The sigmoid of a pool's scores."""
    scores, row = np.empty(pool.rows), 0
    for table in pool.read(["score"]):
        rows = table["score"].to_numpy()
        require_finite(rows, row)
        scores[row : row + rows.size] = rows
        row += rows.size
    return Sigmoid.of(scores, settings.sharpness, settings.midpoint, share)


def check_targets(proportions: Sequence[float], targets: int, settings: WeighSettings) -> None:
    """Refuse proportions that do not share out one budget, and settings that place only one target's weights.

    Raises:
        ConfigError: Naming the key and what is allowed.
    """
    require(targets >= 2, "proportions", list(proportions), "left out: there is one target")
    require(len(proportions) == targets, "proportions", list(proportions), f"{targets} numbers, one a target")
    fits = all(share > 0 for share in proportions) and abs(sum(proportions) - 1) < 1e-6
    require(fits, "proportions", list(proportions), "positive numbers that sum to 1")
    if settings.beta == AUTO and settings.budget is None:
        raise ConfigError("beta='auto': is chosen for one target; of several give a share in (0, 1] or a budget")
    if settings.balance is not None:
        raise ConfigError(f"balance={settings.balance!r}: spreads the budget of one target; leave it out")
    if settings.below is not None:
        raise ConfigError(f"below={settings.below!r}: shares out no budget between targets; give one")
    if settings.policy == "sigmoid" and settings.midpoint is not None:
        raise ConfigError(f"midpoint={settings.midpoint!r}: with several targets their proportions place it")


def make_targets_rule(
    pools: Mapping[str, Pool], proportions: Mapping[str, float], settings: WeighSettings
) -> WeightRule:
    """Decide how a pool is weighed for several targets at once.

    ``segments`` and ``sampled`` share out one budget (:func:`allot`). ``sigmoid`` weighs a unit by the largest of its
    targets' weights, each with its midpoint α at the quantile p β of its own scores, p its proportion, so that each
    target has about its share of the weight.

    Args:
        pools: Of each target, in the order of their names, at least two: the scored units, all but the scores as every
            other target's.
        proportions: Of the budget, by target; they sum to 1.
        settings: The policy and its parameters, the same for all.
    """
    shares = {name: proportions[name] * settings.share for name in pools}
    if settings.policy == "sigmoid":
        curves = {name: _curve(pool, settings, shares[name]) for name, pool in pools.items()}
        midpoints = {name: curve.midpoint for name, curve in curves.items()}
        return WeightRule([*curves.values()], [], np.empty(0), {}, {"midpoint": midpoints})
    segments, keys = [], []
    for name, pool in pools.items():
        seed = derive_seed(settings.seed, "weights", "target", name)  # each target draws for itself
        own = replace(settings, beta=shares[name], seed=seed)
        segments.append(gather(pool, own))
        keys.append(_draw(pool, segments[-1], own) if settings.policy == "sampled" else segments[-1].values)
    owner = allot(keys, segments[0], [proportions[name] for name in pools], settings.effective_budget)
    kept = {name: int((owner == row).sum()) for row, name in enumerate(pools)}
    components = {name: own.components for name, own in zip(pools, segments, strict=True)}
    shrunk = {name: asdict(own) for name, own in components.items() if own is not None}
    counts = {"segments": {"in": owner.size, "kept": sum(kept.values()), "by_target": kept}}
    return WeightRule([], segments, owner, counts, {"shrunk": shrunk})


def allot(keys: Sequence[np.ndarray], segments: Segments, proportions: Sequence[float], budget: Budget) -> np.ndarray:
    """Give each segment to at most one target, until every target has its share of the budget.

    The rank of a wish, of a target for a segment, is the part of the target's own share that its list holds up to
    there, which is comparable between targets whose scores are not. Wishes are granted in its order, ties to the
    earlier segment and then to the earlier target; a segment that is gone is passed over, and the target's next one
    counts. This is the one stable matching: no target and segment would rather have each other than what they got
    (Gale and Shapley 1962, College admissions and the stability of marriage; it is unique because both sides go by one
    rank).

    Args:
        keys: What each target ranks the segments by.
        segments: What a budget counts of them.
        proportions: Of the budget, one a target.
        budget: Of all targets together.

    Returns:
        int16 of shape (segments,), the target of each; NOBODY for none. A target ends before the first segment that
        would exceed its share, unless that is its only one. It has none where others took all that it wants.
    """
    count, targets = segments.amounts.size, len(proportions)
    wishes = np.full((count, targets), np.inf)
    for row, (own, share) in enumerate(zip(keys, proportions, strict=True)):
        held = RunningAmount(segments, budget)
        for rows in argsort_pieces(own):
            wishes[rows, row] = held.add(rows) / share
    quotas = [round(share * budget.max_amount(segments.units), 6) for share in proportions]
    owner, held_by, open_to = np.full(count, NOBODY, dtype=np.int16), [0.0] * targets, set(range(targets))
    by_documents = budget.kind == "documents"
    seen = [bytearray(segments.documents if by_documents else 0) for _ in quotas]
    for request in chain.from_iterable(rows.tolist() for rows in argsort_pieces(wishes.reshape(-1))):
        one, row = divmod(request, targets)
        if row not in open_to or owner[one] != NOBODY:
            continue
        amount = int(segments.amounts[one])
        more = int(not seen[row][amount]) if by_documents else amount
        if more > 0 and held_by[row] and held_by[row] + more > quotas[row]:
            open_to.remove(row)
            if not open_to:
                break
            continue
        owner[one] = row
        held_by[row] += more
        if by_documents:
            seen[row][amount] = 1
    return owner


def within_documents(block: Block, settings: WeighSettings) -> np.ndarray:
    """Segments numbered within each document, so that a row's key says where it is; with ``stream`` as they are."""
    if settings.stream:
        return block.segment
    return np.where(block.inside, block.table["unit"].to_numpy().astype(np.int64) // settings.gamma, DROPPED)


def weigh_in_memory(
    pool: Pool, settings: WeighSettings, shares: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, WeightRule]:
    """Weigh the units of a pool; the arguments as for :func:`make_rule`.

    Returns:
        Segment of each unit, int64, numbered in its document (with ``stream``: in the corpus), from 0, -1 in a dropped
        tail; its weight, float64 in [0, 1], 1 = in-domain; and how they were chosen.
    """
    segment, weight = [], []
    rule = make_rule(pool, settings, shares)
    for block in pool.blocks(["score"], settings):
        segment.append(within_documents(block, settings))
        weight.append(rule.weigh([block]).weight)
    return np.concatenate(segment), np.concatenate(weight), rule
