"""Votes of neighbours and retrieval, against computations by hand."""

import math

import numpy as np
import pytest

from dana.finetuning.neighbours import (
    choose_number,
    nearest_rows,
    ranks_of_own,
    retrieval_scores,
    vote,
)
from dana.finetuning.probe import LabelledVectors
from dana.tasks.kinds.multi_label import MultiLabel
from dana.tasks.kinds.regression import Regression
from dana.tasks.kinds.single_label import SingleLabel

THREE = SingleLabel.from_count(3)


def cosine(one, other):
    return one @ other / math.sqrt((one @ one) * (other @ other))


def test_neighbours_are_those_of_a_loop():
    random = np.random.default_rng(0)
    texts, others = random.normal(size=(30, 4)), random.normal(size=(50, 4))
    found = nearest_rows(texts, others, 5)
    for text, rows in zip(texts, found, strict=True):
        assert rows.tolist() == sorted(range(50), key=lambda row: -cosine(text, others[row]))[:5]
    zeros = nearest_rows(np.zeros((1, 4)), others, 3)
    assert zeros.tolist() == [[0, 1, 2]]  # all as far away: the first
    assert nearest_rows(texts * 7, others / 3, 5).tolist() == found.tolist()


def test_a_text_is_not_predicted_by_its_own_group():
    vectors = np.array([[1.0, 0], [1, 0.01], [0.9, 0.3], [0, 1]])
    groups = np.array([0, 0, 1, 2])
    assert nearest_rows(vectors, vectors, 2, groups, groups)[0].tolist() == [2, 3]


def test_votes_by_hand():
    labels = np.array([0, 1, 1, 2, 2])
    assert vote(labels, THREE, np.array([[0, 1, 2], [3, 1, 0], [0, 3, 4]])).tolist() == [1, 2, 2]
    values = np.array([1.0, 2, 6])
    assert vote(values, Regression(()), np.array([[0, 1, 2], [1, 1, 2]])) == pytest.approx(
        [3, 10 / 3]
    )
    kind = MultiLabel(("a", "b"))
    sets = kind.gather([(0,), (0, 1), ()])
    assert vote(sets, kind, np.array([[0, 1, 2], [0, 2, 2]])).tolist() == [(0,), ()]


def test_the_number_of_neighbours_is_the_best_of_leaving_one_out():
    random = np.random.default_rng(1)
    labels = random.integers(0, 3, 120)
    vectors = random.normal(size=(120, 3)) + 1.5 * np.eye(3)[labels]
    texts = LabelledVectors(vectors, labels, THREE, "accuracy", np.arange(120, dtype=np.uint64))
    scores = {}
    for number in (1, 3, 5, 9, 15, 25):
        right = 0
        for row in range(120):
            others = [other for other in range(120) if other != row]
            others.sort(key=lambda other: -cosine(vectors[row], vectors[other]))
            near = labels[others[:number]].tolist()
            right += (
                max(near, key=lambda label: (near.count(label), -near.index(label))) == labels[row]
            )
        scores[number] = right
    assert choose_number(texts) == max(scores, key=scores.get)
    few = texts.take(np.arange(2))
    assert choose_number(few) == 1


def test_retrieval_is_that_of_a_loop():
    random = np.random.default_rng(2)
    rests = random.normal(size=(40, 5))
    queries = rests + random.normal(size=(40, 5))
    ranks = ranks_of_own(queries, rests)
    reciprocal, gain = 0.0, 0.0
    for row, query in enumerate(queries):
        order = sorted(range(40), key=lambda other: -cosine(query, rests[other]))
        place = order.index(row) + 1
        assert ranks[row] == place
        if place <= 10:
            reciprocal += 1 / place
            gain += 1 / math.log2(1 + place)
    scores = retrieval_scores(ranks)
    assert scores == pytest.approx({"mrr_10": reciprocal / 40, "ndcg_10": gain / 40})


def test_vectors_that_are_all_equal_find_nothing():
    same = np.ones((30, 4))
    assert ranks_of_own(same, same).tolist() == [30] * 30
    assert retrieval_scores([30, 11]) == {"mrr_10": 0.0, "ndcg_10": 0.0}
    assert retrieval_scores([1]) == {"mrr_10": 1.0, "ndcg_10": 1.0}
    assert retrieval_scores([2, 3]) == pytest.approx(
        {"mrr_10": 5 / 12, "ndcg_10": (1 / math.log2(3) + 0.5) / 2}
    )
