"""Items by lot: topics with texts of each label to triples of two labels and a topic, a text to ask about, examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dana.core.errors import DataError
from dana.core.rng import generator
from dana.studies.few_shot.items import Item, Passage


@dataclass(frozen=True)
class TopicTexts:
    """Texts of a topic, by label; no text is in two places.

    Attributes:
        topic: Its number or name.
        test: To ask about, on topic.
        examples: By arm, to show.
    """

    topic: str
    test: Mapping[str, Sequence[Passage]]
    examples: Mapping[str, Mapping[str, Sequence[Passage]]]


def draw_items(topics: Sequence[TopicTexts], items: int, shots: int, seed: int) -> list[Item]:
    """Draw items: a pair of labels and a topic, which label is class A, a text of either with equal chance, examples.

    Triples are drawn without putting back until all were there, and then anew; no text is asked about twice. More items
    begin with the same ones, and all arms of an item have the same text.

    Args:
        topics: All with the same labels and arms.
        items: How many.
        shots: Examples of each label and arm.
        seed: Root seed.

    Raises:
        DataError: If a label has too few texts in a topic.

    References:
        Roussinov and Sharoff 2023, section 4.3: 72 random triples, five random examples of each genre.
    """
    triples = [(topic, pair) for topic in topics for pair in combinations(sorted(topic.test), 2)]
    if not triples:
        raise DataError(f"items: {len(topics)} topics with texts of fewer than two labels; there is nothing to part")
    asked: set[str] = set()
    drawn: list[Item] = []
    while len(drawn) < items:
        order = generator(seed, "few-shot", "triples", len(drawn)).permutation(len(triples))
        for place in order[: items - len(drawn)]:
            topic, pair = triples[place]
            drawn.append(_item(len(drawn), topic, pair, shots, asked, generator(seed, "few-shot", "item", len(drawn))))
            asked.add(drawn[-1].text.id)
    return drawn


def _item(
    number: int, topic: TopicTexts, pair: tuple[str, str], shots: int, asked: set[str], random: np.random.Generator
) -> Item:
    label_a, label_b = pair if random.random() < 0.5 else pair[::-1]
    label = label_a if random.random() < 0.5 else label_b
    left = [text for text in topic.test[label] if text.id not in asked]
    if not left:
        all_of = f"all {len(topic.test[label])} texts to test of label {label!r} in topic {topic.topic}"
        raise DataError(f"items: {all_of} are asked about after {number} items; ask for fewer items, or test more")
    text = left[random.integers(len(left))]
    examples = {}
    for arm, of in topic.examples.items():
        examples[arm] = (_shown(of, label_a, shots, topic, random), _shown(of, label_b, shots, topic, random))
    return Item(str(number), topic.topic, label_a, label_b, text, label, examples)


def _shown(
    of: Mapping[str, Sequence[Passage]], label: str, shots: int, topic: TopicTexts, random: np.random.Generator
) -> tuple[Passage, ...]:
    """Examples of a label in an arm, without repeats."""
    if len(of[label]) < shots:
        raise DataError(f"shots={shots}: label {label!r} has {len(of[label])} texts to show in topic {topic.topic}")
    return tuple(of[label][place] for place in random.permutation(len(of[label]))[:shots])
