"""The pool of a task: duplicates, windows, letters; its on- and off-topic sets: disjoint, balanced, by rank, seeded."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dana.core.errors import DataError
from dana.studies.topic_gap.documents import (
    SETS,
    DegenerateTopic,
    TopicSplit,
    Window,
    pool_documents,
    require_enough,
    split_by_topic,
    strip_to_letters,
)
from dana.studies.topic_gap.settings import DRAWS
from dana.tasks.examples import Example

NAMES = ("news", "blog")
WORDS = np.array([f"{a}{b}{c}" for a in "bdfg" for b in "aeio" for c in "klmn"])


def text(seed, words=30):
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


def pool(splits, window=None, labels=NAMES):
    return pool_documents(splits, NAMES, labels, window or Window(20))


def test_splits_are_one_pool_without_repeats():
    near = text(1).split()
    near[5] = "other"
    splits = {
        "train": [
            Example("a", text(1), 0),
            Example("b", text(2), 1),
            Example("c", "- " + text(2).upper() + "!", 0),
        ],
        "dev": [Example("d", " ".join(near), 0), Example("e", text(3), 0)],
        "test": [
            Example("f", text(4), 1),
            Example("g", "Short.", 1),
            Example("h", "1 2 3 4 5 6 7 8 9 10 11", 1),
        ],
    }
    documents, counts = pool(splits)
    assert documents["id"].tolist() == ["a", "b", "e", "f"]
    assert documents["label"].tolist() == ["news", "blog", "news", "blog"]
    assert documents["text"].tolist() == [text(1), text(2), text(3), text(4)]
    reasons = {"repeated": 1, "near duplicate": 1, "short": 1, "no letters": 1}
    assert counts == {"in": 8, "kept": 4, "dropped": reasons}
    for doc_id, content, window_text, letters in zip(
        documents.id, documents.text, documents.whole, documents.stripped, strict=True
    ):
        assert window_text == Window(20).cut(content, doc_id)
        assert letters == strip_to_letters(window_text)


def test_recurring_ids_other_labels_and_windows_of_the_same_letters():
    train = [Example("1", text(1), 0), Example("2", text(2), 1), Example("2", text(3), 1)]
    documents, _ = pool(
        {"train": train, "test": [Example("1", text(4), 0), Example("9", text(5), 0)]}
    )
    assert documents["id"].tolist() == ["train:1", "train:2", "train:2#2", "test:1", "9"]
    documents, counts = pool({"train": train[:2]}, labels=["blog"])
    assert (documents["id"].tolist(), counts["dropped"]) == (["2"], {"other label": 1})
    splits = {
        "train": [Example("a", "Bill 17 is paid!", 0), Example("b", text(2), 1)],
        "test": [Example("c", "Bill 18: is paid", 1), Example("d", "bill is unpaid", 1)],
    }
    documents, counts = pool(splits, Window(20, "keep"))
    assert documents["id"].tolist() == ["a", "b", "d"]
    assert counts == {"in": 4, "kept": 3, "dropped": {"same letters": 1}}


@pytest.mark.parametrize(
    ("texts", "window", "says"),
    [
        (["x" * 30, "y" * 41], Window(42), "window=42: must be at most 41"),
        (["x" * 30, "y" * 41], Window(42, "keep"), "window=42"),
        (
            [text(1), "A short one."],
            Window(20),
            r"label 'blog': .* window=20, short=drop; .*labels=\['news'\]",
        ),
    ],
)
def test_a_pool_without_texts_or_without_a_label_is_refused(texts, window, says):
    with pytest.raises(DataError, match=says):
        pool(
            {
                "train": [
                    Example(f"d{label}", content, label) for label, content in enumerate(texts)
                ]
            },
            window,
        )


@given(st.text(min_size=1, max_size=60), st.text(max_size=8), st.integers(1, 60), st.integers(0, 9))
def test_a_window_is_a_piece_of_its_length(text, doc_id, length, seed):
    window = Window(length, "drop", seed).cut(text, doc_id)
    if len(text) < length:
        assert window is None
        assert Window(length, "keep", seed).cut(text, doc_id) == text
    else:
        assert len(window) == length
        assert window in text
        assert Window(length, "keep", seed).cut(text, doc_id) == window


def test_the_place_is_a_function_of_seed_and_id_and_every_place_is_as_likely():
    text = "".join(chr(ord("a") + at) for at in range(14))
    begins = {
        seed: [ord(Window(10, "drop", seed).cut(text, f"d{at}")[0]) - 97 for at in range(2000)]
        for seed in (0, 1)
    }
    assert begins[0] == [
        ord(Window(10, "drop", 0).cut(text, f"d{at}")[0]) - 97 for at in range(2000)
    ]
    assert begins[0] != begins[1]
    counts = np.bincount(begins[0], minlength=5)
    assert counts.size == 5, "from the first character to the last place that has room"
    assert counts.min() > 330


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("It's 2023! END.Next", "it s end next"),
        ("A_b\tc\n\nD—e", "a b c d e"),
        ("Ünïcode ÉTÉ", "ünïcode été"),
        ("cafe\u0301 1½²Ⅷ", "cafe\u0301"),
        ("हिन्दी में ३", "हिन्दी में"),
        ("soft\u00adhyphen €5 🙂", "softhyphen"),
        ("42 + 7 = 49", ""),
    ],
)
def test_letters_of_any_script_are_left(text, letters):
    assert strip_to_letters(text) == letters


def rows_by_set(ids, labels, shares, split):
    sets = split_by_topic(pd.DataFrame({"id": ids, "label": labels}), np.asarray(shares), split)
    return {name: np.flatnonzero(sets == name) for name in (*SETS, "unused")}


LABELS = ("blog", "news", "review")


@st.composite
def documents(draw):
    """Ids in no order, labels of unequal counts, distinct shares, and sizes that fit."""
    sizes = [draw(st.integers(1, 4)) for _ in range(3)]
    counts = [sizes[0] + sum(sizes) + draw(st.integers(0, 5)) for _ in LABELS]
    labels = [name for name, count in zip(LABELS, counts, strict=True) for _ in range(count)]
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ids = [f"d{number}" for number in random.permutation(len(labels))]
    shares = random.permutation(len(labels)).astype(np.float32) / len(labels)
    return ids, random.permutation(labels).tolist(), shares, sizes


@settings(max_examples=60)
@given(documents(), st.sampled_from(DRAWS), st.integers(0, 5))
def test_sets_are_disjoint_balanced_and_on_the_right_side(sample, draw, seed):
    ids, labels, shares, counts = sample
    sizes = TopicSplit(*counts, draw, seed)
    split = rows_by_set(ids, labels, shares, sizes)
    assert sorted(np.concatenate([*split.values()])) == list(range(len(ids)))
    counts = {"test": sizes.test, "on": sizes.n, "off": sizes.n, "validation": sizes.validation}
    for name, count in counts.items():
        assert Counter(labels[row] for row in split[name]) == dict.fromkeys(LABELS, count)
    for label in LABELS:
        of = {
            name: sorted(shares[row] for row in rows if labels[row] == label)
            for name, rows in split.items()
        }
        ranking = sorted(of["test"] + of["on"] + of["off"] + of["validation"] + of["unused"])
        assert sorted(of["test"] + of["on"]) == ranking[-sizes.test - sizes.n :]
        assert sorted(of["off"] + of["validation"]) == ranking[: sizes.n + sizes.validation]
        if draw == "ranks":
            assert of["test"] == ranking[-sizes.test :]
            assert of["off"] == ranking[: sizes.n]


@settings(max_examples=30)
@given(documents(), st.sampled_from(DRAWS), st.randoms(use_true_random=False))
def test_the_order_of_the_documents_does_not_matter(sample, draw, random):
    ids, labels, shares, counts = sample
    sizes = TopicSplit(*counts, draw, 3)
    split = rows_by_set(ids, labels, shares, sizes)
    order = random.sample(range(len(ids)), len(ids))
    other = rows_by_set(
        [ids[at] for at in order], [labels[at] for at in order], shares[order], sizes
    )
    for name in SETS:
        assert {ids[row] for row in split[name]} == {ids[order[row]] for row in other[name]}


def test_ranks_by_hand_and_ties_by_id():
    shares = np.array([0.9, 0.9, 0.5, 0.5, 0.1, 0.1, 0.3, 0.3], dtype=np.float32)
    ids = ["b", "a", "d", "c", "f", "e", "h", "g"]
    split = rows_by_set(ids, ["x"] * 8, shares, TopicSplit(n=2, test=1, validation=1))
    ids_by_set = {name: [ids[row] for row in split[name]] for name in (*SETS, "unused")}
    assert ids_by_set["test"] == ["a"], "of equal shares the first id is more about the topic"
    assert sorted(ids_by_set["on"]) == ["b", "c"]
    assert sorted(ids_by_set["off"]) == ["e", "f"]
    assert ids_by_set["validation"] == ["h"]
    assert sorted(ids_by_set["unused"]) == ["d", "g"]


def test_a_random_draw_depends_on_the_seed_alone():
    ids, shares = [f"d{at}" for at in range(60)], np.linspace(1, 0, 60)
    first, again, other = (
        rows_by_set(ids, ["x"] * 60, shares, TopicSplit(15, 15, 15, "random", seed))
        for seed in (0, 0, 1)
    )
    assert first["test"].tolist() == again["test"].tolist() != other["test"].tolist()
    assert 0 < len(set(first["test"]) & set(range(15))) < 15
    assert set(first["off"]) != set(range(45, 60))


def test_too_few_documents_say_how_many_there_are_and_the_largest_n():
    labels = ["news"] * 30 + ["blog"] * 17
    require_enough(labels, TopicSplit(n=4, test=5, validation=4))
    with pytest.raises(
        DataError, match=r"n=5: label 'blog' needs 19 .* has 17; n must be at most 4"
    ):
        require_enough(labels, TopicSplit(n=5, test=5, validation=4))
    with pytest.raises(DataError, match="test or validation"):
        require_enough(labels, TopicSplit(n=1, test=10, validation=6))
    with pytest.raises(DataError, match="n=5: label 'blog'"):
        rows_by_set([f"d{at}" for at in range(47)], labels, np.arange(47), TopicSplit(5, 5, 4))


def test_a_topic_that_does_not_tell_a_labels_documents_apart_is_named():
    labels = ["a"] * 8 + ["b"] * 8
    shares = np.array([*np.linspace(1, 0, 8), *[0.25] * 8])
    with pytest.raises(DegenerateTopic, match=r"label 'b': .* 0\.25, .* 0\.25"):
        rows_by_set([f"d{at:02}" for at in range(16)], labels, shares, TopicSplit(2, 2, 2))
    shares[8] = 0.5  # the one document to test is more about it than all others
    rows_by_set([f"d{at:02}" for at in range(16)], labels, shares, TopicSplit(2, 1, 2))
