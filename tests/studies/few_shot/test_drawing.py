"""Items by lot: triples, texts, examples; what is even, what is never repeated, what the seed decides."""

from collections import Counter

import pytest

from dana.core.errors import DataError
from dana.studies.few_shot.items import Passage, draw_items

LABELS = ("argument", "news", "review")


def texts(topic, what, label, count):
    return [Passage(f"{topic}-{what}-{label}-{number}", f"{label} {number}") for number in range(count)]


def topics(count=4, test=30, examples=8):
    counts = {"test": test, "on": examples, "off": examples}
    return {
        str(topic): {
            part: {label: texts(topic, part, label, many) for label in LABELS} for part, many in counts.items()
        }
        for topic in range(count)
    }


def test_a_triple_does_not_come_back_before_all_were_there():
    items = draw_items(topics(), 30, 5, seed=1)
    triples = [(item.topic, *sorted((item.label_a, item.label_b))) for item in items]
    assert len(set(triples[:12])) == len(set(triples[12:24])) == 12
    assert triples[:12] != triples[12:24]
    assert len({item.text.id for item in items}) == 30
    assert [item.id for item in items] == [str(number) for number in range(30)]


def test_texts_and_examples_are_of_their_topic_label_and_arm():
    for item in draw_items(topics(), 24, 5, seed=1):
        assert item.text.id.startswith(f"{item.topic}-test-{item.label}-")
        assert list(item.examples) == ["on", "off"]
        for arm, classes in item.examples.items():
            for label, examples in zip((item.label_a, item.label_b), classes, strict=True):
                assert all(one.id.startswith(f"{item.topic}-{arm}-{label}-") for one in examples)
                assert len({one.id for one in examples}) == 5


def test_either_class_is_the_texts_with_equal_chance_and_either_label_is_class_a():
    items = draw_items(topics(count=20, test=60), 1200, 1, seed=3)
    of_a = sum(item.label == item.label_a for item in items)
    in_order = sum(item.label_a < item.label_b for item in items)
    both = sum(item.label == item.label_a and item.label_a < item.label_b for item in items)
    assert abs(of_a - 600) < 70  # four deviations
    assert abs(in_order - 600) < 70
    assert abs(both - 300) < 60, "the text's class does not depend on which label is class A"


def test_every_text_is_drawn_as_often_as_the_others():
    one = topics(count=1, test=3, examples=3)
    first = Counter(draw_items(one, 1, 1, seed=seed)[0].text.id.rpartition("-")[2] for seed in range(600))
    assert all(abs(count - 200) < 50 for count in first.values())
    examples = Counter(draw_items(one, 1, 1, seed=seed)[0].examples["off"][0][0].id[-1] for seed in range(600))
    assert all(abs(count - 200) < 50 for count in examples.values())


def test_the_seed_decides_and_more_items_begin_alike():
    assert draw_items(topics(), 20, 5, seed=1) == draw_items(topics(), 30, 5, seed=1)[:20]
    assert draw_items(topics(), 20, 5, seed=1) != draw_items(topics(), 20, 5, seed=2)


@pytest.mark.parametrize(("changes", "items", "shots", "message"), [({"count": 1, "test": 2}, 72, 5, "items=72: ")])
def test_too_few_texts(changes, items, shots, message):
    with pytest.raises(DataError, match=message):
        draw_items(topics(**changes), items, shots, seed=0)
