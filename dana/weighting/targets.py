"""Several targets over one pool: anomaly scores for each target and its proportion to one weight and target a unit."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.logging import get_logger
from dana.core.rng import derive_seed
from dana.core.statistics import effective_sample_size
from dana.weighting.policies import (
    Weighed,
    corpus_segments,
    segment_amounts,
    segment_order,
    sigmoid_weights,
    unit_counts,
    within_documents,
)
from dana.weighting.settings import AUTO, WeighSettings
from dana.weighting.weights import DROPPED, Budget, Components

log = get_logger(__name__)

NOBODY = -1  # target of a unit that none takes


@dataclass(frozen=True)
class Target:
    """One target.

    Attributes:
        name: Its own among the targets.
        proportion: Share of the budget that is for it, in (0, 1).
        table: ``doc_id``, ``unit`` and ``score`` of every unit of the pool, in order; all but the scores as every
            other target's.
    """

    name: str
    proportion: float
    table: pa.Table


@dataclass(frozen=True)
class Allotted:
    """What several targets keep of a pool.

    Attributes:
        weighed: The weights, each unit's for the target that takes it.
        target: int64 of shape (units,), the target that each unit is for; NOBODY for none.
        components: What each target's means of segments were shrunk by.
    """

    weighed: Weighed
    target: np.ndarray
    components: list[Components | None]


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


def apply_targets(targets: Sequence[Target], settings: WeighSettings, tokens: np.ndarray | None = None) -> Allotted:
    """Weigh the units of a pool for several targets at once. The outcome does not depend on their order.

    ``segments`` and ``sampled`` share out one budget (:func:`allot`). ``sigmoid`` weighs a unit by the largest of its
    targets' weights, each with its midpoint α at the quantile p β of its own scores, p its proportion, so that each
    target has about its share of the weight.

    Args:
        targets: At least two, with proportions that sum to 1.
        settings: The policy and its parameters, the same for all.
        tokens: Shape (units,), of each unit, where the budget is in tokens.
    """
    places = sorted(range(len(targets)), key=lambda place: targets[place].name)
    ordered = [targets[place] for place in places]
    table = ordered[0].table
    segment = corpus_segments(table, settings)
    counts: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    components: list[Components | None] = [None] * len(targets)
    if settings.policy == "sigmoid":
        found = [
            sigmoid_weights(target.table["score"].to_numpy(), settings, target.proportion * settings.share)
            for target in ordered
        ]
        weights = np.stack([weight for weight, _ in found])
        weight = weights.max(axis=0)
        owner = np.where(weight > 0, np.argmax(weights, axis=0), NOBODY)
        notes["midpoint"] = {target.name: midpoint for target, (_, midpoint) in zip(ordered, found, strict=True)}
    else:
        owner, components = _keep(ordered, segment, settings, tokens)
        weight = (owner != NOBODY).astype(np.float64)
        kept = {target.name: int(np.unique(segment[owner == row]).size) for row, target in enumerate(ordered)}
        counts["segments"] = {"in": int(segment.max()) + 1, "kept": sum(kept.values()), **kept}
        notes["shrunk"] = {
            target.name: asdict(means) for target, means in zip(ordered, components, strict=True) if means is not None
        }
    for row, target in enumerate(ordered):
        if not (owner == row).any():
            log.warning("weights   nothing is kept for target %s: others take all that it wants", target.name)
    counts["units"] = unit_counts(weight, segment)
    notes["effective_sample_size"] = effective_sample_size(weight)
    weighed = Weighed(within_documents(segment, table, settings), weight, None, counts, notes)
    back = np.append(places, NOBODY)  # of NOBODY, which is the last, it is NOBODY
    return Allotted(weighed, back[owner], [components[places.index(place)] for place in range(len(targets))])


def _keep(
    targets: Sequence[Target], segment: np.ndarray, settings: WeighSettings, tokens: np.ndarray | None
) -> tuple[np.ndarray, list[Components | None]]:
    """Target of each unit, and what each target's means were shrunk by."""
    orders, components = [], []
    for target in targets:
        seed = derive_seed(settings.seed, "weights", "target", target.name)  # each target draws for itself
        own = replace(settings, beta=target.proportion * settings.share, seed=seed)
        order, shrunk = segment_order(target.table, segment, own)
        orders.append(order)
        components.append(shrunk)
    budget = settings.kept
    amounts = segment_amounts(targets[0].table, segment, budget, tokens)
    owner = allot(orders, amounts, budget, [target.proportion for target in targets])
    return np.where(segment == DROPPED, NOBODY, owner[segment]), components


def allot(
    orders: Sequence[np.ndarray], amounts: np.ndarray, budget: Budget, proportions: Sequence[float]
) -> np.ndarray:
    """Give each segment to at most one target, until every target has its share of the budget.

    A target wants a segment the more, the smaller a part of its own share its list holds up to there: this rank is
    comparable between targets whose scores are not. Wishes are granted in the order of that rank, ties to the earlier
    segment and then to the earlier target; a segment that is gone is passed over, and the target's next one counts.
    This is the one stable matching: no target and segment would rather have each other than what they got (Gale and
    Shapley 1962, College admissions and the stability of marriage; it is unique because both sides go by one rank).

    Args:
        orders: Of each target, segments, best first.
        amounts: Units or tokens of each segment, or the number of its document (:meth:`Budget.count`).
        budget: Of all targets together.
        proportions: Of the budget, one a target.

    Returns:
        int64 of shape (segments,), the target of each; NOBODY for none. A target ends before the first segment that
        would exceed its share, unless that is its only one. It has none where others took all that it wants.
    """
    most = budget.most(amounts)
    quotas = [round(share * most, 6) for share in proportions]
    ranks = [budget.held(order, amounts) / share for order, share in zip(orders, proportions, strict=True)]
    target = np.repeat(np.arange(len(orders)), [order.size for order in orders])
    wanted = np.concatenate(orders)
    wishes = np.lexsort((target, wanted, np.concatenate(ranks)))
    owner = np.full(amounts.size, NOBODY)
    held = [0.0] * len(orders)
    open_to = set(range(len(orders)))
    documents: set[tuple[int, int]] = set()  # of each target, where documents are counted
    for row, one in zip(target[wishes].tolist(), wanted[wishes].tolist(), strict=True):
        if row not in open_to or owner[one] != NOBODY:
            continue
        document = (row, int(amounts[one]))
        more = float(amounts[one]) if budget.kind != "documents" else float(document not in documents)
        if more > 0 and held[row] and held[row] + more > quotas[row]:
            open_to.remove(row)
            if not open_to:
                break
            continue
        owner[one] = row
        held[row] += more
        documents.add(document)
    return owner
