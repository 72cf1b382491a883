"""Several targets over one pool: anomaly scores for each target and its proportion to one weight and target a unit."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.columns import ROWS
from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.logging import get_logger
from dana.core.rng import derive_seed
from dana.weighting.continuous import Sigmoid, sigmoid_of
from dana.weighting.policies import rank_segments
from dana.weighting.pool import Block, Pool
from dana.weighting.segments import Segments, gather
from dana.weighting.settings import AUTO, WeighSettings
from dana.weighting.weights import Budget, Components, Held

log = get_logger(__name__)

NOBODY = -1  # target of a unit that none takes
NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Target:
    """One target.

    Attributes:
        name: Its own among the targets.
        proportion: Share of the budget that is for it, in (0, 1).
        pool: The scored units; all but the scores as every other target's.
    """

    name: str
    proportion: float
    pool: Pool


@dataclass(frozen=True)
class Weight:
    """What several targets make of a block.

    Attributes:
        values: Of each target, what decides the weight of each unit.
        weight: float64 of shape (units,).
        target: int64 of shape (units,), the target that each unit is for; NOBODY for none.
    """

    values: list[np.ndarray]
    weight: np.ndarray
    target: np.ndarray


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


def make_targets_rule(targets: Sequence[Target], settings: WeighSettings, folder: Path) -> "TargetsRule":
    """Decide how a pool is weighed for several targets at once. The outcome does not depend on their order.

    ``segments`` and ``sampled`` share out one budget (:func:`allot`). ``sigmoid`` weighs a unit by the largest of its
    targets' weights, each with its midpoint α at the quantile p β of its own scores, p its proportion, so that each
    target has about its share of the weight.

    Args:
        targets: At least two, with proportions that sum to 1.
        settings: The policy and its parameters, the same for all.
        folder: For what does not fit in memory.
    """
    places = sorted(range(len(targets)), key=lambda place: targets[place].name)
    if settings.policy == "sigmoid":
        found = []
        for row, target in enumerate(targets):
            share = target.proportion * settings.share
            found.append(sigmoid_of(target.pool.rows, target.pool.scores, settings, share, folder / str(row))[0])
        notes = {"midpoint": {targets[place].name: found[place].midpoint for place in places}}
        return LargestWeight(found, places, [None] * len(targets), {}, notes)
    return _keep(targets, places, settings, folder)


@dataclass(frozen=True)
class LargestWeight:
    """The policy ``sigmoid``; of equal weights the first target in `places` has the unit."""

    sigmoids: list[Sigmoid]
    places: list[int]
    components: list[Components | None]
    counts: dict[str, Any]
    notes: dict[str, Any]

    def weigh(self, block: Block, scores: Sequence[np.ndarray]) -> Weight:
        """Weights of a block's units, from the scores that each target gives them."""
        weights = np.stack([self.sigmoids[place].weights(scores[place]) for place in self.places])
        weight = weights.max(axis=0)
        target = np.where(weight > 0, np.array(self.places)[np.argmax(weights, axis=0)], NOBODY)
        return Weight(list(scores), weight, target)


@dataclass(frozen=True)
class Allotted:
    """The policies ``segments`` and ``sampled``: the target of each segment is in memory, NOBODY for none."""

    segments: list[Segments]
    owner: np.ndarray
    counts: dict[str, Any]
    notes: dict[str, Any]

    @property
    def components(self) -> list[Components | None]:
        """What each target's means of segments were shrunk by; None where they were not."""
        return [own.components for own in self.segments]

    def weigh(self, block: Block, scores: Sequence[np.ndarray]) -> Weight:
        """As of :class:`LargestWeight`."""
        first, last = block.first, block.after
        target = block.of_units(self.owner[first:last], NOBODY)
        values = [block.of_units(own.values(first, last), np.inf) for own in self.segments]
        return Weight(values, (target != NOBODY).astype(np.float64), target)


TargetsRule = LargestWeight | Allotted


def _keep(targets: Sequence[Target], places: list[int], settings: WeighSettings, folder: Path) -> Allotted:
    """Rank the segments for each target, in memory, and share out the budget."""
    segments, orders = [], []
    for row, target in enumerate(targets):
        seed = derive_seed(settings.seed, "weights", "target", target.name)  # each target draws for itself
        own, place = replace(settings, beta=target.proportion * settings.share, seed=seed), folder / str(row)
        place.mkdir()
        segments.append(gather(target.pool, own, place))
        orders.append(np.concatenate([rows["number"] for rows in rank_segments(segments[-1], own, place)] or [NONE]))
    budget, amounts = settings.kept, np.concatenate(list(segments[0].amounts(settings)))
    proportions = [targets[place].proportion for place in places]
    found = allot([orders[place] for place in places], amounts, budget, budget.most(segments[0].units), proportions)
    owner = np.append(places, NOBODY)[found]  # of NOBODY, which is the last, it is NOBODY
    kept = {targets[place].name: int((owner == place).sum()) for place in places}
    shrunk = {targets[place].name: segments[place].components for place in places}
    notes = {"shrunk": {name: asdict(means) for name, means in shrunk.items() if means is not None}}
    return Allotted(segments, owner, {"segments": {"in": owner.size, "kept": sum(kept.values()), **kept}}, notes)


def warn_of_nothing(names: Sequence[str], held: Sequence[bool]) -> None:
    """Say which targets nothing is kept for."""
    for name in sorted(name for name, has in zip(names, held, strict=True) if not has):
        log.warning("weights   nothing is kept for target %s: others take all that it wants", name)


def allot(
    orders: Sequence[np.ndarray], amounts: np.ndarray, budget: Budget, most: float, proportions: Sequence[float]
) -> np.ndarray:
    """Give each segment to at most one target, until every target has its share of the budget.

    A target wants a segment the more, the smaller a part of its own share its list holds up to there: this rank is
    comparable between targets whose scores are not. Wishes are granted in the order of that rank, ties to the earlier
    segment and then to the earlier target; a segment that is gone is passed over, and the target's next one counts.
    This is the one stable matching: no target and segment would rather have each other than what they got (Gale and
    Shapley 1962, College admissions and the stability of marriage; it is unique because both sides go by one rank).

    Args:
        orders: Of each target, segments, best first.
        amounts: Units or tokens of each segment, or the number of its document, from 0.
        budget: Of all targets together.
        most: That may be held.
        proportions: Of the budget, one a target.

    Returns:
        int64 of shape (segments,), the target of each; NOBODY for none. A target ends before the first segment that
        would exceed its share, unless that is its only one. It has none where others took all that it wants.
    """
    quotas = [round(share * most, 6) for share in proportions]
    documents_in = int(amounts.max()) + 1
    ranks = [
        Held(budget, documents_in).add(amounts[order]) / share for order, share in zip(orders, proportions, strict=True)
    ]
    target = np.repeat(np.arange(len(orders)), [order.size for order in orders])
    wanted = np.concatenate(orders)
    wishes = np.lexsort((target, wanted, np.concatenate(ranks)))
    owner = np.full(amounts.size, NOBODY)
    held = [0.0] * len(orders)
    open_to = set(range(len(orders)))
    documents: set[tuple[int, int]] = set()  # of each target, where documents are counted
    parts = (wishes[first : first + ROWS] for first in range(0, wishes.size, ROWS))  # numbers of Python's are large
    for row, one in chain.from_iterable(
        zip(target[part].tolist(), wanted[part].tolist(), strict=True) for part in parts
    ):
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
