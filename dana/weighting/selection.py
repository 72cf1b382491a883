"""Select text from a scored pool: one weight per unit, by three policies, for one target or several.

DANA, section 3.2. The pool is read in blocks; in memory there is one number per segment
(``sigmoid``: per unit).
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
from dana.core.rng import derive_seed, document_key, hash_uniform, unit_keys_of
from dana.weighting.pool import GROUP, Block, Pool, require_finite
from dana.weighting.settings import AUTO, Budget, WeighSettings
from dana.weighting.weights import (
    DROPPED,
    Components,
    Sigmoid,
    parts_of,
    segment_groups,
    segment_means,
)

log = get_logger(__name__)

PIECE = 1 << 20  # segments sorted at a time
NOBODY = -1  # target of a unit that is selected for none
TOKENS = "tokens"  # column of the pool, where the budget counts tokens


@dataclass(frozen=True)
class Segments:
    """The segments of a pool, numbered from 0 in its order.

    Attributes:
        values: Ranking key: mean scores, shrunken by default; float64 of shape (segments,).
        amounts: What the budget counts: units or tokens of each segment; for documents, the
            position of its document.
        units: Total number of units in segments.
        documents: Number of documents in the pool.
        components: Variance components that shrank the means; None without shrinkage.
        groups: Majority group of each segment, shape (segments,); None without a balance.
        below: Mask of segments whose unshrunken mean is below the setting ``below``; None if that
            is not set.
    """

    values: np.ndarray
    amounts: np.ndarray
    units: int
    documents: int
    components: Components | None = None
    groups: np.ndarray | None = None
    below: np.ndarray | None = None


def gather(pool: Pool, settings: WeighSettings) -> Segments:
    """Cut a pool into segments and average their scores, in one pass.

    Args:
        pool: Column ``score``; ``tokens`` where the budget counts them, ``group`` where it is
            balanced.
        settings: How segments are cut and ranked, and what a budget counts.

    Raises:
        DataError: If no unit is in a segment (names ``min_tail``), a score is not finite, or no
            mean is below ``below``.
    """
    amount_column = {"tokens": TOKENS, "documents": "document"}.get(settings.effective_budget.kind)
    types: dict[str, Any] = {
        "mean": np.float64,
        "size": np.min_scalar_type(min(settings.gamma, pool.rows)),
    }
    types |= {amount_column: np.uint32} if amount_column else {}
    types |= {GROUP: pool.columns[GROUP].dtype} if settings.balance is not None else {}
    columns = {
        name: np.empty(pool.rows, kind) for name, kind in types.items()
    }  # uses memory only where written
    residual = np.zeros(
        (pool.rows >> 12) + 1
    )  # 4,096 segments per sum, so that rounding does not depend on the blocks
    units = row = documents = count = 0
    names = ["score", *(name for name in (TOKENS, GROUP) if name in columns)]
    for block in pool.blocks(names, settings, by_segment=True):
        require_finite(block.scores(), row)
        row, documents, count = (
            row + block.table.num_rows,
            block.document + block.starts.size,
            block.after,
        )
        inside = block.inside
        if not inside.any():
            continue
        segment, score = block.segment[inside] - block.first, block.scores()[inside]
        values_by_name = {"mean": segment_means(score, segment), "size": np.bincount(segment)}
        if TOKENS in columns:
            values_by_name[TOKENS] = np.bincount(
                segment, weights=block.table[TOKENS].to_numpy()[inside]
            )
        if "document" in columns:
            values_by_name["document"] = block.documents[block.segment_starts]
        if GROUP in columns:
            values_by_name[GROUP] = segment_groups(segment, block.table[GROUP].to_numpy()[inside])
        for name, values in values_by_name.items():
            columns[name][block.first : block.after] = values
        np.add.at(
            residual,
            block.segment[inside] >> 12,
            np.square(score - values_by_name["mean"][segment]),
        )
        units += segment.size
    if units == 0:
        text = "the corpus" if settings.stream else "every document"
        raise DataError(
            f"min_tail={settings.min_tail}: no segment is left, {text} has fewer units; lower min_tail"
        )
    means, sizes = columns["mean"][:count], columns["size"][:count]
    below = None if settings.below is None else means < settings.below
    if below is not None and not below.any():
        raise DataError(
            f"below={settings.below:g}: must be above {means.min():.4g}, the lowest segment mean"
        )
    components = _shrink(means, sizes, units, math.fsum(residual)) if settings.shrink else None
    if settings.policy == "segments" and below is None and count > 1 and means.min() == means.max():
        log.warning(
            "weights   all segments have the same score, so the first ones of the pool are kept"
        )
    groups = columns[GROUP][:count] if GROUP in columns else None
    return Segments(
        means, columns[amount_column or "size"][:count], units, documents, components, groups, below
    )


def _shrink(means: np.ndarray, sizes: np.ndarray, units: int, residual: float) -> Components:
    """Shrink segment means in place; returns the variance components."""

    def total(of: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
        parts = ((means[part], sizes[part].astype(np.float64)) for part in parts_of(means.size))
        return math.fsum(float(of(*columns).sum()) for columns in parts)

    components = Components.of(residual, units, means.size, total)
    for part in parts_of(means.size):
        means[part] = components.shrink(means[part], sizes[part])
    return components


def argsort_pieces(keys: np.ndarray, ties: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Sort indices by key, lowest first, about :data:`PIECE` at a time; infinite keys are left out.

    Args:
        keys: float64 of shape (n,).
        ties: Secondary key, shape (n,). Without it, and where it ties, the lower index comes first.

    Yields:
        int64 indices into `keys`; all pieces together are the argsort.
    """
    step = -(-keys.size // (1 << 16))
    edges = np.sort(keys[::step])[max(1, PIECE // step) :: max(1, PIECE // step)]
    often = edges[1:][
        edges[1:] == edges[:-1]
    ]  # one value that fills whole pieces: no sorting needed
    for low, high in pairwise(np.unique([-np.inf, *edges, *np.nextafter(often, np.inf), np.inf])):
        inside = ((part, (keys[part] >= low) & (keys[part] < high)) for part in parts_of(keys.size))
        candidates = (part.start + np.flatnonzero(which) for part, which in inside)
        if ties is None and high == np.nextafter(low, np.inf):
            yield from candidates
            continue
        rows = np.concatenate(list(candidates))
        yield rows[np.lexsort((keys[rows],) if ties is None else (ties[rows], keys[rows]))]


class RunningAmount:
    """Running total of units, tokens or documents (each counted once) over segments in ranking order.

    Attributes:
        total: Amount so far.
    """

    def __init__(self, segments: Segments, budget: Budget) -> None:
        self.total, self._amounts = 0.0, segments.amounts
        self._seen = (
            np.zeros(segments.documents, dtype=bool) if budget.kind == "documents" else None
        )

    def add(self, rows: np.ndarray) -> np.ndarray:
        """Return the cumulative amount after each of the next segments, float64 of shape (rows,)."""
        amounts = self._amounts[rows]
        if self._seen is not None:
            documents, first = np.unique(amounts, return_index=True)
            amounts = np.zeros(rows.size)
            amounts[first[~self._seen[documents]]] = 1
            self._seen[documents] = True
        amounts_so_far = self.total + np.cumsum(amounts, dtype=np.float64)
        self.total = float(amounts_so_far[-1]) if amounts_so_far.size else self.total
        return amounts_so_far


def fill_budget(
    order: Iterable[np.ndarray], running: RunningAmount, limit: float
) -> Iterator[np.ndarray]:
    """Yield the longest prefix of a ranking whose amount is at most `limit`, at least one segment."""
    is_begun = False
    for rows in order:
        fits = max(int(np.searchsorted(running.add(rows), limit, side="right")), int(not is_begun))
        yield rows[:fits]
        if fits < rows.size:
            return
        is_begun = is_begun or rows.size > 0


def fill_balanced(
    keys: np.ndarray, segments: Segments, shares: np.ndarray, budget: Budget, limit: float
) -> Iterator[np.ndarray]:
    """Select segments within a budget such that every prefix of the selection holds the groups in their shares.

    A segment's priority is the amount of its group up to and including it, divided by the group's
    share. So the ranking within a group stays. Where a group is used up, the rest of the budget
    goes to the others in proportion to their shares. A group with a share of 0 is left out.

    Args:
        keys: Ranking key of each segment, lowest first.
        segments: Segments with their groups.
        shares: Share of the budget of each group, shape (groups,), summing to 1.
        budget: What is counted.
        limit: Largest amount that may be selected.

    Raises:
        DataError: If no segment is of a group that has a share.
    """
    assert segments.groups is not None
    running = {group: RunningAmount(segments, budget) for group in np.flatnonzero(shares).tolist()}
    names, priority = ", ".join(map(str, running)), np.full(keys.size, np.inf)
    for rows in argsort_pieces(keys):
        for group, group_total in running.items():
            members = rows[segments.groups[rows] == group]
            priority[members] = group_total.add(members) / shares[group]
    if np.isinf(priority).all():
        raise DataError(f"balance: no segment is mostly of group {names}; name other groups")
    total = RunningAmount(segments, budget)
    yield from fill_budget(argsort_pieces(priority, keys), total, limit)
    if total.total < limit:
        log.warning(
            "weights   group %s: has %g of a budget of %g; all of it is selected",
            names,
            total.total,
            limit,
        )


def _draw(pool: Pool, segments: Segments, settings: WeighSettings) -> np.ndarray:
    """Draw segments without replacement, with probability proportional to their sigmoid weight λ.

    The key of a segment is -ln u / λ, which ranks as u^(1/λ) does; u is a hash of the segment, so
    the draw does not depend on the order of the corpus. It joins the generality of continuous
    weights with the speed of discrete ones (DANA, appendix C).

    Returns:
        Ranking key of each segment, lowest first; infinite where λ is 0.

    References:
        Efraimidis and Spirakis 2006, Weighted random sampling with a reservoir, algorithm A.
    """
    curve = Sigmoid.of(segments.values, settings.sharpness, settings.midpoint, settings.share)
    keys, seed = np.empty(segments.values.size), derive_seed(settings.seed, "weights", "sampled")
    for block in pool.blocks([], settings, by_segment=True):
        first_units = block.table.select(["doc_id", "unit"]).take(block.segment_starts)
        ids = first_units["doc_id"].combine_chunks().dictionary_encode()
        document_keys = np.array(
            [document_key(doc_id) for doc_id in ids.dictionary.to_pylist()], dtype=np.uint64
        )
        unit_keys = unit_keys_of(
            document_keys[ids.indices.to_numpy()], first_units["unit"].to_numpy()
        )
        log_u = np.log(np.maximum(hash_uniform(seed, unit_keys), 2.0**-60))
        relevance = curve.weights(segments.values[block.first : block.after])
        with np.errstate(divide="ignore", over="ignore"):
            key = np.minimum(-log_u / relevance, np.finfo(np.float64).max)
        keys[block.first : block.after] = np.where(relevance > 0, key, np.inf)
    return keys


@dataclass(frozen=True)
class BlockWeights:
    """Weights of the units of a block.

    Attributes:
        values: For each target, the value that decides each unit's weight; infinite for a dropped
            tail.
        weight: float64 of shape (units,), in [0, 1].
        target: int64 of shape (units,), the target that each unit is selected for; NOBODY for none.
    """

    values: list[np.ndarray]
    weight: np.ndarray
    target: np.ndarray


@dataclass(frozen=True)
class WeightRule:
    """Rule that gives every unit of a pool its weight and target.

    Attributes:
        curves: With policy ``sigmoid``, one per target: a unit's weight is the sigmoid of its own
            score.
        segments: With the other policies, one per target.
        owner: With the other policies, the target of each segment, shape (segments,). A segment
            with a target weighs 1, one without (NOBODY) 0.
        counts: Segments read and selected, for the manifest.
        notes: Midpoints or variance components, for the manifest.
    """

    curves: list[Sigmoid]
    segments: list[Segments]
    owner: np.ndarray
    counts: dict[str, Any]
    notes: dict[str, Any]

    def components(self, target: int) -> Components | None:
        """Return the variance components that shrank a target's segment means; None without shrinkage."""
        return self.segments[target].components if self.segments else None

    def weigh(self, blocks: Sequence[Block]) -> BlockWeights:
        """Weigh the units of a block for every target; of equal weights the first target gets the unit.

        Args:
            blocks: The block with the scores of each target.
        """
        if self.curves:
            scores = [block.scores() for block in blocks]
            weights = np.stack(
                [curve.weights(one) for curve, one in zip(self.curves, scores, strict=True)]
            )
            weight = weights.max(axis=0)
            return BlockWeights(
                scores, weight, np.where(weight > 0, weights.argmax(axis=0), NOBODY)
            )
        target = blocks[0].of_units(self.owner, NOBODY)
        values = [
            block.of_units(one.values, np.inf)
            for block, one in zip(blocks, self.segments, strict=True)
        ]
        return BlockWeights(values, (target != NOBODY).astype(np.float64), target)


def make_rule(
    pool: Pool,
    settings: WeighSettings,
    shares: np.ndarray | None = None,
    segments: Segments | None = None,
) -> WeightRule:
    """Decide how a pool is weighed for one target.

    Args:
        pool: Columns ``doc_id``, ``unit`` and ``score``; ``tokens`` and ``group`` where the
            settings need them.
        settings: The policy and its parameters.
        shares: Share of the budget of each group, where it is balanced.
        segments: Segments of the pool, if gathered before.

    Raises:
        DataError: If a score is not finite, no unit is in a segment, or nothing can be selected.
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
        limit = budget.max_amount(segments.units)
        if shares is None:
            pieces = fill_budget(argsort_pieces(keys), RunningAmount(segments, budget), limit)
        else:
            pieces = fill_balanced(keys, segments, shares, budget, limit)
        for rows in pieces:
            owner[rows] = 0
    counts = {"segments": {"in": owner.size, "kept": int((owner == 0).sum())}}
    notes = {} if segments.components is None else {"shrunk": asdict(segments.components)}
    return WeightRule([], [segments], owner, counts, notes)


def _curve(pool: Pool, settings: WeighSettings, share: float) -> Sigmoid:
    scores, row = np.empty(pool.rows), 0
    for table in pool.read(["score"]):
        rows = table["score"].to_numpy()
        require_finite(rows, row)
        scores[row : row + rows.size] = rows
        row += rows.size
    return Sigmoid.of(scores, settings.sharpness, settings.midpoint, share)


def check_targets(proportions: Sequence[float], targets: int, settings: WeighSettings) -> None:
    """Check that proportions fit the targets and sum to 1, and that the settings apply to several targets.

    Raises:
        ConfigError: Naming the key and what is allowed.
    """
    require(targets >= 2, "proportions", list(proportions), "left out for one target")
    require(
        len(proportions) == targets,
        "proportions",
        list(proportions),
        f"{targets} numbers, one per target",
    )
    fits = all(share > 0 for share in proportions) and abs(sum(proportions) - 1) < 1e-6
    require(fits, "proportions", list(proportions), "positive numbers that sum to 1")
    if settings.beta == AUTO and settings.budget is None:
        raise ConfigError(
            "beta='auto': has no effect with several targets; give a share in (0, 1] or a budget"
        )
    if settings.balance is not None:
        raise ConfigError(
            f"balance={settings.balance!r}: has no effect with several targets; remove it"
        )
    if settings.below is not None:
        raise ConfigError(
            f"below={settings.below!r}: has no effect with several targets; give a budget"
        )
    if settings.policy == "sigmoid" and settings.midpoint is not None:
        raise ConfigError(
            f"midpoint={settings.midpoint!r}: has no effect with several targets; remove it"
        )


def make_targets_rule(
    pools: Mapping[str, Pool], proportions: Mapping[str, float], settings: WeighSettings
) -> WeightRule:
    """Decide how a pool is weighed for several targets at once.

    ``segments`` and ``sampled`` divide one budget between the targets (:func:`allot`). ``sigmoid``
    gives a unit the largest of its targets' weights; the midpoint α of a target with proportion p
    is the quantile p β of its own scores, so that each target has about its share of the weight.

    Args:
        pools: Scored units for each of at least two targets, by name, in the order of the names.
            The units are the same, the scores differ.
        proportions: Share of the budget by target, summing to 1.
        settings: The policy and its parameters, the same for all.
    """
    shares = {name: proportions[name] * settings.share for name in pools}
    if settings.policy == "sigmoid":
        curves = {name: _curve(pool, settings, shares[name]) for name, pool in pools.items()}
        midpoints = {name: curve.midpoint for name, curve in curves.items()}
        return WeightRule([*curves.values()], [], np.empty(0), {}, {"midpoint": midpoints})
    segments, keys = [], []
    for name, pool in pools.items():
        seed = derive_seed(settings.seed, "weights", "target", name)  # independent draws
        target_settings = replace(settings, beta=shares[name], seed=seed)
        segments.append(gather(pool, target_settings))
        keys.append(
            _draw(pool, segments[-1], target_settings)
            if settings.policy == "sampled"
            else segments[-1].values
        )
    owner = allot(
        keys, segments[0], [proportions[name] for name in pools], settings.effective_budget
    )
    selected_counts = {name: int((owner == row).sum()) for row, name in enumerate(pools)}
    shrinkage = {name: one.components for name, one in zip(pools, segments, strict=True)}
    notes = {
        "shrunk": {
            name: asdict(components)
            for name, components in shrinkage.items()
            if components is not None
        }
    }
    counts = {
        "segments": {
            "in": owner.size,
            "kept": sum(selected_counts.values()),
            "by_target": selected_counts,
        }
    }
    return WeightRule([], segments, owner, counts, notes)


def allot(
    keys: Sequence[np.ndarray], segments: Segments, proportions: Sequence[float], budget: Budget
) -> np.ndarray:
    """Give each segment to at most one target, until every target has used its quota of the budget.

    All requests, one per (target, segment), are served in order of priority. The priority of a
    request is the fraction of the target's quota that the segments it ranks up to this one would
    use. Unlike scores, these fractions are comparable between targets. Ties go to the earlier
    segment, then to the earlier target. A request for a segment that is taken already is skipped.

    The result is the unique stable matching: no target and segment would both prefer each other to
    what they got (Gale and Shapley 1962, College admissions and the stability of marriage; unique
    because both sides share one priority).

    Args:
        keys: Ranking keys of the segments, one array of shape (segments,) per target, lowest first.
        segments: Segments with the amounts that a budget counts.
        proportions: Share of the budget, one per target.
        budget: Budget of all targets together.

    Returns:
        int16 of shape (segments,), the target of each segment; NOBODY for none. A target is closed
        at the first segment that would exceed its quota, unless it has none yet. A target gets
        nothing where others took all that it requested.
    """
    count, targets = segments.amounts.size, len(proportions)
    priority = np.full((count, targets), np.inf)
    for target, (target_keys, share) in enumerate(zip(keys, proportions, strict=True)):
        running = RunningAmount(segments, budget)
        for rows in argsort_pieces(target_keys):
            priority[rows, target] = running.add(rows) / share
    quotas = [round(share * budget.max_amount(segments.units), 6) for share in proportions]
    owner, amounts, open_targets = (
        np.full(count, NOBODY, dtype=np.int16),
        [0.0] * targets,
        set(range(targets)),
    )
    by_documents = budget.kind == "documents"
    counted_documents = [bytearray(segments.documents if by_documents else 0) for _ in quotas]
    for request in chain.from_iterable(
        rows.tolist() for rows in argsort_pieces(priority.reshape(-1))
    ):
        segment, target = divmod(request, targets)
        if target not in open_targets or owner[segment] != NOBODY:
            continue
        amount = int(segments.amounts[segment])
        extra = int(not counted_documents[target][amount]) if by_documents else amount
        if extra > 0 and amounts[target] and amounts[target] + extra > quotas[target]:
            open_targets.remove(target)
            if not open_targets:
                break
            continue
        owner[segment] = target
        amounts[target] += extra
        if by_documents:
            counted_documents[target][amount] = 1
    return owner


def within_documents(block: Block, settings: WeighSettings) -> np.ndarray:
    """Number segments within each document; with ``stream`` within the corpus. Shape (units,), DROPPED for none."""
    if settings.stream:
        return block.segment
    return np.where(
        block.inside, block.table["unit"].to_numpy().astype(np.int64) // settings.gamma, DROPPED
    )


def weigh_in_memory(
    pool: Pool, settings: WeighSettings, shares: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, WeightRule]:
    """Weigh the units of a pool that fits in memory; takes the arguments of :func:`make_rule`.

    Returns:
        Segment of each unit, int64, numbered from 0 in its document (with ``stream``: in the
        corpus), -1 in a dropped tail; its weight, float64 in [0, 1], 1 = in-domain; and the rule.
    """
    segment, weight = [], []
    rule = make_rule(pool, settings, shares)
    for block in pool.blocks(["score"], settings):
        segment.append(within_documents(block, settings))
        weight.append(rule.weigh([block]).weight)
    return np.concatenate(segment), np.concatenate(weight), rule
