"""Several targets over one pool: anomaly scores for each target and its proportion to one weight and target a unit."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.columns import SortedRuns
from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.logging import get_logger
from dana.core.rng import derive_seed
from dana.weighting.continuous import Sigmoid, sigmoid_of
from dana.weighting.policies import rank_segments
from dana.weighting.pool import Block, Pool
from dana.weighting.segments import Segments, gather
from dana.weighting.settings import AUTO, Budget, WeighSettings
from dana.weighting.weights import Components, Held

log = get_logger(__name__)

NOBODY = -1  # target of a unit that none takes


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
    """The policies ``segments`` and ``sampled``: whose each segment is, in memory, is a row of `places` or NOBODY."""

    segments: list[Segments]
    places: list[int]
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
        owner = np.append(self.places, NOBODY)[self.owner[first:last]]  # of NOBODY, which is the last, it is NOBODY
        target = block.of_units(owner, NOBODY)
        values = [block.of_units(own.values(first, last), np.inf) for own in self.segments]
        return Weight(values, (target != NOBODY).astype(np.float64), target)


TargetsRule = LargestWeight | Allotted


def _keep(targets: Sequence[Target], places: list[int], settings: WeighSettings, folder: Path) -> Allotted:
    """Rank the segments for each target, on disk, and share out the budget."""
    segments, orders = [], []
    for row, target in enumerate(targets):
        seed = derive_seed(settings.seed, "weights", "target", target.name)  # each target draws for itself
        own, scratch = replace(settings, beta=target.proportion * settings.share, seed=seed), folder / str(row)
        scratch.mkdir()
        segments.append(gather(target.pool, own, scratch))
        orders.append(rank_segments(segments[-1], own, scratch))
    budget, pool = settings.kept, segments[0]
    wishes = Wishes(budget, pool.documents, folder / "wishes")
    for place in places:
        wishes.add(orders[place], targets[place].proportion)
    owner = allot(wishes, pool.count, budget.most(pool.units))
    kept = {targets[place].name: int((owner == row).sum()) for row, place in enumerate(places)}
    shrunk = {targets[place].name: segments[place].components for place in places}
    notes = {"shrunk": {name: asdict(means) for name, means in shrunk.items() if means is not None}}
    counts = {"segments": {"in": owner.size, "kept": sum(kept.values()), "by_target": kept}}
    return Allotted(segments, places, owner, counts, notes)


def warn_of_nothing(names: Sequence[str], held: Sequence[bool]) -> None:
    """Say which targets nothing is kept for."""
    for name in sorted(name for name, has in zip(names, held, strict=True) if not has):
        log.warning("weights   nothing is kept for target %s: others take all that it wants", name)


class Wishes:
    """Which target wants which segment, by how much: the smaller a part of its own share its list holds up to there.

    Iterating gives records of ``key``, this rank, ``number`` of the segment, ``amount`` and ``target``, numbered as
    they were added; in the order of the rank, ties to the earlier segment and then to the earlier target.

    Args:
        budget: Of all targets together.
        documents: Of the pool.
        folder: For the sort.

    Attributes:
        budget: As given.
        proportions: Of the budget, one a target.
        documents: As given.
    """

    def __init__(self, budget: Budget, documents: int, folder: Path) -> None:
        self.budget, self.proportions = budget, list[float]()
        self.documents, self._ranked = documents, SortedRuns(folder, number="i8", amount="f8", target="i4")

    def add(self, order: Iterable[np.ndarray], proportion: float) -> None:
        """The next target: records of :data:`dana.weighting.cut.RANKED`, the best first, and its part of the budget."""
        held, target = Held(self.budget, self.documents), len(self.proportions)
        self.proportions.append(proportion)
        for rows in order:
            number, amount = rows["number"], rows["amount"]
            self._ranked.add(
                key=held.add(amount) / proportion, number=number, amount=amount, target=np.full(rows.size, target)
            )

    def __iter__(self) -> Iterator[np.ndarray]:
        waiting: np.ndarray | None = None
        for rows in self._ranked:
            together = rows if waiting is None else np.concatenate([waiting, rows])
            last = int(
                np.searchsorted(together["key"], together["key"][-1])
            )  # of equal ranks there may be more to come
            yield _by_rank(together[:last])
            waiting = together[last:]
        if waiting is not None:
            yield _by_rank(waiting)


def _by_rank(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort((rows["target"], rows["number"], rows["key"]))]


def allot(wishes: Wishes, segments: int, most: float) -> np.ndarray:
    """Give each segment to at most one target, until every target has its share of the budget.

    The rank of a wish is comparable between targets whose scores are not. Wishes are granted in its order; a segment
    that is gone is passed over, and the target's next one counts. This is the one stable matching: no target and
    segment would rather have each other than what they got (Gale and Shapley 1962, College admissions and the stability
    of marriage; it is unique because both sides go by one rank).

    Args:
        wishes: Of all targets.
        segments: How many there are.
        most: That may be held.

    Returns:
        int16 of shape (segments,), the target of each; NOBODY for none. A target ends before the first segment that
        would exceed its share, unless that is its only one. It has none where others took all that it wants.
    """
    quotas = [round(share * most, 6) for share in wishes.proportions]
    owner = np.full(segments, NOBODY, dtype=np.int16)
    held = [0.0] * len(quotas)
    open_to = set(range(len(quotas)))
    by_documents = wishes.budget.kind == "documents"
    seen = [bytearray(wishes.documents // 8 + 1 if by_documents else 0) for _ in quotas]  # a bit a document
    columns = (zip(*(rows[name].tolist() for name in ("target", "number", "amount")), strict=True) for rows in wishes)
    for row, one, amount in chain.from_iterable(columns):
        if row not in open_to or owner[one] != NOBODY:
            continue
        more = amount
        if by_documents:
            place, bit = int(amount) >> 3, 1 << (int(amount) & 7)
            more = float(not seen[row][place] & bit)
        if more > 0 and held[row] and held[row] + more > quotas[row]:
            open_to.remove(row)
            if not open_to:
                break
            continue
        owner[one] = row
        held[row] += more
        if by_documents:
            seen[row][place] |= bit
    return owner
