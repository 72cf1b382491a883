"""On- and off-topic sets: disjoint, balanced, by rank, seeded; and what is refused."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dana.core.errors import DataError
from dana.studies.topic_gap.documents import SETS, DegenerateTopic, TopicSplit, require_enough
from dana.studies.topic_gap.documents import split_by_topic as sets_by_topic
from dana.studies.topic_gap.settings import DRAWS


def split_by_topic(ids, labels, shares, split):
    """Places of the documents of each set."""
    sets = sets_by_topic(pd.DataFrame({"id": ids, "label": labels}), np.asarray(shares), split)
    return {name: np.flatnonzero(sets == name) for name in (*SETS, "unused")}


NAMES = ("blog", "news", "review")


@st.composite
def documents(draw):
    """Ids in no order, labels of unequal counts, distinct shares, and sizes that fit."""
    sizes = [draw(st.integers(1, 4)) for _ in range(3)]
    counts = [sizes[0] + sum(sizes) + draw(st.integers(0, 5)) for _ in NAMES]
    labels = [name for name, count in zip(NAMES, counts, strict=True) for _ in range(count)]
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    order = random.permutation(len(labels))
    ids = [f"d{number}" for number in random.permutation(len(labels))]
    shares = random.permutation(len(labels)).astype(np.float32) / len(labels)
    return ids, [labels[at] for at in order], shares, sizes


@settings(max_examples=60)
@given(documents(), st.sampled_from(DRAWS), st.integers(0, 5))
def test_sets_are_disjoint_balanced_and_on_the_right_side(sample, draw, seed):
    ids, labels, shares, sizes_drawn = sample
    sizes = TopicSplit(*sizes_drawn, draw, seed)
    split = split_by_topic(ids, labels, shares, sizes)
    rows_by_set = [set(split[name].tolist()) for name in (*SETS, "unused")]
    assert sum(map(len, rows_by_set)) == len(ids) == len(set.union(*rows_by_set))
    counts = {"test": sizes.test, "on": sizes.n, "off": sizes.n, "validation": sizes.validation}
    for name, count in counts.items():
        assert Counter(labels[row] for row in split[name]) == dict.fromkeys(NAMES, count)
    for label in NAMES:
        of = {
            name: sorted(float(shares[row]) for row in split[name] if labels[row] == label)
            for name in (*SETS, "unused")
        }
        shares_sorted = sorted(
            (float(share) for share, other in zip(shares, labels, strict=True) if other == label), reverse=True
        )
        assert sorted(of["test"] + of["on"]) == sorted(shares_sorted[: sizes.test + sizes.n])
        assert sorted(of["off"] + of["validation"]) == sorted(
            shares_sorted[len(shares_sorted) - sizes.n - sizes.validation :]
        )
        if draw == "ranks":
            assert of["test"] == sorted(shares_sorted[: sizes.test])
            assert of["off"] == sorted(shares_sorted)[: sizes.n]


@settings(max_examples=30)
@given(documents(), st.sampled_from(DRAWS), st.randoms(use_true_random=False))
def test_the_order_of_the_documents_does_not_matter(sample, draw, random):
    ids, labels, shares, sizes_drawn = sample
    sizes = TopicSplit(*sizes_drawn, draw, 3)
    split = split_by_topic(ids, labels, shares, sizes)
    order = random.sample(range(len(ids)), len(ids))
    other = split_by_topic([ids[at] for at in order], [labels[at] for at in order], shares[order], sizes)
    for name in SETS:
        assert {ids[row] for row in split[name]} == {ids[order[row]] for row in other[name]}


def test_ranks_by_hand_and_ties_by_id():
    shares = np.array([0.9, 0.9, 0.5, 0.5, 0.1, 0.1, 0.3, 0.3], dtype=np.float32)
    ids = ["b", "a", "d", "c", "f", "e", "h", "g"]
    split = split_by_topic(ids, ["x"] * 8, shares, TopicSplit(n=2, test=1, validation=1))
    ids_by_set = {name: [ids[row] for row in split[name]] for name in (*SETS, "unused")}
    assert ids_by_set["test"] == ["a"], "of equal shares the first id is more about the topic"
    assert sorted(ids_by_set["on"]) == ["b", "c"]
    assert sorted(ids_by_set["off"]) == ["e", "f"]
    assert ids_by_set["validation"] == ["h"]
    assert sorted(ids_by_set["unused"]) == ["d", "g"]


def test_a_random_draw_depends_on_the_seed_alone():
    ids, shares = [f"d{at}" for at in range(60)], np.linspace(1, 0, 60)
    first, again, other = (
        split_by_topic(ids, ["x"] * 60, shares, TopicSplit(15, 15, 15, "random", seed)) for seed in (0, 0, 1)
    )
    assert first["test"].tolist() == again["test"].tolist() != other["test"].tolist()
    assert 0 < len(set(first["test"]) & set(range(15))) < 15
    assert set(first["off"]) != set(range(45, 60))


def test_too_few_documents_say_how_many_there_are_and_the_largest_n():
    labels = ["news"] * 30 + ["blog"] * 17
    require_enough(labels, TopicSplit(n=4, test=5, validation=4))
    with pytest.raises(DataError, match=r"n=5: label 'blog' needs 19 .* has 17; n must be at most 4"):
        require_enough(labels, TopicSplit(n=5, test=5, validation=4))
    with pytest.raises(DataError, match="test or validation"):
        require_enough(labels, TopicSplit(n=1, test=10, validation=6))
    with pytest.raises(DataError, match="n=5: label 'blog'"):
        split_by_topic([f"d{at}" for at in range(47)], labels, np.arange(47), TopicSplit(5, 5, 4))


def test_a_topic_that_does_not_tell_a_labels_documents_apart_is_named():
    labels = ["a"] * 8 + ["b"] * 8
    shares = np.array([*np.linspace(1, 0, 8), *[0.25] * 8])
    with pytest.raises(DegenerateTopic, match=r"label 'b': .* 0\.25, .* 0\.25"):
        split_by_topic([f"d{at:02}" for at in range(16)], labels, shares, TopicSplit(2, 2, 2))
    shares[8] = 0.5  # the one document to test is more about it than all others
    split_by_topic([f"d{at:02}" for at in range(16)], labels, shares, TopicSplit(2, 1, 2))
