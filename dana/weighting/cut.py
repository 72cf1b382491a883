"""The cut: ranked segments and a budget to the last segment that is kept, of each group where it is spread."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dana.core.columns import SortedRuns
from dana.core.errors import DataError
from dana.core.logging import get_logger
from dana.weighting.settings import Budget
from dana.weighting.weights import Held

log = get_logger(__name__)

RANKED = {"number": "i8", "amount": "f8", "group": "i4"}  # of a segment, beside the key that it is ranked by


@dataclass(frozen=True)
class SegmentCut:
    """Where a ranking ends: a segment is kept if it is not behind the last kept one of its group.

    Attributes:
        keys: Shape (groups,), what the last kept segment of each group is ranked by, lowest first.
        numbers: Shape (groups,), its number; of equal keys the lower number is the better.
        kept: How many segments are.
    """

    keys: np.ndarray
    numbers: np.ndarray
    kept: int

    def keeps(self, keys: np.ndarray, first: int, groups: np.ndarray) -> np.ndarray:
        """Whether neighbouring segments are kept.

        Args:
            keys: What they are ranked by.
            first: The number of the first.
            groups: The group of each.
        """
        last = self.keys[groups]
        return (keys < last) | ((keys == last) & (first + np.arange(keys.size) <= self.numbers[groups]))


def budget_cut(ranked: Iterable[np.ndarray], budget: Budget, most: float, documents: int) -> SegmentCut:
    """The longest beginning of a ranking that does not exceed a budget, at least one segment where there is any.

    Args:
        ranked: Records of :data:`RANKED`, the best first.
        budget: Says what is counted.
        most: That may be held.
        documents: Of the pool.
    """
    return _cut(_beginning(ranked, Held(budget, documents), most), "key", 1)


def balanced_cut(
    ranked: Iterable[np.ndarray], shares: np.ndarray, budget: Budget, most: float, documents: int, folder: Path
) -> SegmentCut:
    """The longest beginning, within a budget, of another order whose beginnings all hold the groups in their shares.

    A segment's place there is what it and the better segments of its group hold, over the share of that group. So
    within a group the order stays, and where one is used up the rest of the budget goes to the others, in proportion
    to their shares. A group with a share of 0 is left out.

    Args:
        ranked: See :func:`budget_cut`; of equal places the better comes first.
        shares: Shape (groups,), of the budget, sums to 1.
        budget: Says what is counted.
        most: That may be held.
        documents: Of the pool.
        folder: For the sort.

    Raises:
        DataError: If no segment is of a group that has a share.
    """
    named = np.flatnonzero(shares)
    held = {group: Held(budget, documents) for group in named.tolist()}
    placed = SortedRuns(folder, **RANKED, rank="f8")
    found = 0
    for rows in ranked:
        place = np.full(rows.size, np.inf)
        for group in held:
            own = np.flatnonzero(rows["group"] == group)
            place[own] = held[group].add(rows["amount"][own]) / shares[group]
        inside = np.isfinite(place)
        found += int(inside.sum())
        placed.add(key=place[inside], rank=rows["key"][inside], **{name: rows[name][inside] for name in RANKED})
    said = ", ".join(map(str, named))
    if not found:
        raise DataError(f"balance: no segment is mostly of group {said}; name others")
    all_held = Held(budget, documents)
    cut = _cut(_beginning(placed, all_held, most), "rank", shares.size)
    if all_held.total < most:
        log.warning("weights   group %s: holds less than the budget, %g of %g; all is kept", said, all_held.total, most)
    return cut


def _beginning(ranked: Iterable[np.ndarray], held: Held, most: float) -> Iterator[np.ndarray]:
    """The records up to where they hold `most`, at least one."""
    begun = False
    for rows in ranked:
        fits = int(np.searchsorted(held.add(rows["amount"]), most, side="right"))
        fits = fits if begun else max(1, fits)
        begun = True
        yield rows[:fits]
        if fits < rows.size:
            return


def _cut(kept: Iterable[np.ndarray], key: str, groups: int) -> SegmentCut:
    """Behind some records, in order; `key` is their field that ranks them within a group."""
    keys, numbers, count = np.full(groups, -np.inf), np.full(groups, -1), 0
    for rows in kept:
        keys[rows["group"]] = rows[key]  # of several of a group the last one stays
        numbers[rows["group"]] = rows["number"]
        count += rows.size
    return SegmentCut(keys, numbers, count)
