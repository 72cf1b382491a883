"""Hashes of lines to splits: keep-first, the draw, the cap, several domains; nothing repeats and nothing crosses."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dana.core.errors import DataError
from dana.studies.splits.stage import Outcome, SplitSettings, assign_splits, hash_lines, keep_first

# Few different lines, so that they repeat, and empty ones.
LINES = st.sampled_from(["", *"abcdefgh"])
PAIRS = st.lists(st.tuples(LINES, LINES), min_size=1, max_size=60)


def outcomes(rows):
    return keep_first(*hash_lines(rows)).tolist()


def distinct(count, start=0):
    return [(f"s{at}", f"t{at}") for at in range(start, start + count)]


def assign(rows, **sizes):
    """The outcome of each row of one domain."""
    return assign_splits({"x": hash_lines(rows, sizes.get("seed", 0))}, SplitSettings(**sizes))["x"]


def select(rows, outcome, code):
    return [row for row, results in zip(rows, outcome.tolist(), strict=True) if results == code]


def test_what_was_dropped_does_not_stand_in_the_way():
    """(b, y) is kept: y was seen, but in no pair that is kept."""
    rows = [("a", "x"), ("a", "y"), ("b", "y"), ("c", "x"), ("b", "x"), ("", "z"), ("d", ""), ("e", "z")]
    results = [Outcome(code).name for code in outcomes(rows)]
    assert results == ["TRAIN", "REPEATED", "TRAIN", "REPEATED", "REPEATED", "BLANK", "BLANK", "TRAIN"]


def greedy(rows):
    """The same with two sets of lines."""
    sources, targets, results = set(), set(), []
    for source, target in rows:
        repeats = source in sources or target in targets
        results.append(Outcome.BLANK if not source or not target else Outcome.REPEATED if repeats else Outcome.TRAIN)
        if source and target and not repeats:
            sources.add(source)
            targets.add(target)
    return results


@given(PAIRS)
def test_keep_first_is_the_greedy_loop_over_two_sets(rows):
    assert outcomes(rows) == greedy(rows)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=60, max_size=150), st.data())
def test_nothing_repeats_and_nothing_crosses_in_any_domain_or_between(numbers, data):
    rows = [(f"s{source}" if source else "", f"t{target}" if target else "") for source, target in numbers]
    cut = data.draw(st.integers(30, len(rows) - 30))
    domains = {"one": rows[:cut], "two": rows[cut:]}
    sizes = SplitSettings(
        dev=2, test=3, cap=data.draw(st.sampled_from([None, 1, 5])), seed=data.draw(st.integers(0, 3))
    )
    try:
        results = assign_splits({name: hash_lines(rows, sizes.seed) for name, rows in domains.items()}, sizes)
    except DataError:  # too few are kept
        return
    held_out, train = [], []
    for name, rows in domains.items():
        parts = {code: select(rows, results[name], code) for code in (Outcome.TRAIN, Outcome.DEV, Outcome.TEST)}
        assert [len(parts[code]) for code in (Outcome.DEV, Outcome.TEST)] == [2, 3]
        assert 1 <= len(parts[Outcome.TRAIN]) <= (sizes.cap or len(rows))
        for side in (0, 1):
            lines = [row[side] for part in parts.values() for row in part]
            assert "" not in lines
            assert max(Counter(lines).values()) == 1
        held_out += parts[Outcome.DEV] + parts[Outcome.TEST]
        train += parts[Outcome.TRAIN]
    for side in (0, 1):
        lines = [row[side] for row in held_out]
        assert len(set(lines)) == len(lines)
        assert not {row[side] for row in train} & set(lines)


def test_the_draw_is_by_the_source_and_the_seed_alone():
    rows = distinct(100)
    outcome = assign(rows, dev=10, test=20)
    again = assign(rows[::-1], dev=10, test=20)
    other_targets = assign([(source, target + "!") for source, target in rows], dev=10, test=20)
    assert again[::-1].tolist() == outcome.tolist() == other_targets.tolist()
    assert assign(rows, dev=10, test=20, seed=1).tolist() != outcome.tolist()


def test_test_is_the_smallest_hashes_then_dev_then_what_a_cap_keeps():
    rows = distinct(100)
    order = np.argsort(hash_lines(rows)[0])
    reference = np.full(100, Outcome.OVER_CAP)
    for start, end, code in ((0, 20, Outcome.TEST), (20, 30, Outcome.DEV), (30, 45, Outcome.TRAIN)):
        reference[order[start:end]] = code
    assert assign(rows, dev=10, test=20, cap=15).tolist() == reference.tolist()


def test_hashes_are_the_same_on_every_machine():
    """Pinned; an empty line is 0."""
    source, target = hash_lines([("Haus", "house"), ("", "é")], seed=3)
    assert source.tolist() == [11399868122390626114, 0]
    assert target.tolist() == [3756309148455155062, 1146287752342852906]
    assert hash_lines([("Haus", "house")], seed=4)[0] != source[0]
