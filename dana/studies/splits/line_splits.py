"""Aligned lines, as 64-bit hashes, to train, dev and test without a shared line: keep-first, then a draw by the hash.

Equal lines have equal hashes, so nothing that is kept repeats and nothing crosses, whatever the hashes do. Two
different lines that share a hash (a chance of 1e-5 among 14 million pairs, n² / 2⁶⁵ a side) only cost the later one
its place. Memory is 28 bytes a pair, however long the lines are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from itertools import islice

import numpy as np

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.rng import derive_seed

BLOCK = 1 << 14  # rows
EMPTY = 0  # stands for the hash of an empty line
Hashes = tuple[np.ndarray, ...]


class Outcome(IntEnum):
    """What becomes of a row. A row of one side is a source without a target."""

    TRAIN = 0
    SOURCE_REPEATED = 1  # these three are sums of bits: source seen, target seen
    TARGET_REPEATED = 2
    BOTH_REPEATED = 3
    BLANK = 4
    HELD_OUT_ELSEWHERE = 5  # in dev or test of another domain
    OVER_CAP = 6
    DEV = 7
    TEST = 8


@dataclass(frozen=True)
class SplitSettings:
    """Sizes of the splits of each domain.

    Attributes:
        dev: Rows.
        test: Rows.
        cap: At most so many rows of train; None for no limit.
        seed: Of the draw.
    """

    dev: int = 2000
    test: int = 2000
    cap: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.dev > 0, "dev", self.dev, "at least 1")
        require(self.test > 0, "test", self.test, "at least 1")
        require(self.cap is None or self.cap > 0, "cap", self.cap, "at least 1")


def hash_blocks(rows: Iterable[Sequence[str]], seed: int = 0) -> Iterator[Hashes]:
    """Hash lines: 16,384 rows at a time, uint64 of shape (rows,) a side; an empty line is 0.

    Args:
        rows: One or two texts each, as :func:`dana.corpus.text.one_line` makes them.
        seed: With another, the hashes sort the same lines otherwise.
    """
    salted = blake2b(digest_size=8, salt=derive_seed(seed, "splits").to_bytes(8, "little"))

    def digest(text: str) -> bytes:
        if not text:
            return bytes(8)
        own = salted.copy()
        own.update(text.encode())
        return own.digest()

    rows = iter(rows)
    while block := list(islice(rows, BLOCK)):
        yield tuple(np.frombuffer(b"".join(map(digest, side)), "<u8") for side in zip(*block, strict=True))


def hash_lines(rows: Iterable[Sequence[str]], seed: int = 0) -> Hashes:
    """All of :func:`hash_blocks`, shape (rows,) a side."""
    joined: list[bytearray] = []
    for block in hash_blocks(rows, seed):
        joined = joined or [bytearray() for _ in block]
        for whole, part in zip(joined, block, strict=True):
            whole += part.tobytes()
    return tuple(np.frombuffer(whole, "<u8") for whole in joined)


def assign_splits(domains: Mapping[str, Hashes], settings: SplitSettings) -> dict[str, np.ndarray]:
    """The :class:`Outcome` of each row of each domain, uint8 of shape (rows,).

    In each domain a row is kept if neither its source nor its target is in a row kept before it (greedy, in order).
    The kept rows with the smallest source hashes are test, the next ones dev, the rest is train, of which a cap takes
    the next ones again: so neither order nor machine decides what is drawn, and a cap changes neither dev nor test.
    A row whose source or target is in dev or test of another domain leaves.

    Args:
        domains: From :func:`hash_lines`, with one seed, all with as many sides.
        settings: Sizes.

    Raises:
        DataError: If a domain has too few rows for dev and test, or keeps none for train.
    """
    outcomes: dict[str, np.ndarray] = {}
    held_out: list[np.ndarray] = [np.empty(0, np.uint64)] * 2
    for name, sides in domains.items():
        outcome = outcomes[name] = keep_first(*sides)
        _leave(outcome, sides, held_out)
        _draw(name, outcome, sides[0], settings)
        drawn = outcome >= Outcome.DEV
        held_out = [np.sort(np.append(old, new[drawn])) for old, new in zip(held_out, sides, strict=False)]
    for name, sides in domains.items():
        _leave(outcomes[name], sides, held_out)
        _cap(outcomes[name], sides[0], settings.cap)
        if not (outcomes[name] == Outcome.TRAIN).any():
            raise DataError(f"{name}: all that is left for train is in dev or test of another domain")
    return outcomes


def keep_first(source: np.ndarray, target: np.ndarray | None = None) -> np.ndarray:
    """TRAIN for the rows that are kept, else why not: :class:`Outcome` as uint8 of shape (rows,).

    Args:
        source: Hashes, shape (rows,).
        target: Hashes, shape (rows,); None for rows of one side.
    """
    outcome = np.zeros(len(source), np.uint8)
    outcome[source == EMPTY] = Outcome.BLANK
    sources, targets = _repeated(source), np.zeros(len(source), np.int32)
    if target is not None:
        outcome[target == EMPTY] = Outcome.BLANK
        targets = _repeated(target)
    source_seen, target_seen = bytearray(sources.max(initial=0) + 1), bytearray(targets.max(initial=0) + 1)
    for start in range(0, len(source), BLOCK):
        part = slice(start, start + BLOCK)
        (asked,) = np.nonzero(((sources[part] > 0) | (targets[part] > 0)) & (outcome[part] == Outcome.TRAIN))
        rows = (asked + start).tolist()
        for row, own, other in zip(rows, sources[part][asked].tolist(), targets[part][asked].tolist(), strict=True):
            if seen := source_seen[own] + 2 * target_seen[other]:
                outcome[row] = seen
            else:
                source_seen[own], target_seen[other] = own > 0, other > 0
    return outcome


def find_places(known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Place in `known` of each value, int64 of the shape of `values`; -1 where it is not there.

    Args:
        known: Sorted, shape (n,).
        values: Any shape.
    """
    if not len(known):
        return np.full(values.shape, -1)
    places = np.searchsorted(known, values)
    places[places == len(known)] = 0
    return np.where(known[places] == values, places, -1)


def _repeated(hashes: np.ndarray) -> np.ndarray:
    """A number above 0 for each line that occurs more than once, the same for equal lines, else 0: int32 (rows,)."""
    numbers = np.zeros(len(hashes), np.int32)
    first = hashes.view(np.uint8)[7::8] >> 4  # top four bits: a sixteenth of the rows is sorted at a time
    last = 0
    for sixteenth in range(16):
        (rows,) = np.nonzero(first == sixteenth)
        _, line, counts = np.unique(hashes[rows], return_inverse=True, return_counts=True)
        often = counts > 1
        numbers[rows] = np.where(often, last + np.cumsum(often), 0)[line]
        last += int(often.sum())
    return numbers


def _leave(outcome: np.ndarray, sides: Hashes, held_out: Sequence[np.ndarray]) -> None:
    """Mark the rows still in train of which a side is held out."""
    for start in range(0, len(outcome), BLOCK):
        part = slice(start, start + BLOCK)
        for hashes, known in zip(sides, held_out, strict=False):
            there = (find_places(known, hashes[part]) >= 0) & (outcome[part] == Outcome.TRAIN)
            outcome[part][there] = Outcome.HELD_OUT_ELSEWHERE


def _draw(name: str, outcome: np.ndarray, source: np.ndarray, settings: SplitSettings) -> None:
    """Mark dev and test."""
    kept = outcome == Outcome.TRAIN
    both = settings.dev + settings.test
    ordered = source[kept]
    if len(ordered) <= both:
        raise DataError(
            f"{name}: {len(ordered):,} of {len(source):,} rows are kept (no line twice), and dev ({settings.dev:,}) and"
            f" test ({settings.test:,}) would leave none for train; make these smaller"
        )
    ordered.partition((settings.test - 1, both - 1))
    outcome[kept & (source <= ordered[both - 1])] = Outcome.DEV
    outcome[kept & (source <= ordered[settings.test - 1])] = Outcome.TEST


def _cap(outcome: np.ndarray, source: np.ndarray, cap: int | None) -> None:
    """Mark what of train is too much."""
    train = outcome == Outcome.TRAIN
    if cap is not None and (ordered := source[train]).size > cap:
        ordered.partition(cap - 1)
        outcome[train & (source > ordered[cap - 1])] = Outcome.OVER_CAP
